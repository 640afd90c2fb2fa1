//! Source files as streams, and parts of files in memory or on disk, with a budget for the memory that they use. Gzip
//! is detected by its first bytes, not by the file name. Errors name the path.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use loaders::filesystem::{self, FileSystem};
use loaders::stall::during;
use loaders::{Limits, Mapping, regular};

use crate::error::Error;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// A file as a stream, decompressed if it is a gzip file.
pub(crate) enum Input {
    Plain(BufReader<NamedFile>),
    Gzip(Bounded<MultiGzDecoder<BufReader<NamedFile>>>),
}

/// A file with its path, so that a warning about a slow read can name it.
pub(crate) struct NamedFile {
    file: File,
    path: PathBuf,
}

impl Read for NamedFile {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        during("reading", &self.path, || self.file.read(out))
    }
}

impl Seek for NamedFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

/// Opens the regular file at `path`. Also returns its size in bytes.
pub(crate) fn open_sized(path: &Path) -> Result<(File, u64), Error> {
    let file = regular::open(path).map_err(|e| Error::io("open", path, e))?;
    let length = file.metadata().map_err(|e| Error::io("read", path, e))?.len();
    Ok((file, length))
}

/// Opens `path`. If it is a gzip file, the stream is decompressed, up to the remaining budget.
pub(crate) fn open(path: &Path, budget: &mut Budget) -> Result<Input, Error> {
    let (file, length) = open_sized(path)?;
    budget.add_file(length);
    let mut file = BufReader::with_capacity(1 << 18, NamedFile { file, path: path.to_path_buf() });
    let head = file.fill_buf().map_err(|e| Error::io("read", path, e))?;
    let is_gzip = head.starts_with(&GZIP_MAGIC);
    Ok(if is_gzip { Input::Gzip(budget.bounded(MultiGzDecoder::new(file))) } else { Input::Plain(file) })
}

impl Input {
    /// Returns the rest of the file at `path` without reading it. Returns `None` if the file is compressed.
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

/// Returns the first of `names` that exists in `dir`, either plain or with the extension `.gz`. The error
/// [`Error::Missing`] names the first of `names`.
pub(crate) fn find(dir: &Path, names: &[&str], hint: &str) -> Result<PathBuf, Error> {
    for name in names {
        for name in [name.to_string(), format!("{name}.gz")] {
            let path = dir.join(name);
            if path.is_file() {
                return Ok(path);
            }
        }
    }
    Err(Error::missing(dir.join(names.first().unwrap_or(&"")), hint))
}

/// Converts a failed read of source data to an error. Decompression reports truncated or damaged streams as I/O errors.
pub(crate) fn read_error(path: &Path, budget: &Budget, source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::FileTooLarge => budget.exceeded(path),
        io::ErrorKind::UnexpectedEof => Error::input(path, "the compressed data is cut short; fetch it again"),
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::Other => {
            Error::input(path, format!("damaged: {source}; fetch it again"))
        }
        _ => Error::io("read", path, source),
    }
}

/// Reads exactly `expected` bytes. Returns an error if the stream continues after them. Memory grows only with the
/// bytes that arrive, up to the budget, so a forged size cannot allocate memory.
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
    // If the data is truncated, the stream has ended and this reads nothing.
    let more = stream.read(&mut extra).map_err(|e| read_error(path, budget, e))?;
    check_length(path, got + more as u64, expected, what)?;
    Ok(data)
}

/// Returns an error if the content has `got` bytes but `what` needs `expected` bytes.
pub(crate) fn check_length(path: &Path, got: u64, expected: u64, what: &str) -> Result<(), Error> {
    if got < expected {
        return Err(Error::input(
            path,
            format!("cut short: {what} need {expected} bytes, but only {got} exist; fetch it again"),
        ));
    }
    if got > expected {
        return Err(Error::input(
            path,
            format!("the file continues after the {expected} bytes of {what}; is the header correct?"),
        ));
    }
    Ok(())
}

// A part of a source: in memory if it had to be decompressed, otherwise in its file. Reading in place needs no memory.
// Local files are mapped, which saves a system call per sample. Files on network file systems are not mapped.

/// Number of bytes that [`Store::find_byte`] reads at a time.
const BLOCK: usize = 1 << 18;

/// Bytes with random access, in memory or in a file.
#[derive(Debug)]
pub(crate) enum Store {
    Memory(Vec<u8>),
    /// A part of a file that is read on request.
    File {
        path: PathBuf,
        file: File,
        start: u64,
        length: u64,
    },
    /// A part of a file that is mapped into memory.
    Mapped {
        path: PathBuf,
        map: Mapping,
        start: u64,
        length: u64,
    },
}

