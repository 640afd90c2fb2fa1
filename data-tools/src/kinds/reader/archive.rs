//! Named files of a folder, which are read in place, or of a tar archive, gzip or not, read as one stream without unpacking to disk.

use super::budget::{Budget, read_bounded};
use super::input;
use super::store::Store;
use crate::error::Error;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// One file.
#[derive(Debug)]
pub(crate) struct Member {
    /// Its path; of a member the archive's path and the member's name.
    pub path: PathBuf,
    /// Its bytes.
    pub data: Store,
}

impl Member {
    /// Its bytes, in memory.
    pub(crate) fn whole(self) -> Result<Vec<u8>, Error> {
        self.data.whole().map_err(|e| Error::io("read", &self.path, e))
    }
}

/// The files of a data set, and what tells another version of it.
pub(crate) struct Wanted<'a> {
    /// The name that the published archive unpacks to: a folder that contains it works too.
    pub folder: &'a str,
    pub names: &'a [&'a str],
    /// A file of another version of the data; empty if there is none.
    pub other: &'a str,
    /// What is expected, for messages.
    pub hint: &'a str,
}

impl Wanted<'_> {
    /// The files in the folder or archive `src`; missing ones come back as `None`.
    ///
    /// # Errors
    /// Where none of them is there but `other` is, the error says that this is another version of the data.
    pub(crate) fn read(&self, src: &Path, budget: &mut Budget) -> Result<Vec<Option<Member>>, Error> {
        let meta = match std::fs::metadata(src) {
            Ok(meta) => meta,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(Error::Missing { path: src.to_path_buf(), hint: self.hint.to_string() });
            }
            Err(e) => return Err(Error::io("read", src, e)),
        };
        let found = match meta.is_dir() {
            true => self.in_folder(src, budget)?,
            false => from_tar(src, self.names, self.other, budget)?,
        };
        if found.has_other && found.members.iter().all(Option::is_none) {
            return Err(Error::input(src, format!("this looks like the version for Python or Matlab; {}", self.hint)));
        }
        Ok(found.members)
    }

    fn in_folder(&self, src: &Path, budget: &mut Budget) -> Result<Found, Error> {
        let inner = src.join(self.folder);
        let dir = match self.names.first() {
            Some(first) if !src.join(first).is_file() && inner.is_dir() => inner,
            _ => src.to_path_buf(),
        };
        let mut members = Vec::new();
        for name in self.names {
            let path = dir.join(name);
            match Store::of(&path) {
                Ok(data) => {
                    budget.add_file(data.len());
                    members.push(Some(Member { path, data }));
                }
                Err(e) if e.kind() == io::ErrorKind::NotFound => members.push(None),
                Err(e) => return Err(Error::io("read", &path, e)),
            }
        }
        Ok(Found { members, has_other: dir.join(self.other).is_file() })
    }
}

/// The wanted files that were found.
struct Found {
    members: Vec<Option<Member>>,
    /// Whether the file of another version is there.
    has_other: bool,
}

fn from_tar(src: &Path, wanted: &[&str], other: &str, budget: &mut Budget) -> Result<Found, Error> {
    let mut tar = tar::Archive::new(input::open(src, budget)?);
    let mut found = Found { members: wanted.iter().map(|_| None).collect(), has_other: false };
    let mut is_empty = true;
    for entry in tar.entries().map_err(|e| tar_error(src, budget, e))? {
        let mut entry = entry.map_err(|e| tar_error(src, budget, e))?;
        is_empty = false;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let path = entry.path().map_err(|e| tar_error(src, budget, e))?.into_owned();
        let Some(name) = path.file_name().and_then(|n| n.to_str()) else {
            continue;
        };
        found.has_other |= name == other;
        let Some(at) = wanted.iter().position(|w| *w == name) else {
            continue;
        };
        if found.members[at].is_some() {
            return Err(Error::input(src, format!("holds {name} twice")));
        }
        let size = entry.size();
        let data = read_entry(&mut entry, size, src, name, budget)?;
        found.members[at] = Some(Member { path: src.join(&path), data: Store::Memory(data) });
    }
    if is_empty {
        return Err(Error::input(src, "is an empty archive; fetch it again"));
    }
    // To the end of the stream: only there gzip reports whether its content was complete.
    io::copy(&mut tar.into_inner(), &mut io::sink()).map_err(|e| tar_error(src, budget, e))?;
    Ok(found)
}

fn tar_error(src: &Path, budget: &Budget, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::FileTooLarge => input::read_error(src, budget, error),
        _ => {
            let what =
                format!("cannot be read as a .tar or .tar.gz archive ({error}): not one, or cut short; fetch it again");
            Error::input(src, what)
        }
    }
}

/// Reads one member; memory grows with the bytes that arrive, up to the budget.
fn read_entry(entry: &mut dyn Read, size: u64, src: &Path, name: &str, budget: &mut Budget) -> Result<Vec<u8>, Error> {
    let data = read_bounded(entry, budget.left()).map_err(|e| input::read_error(src, budget, e))?;
    let data = data.ok_or_else(|| budget.exceeded(&src.join(name)))?;
    let got = data.len() as u64;
    budget.take(src, got)?;
    if got == size {
        return Ok(data);
    }
    let what = format!("cut short: the archive says that {name} takes {size} bytes, {got} are there; fetch it again");
    Err(Error::input(src, what))
}
