//! The bytes of a part of a source, in memory where they had to be unpacked, else in their file. A file that is read in place costs no
//! memory, and no time to fill it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes that [`Store::blocks`] reads at once.
const BLOCK: usize = 1 << 18;

/// Bytes that can be read at any place.
#[derive(Debug)]
pub(crate) enum Store {
    Memory(Vec<u8>),
    /// Some of a file.
    File {
        file: File,
        start: u64,
        length: u64,
    },
}

impl Store {
    /// All of a file.
    pub(crate) fn of(file: File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        Ok(Store::File { file, start: 0, length })
    }

    pub(crate) fn len(&self) -> u64 {
        match self {
            Store::Memory(bytes) => bytes.len() as u64,
            Store::File { length, .. } => *length,
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
            Store::File { file, start, .. } => file.read_exact_at(out, start + at)?,
        }
        Ok(())
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
            Store::File { length, .. } => {
                let mut bytes = Vec::new();
                let length = usize::try_from(length).map_err(|_| io::ErrorKind::OutOfMemory)?;
                bytes.try_reserve_exact(length).map_err(|_| io::ErrorKind::OutOfMemory)?;
                self.read_into(0, length, &mut bytes).map(|()| bytes)
            }
        }
    }

    /// Hands on all bytes from front to back, in blocks of whole records of `size` bytes, each with the number of its first record; what is
    /// left behind the last whole record is left out.
    pub(crate) fn blocks<E: From<io::Error>>(
        &self,
        size: usize,
        mut take: impl FnMut(usize, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let (records, most) = (self.len() / size as u64, (BLOCK / size).max(1));
        let (mut block, mut done) = (Vec::new(), 0);
        while done < records {
            let count = (most as u64).min(records - done);
            self.read_into(done * size as u64, count as usize * size, &mut block)?;
            take(done as usize, &block)?;
            done += count;
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
        let part = Store::File { file: File::open(&path).unwrap(), start: 100, length: 5 };
        for store in [Store::Memory(bytes.clone()), Store::of(File::open(&path).unwrap()).unwrap()] {
            let (mut out, mut seen) = (vec![9; 3], Vec::new());
            store.read_into(599_990, 10, &mut out).unwrap();
            assert_eq!(out, &bytes[599_990..]);
            assert_eq!(store.read_into(599_991, 10, &mut out).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
            assert!(store.read_into(u64::MAX, 10, &mut out).is_err());
            let noted = store.blocks(7, |first, block| {
                assert_eq!((first * 7, block.len() % 7), (seen.len(), 0));
                seen.extend_from_slice(block);
                Ok::<_, io::Error>(())
            });
            noted.unwrap();
            assert_eq!(seen, &bytes[..600_000 / 7 * 7]);
            assert_eq!(store.whole().unwrap(), bytes);
        }
        // a part of a file ends where it ends
        assert!(part.read_at(1, &mut [0; 5]).is_err());
        assert_eq!(part.whole().unwrap(), &bytes[100..105]);
        fs::remove_file(&path).unwrap();
    }
}
