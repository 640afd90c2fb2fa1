//! Source files as streams: gzip is recognised by its first bytes, not by its name, and errors name the path.

use super::budget::{Bounded, Budget, read_bounded};
use super::store::Store;
use crate::error::Error;
use flate2::bufread::MultiGzDecoder;
use loaders::regular;
use loaders::stall::during;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// A file as a stream.
pub(crate) enum Input {
    Plain(BufReader<Named>),
    Gzip(Bounded<MultiGzDecoder<BufReader<Named>>>),
}

/// A file that knows its path, which is named if reading takes long.
pub(crate) struct Named {
    file: File,
    path: PathBuf,
}

impl Read for Named {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        during("reading", &self.path, || self.file.read(out))
    }
}

impl Seek for Named {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

/// Opens `path` and unpacks it on the fly when it is gzip, up to what the budget has left.
pub(crate) fn open(path: &Path, budget: &mut Budget) -> Result<Input, Error> {
    let file = regular::open(path).map_err(|e| Error::io("open", path, e))?;
    budget.add_file(file.metadata().map_err(|e| Error::io("read", path, e))?.len());
    let mut file = BufReader::with_capacity(1 << 18, Named { file, path: path.to_path_buf() });
    let head = file.fill_buf().map_err(|e| Error::io("read", path, e))?;
    let is_gzip = head.starts_with(&GZIP_MAGIC);
    Ok(if is_gzip { Input::Gzip(budget.bounded(MultiGzDecoder::new(file))) } else { Input::Plain(file) })
}

impl Input {
    /// What is left of the file at `path` if it need not be unpacked.
    pub(crate) fn in_place(&mut self, path: &Path) -> io::Result<Option<Store>> {
        let Input::Plain(file) = self else { return Ok(None) };
        let start = file.stream_position()?;
        let length = file.get_ref().file.metadata()?.len().saturating_sub(start);
        Ok(Some(Store::part(file.get_ref().file.try_clone()?, path, start, length)))
    }
}

impl Read for Input {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Input::Plain(file) => file.read(out),
            Input::Gzip(stream) => stream.read(out),
        }
    }
}

/// The first of `names` that is a file in `dir`, itself or with `.gz` behind.
///
/// # Errors
/// [`Error::Missing`] naming the first of `names`.
pub(crate) fn find(dir: &Path, names: &[&str], hint: &str) -> Result<PathBuf, Error> {
    for name in names {
        for name in [name.to_string(), format!("{name}.gz")] {
            let path = dir.join(name);
            if path.is_file() {
                return Ok(path);
            }
        }
    }
    Err(Error::Missing { path: dir.join(names.first().unwrap_or(&"")), hint: hint.to_string() })
}

/// The error of a failed read of source data: unpacking reports truncated or damaged streams as I/O errors.
pub(crate) fn read_error(path: &Path, budget: &Budget, source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::FileTooLarge => budget.exceeded(path),
        io::ErrorKind::UnexpectedEof => {
            Error::input(path, "ends before its compressed data does (cut short?); fetch it again")
        }
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::Other => {
            Error::input(path, format!("damaged: {source}; fetch it again"))
        }
        _ => Error::io("read", path, source),
    }
}

/// Reads exactly `expected` bytes, with which the stream must end. Memory grows with the bytes that arrive, up to the budget, so
/// a hostile size costs none.
pub(crate) fn read_rest(
    path: &Path,
    stream: &mut dyn Read,
    expected: u64,
    what: &str,
    budget: &mut Budget,
) -> Result<Vec<u8>, Error> {
    let data = read_bounded(&mut stream.take(expected), budget.left()).map_err(|e| read_error(path, budget, e))?;
    let data = data.ok_or_else(|| budget.exceeded(path))?;
    let got = data.len() as u64;
    budget.take(path, got)?;
    let mut extra = [0u8; 1];
    // nothing is behind the end of what is cut short
    let more = stream.read(&mut extra).map_err(|e| read_error(path, budget, e))?;
    check_length(path, got + more as u64, expected, what)?;
    Ok(data)
}

/// Refuses content of `got` bytes where `what` takes `expected` ones.
pub(crate) fn check_length(path: &Path, got: u64, expected: u64, what: &str) -> Result<(), Error> {
    if got < expected {
        return Err(Error::input(
            path,
            format!("cut short: {what} take {expected} bytes, {got} are there; fetch it again"),
        ));
    }
    if got > expected {
        return Err(Error::input(
            path,
            format!("goes on after the {expected} bytes that {what} take; is its header right?"),
        ));
    }
    Ok(())
}
