//! The positions of the members of a tar archive: one pass over its headers, after which they can be read in any order
//! without unpacking. The archive may itself be a range of a larger file.

use crate::error::Error;
use crate::text;
use loaders::stall::during;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Headers and contents of a tar archive start at multiples of this.
const BLOCK: u64 = 512;

/// Magic numbers for compressed files, with the name of the compression program.
const PACKED: [(&[u8], &str); 4] = [
    (&[0x1f, 0x8b], "gzip"),
    (&[0x28, 0xb5, 0x2f, 0xfd], "zstd"),
    (&[0xfd, b'7', b'z', b'X', b'Z'], "xz"),
    (b"BZh", "bzip2"),
];

/// Returns an error message if `head` is the start of a compressed archive.
pub(crate) fn compressed(head: &[u8]) -> Option<String> {
    let (_, by) = PACKED.iter().find(|(packed, _)| head.starts_with(packed))?;
    Some(format!("it is compressed by {by}, and archives are read in place: unpack it first (`{by} -d`)"))
}

/// A file in an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    /// Its name, without folders.
    pub name: String,
    /// Where its bytes are in the file that holds the archive.
    pub range: Range<u64>,
}

/// All files of the archive in `range` of `file`; `path` is for messages.
///
/// # Errors
/// A file that is no tar archive, or one that is cut short, in a member or between two.
pub(crate) fn list(file: &File, path: &Path, range: Range<u64>) -> Result<Vec<Member>, Error> {
    let mut found = Vec::new();
    walk(file, path, range, |name, range| {
        let name = name.file_name().unwrap_or_default().to_string_lossy().into_owned();
        found.push(Member { name, range });
        Ok(())
    })?;
    Ok(found)
}

/// Calls `see` with each file's name and its byte range in `file`. The archive occupies `range`. Concatenated archives, as from `cat a.tar
/// b.tar`, are read as a single archive.
///
/// # Errors
/// As [`list`], and those of `see`.
pub(crate) fn walk(
    file: &File,
    path: &Path,
    range: Range<u64>,
    see: impl FnMut(&Path, Range<u64>) -> Result<(), Error>,
) -> Result<(), Error> {
    during("reading", path, || walk_all(file, path, range, see))
}

fn walk_all(
    file: &File,
    path: &Path,
    range: Range<u64>,
    mut see: impl FnMut(&Path, Range<u64>) -> Result<(), Error>,
) -> Result<(), Error> {
    let length = range.end - range.start;
    let cut = |what: String| {
        Error::input(path, format!("cut short: {what}, the archive ends after {length} bytes; fetch it again"))
    };
    let mut head = [0; 5];
    if length > 5
        && file.read_exact_at(&mut head, range.start).is_ok()
        && let Some(what) = compressed(&head)
    {
        return Err(Error::input(path, what));
    }
    let (mut end, mut count) = (0, 0);
    let failed = |e: io::Error, at: u64| match e.kind() {
        _ if at.next_multiple_of(BLOCK) + BLOCK > length => cut(format!("a header begins at byte {at}")),
        _ => {
            Error::input(path, format!("not a tar archive at byte {at} ({e}); damaged, compressed, or something else"))
        }
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
            return Err(cut(format!("{name} takes {} at byte {start}", text::plural(size, "byte"))));
        }
        if entry.header().entry_type().is_file() {
            count += 1;
            see(&name, range.start + start..range.start + end)?;
        }
    }
    match ends(file, &range, end) {
        true => Ok(()),
        false => Err(cut(format!("no end mark behind the last of {}", text::plural(count, "file")))),
    }
}

/// Whether an empty block follows the last member, which ends at `end`: not in an archive that was cut between two members.
fn ends(file: &File, range: &Range<u64>, end: u64) -> bool {
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
