//! Copies data sets to a node's own disk, for jobs that have one (`$TMPDIR`). The caller decides which rank of a node
//! copies, and makes the other ranks wait.
//!
//! The copies are in a directory that only this user can access, because in `/tmp` another user could create a
//! directory with the expected name. A file gets its final name only when it is complete. For each file, the list
//! `COPIES` in the same directory records a checksum of the copy, and the size and time of the source. A later run on
//! the node reuses a copy if the source still has this size and time, and the copy's bytes still have this checksum.

use std::collections::HashSet;
use std::fs::{self, File, Metadata};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::crc32c::crc32c_append;
use crate::error::Error;
use crate::file::{private, regular, safe_create};
use crate::format::record::masked_crc32c;
use crate::storage::dataset::{Dataset, MANIFEST};
use crate::storage::filesystem::FileSystem;
use crate::storage::shard::index_path;

/// The list of copies in a directory. It is locked while the directory is in use.
const COPIES: &str = "copies.jsonl";

/// Number of bytes that are read at a time.
const BLOCK: usize = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageSummary {
    pub dir: PathBuf,
    /// Number of bytes that were copied.
    pub copied: u64,
    /// Number of bytes in copies of earlier runs that are still valid.
    pub reused: u64,
}

/// A line of [`COPIES`]. If a file has multiple lines, the last one is valid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct CopyRecord {
    file: String,
    /// Size of the source when it was copied. `modified` is its modification time in seconds and nanoseconds.
    bytes: u64,
    modified: (i64, i64),
    /// CRC-32C of the source's bytes.
    crc: u32,
}

impl CopyRecord {
    /// Returns true if the size and time of the source have not changed since it was copied. This does not read the
    /// source.
    fn is_of(&self, source: &Metadata) -> bool {
        (self.bytes, self.modified) == (source.len(), (source.mtime(), source.mtime_nsec()))
    }
}

/// Returns this user's directory below `under`.
fn user_folder(under: &Path) -> PathBuf {
    under.join(format!("trireme-{}", rustix::process::geteuid().as_raw()))
}

/// Returns the directory below `under` for a copy of the data set `from`. It is in this user's directory. Its name
/// consists of the name of the data set's directory and a checksum of the full path.
pub fn place(from: &Path, under: &Path) -> PathBuf {
    let whole = fs::canonicalize(from).unwrap_or_else(|_| from.to_owned());
    let name = whole.file_name().map_or("data".into(), |name| name.to_string_lossy().into_owned());
    let number = masked_crc32c(whole.as_os_str().as_encoded_bytes());
    user_folder(under).join(format!("{name}-{number:08x}"))
}

/// Copies `dataset.json` and the shards of these splits to [`place`], and creates directories as needed.
///
/// # Errors
///
/// Returns an error if there is not enough space, if this user's directory belongs to another user or is accessible to
/// other users, or if a copy differs when it is read back.
pub fn stage(from: &Path, under: &Path, splits: &[&str]) -> Result<StageSummary, Error> {
    let manifest = Dataset::open(from)?.manifest;
    fs::create_dir_all(under).map_err(Error::io("create", under))?;
    let dir = place(from, under);
    private::make(&user_folder(under))?;
    private::make(&dir)?;
    let mut copies = Copies::open(&dir)?;
    let shards = splits.iter().filter_map(|name| manifest.splits.get(*name)).flat_map(|split| &split.shards);
    let files = shards.flat_map(|shard| [index_path(Path::new(&shard.file)).display().to_string(), shard.file.clone()]);
    // Copy the manifest last: a directory that has it is complete.
    let files = files.chain([MANIFEST.to_string()]);
    let (mut missing, mut staged) = (Vec::new(), StageSummary { dir: dir.clone(), copied: 0, reused: 0 });
    let (mut seen, mut room) = (HashSet::new(), SpaceTracker::default());
    for file in files {
        // Splits may share shards, and the same split may be requested twice.
        if !seen.insert(file.clone()) {
            continue;
        }
        let source = fs::metadata(from.join(&file)).map_err(Error::io("open", &from.join(&file)))?;
        if copies.has(from, &file, &source)? {
            staged.reused += source.len();
        } else {
            staged.copied += source.len();
            room.replace(fs::symlink_metadata(dir.join(&file)).map_or(0, |old| old.len()), source.len());
            missing.push((file, source));
        }
    }
    let free = FileSystem::of(&dir).map_err(Error::io("determine the free space of", &dir))?.free;
    fits(&dir, room.most, free)?;
    missing.into_iter().try_for_each(|(file, source)| copies.add(from, file, &source))?;
    Ok(staged)
}

/// Tracks how much additional space the copies need while new files replace old ones. If a run has mapped an old file,
/// its space is freed later. The disk may then fill up, copying fails, and the message says so.
#[derive(Debug, Default)]
struct SpaceTracker {
    now: i64,
    most: u64,
}