impl Store {
    /// Opens the whole regular file at `path`.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = regular::open(path)?;
        let length = file.metadata()?.len();
        Ok(Self::part(file, path, 0, length))
    }

    /// Returns `length` bytes of the open `file` at `path`, starting at offset `start`.
    pub(crate) fn part(file: File, path: &Path, start: u64, length: u64) -> Self {
        filesystem::read_ahead(&file, start, length);
        let is_local = FileSystem::of(path).is_ok_and(|system| !system.remote);
        // If mapping fails, the file can still be read.
        let map = if is_local { Mapping::open("file", path).ok() } else { None };
        match map.filter(|map| start.checked_add(length).is_some_and(|end| end <= map.len() as u64)) {
            Some(map) => Store::Mapped { path: path.to_path_buf(), map, start, length },
            None => Store::File { path: path.to_path_buf(), file, start, length },
        }
    }

    pub(crate) fn len(&self) -> u64 {
        match self {
            Store::Memory(bytes) => bytes.len() as u64,
            Store::File { length, .. } | Store::Mapped { length, .. } => *length,
        }
    }

    /// Fills `out` with the bytes at offset `at`. Returns an error if the range exceeds the length or the file cannot
    /// be read.
    pub(crate) fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        let end = at.checked_add(out.len() as u64).filter(|&end| end <= self.len());
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        match self {
            // Both offsets are within the length, so they fit in usize.
            Store::Memory(bytes) => out.copy_from_slice(&bytes[at as usize..end as usize]),
            Store::File { path, file, start, .. } => during("reading", path, || file.read_exact_at(out, start + at))?,
            Store::Mapped { path, map, start, .. } => {
                let read = during("reading", path, || map.read(start + at, out));
                return if read { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
        }
        Ok(())
    }

    /// Prefetches `length` bytes at offset `at` into the CPU caches without waiting, if the file is mapped.
    pub(crate) fn prefetch(&self, at: u64, length: u64) {
        if let Store::Mapped { map, start, .. } = self {
            map.prefetch(start + at, length);
        }
    }

    /// Resizes `out` to `length` bytes and fills it with the bytes at offset `at`.
    pub(crate) fn read_into(&self, at: u64, length: usize, out: &mut Vec<u8>) -> io::Result<()> {
        out.resize(length, 0);
        self.read_at(at, out)
    }

    pub(crate) fn whole(self) -> io::Result<Vec<u8>> {
        match self {
            Store::Memory(bytes) => Ok(bytes),
            Store::File { length, .. } | Store::Mapped { length, .. } => {
                let mut bytes = Vec::new();
                let length = usize::try_from(length).map_err(|_| io::ErrorKind::OutOfMemory)?;
                bytes.try_reserve_exact(length).map_err(|_| io::ErrorKind::OutOfMemory)?;
                self.read_into(0, length, &mut bytes).map(|()| bytes)
            }
        }
    }

    /// Looks at the byte at offset `at` in each record of `size` bytes. Returns the first byte that is `wanted`, with the
    /// index of its record. Bytes after the last whole record are ignored.
    pub(crate) fn find_byte(
        &self,
        size: usize,
        at: usize,
        mut wanted: impl FnMut(u8) -> bool,
    ) -> io::Result<Option<(usize, u8)>> {
        let records = (self.len() / size as u64) as usize;
        // An unmapped file is read in large blocks. Otherwise only the wanted byte of each record is read.
        let most = if matches!(self, Store::File { .. }) { (BLOCK / size).max(1) } else { 1 };
        let mut block = Vec::new();
        for first in (0..records).step_by(most) {
            let count = most.min(records - first);
            self.read_into((first * size + at) as u64, (count - 1) * size + 1, &mut block)?;
            let found = (first..).zip(block.iter().copied().step_by(size)).find(|(_, byte)| wanted(*byte));
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }
}

/// The memory budget of one source.
#[derive(Debug)]
pub(crate) struct Budget {
    content: Content,
    limits: Limits,
    /// Total size of the source's files.
    input: u64,
    /// Bytes of memory that are in use.
    taken: u64,
}

/// The kind of data that counts against a [`Budget`].
#[derive(Debug, Clone, Copy)]
pub(crate) enum Content {
    /// Unpacked files.
    Files,
    /// The lines of a table or label file.
    Lines,
    /// Sample labels and names in archives.
    Samples,
}

impl Budget {
    /// Creates a budget for unpacked files. [`Budget::add_file`] adds their sizes.
    pub(crate) fn new(limits: Limits) -> Self {
        Self::of(Content::Files, limits, 0)
    }

    /// Creates a budget for `content` from files with `bytes` bytes in total.
    pub(crate) fn of(content: Content, limits: Limits, bytes: u64) -> Self {
        Self { content, limits, input: bytes, taken: 0 }
    }

    pub(crate) fn add_file(&mut self, bytes: u64) {
        self.input = self.input.saturating_add(bytes);
    }

    /// Returns the number of bytes of memory that the source may still take.
    pub(crate) fn left(&self) -> u64 {
        self.limits.allowed(self.input).saturating_sub(self.taken)
    }

    /// Reserves memory for the content of `path`. Returns an error if the remaining budget is too small.
    pub(crate) fn take(&mut self, path: &Path, bytes: u64) -> Result<(), Error> {
        if bytes > self.left() {
            return Err(self.exceeded(path));
        }
        self.taken += bytes;
        Ok(())
    }

    /// Returns the error for a file that exceeds the budget.
    pub(crate) fn exceeded(&self, path: &Path) -> Error {
        let Budget { content, limits, input, taken } = self;
        let (allowed, mib) = (limits.allowed(*input) as f64 / 1e6, limits.memory >> 20);
        let (exceeds, size) = match content {
            Content::Files => ("the unpacked content exceeds", "the source's size"),
            Content::Lines => ("the lines need more memory than", "the file's size"),
            Content::Samples => ("labels and names need more memory than", "the size of all archives"),
        };
        let beside = match content {
            Content::Files if *taken > 0 => format!(", and other files use {:.1} MB", *taken as f64 / 1e6),
            _ => String::new(),
        };
        Error::input(
            path,
            format!(
                "{exceeds} the limit of {allowed:.1} MB ({mib} MiB plus four times {size}){beside}; if this is intended, raise \
                 --limit-memory"
            ),
        )
    }

    /// Limits `stream` to the remaining budget. Reading more fails with [`io::ErrorKind::FileTooLarge`].
    pub(crate) fn bounded<R: Read>(&self, stream: R) -> Bounded<R> {
        Bounded { stream, left: self.left() }
    }
}

/// A stream of limited length.
pub(crate) struct Bounded<R> {
    stream: R,
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let got = self.stream.read(out)?;
        self.left = self.left.checked_sub(got as u64).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(got)
    }
}

