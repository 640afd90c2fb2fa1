//! Creates all files of this program. This is safe even in directories that other users can write to: it never follows
//! a link that another user has put there, and files are complete or do not exist.
//!
//! All crates create their files with these functions, which is why they are in the crate that all other crates depend
//! on. A [`NewFile`] has a random name in the directory of its target until it is complete. [`to_append`] and
//! [`to_update`] open logs that grow in place and lock files. They accept a regular file without other hard links, or
//! create one.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::crc32c::crc32c;
use crate::error::folder_of;

/// Permissions for a file that only the owner can access.
const PRIVATE: u32 = 0o600;
/// Number of digits in the random part of a temporary name.
const DIGITS: usize = 16;
/// Maximum length of a file name in bytes on nearly all file systems.
pub const LONGEST_NAME: usize = 255;
/// Maximum number of bytes that a temporary name takes from the target's name.
const NAME: usize = 200;
/// Maximum number of names to try. A second name is needed only if someone guesses 64 random bits.
const TRIES: usize = 8;

/// A file with a temporary name in the directory of its target. [`NewFile::publish`] renames it to the target. Dropping
/// it removes the file.
#[derive(Debug)]
pub struct NewFile {
    /// `None` after the file was published.
    file: Option<File>,
    temporary: PathBuf,
    target: PathBuf,
}

impl NewFile {
    /// Creates the file in the directory of `target`, with the default permissions.
    pub fn beside(target: &Path) -> io::Result<Self> {
        Self::create_with(create_new, target)
    }

    /// Works like [`Self::beside`], for a file that only this user can open.
    pub fn private(target: &Path) -> io::Result<Self> {
        Self::create_with(create_private, target)
    }

    fn create_with(create: fn(&Path) -> io::Result<File>, target: &Path) -> io::Result<Self> {
        let no_name = || io::Error::new(io::ErrorKind::InvalidInput, "the path does not end with a file name");
        let name = target.file_name().ok_or_else(no_name)?;
        let mut refused = no_name();
        for _ in 0..TRIES {
            let temporary = target.with_file_name(temporary_name(name));
            match create(&temporary) {
                Ok(file) => return Ok(Self { file: Some(file), temporary, target: target.to_path_buf() }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => refused = error,
                Err(error) => return Err(error),
            }
        }
        Err(refused)
    }

    /// Returns the open file, for reading and writing.
    pub fn file(&mut self) -> io::Result<&mut File> {
        self.file.as_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Returns a path for libraries that open files by name. It refers to the open file itself, so other users cannot
    /// replace the file. Without `/proc`, it is the temporary name.
    pub fn name(&self) -> PathBuf {
        let open = self.file.as_ref().map(|file| PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())));
        open.filter(|path| path.exists()).unwrap_or_else(|| self.temporary.clone())
    }

    /// Syncs the file, renames it to the target, replacing any old file, and syncs the directory. Returns the open
    /// file.
    pub fn publish(mut self) -> io::Result<File> {
        self.file()?.sync_all()?;
        let target = self.target.clone();
        let file = self.publish_unsynced()?;
        sync_folder(&target)?;
        Ok(file)
    }

