//! Named files out of a folder or out of a tar archive, gzip or not, read as one stream without
//! unpacking to disk.

use crate::error::Error;
use crate::kinds::reader::input;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// One file, whole.
#[derive(Debug)]
pub(crate) struct Member {
    /// Where it stands: a path, or the archive's path and the member's name.
    pub path: PathBuf,
    /// Its bytes.
    pub data: Vec<u8>,
}

/// Reads the files `wanted` from the folder or archive `src`; those that are not there come back as
/// `None`.
///
/// `folder` is the name that the published archive unpacks to: a folder that holds it is as good.
/// Where none of `wanted` is there but `other` is, the error says that this is another version of
/// the data.
pub(crate) fn read_members(
    src: &Path,
    folder: &str,
    wanted: &[&str],
    other: &str,
    hint: &str,
) -> Result<Vec<Option<Member>>, Error> {
    let meta = match std::fs::metadata(src) {
        Ok(meta) => meta,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Err(Error::Missing { path: src.to_path_buf(), hint: hint.to_string() });
        }
        Err(e) => return Err(Error::io("read", src, e)),
    };
    let (found, has_other) =
        if meta.is_dir() { from_folder(src, folder, wanted, other)? } else { from_tar(src, wanted, other)? };
    if has_other && found.iter().all(Option::is_none) {
        return Err(Error::input(src, format!("this looks like the version for Python or Matlab; {hint}")));
    }
    Ok(found)
}

type Found = (Vec<Option<Member>>, bool);

fn from_folder(src: &Path, folder: &str, wanted: &[&str], other: &str) -> Result<Found, Error> {
    let inner = src.join(folder);
    let dir = match wanted.first() {
        Some(first) if !src.join(first).is_file() && inner.is_dir() => inner,
        _ => src.to_path_buf(),
    };
    let mut found = Vec::new();
    for name in wanted {
        let path = dir.join(name);
        match std::fs::read(&path) {
            Ok(data) => found.push(Some(Member { path, data })),
            Err(e) if e.kind() == io::ErrorKind::NotFound => found.push(None),
            Err(e) => return Err(Error::io("read", &path, e)),
        }
    }
    Ok((found, dir.join(other).is_file()))
}

fn from_tar(src: &Path, wanted: &[&str], other: &str) -> Result<Found, Error> {
    let failed = |e: io::Error| match e.kind() {
        io::ErrorKind::UnexpectedEof => input::read_error(src, e),
        _ => Error::input(
            src,
            format!("cannot be read as a .tar or .tar.gz archive ({e}): not one, or cut short; fetch it again"),
        ),
    };
    let mut tar = tar::Archive::new(input::open(src)?);
    let mut found: Vec<Option<Member>> = wanted.iter().map(|_| None).collect();
    let mut has_other = false;
    let mut members = 0;
    for entry in tar.entries().map_err(failed)? {
        let mut entry = entry.map_err(failed)?;
        members += 1;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let path = entry.path().map_err(failed)?.into_owned();
        let Some(name) = path.file_name().and_then(|n| n.to_str()) else {
            continue;
        };
        has_other |= name == other;
        let Some(at) = wanted.iter().position(|w| *w == name) else {
            continue;
        };
        let path = src.join(&path);
        if found[at].is_some() {
            return Err(Error::input(src, format!("holds {name} twice")));
        }
        let size = entry.size();
        let what = format!("the archive says that {name}");
        let data = read_entry(&mut entry, size, src, &what)?;
        found[at] = Some(Member { path, data });
    }
    if members == 0 {
        return Err(Error::input(src, "is an empty archive; fetch it again"));
    }
    // To the end of the stream: only there does gzip say whether what it held was whole.
    io::copy(&mut tar.into_inner(), &mut io::sink()).map_err(failed)?;
    Ok((found, has_other))
}

/// Reads one member; memory grows with what really comes.
fn read_entry(entry: &mut dyn Read, size: u64, src: &Path, what: &str) -> Result<Vec<u8>, Error> {
    let mut data = Vec::new();
    entry.read_to_end(&mut data).map_err(|e| input::read_error(src, e))?;
    if data.len() as u64 != size {
        return Err(Error::input(
            src,
            format!("cut short: {what} takes {size} bytes, {} are there; fetch it again", data.len()),
        ));
    }
    Ok(data)
}
