//! Reads named files from a folder, in place, or from a tar archive. A tar archive, plain or gzip-compressed, is read
//! as one stream without unpacking it to disk.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use loaders::stall::during;
use tar::EntryType;

use super::input;
use super::input::{Budget, Store, read_bounded};
use crate::dir::{PICTURES, has_ending};
use crate::error::Error;
use crate::text;

#[derive(Debug)]
pub(crate) struct Member {
    /// Path of the file, or path of the archive followed by the member's name.
    pub path: PathBuf,
    pub data: Store,
}

impl Member {
    pub(crate) fn whole(self) -> Result<Vec<u8>, Error> {
        self.data.whole().map_err(|e| Error::io("read", &self.path, e))
    }
}

/// The files of a published data set, and a file that identifies a different version of it.
pub(crate) struct WantedFiles<'a> {
    /// The folder in the published archive. SRC may be this folder or its parent.
    pub folder: &'a str,
    pub names: &'a [&'a str],
    /// A file of a different version of the data set. Empty if there is no such version.
    pub other: &'a str,
    /// Describes the expected files, for messages.
    pub hint: &'a str,
}

impl WantedFiles<'_> {
    /// Returns the files in the folder or archive `src`, with `None` for each missing file. If all files are missing
    /// but `other` exists, the error says that this is a different version of the data set.
    pub(crate) fn read(&self, src: &Path, budget: &mut Budget) -> Result<Vec<Option<Member>>, Error> {
        let meta = match std::fs::metadata(src) {
            Ok(meta) => meta,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(Error::missing(src, self.hint)),
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
            match Store::open(&path) {
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

struct Found {
    members: Vec<Option<Member>>,
    /// True if the file that identifies a different version of the data set exists.
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
            return Err(Error::input(src, format!("the archive contains {name} twice")));
        }
        let size = entry.size();
        let data = read_entry(&mut entry, size, src, name, budget)?;
        found.members[at] = Some(Member { path: src.join(&path), data: Store::Memory(data) });
    }
    if is_empty {
        return Err(Error::input(src, "the archive is empty; fetch it again"));
    }
    // Read to the end of the stream: gzip only checks there whether its content was complete.
    io::copy(&mut tar.into_inner(), &mut io::sink()).map_err(|e| tar_error(src, budget, e))?;
    Ok(found)
}

fn tar_error(src: &Path, budget: &Budget, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::FileTooLarge => input::read_error(src, budget, error),
        _ => {
            let what = format!(
                "cannot be read as a .tar or .tar.gz archive ({error}): a different format, or cut short; fetch it again"
            );
            Error::input(src, what)
        }
    }
}

/// Reads a member. Memory grows only with the bytes that arrive, up to the budget.
fn read_entry(entry: &mut dyn Read, size: u64, src: &Path, name: &str, budget: &mut Budget) -> Result<Vec<u8>, Error> {
    let data = read_bounded(entry, budget.left()).map_err(|e| input::read_error(src, budget, e))?;
    let data = data.ok_or_else(|| budget.exceeded(&src.join(name)))?;
    let got = data.len() as u64;
    budget.take(src, got)?;
    if got == size {
        return Ok(data);
    }
    let what = format!("cut short: {name} should have {size} bytes, but only {got} exist; fetch it again");
    Err(Error::input(src, what))
}

// Finds the positions of the members of a tar archive in one pass over its headers. The members can then be read in any
// order without unpacking. The archive may be part of a larger file.

/// Headers and contents of a tar archive start at multiples of this number.
const BLOCK: u64 = 512;

/// Magic numbers for compressed files, with the name of the compression program.
const COMPRESSION_MAGIC: [(&[u8], &str); 4] = [
    (&[0x1f, 0x8b], "gzip"),
    (&[0x28, 0xb5, 0x2f, 0xfd], "zstd"),
    (&[0xfd, b'7', b'z', b'X', b'Z'], "xz"),
    (b"BZh", "bzip2"),
];