/// Reads a stream to its end. The buffer grows by at most a quarter at a time and never exceeds `most` bytes. Returns
/// `None` if the stream is longer.
pub(crate) fn read_bounded(stream: &mut dyn Read, most: u64) -> io::Result<Option<Vec<u8>>> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let mut data = Vec::new();
    loop {
        let step = (data.len() / 4).max(1 << 16).min(most - data.len());
        if step == 0 {
            return Ok(if stream.read(&mut [0])? == 0 { Some(data) } else { None });
        }
        data.try_reserve_exact(step).map_err(|_| io::ErrorKind::OutOfMemory)?;
        if stream.take(step as u64).read_to_end(&mut data)? < step {
            return Ok(Some(data));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use support::program::Folder;

    #[test]
    fn memory_and_file_are_read_alike() {
        let bytes: Vec<u8> = (0..600_000u32).map(|i| (i * 7 % 251) as u8).collect();
        let folder = Folder::new();
        let path = folder.path().join("store");
        fs::write(&path, &bytes).unwrap();
        let file = |start, length| Store::File { path: path.clone(), file: File::open(&path).unwrap(), start, length };
        let mapped = Store::open(&path).unwrap();
        assert!(matches!(mapped, Store::Mapped { length: 600_000, .. }));
        for store in [Store::Memory(bytes.clone()), file(0, 600_000), mapped] {
            let (mut out, mut seen) = (vec![9; 3], Vec::new());
            store.read_into(599_990, 10, &mut out).unwrap();
            assert_eq!(out, &bytes[599_990..]);
            assert_eq!(store.read_into(599_991, 10, &mut out).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
            assert!(store.read_into(u64::MAX, 10, &mut out).is_err());
            let found = store.find_byte(7, 6, |byte| {
                seen.push(byte);
                false
            });
            assert_eq!(found.unwrap(), None);
            assert_eq!(seen, bytes.iter().copied().skip(6).step_by(7).collect::<Vec<u8>>());
            for record in [0, 1, 85_713] {
                let mut left = record + 1;
                let found = store.find_byte(7, 6, |_| {
                    left -= 1;
                    left == 0
                });
                assert_eq!(found.unwrap(), Some((record, bytes[7 * record + 6])));
            }
            assert_eq!(store.whole().unwrap(), bytes);
        }
        // Reading beyond the end of a part fails.
        for part in [file(100, 5), Store::part(File::open(&path).unwrap(), &path, 100, 5)] {
            assert!(part.read_at(1, &mut [0; 5]).is_err());
            assert_eq!(part.whole().unwrap(), &bytes[100..105]);
        }
    }

    #[test]
    fn a_budget_is_never_exceeded() {
        let mut budget = Budget::new(Limits::with_memory(1000));
        budget.add_file(10);
        assert_eq!(budget.left(), 1040);
        budget.take(Path::new("a"), 1000).unwrap();
        let error = budget.take(Path::new("b"), 41).unwrap_err().to_string();
        assert!(error.starts_with("b: ") && error.contains("--limit-memory"), "{error}");
        budget.take(Path::new("c"), 40).unwrap();
        assert_eq!(budget.left(), 0);
        let mut out = Vec::new();
        let bounded = Budget::new(Limits::with_memory(5)).bounded(&b"123456"[..]).read_to_end(&mut out);
        assert_eq!(bounded.unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn streams_up_to_a_length() {
        let bytes: Vec<u8> = (0..300_000u32).map(|i| i as u8).collect();
        for length in [0, 1, 65_535, 65_536, 65_537, 200_000, 300_000] {
            let read = |most| read_bounded(&mut &bytes[..length], most).unwrap();
            assert_eq!(read(300_000).as_deref(), Some(&bytes[..length]));
            assert_eq!(read(length as u64).as_deref(), Some(&bytes[..length]));
            assert!(length == 0 || read(length as u64 - 1).is_none());
        }
    }
}