impl SpaceTracker {
    /// Counts the replacement of a file of `old` bytes by one of `new` bytes. For a moment both exist, because the new
    /// file is complete before the old one is removed.
    fn replace(&mut self, old: u64, new: u64) {
        let both = self.now.saturating_add_unsigned(new);
        self.most = self.most.max(both.max(0) as u64);
        self.now = both.saturating_sub_unsigned(old);
    }
}

fn fits(dir: &Path, needed: u64, free: u64) -> Result<(), Error> {
    if needed > free { Err(Error::Space { dir: dir.to_owned(), needed, free }) } else { Ok(()) }
}

/// The copies in a directory, locked against other processes.
struct Copies {
    dir: PathBuf,
    list: File,
    known: Vec<CopyRecord>,
}

impl Copies {
    /// Waits until no other process uses the directory.
    fn open(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(COPIES);
        let mut list = safe_create::to_append(&path).map_err(Error::io("open", &path))?;
        // If the file system has no locks, the user must not stage twice at the same time.
        let alone = list.lock().is_ok();
        if alone {
            safe_create::remove_leftovers(dir).map_err(Error::io("remove incomplete files in", dir))?;
        }
        let mut text = String::new();
        // If the file is not valid UTF-8, trireme did not write it. Then everything is copied.
        let _ = list.read_to_string(&mut text);
        let known = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        Ok(Self { dir: dir.to_owned(), list, known })
    }

    /// Returns true if the copy exists and matches its source. Shards are compared by the size and time of the source
    /// and the checksum of the copy. For `dataset.json` and indexes, which are small, the bytes of the source are
    /// compared too.
    fn has(&self, from: &Path, file: &str, source: &Metadata) -> Result<bool, Error> {
        let Some(copy) = self.known.iter().rev().find(|copy| copy.file == file) else { return Ok(false) };
        let there = self.dir.join(file);
        let is_whole = fs::symlink_metadata(&there).is_ok_and(|meta| meta.is_file() && meta.len() == copy.bytes);
        if !copy.is_of(source) || !is_whole || checksum(&there)? != copy.crc {
            return Ok(false);
        }
        let is_shard = file != MANIFEST && !file.ends_with(".idx");
        Ok(is_shard || checksum(&from.join(file))? == copy.crc)
    }

    /// Copies a file, then reads the copy back and compares the checksums.
    fn add(&mut self, from: &Path, file: String, source: &Metadata) -> Result<(), Error> {
        let (from, to) = (from.join(&file), self.dir.join(&file));
        let mut new = safe_create::NewFile::beside(&to).map_err(Error::io("create", &to))?;
        let mut reader = regular::open(&from).map_err(Error::io("open", &from))?;
        let target = new.file().map_err(Error::io("create", &to))?;
        let mut copied = 0;
        let crc = blocks(&mut reader, &from, |block| {
            copied += block.len() as u64;
            target.write_all(block).map_err(Error::io("copy to the staging folder", &to))
        })?;
        if copied != source.len() {
            return Err(Error::SizeChanged { path: from, expected: source.len(), got: copied });
        }
        target.rewind().map_err(Error::io("read", &to))?;
        let got = blocks(target, &to, |_| Ok(()))?;
        if got != crc {
            return Err(Error::BadCopy { path: to, expected: crc, got });
        }
        // Keep the source's time: an index that is older than its shard is checked against more records.
        let time = source.modified().map_err(Error::io("read the modification time of", &from))?;
        target.set_modified(time).map_err(Error::io("set the modification time of", &to))?;
        new.publish_unsynced().map_err(Error::io("rename the new copy to", &to))?;
        self.note(CopyRecord { file, bytes: copied, modified: (source.mtime(), source.mtime_nsec()), crc })
    }

    fn note(&mut self, copy: CopyRecord) -> Result<(), Error> {
        let mut line = serde_json::to_string(&copy).unwrap_or_default();
        line.push('\n');
        self.known.push(copy);
        self.list.write_all(line.as_bytes()).map_err(Error::io("write", &self.dir.join(COPIES)))
    }
}

/// Returns the CRC-32C of a file.
fn checksum(path: &Path) -> Result<u32, Error> {
    let mut file = regular::open(path).map_err(Error::io("open", path))?;
    blocks(&mut file, path, |_| Ok(()))
}

