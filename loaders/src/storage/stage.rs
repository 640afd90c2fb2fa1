//! Copies of data sets on a node's own disk, for jobs that have one (`$TMPDIR`). The caller decides which rank of a node copies, and
//! makes the others wait.
//!
//! A file appears under its name when it is complete: it is copied to a temporary name, measured, and renamed. A file with the size and
//! time of its source is not copied again, so the next run on the node copies nothing.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::format::record::masked_crc32c;
use crate::storage::dataset::{Dataset, MANIFEST};
use crate::storage::filesystem::FileSystem;
use crate::storage::shard::index_path;

/// The result of staging.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staged {
    /// The copy's folder.
    pub dir: PathBuf,
    /// Bytes copied.
    pub copied: u64,
    /// Bytes that were there already.
    pub reused: u64,
}

/// The folder of the copy of data set `from` below `under`: the name of its own folder, and a checksum of its path.
pub fn place(from: &Path, under: &Path) -> PathBuf {
    let whole = fs::canonicalize(from).unwrap_or_else(|_| from.to_owned());
    let name = whole.file_name().map_or("data".into(), |name| name.to_string_lossy().into_owned());
    let number = masked_crc32c(whole.as_os_str().as_encoded_bytes());
    under.join(format!("{name}-{number:08x}"))
}

/// Copies `dataset.json` and the shards of these splits to [`place`], creating folders as needed.
pub fn stage(from: &Path, under: &Path, splits: &[&str]) -> Result<Staged, Error> {
    let manifest = Dataset::open(from)?.manifest;
    let dir = place(from, under);
    fs::create_dir_all(&dir).map_err(Error::io("create", &dir))?;
    remove_leftovers(&dir);
    let shards = splits.iter().filter_map(|name| manifest.splits.get(*name)).flat_map(|split| &split.shards);
    let files = shards.flat_map(|shard| {
        let path = PathBuf::from(&shard.file);
        [index_path(&path), path]
    });
    // the manifest last: a folder that has it is complete
    let files: Vec<PathBuf> = files.chain([PathBuf::from(MANIFEST)]).collect();
    let (mut missing, mut staged) = (Vec::new(), Staged { dir: dir.clone(), copied: 0, reused: 0 });
    for file in &files {
        let source = fs::metadata(from.join(file)).map_err(Error::io("open", &from.join(file)))?;
        match fs::metadata(dir.join(file)) {
            Ok(copy) if copy.len() == source.len() && copy.modified().ok() == source.modified().ok() => {
                staged.reused += source.len();
            }
            _ => {
                staged.copied += source.len();
                missing.push((file, source));
            }
        }
    }
    let free = FileSystem::of(&dir).map_err(Error::io("ask for the free space of", &dir))?.free;
    fits(&dir, staged.copied, free)?;
    missing.into_iter().try_for_each(|(file, source)| copy(&from.join(file), &dir.join(file), &source))?;
    Ok(staged)
}

fn fits(dir: &Path, needed: u64, free: u64) -> Result<(), Error> {
    if needed > free { Err(Error::Space { dir: dir.to_owned(), needed, free }) } else { Ok(()) }
}

fn copy(from: &Path, to: &Path, source: &fs::Metadata) -> Result<(), Error> {
    let name = to.file_name().unwrap_or_default().to_string_lossy();
    let part = to.with_file_name(format!(".{name}{PART}{}", std::process::id()));
    let done = (|| {
        let copied = fs::copy(from, &part).map_err(Error::io("copy to the staging folder", from))?;
        if copied != source.len() {
            return Err(Error::Shard { path: from.to_owned(), what: "bytes", expected: source.len(), got: copied });
        }
        let time = source.modified().map_err(Error::io("read the time of", from))?;
        let stamp = |file: File| file.set_modified(time);
        File::options().write(true).open(&part).and_then(stamp).map_err(Error::io("finish", &part))?;
        fs::rename(&part, to).map_err(Error::io("rename to", to))
    })();
    if done.is_err() {
        // the first error is reported
        let _ = fs::remove_file(&part);
    }
    done
}

/// Stands between the name and the process number in the temporary name of an unfinished copy.
const PART: &str = ".part-";

/// Removes the unfinished copies of processes that no longer run.
fn remove_leftovers(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.rsplit_once(PART).and_then(|(_, id)| id.parse::<u32>().ok());
        if process.is_some_and(|id| !Path::new(&format!("/proc/{id}")).exists()) {
            // a leftover that cannot be removed only costs space
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_does_not_fit_is_refused_with_the_numbers() {
        assert!(fits(Path::new("/d"), 5, 5).is_ok());
        let text = fits(Path::new("/d"), 150_000_000_000, 90_000_000_000).unwrap_err().to_string();
        assert_eq!(text, "/d: the copy needs 150.0 GB, 90.0 GB are free; choose another --stage folder, or none");
    }

    #[test]
    fn only_leftovers_of_ended_processes_are_removed() {
        let dir = std::env::temp_dir().join(format!("loaders-stage-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        // process numbers end at 2^22
        let (gone, alive) = (dir.join(".a.part-4194305"), dir.join(format!(".a.part-{}", std::process::id())));
        let other = dir.join("a.tfrecord");
        [&gone, &alive, &other].iter().for_each(|path| fs::write(path, b"").unwrap());
        remove_leftovers(&dir);
        assert_eq!([&gone, &alive, &other].map(|path| path.exists()), [false, true, true]);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn data_sets_of_one_name_have_different_folders() {
        let (a, b) = (place(Path::new("/x/cifar10"), Path::new("/t")), place(Path::new("/y/cifar10"), Path::new("/t")));
        assert_ne!(a, b);
        assert!(a.display().to_string().starts_with("/t/cifar10-"));
    }
}
