//! Creates a directory that only this user can read and write, below a directory that other users may write to, such as
//! `/tmp`.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::error::{Error, folder_of};

/// Write permissions for everyone and for the group, and the sticky bit. In a directory with the sticky bit, users
/// cannot rename or remove files of other users.
const EVERYBODY: u32 = 0o002;
const GROUP: u32 = 0o020;
const STICKY: u32 = 0o1000;
/// All permissions of group and others.
const OTHERS: u32 = 0o077;

/// Advice for problems that the user cannot solve in the directory itself.
const CHOOSE_ANOTHER: &str = "choose another --stage folder, or omit --stage";

/// Creates `folder` for this user only, if it does not exist. Its parent must exist.
///
/// # Errors
///
/// Returns an error if the directory is a link, belongs to another user, is accessible to other users, or replaceable
/// by them.
pub(crate) fn make(folder: &Path) -> Result<(), Error> {
    let parent = folder_of(folder);
    let mode = fs::metadata(parent).map_err(Error::io("open", parent))?.mode();
    if mode & (EVERYBODY | GROUP) != 0 && mode & STICKY == 0 {
        let who = if mode & EVERYBODY != 0 { "everyone" } else { "its group" };
        let problem = format!(
            "{who} can replace folders in it, because it has no sticky bit; set the bit with `chmod +t`, or {CHOOSE_ANOTHER}"
        );
        return Err(Error::NotPrivate { dir: parent.to_owned(), problem });
    }
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(Error::io("create", folder)(error)),
        _ => {}
    }
    let refuse = |problem: String| Err(Error::NotPrivate { dir: folder.to_owned(), problem });
    let without_links = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let opened = match OpenOptions::new().read(true).custom_flags(without_links).open(folder) {
        Ok(opened) => opened,
        Err(error) if matches!(error.raw_os_error(), Some(libc::ELOOP | libc::ENOTDIR)) => {
            let is_link = fs::symlink_metadata(folder).is_ok_and(|meta| meta.is_symlink());
            let kind = if is_link { "link" } else { "file" };
            return refuse(format!("it is a {kind}, not a folder; {CHOOSE_ANOTHER}"));
        }
        Err(error) => return Err(Error::io("open", folder)(error)),
    };
    // Check the opened directory, because the name may refer to another one by now.
    let meta = opened.metadata().map_err(Error::io("open", folder))?;
    let me = rustix::process::geteuid().as_raw();
    match (meta.uid() == me, meta.mode() & OTHERS) {
        (false, _) => refuse(format!("it belongs to user {}, not to you (user {me}); {CHOOSE_ANOTHER}", meta.uid())),
        (true, 0) => Ok(()),
        (true, _) => refuse(format!(
            "other users can access it (mode {:o}), so its content cannot be trusted; remove this folder, or omit --stage",
            meta.mode() & 0o777
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn folders_that_others_own_or_can_write_are_refused() {
        let parent = std::env::temp_dir().join(format!("loaders-private-{}", std::process::id()));
        fs::create_dir_all(&parent).unwrap();
        // A umask of 002 would let the group write.
        fs::set_permissions(&parent, fs::Permissions::from_mode(0o755)).unwrap();
        let own = parent.join("own");
        make(&own).unwrap();
        make(&own).unwrap();
        assert_eq!(fs::metadata(&own).unwrap().mode() & 0o777, 0o700);
        // Asserts that `make(folder)` fails because the directory `wrong` is not private, and that the problem contains
        // `part`.
        let refused = |folder: &Path, wrong: &Path, part: &str| match make(folder).unwrap_err() {
            Error::NotPrivate { dir, problem } if dir == wrong => assert!(problem.contains(part), "{problem}"),
            other => panic!("not the error of {}: {other}", wrong.display()),
        };
        let (link, file) = (parent.join("link"), parent.join("file"));
        symlink(&own, &link).unwrap();
        refused(&link, &link, "a link");
        fs::write(&file, "").unwrap();
        refused(&file, &file, "a file");
        fs::set_permissions(&own, fs::Permissions::from_mode(0o750)).unwrap();
        refused(&own, &own, "mode 750");
        fs::set_permissions(&own, fs::Permissions::from_mode(0o700)).unwrap();
        fs::set_permissions(&parent, fs::Permissions::from_mode(0o777)).unwrap();
        refused(&own, &parent, "everyone can replace");
        fs::set_permissions(&parent, fs::Permissions::from_mode(0o775)).unwrap();
        refused(&own, &parent, "its group can");
        fs::set_permissions(&parent, fs::Permissions::from_mode(0o1777)).unwrap();
        make(&own).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&own, Some(12_345), None).unwrap();
            refused(&own, &own, "user 12345");
        }
        fs::remove_dir_all(parent).unwrap();
    }
}
