//! The bytes of a part of a source, in memory where they had to be unpacked, else in their file. A file that is read in place costs no
//! memory, and no time to fill it. It is mapped, which saves a call of the system for each sample, unless it is on another machine.

use loaders::Mapping;
use loaders::filesystem::{self, FileSystem};
use loaders::regular;
use loaders::stall::during;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes that [`Store::each`] reads at once.
const BLOCK: usize = 1 << 18;

/// Bytes that can be read at any place.
#[derive(Debug)]
pub(crate) enum Store {
    Memory(Vec<u8>),
    /// Some of a file.
    File {
        path: PathBuf,
        file: File,
        start: u64,
        length: u64,
    },
    /// The same of a mapped file.
    Mapped {
        path: PathBuf,
        map: Mapping,
        start: u64,
        length: u64,
    },
}

impl Store {
    /// All of the regular file at `path`.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let file = regular::open(path)?;
        let length = file.metadata()?.len();
        Ok(Self::part(file, path, 0, length))
    }

    /// `length` bytes from `start` on of the open `file` at `path`.
    pub(crate) fn part(file: File, path: &Path, start: u64, length: u64) -> Self {
        filesystem::read_ahead(&file, start, length);
        let is_local = FileSystem::of(path).is_ok_and(|system| !system.remote);
        // what cannot be mapped can be read
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

    /// Fills `out` with the bytes from `at` on.
    ///
    /// # Errors
    /// If there are not so many, or the file cannot be read.
    pub(crate) fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        let end = at.checked_add(out.len() as u64).filter(|&end| end <= self.len());
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        match self {
            // both are within the length, which fits
            Store::Memory(bytes) => out.copy_from_slice(&bytes[at as usize..end as usize]),
            Store::File { path, file, start, .. } => during("reading", path, || file.read_exact_at(out, start + at))?,
            Store::Mapped { path, map, start, .. } => {
                let read = during("reading", path, || map.read(start + at, out));
                return if read { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
        }
        Ok(())
    }

    /// Fetches `length` bytes from `at` on into the processor's caches, without waiting for them, where they lie in memory.
    pub(crate) fn soon(&self, at: u64, length: u64) {
        if let Store::Mapped { map, start, .. } = self {
            map.prefetch(start + at, length);
        }
    }

    /// Makes `out` the `length` bytes from `at` on.
    pub(crate) fn read_into(&self, at: u64, length: usize, out: &mut Vec<u8>) -> io::Result<()> {
        out.resize(length, 0);
        self.read_at(at, out)
    }

    /// All bytes, in memory.
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

    /// Hands on byte `at` of each record of `size` bytes with the number of the record; what is left behind the last whole record is
    /// left out.
    pub(crate) fn each<E: From<io::Error>>(
        &self,
        size: usize,
        at: usize,
        mut take: impl FnMut(usize, u8) -> Result<(), E>,
    ) -> Result<(), E> {
        let records = (self.len() / size as u64) as usize;
        // a file is read in large blocks, of others only these bytes
        let most = if matches!(self, Store::File { .. }) { (BLOCK / size).max(1) } else { 1 };
        let mut block = Vec::new();
        for first in (0..records).step_by(most) {
            let count = most.min(records - first);
            self.read_into((first * size + at) as u64, (count - 1) * size + 1, &mut block)?;
            for (record, &byte) in (first..).zip(block.iter().step_by(size)) {
                take(record, byte)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn memory_and_file_are_read_alike() {
        let bytes: Vec<u8> = (0..600_000u32).map(|i| (i * 7 % 251) as u8).collect();
        let path = std::env::temp_dir().join(format!("data-tools-store-{}", std::process::id()));
        fs::write(&path, &bytes).unwrap();
        let file = |start, length| Store::File { path: path.clone(), file: File::open(&path).unwrap(), start, length };
        let mapped = Store::of(&path).unwrap();
        assert!(matches!(mapped, Store::Mapped { length: 600_000, .. }));
        for store in [Store::Memory(bytes.clone()), file(0, 600_000), mapped] {
            let (mut out, mut seen) = (vec![9; 3], Vec::new());
            store.read_into(599_990, 10, &mut out).unwrap();
            assert_eq!(out, &bytes[599_990..]);
            assert_eq!(store.read_into(599_991, 10, &mut out).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
            assert!(store.read_into(u64::MAX, 10, &mut out).is_err());
            let noted = store.each(7, 6, |record, byte| {
                assert_eq!(record, seen.len());
                seen.push(byte);
                Ok::<_, io::Error>(())
            });
            noted.unwrap();
            assert_eq!(seen, bytes.iter().copied().skip(6).step_by(7).collect::<Vec<u8>>());
            assert_eq!(store.whole().unwrap(), bytes);
        }
        // a part of a file ends where it ends
        for part in [file(100, 5), Store::part(File::open(&path).unwrap(), &path, 100, 5)] {
            assert!(part.read_at(1, &mut [0; 5]).is_err());
            assert_eq!(part.whole().unwrap(), &bytes[100..105]);
        }
        fs::remove_file(&path).unwrap();
    }
}