/// Returns an error message if `head` is the start of a compressed archive.
pub(crate) fn compression_error(head: &[u8]) -> Option<String> {
    let (_, by) = COMPRESSION_MAGIC.iter().find(|(packed, _)| head.starts_with(packed))?;
    Some(format!("the archive is compressed with {by}, but archives are read in place; unpack it first (`{by} -d`)"))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TarMember {
    /// Name of the file without its folders.
    pub name: String,
    /// Position of the content in the file that contains the archive.
    pub range: Range<u64>,
}

/// Lists all files of the archive in `range` of `file`. `path` is used in messages. Returns an error if the file is not
/// a tar archive or is truncated, within a member or between two members.
pub(crate) fn list(file: &File, path: &Path, range: Range<u64>) -> Result<Vec<TarMember>, Error> {
    let mut found = Vec::new();
    walk(file, path, range, |name, range| {
        let name = name.file_name().unwrap_or_default().to_string_lossy().into_owned();
        found.push(TarMember { name, range });
        Ok(())
    })?;
    Ok(found)
}

/// Calls `visit` with each file's name and its byte range in `file`. The archive occupies `range`. Concatenated
/// archives, as from `cat a.tar b.tar`, are read as a single archive. Returns the same errors as [`list`], and errors
/// of `visit`.
pub(crate) fn walk(
    file: &File,
    path: &Path,
    range: Range<u64>,
    visit: impl FnMut(&Path, Range<u64>) -> Result<(), Error>,
) -> Result<(), Error> {
    during("reading", path, || walk_all(file, path, range, visit))
}

fn walk_all(
    file: &File,
    path: &Path,
    range: Range<u64>,
    mut visit: impl FnMut(&Path, Range<u64>) -> Result<(), Error>,
) -> Result<(), Error> {
    let length = range.end - range.start;
    let cut = |what: String| {
        Error::input(path, format!("cut short: {what}, but the archive ends after {length} bytes; fetch it again"))
    };
    let mut head = [0; 5];
    if length > 5
        && file.read_exact_at(&mut head, range.start).is_ok()
        && let Some(what) = compression_error(&head)
    {
        return Err(Error::input(path, what));
    }
    let (mut end, mut count) = (0, 0);
    let failed = |e: io::Error, at: u64| match e.kind() {
        _ if at.next_multiple_of(BLOCK) + BLOCK > length => cut(format!("a header should begin at byte {at}")),
        _ => Error::input(
            path,
            format!("no valid tar header at byte {at} ({e}); the file is damaged, compressed, or not a tar archive"),
        ),
    };
    let mut archive = tar::Archive::new(Window { file, range: range.clone(), at: 0 });
    archive.set_ignore_zeros(true);
    for entry in archive.entries_with_seek().map_err(|e| failed(e, 0))? {
        let entry = entry.map_err(|e| failed(e, end))?;
        let (start, size) = (entry.raw_file_position(), entry.size());
        let name = entry.path().map_err(|e| failed(e, end))?;
        end = start.saturating_add(size);
        if end > length {
            let name = name.file_name().unwrap_or_default().to_string_lossy();
            return Err(cut(format!("{name} needs {} from byte {start} on", text::plural(size, "byte"))));
        }
        let kind = entry.header().entry_type();
        if kind.is_file() {
            count += 1;
            visit(&name, range.start + start..range.start + end)?;
        } else if let Some(option) = dereferencing_option(kind, &name) {
            let name = name.display();
            let what =
                format!("{name} is a link, which has no content in the archive; pack it again with `tar {option}`");
            return Err(Error::input(path, what));
        }
    }
    match has_end_mark(file, &range, end) {
        true => Ok(()),
        false => Err(cut(format!("there is no end mark after {}", text::plural(count, "file")))),
    }
}

/// Returns the option with which GNU tar stores the file itself instead of this link. Returns `None` for members that are
/// not links, and for links that cannot be images or labels.
fn dereferencing_option(kind: EntryType, name: &Path) -> Option<&'static str> {
    let needed = has_ending(name, &PICTURES) || has_ending(name, &["npy", "cls", "json"]);
    match kind {
        EntryType::Link if needed => Some("--hard-dereference"),
        EntryType::Symlink if needed => Some("--dereference"),
        _ => None,
    }
}

/// Returns true if an empty block follows the last member, which ends at `end`. It is missing if the archive was
/// truncated between two members.
fn has_end_mark(file: &File, range: &Range<u64>, end: u64) -> bool {
    let mut mark = [1u8; BLOCK as usize];
    let at = range.start + end.next_multiple_of(BLOCK);
    at + BLOCK <= range.end && file.read_exact_at(&mut mark, at).is_ok() && mark.iter().all(|&b| b == 0)
}

/// A range of a file as a stream.
struct Window<'a> {
    file: &'a File,
    range: Range<u64>,
    at: u64,
}

impl Read for Window<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let left = (self.range.end - self.range.start).saturating_sub(self.at);
        let most = out.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let got = self.file.read_at(&mut out[..most], self.range.start + self.at)?;
        self.at += got as u64;
        Ok(got)
    }
}

impl Seek for Window<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => (self.range.end - self.range.start).checked_add_signed(by),
        };
        self.at = at.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.at)
    }
}