    /// Works like [`NewFile::publish`], but does not wait for the disk. Use it for files that can be created again and
    /// are checked before use.
    pub fn publish_unsynced(mut self) -> io::Result<File> {
        fs::rename(&self.temporary, &self.target)?;
        self.file.take().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if self.file.is_some() {
            // The failure itself is reported elsewhere. A file that is left over only uses space.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// Creates a file that must not exist yet, for reading and writing.
pub fn create_new(path: &Path) -> io::Result<File> {
    // O_EXCL does not follow a link at the end of the path.
    OpenOptions::new().read(true).write(true).create_new(true).custom_flags(libc::O_NOFOLLOW).open(path)
}

/// Works like [`create_new`], for a file that only this user can open, regardless of the umask.
pub fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(PRIVATE).custom_flags(libc::O_NOFOLLOW).open(path)
}

/// Opens a file that an earlier run of trireme may have written, for reading and writing. Returns `None` if it does
/// not exist.
///
/// # Errors
///
/// Returns an error for a link, for a file that has a second name (hard link), and for anything that is not a regular
/// file.
pub fn open_own(path: &Path) -> io::Result<Option<File>> {
    // O_NONBLOCK: opening a FIFO does not block.
    open_checked(OpenOptions::new().read(true).write(true), path)
}

/// Opens a file for appending, or creates it.
///
/// # Errors
///
/// Returns the same errors as [`open_own`].
pub fn to_append(path: &Path) -> io::Result<File> {
    open_or_create(path, || open_checked(OpenOptions::new().read(true).append(true), path), create_new)
}

/// Opens a file for reading and for changes in place, or creates it.
///
/// # Errors
///
/// Returns the same errors as [`open_own`].
pub fn to_update(path: &Path) -> io::Result<File> {
    open_or_create(path, || open_own(path), create_new)
}

/// Works like [`to_update`], for a file that only this user can open.
pub fn to_update_private(path: &Path) -> io::Result<File> {
    open_or_create(path, || open_own(path), create_private)
}

fn open_or_create(
    path: &Path,
    open: impl Fn() -> io::Result<Option<File>>,
    create: impl Fn(&Path) -> io::Result<File>,
) -> io::Result<File> {
    for _ in 0..TRIES {
        if let Some(file) = open()? {
            return Ok(file);
        }
        match create(path) {
            // The next iteration opens the new file with `open`, which checks it and may open it for appending.
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("another process keeps creating and removing it"))
}

fn open_checked(options: &mut OpenOptions, path: &Path) -> io::Result<Option<File>> {
    let refuse = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    let file = match options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => {
            return refuse("it is a symbolic link, which is not followed; remove it".into());
        }
        Err(error) => return Err(error),
    };
    let meta = file.metadata()?;
    match (meta.is_file(), meta.nlink()) {
        (false, _) => refuse("it is not a regular file".into()),
        // The file was removed after it was opened.
        (true, 0) => Ok(None),
        (true, 1) => Ok(Some(file)),
        (true, names) => refuse(format!(
            "the file has {names} names (hard links), so writing to it could change another file; remove this name"
        )),
    }
}

/// Returns true if the open file is still the file at `path`.
pub fn is_at(file: &File, path: &Path) -> bool {
    let same = |(a, b): (fs::Metadata, fs::Metadata)| (a.dev(), a.ino()) == (b.dev(), b.ino());
    file.metadata().ok().zip(fs::symlink_metadata(path).ok()).is_some_and(same)
}

/// If the name is the temporary name of a [`NewFile`], returns the name of its target.
pub fn target_of(temporary: &OsStr) -> Option<&OsStr> {
    let inner = temporary.as_bytes().strip_prefix(b".")?.strip_suffix(b".tmp")?;
    let (name, digits) = inner.split_at_checked(inner.len().checked_sub(DIGITS)?)?;
    let name = name.strip_suffix(b".")?;
    (!name.is_empty() && digits.iter().all(u8::is_ascii_hexdigit)).then(|| OsStr::from_bytes(name))
}

/// Removes incomplete files that killed processes have left in a directory. No other process may be writing there.
pub fn remove_leftovers(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if target_of(&entry.file_name()).is_some() && entry.file_type()?.is_file() {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Makes the directory entry of a file durable.
fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(folder_of(path))?.sync_all()
}

fn temporary_name(name: &OsStr) -> OsString {
    let mut temporary = OsString::from(".");
    temporary.push(beginning(name, NAME));
    temporary.push(format!(".{}.tmp", random_digits()));
    temporary
}

/// Returns at most `most` bytes from the beginning of a name. Does not cut a UTF-8 character, because some file systems
/// refuse names that are not UTF-8.
fn beginning(name: &OsStr, most: usize) -> &OsStr {
    let bytes = name.as_bytes();
    let mut end = bytes.len().min(most);
    while bytes.get(end).is_some_and(|byte| byte & 0xc0 == 0x80) && end > 0 {
        end -= 1;
    }
    OsStr::from_bytes(&bytes[..end])
}

/// Returns `name` if it has at most `most` bytes. Otherwise returns its beginning with its checksum, in at most `most`
/// bytes.
pub(crate) fn short_name(name: &OsStr, most: usize) -> OsString {
    if name.len() <= most {
        return name.to_os_string();
    }
    let checksum = format!(".{:08x}", crc32c(name.as_bytes()));
    let mut short = beginning(name, most.saturating_sub(checksum.len())).to_os_string();
    short.push(checksum);
    short
}

/// Returns 64 random bits in hexadecimal. They come from the random keys of the standard library's hasher.
pub fn random_digits() -> String {
    let word = RandomState::new().hash_one(std::process::id());
    format!("{word:0DIGITS$x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("loaders-create-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn names(folder: &Path) -> Vec<OsString> {
        let mut names: Vec<OsString> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_new_file_appears_only_when_complete() {
        let folder = folder("whole");
        let target = folder.join("a");
        let mut new = NewFile::beside(&target).unwrap();
        new.file().unwrap().write_all(b"half").unwrap();
        assert_eq!(fs::read(new.name()).unwrap(), b"half");
        let own = names(&folder);
        assert_eq!(own.iter().map(|name| target_of(name)).collect::<Vec<_>>(), [Some(OsStr::new("a"))]);
        drop(new);
        assert_eq!(names(&folder).len(), 0);
        let mut new = NewFile::beside(&target).unwrap();
        new.file().unwrap().write_all(b"one").unwrap();
        new.publish().unwrap();
        assert_eq!((fs::read(&target).unwrap(), names(&folder).len()), (b"one".to_vec(), 1));
        let plain = File::create(folder.join("plain")).unwrap().metadata().unwrap();
        assert_eq!(fs::metadata(&target).unwrap().permissions().mode(), plain.permissions().mode());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn private_files_have_mode_600() {
        let folder = folder("private");
        let update = to_update_private(&folder.join("lock")).unwrap();
        let mut new = NewFile::private(&folder.join("new")).unwrap();
        for file in [&update, new.file().unwrap()] {
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
        drop(new);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn symbolic_links_are_not_followed() {
        let folder = folder("links");
        let victim = folder.join("victim");
        fs::write(&victim, "precious").unwrap();
        let link = folder.join("link");
        symlink(&victim, &link).unwrap();
        assert_eq!(create_new(&link).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(to_append(&link).unwrap_err().to_string().contains("symbolic link"));
        assert!(to_update(&link).unwrap_err().to_string().contains("symbolic link"));
        // A link to a file that does not exist.
        symlink(folder.join("nothing"), folder.join("empty")).unwrap();
        assert!(to_append(&folder.join("empty")).is_err() && !folder.join("nothing").exists());
        fs::hard_link(&victim, folder.join("second")).unwrap();
        assert!(to_append(&folder.join("second")).unwrap_err().to_string().contains("2 names"));
        let mut new = NewFile::beside(&link).unwrap();
        new.file().unwrap().write_all(b"new").unwrap();
        new.publish().unwrap();
        assert_eq!((fs::read(&victim).unwrap(), fs::read(&link).unwrap()), (b"precious".to_vec(), b"new".to_vec()));
        assert!(open_own(&folder.join("absent")).unwrap().is_none());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn to_append_writes_at_the_end() {
        let folder = folder("log");
        let log = folder.join("log");
        for line in ["one\n", "two\n"] {
            to_append(&log).unwrap().write_all(line.as_bytes()).unwrap();
        }
        assert_eq!(fs::read(&log).unwrap(), b"one\ntwo\n");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn long_names_are_cut_and_stay_different() {
        let short = |name: &str| short_name(OsStr::new(name), 20).into_string().unwrap();
        assert_eq!(short("exactly twenty bytes"), "exactly twenty bytes");
        let names = ["a name of many bytes 1", "a name of many bytes 2", "a names éé of many bytes"].map(short);
        assert_eq!(names.each_ref().map(String::len), [20, 20, 19]);
        assert!(names[0].starts_with("a name of m.") && names[2].starts_with("a names é."), "{names:?}");
        assert_ne!(names[0], names[1]);
    }

    #[test]
    fn only_own_temporary_names_count_as_leftovers() {
        let folder = folder("left");
        let left = temporary_name(OsStr::new("model.h5"));
        assert_eq!(target_of(&left), Some(OsStr::new("model.h5")));
        assert_eq!(target_of(&temporary_name(OsStr::from_bytes(&[b'x'; 255]))).unwrap().len(), NAME);
        // byte 200 is the second byte of a character
        let long = format!("x{}", "é".repeat(120));
        let cut = target_of(&temporary_name(OsStr::new(&long))).unwrap().to_os_string();
        assert_eq!(cut.to_str(), Some(&long[..NAME - 1]));
        let others = [".model.h5.tmp", "notes.tmp", ".0123456789abcdef.tmp", ".a.0123456789abcdeg.tmp", "a"];
        assert!(others.iter().all(|name| target_of(OsStr::new(name)).is_none()));
        fs::write(folder.join(&left), "").unwrap();
        others.iter().for_each(|name| fs::write(folder.join(name), "").unwrap());
        remove_leftovers(&folder).unwrap();
        assert_eq!(names(&folder).len(), others.len());
        fs::remove_dir_all(folder).unwrap();
    }
}