/// Reads `file` to its end, passes each block to `each`, and returns the CRC-32C of all bytes.
fn blocks(file: &mut File, path: &Path, mut each: impl FnMut(&[u8]) -> Result<(), Error>) -> Result<u32, Error> {
    let (mut block, mut crc) = (vec![0; BLOCK], 0);
    loop {
        let read = file.read(&mut block).map_err(Error::io("read", path))?;
        if read == 0 {
            return Ok(crc);
        }
        crc = crc32c_append(crc, &block[..read]);
        each(&block[..read])?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::manifest::{Manifest, ShardManifest, SplitManifest};

    #[test]
    fn a_copy_that_does_not_fit_is_refused_with_the_numbers() {
        assert!(fits(Path::new("/d"), 5, 5).is_ok());
        let text = fits(Path::new("/d"), 150_000_000_000, 90_000_000_000).unwrap_err().to_string();
        assert!(["/d: ", "150.0 GB", "90.0 GB", "--stage"].iter().all(|part| text.contains(part)), "{text}");
    }

    #[test]
    fn replacing_copies_needs_space_for_one_more_file() {
        let most = |files: &[(u64, u64)]| {
            let mut room = SpaceTracker::default();
            files.iter().for_each(|&(old, new)| room.replace(old, new));
            room.most
        };
        assert_eq!(most(&[(0, 5), (0, 7)]), 12);
        assert_eq!(most(&[(5, 5), (7, 7), (6, 6)]), 7);
        assert_eq!(most(&[(5, 1), (0, 3), (0, 9)]), 8);
        assert_eq!(most(&[]), 0);
    }

    #[test]
    fn data_sets_with_equal_names_get_different_folders_per_user() {
        let (a, b) = (place(Path::new("/x/cifar10"), Path::new("/t")), place(Path::new("/y/cifar10"), Path::new("/t")));
        assert_ne!(a, b);
        let user = rustix::process::geteuid().as_raw();
        assert!(a.display().to_string().starts_with(&format!("/t/trireme-{user}/cifar10-")), "{}", a.display());
    }

    /// Creates a data set with one shard. Its content is not a valid record, because only the bytes matter here.
    fn data(root: &Path) -> PathBuf {
        let from = root.join("data");
        fs::create_dir_all(&from).unwrap();
        fs::write(from.join("train.tfrecord"), vec![7; 3 * BLOCK + 5]).unwrap();
        fs::write(from.join("train.tfrecord.idx"), "0 17\n").unwrap();
        let shard = ShardManifest { file: "train.tfrecord".into(), count: 1, bytes: 3 * BLOCK as u64 + 5 };
        let split = SplitManifest { count: 1, shards: vec![shard], ..SplitManifest::default() };
        let manifest = Manifest {
            version: crate::storage::dataset::VERSION,
            classes: vec!["a".into()],
            mean: vec![0.0],
            std: vec![1.0],
            splits: [("train".to_string(), split)].into(),
            ..Manifest::default()
        };
        manifest.write(&from).unwrap();
        from
    }

    #[test]
    fn a_staged_copy_is_reused_only_if_it_equals_the_source() {
        let root = std::env::temp_dir().join(format!("loaders-stage-{}", std::process::id()));
        let (from, under) = (data(&root), root.join("under"));
        let first = stage(&from, &under, &["train"]).unwrap();
        assert_eq!((first.reused, first.dir.clone()), (0, place(&from, &under)));
        let all = first.copied;
        let again = |what: &str| {
            let staged = stage(&from, &under, &["train"]).unwrap();
            assert_eq!(staged.copied + staged.reused, all, "{what}");
            for file in ["train.tfrecord", "train.tfrecord.idx", MANIFEST] {
                assert_eq!(
                    fs::read(from.join(file)).unwrap(),
                    fs::read(staged.dir.join(file)).unwrap(),
                    "{what}: {file}"
                );
            }
            staged.copied
        };
        assert_eq!(again("nothing changed"), 0);
        let twice = stage(&from, &root.join("other"), &["train", "train"]).unwrap();
        assert_eq!((twice.copied, twice.reused), (all, 0), "a split that is named twice");
        let shard = first.dir.join("train.tfrecord");
        let time = fs::metadata(&shard).unwrap().modified().unwrap();
        let mut other = fs::read(&shard).unwrap();
        other[BLOCK] ^= 1;
        fs::write(&shard, other).unwrap();
        File::options().write(true).open(&shard).unwrap().set_modified(time).unwrap();
        assert_eq!(again("other bytes of the same size and time"), 3 * BLOCK as u64 + 5);
        // The source changes, but keeps its size and time.
        let json = fs::read_to_string(from.join(MANIFEST)).unwrap();
        let time = fs::metadata(from.join(MANIFEST)).unwrap().modified().unwrap();
        fs::write(from.join(MANIFEST), json.replace("\"a\"", "\"b\"")).unwrap();
        File::options().write(true).open(from.join(MANIFEST)).unwrap().set_modified(time).unwrap();
        assert_eq!(again("a class has another name"), json.len() as u64);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_file_that_grows_while_it_is_copied_is_named() {
        let root = std::env::temp_dir().join(format!("loaders-stage-grows-{}", std::process::id()));
        let (from, dir) = (data(&root), root.join("copies"));
        fs::create_dir_all(&dir).unwrap();
        // The test uses the index's metadata as the earlier state of dataset.json.
        let before = fs::metadata(from.join("train.tfrecord.idx")).unwrap();
        let error = Copies::open(&dir).unwrap().add(&from, MANIFEST.to_string(), &before).unwrap_err();
        let size = fs::metadata(from.join(MANIFEST)).unwrap().len();
        assert!(
            matches!(&error, Error::SizeChanged { path, expected: 5, got } if *path == from.join(MANIFEST) && *got == size),
            "{error}"
        );
        fs::remove_dir_all(root).unwrap();
    }
}
