//! Writes to a file in pieces as long as the processor's large pages, each at a multiple of that length: a file system that keeps what is
//! written at once in one large page (ext4 since Linux 6.16, XFS) lets a loader map it by one entry in place of 512.

use std::io::{self, Write};

/// Bytes of a piece: of a large page on x86-64.
pub(super) const PIECE: usize = 2 << 20;

/// Gathers what is written to it.
pub(super) struct Pieces<W: Write> {
    to: W,
    held: Vec<u8>,
}

impl<W: Write> Pieces<W> {
    /// From the start of `to` on.
    pub(super) fn new(to: W) -> Self {
        Self { to, held: Vec::with_capacity(PIECE) }
    }

    /// Writes what is held, the last piece, and gives the target back.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.flush()?;
        Ok(self.to)
    }
}

impl<W: Write> Write for Pieces<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(PIECE - self.held.len());
        self.held.extend_from_slice(&bytes[..taken]);
        if self.held.len() == PIECE {
            self.to.write_all(&self.held)?;
            self.held.clear();
        }
        Ok(taken)
    }

    /// Pieces that follow begin where this one ends.
    fn flush(&mut self) -> io::Result<()> {
        self.to.write_all(&self.held)?;
        self.held.clear();
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes the length of each write.
    #[derive(Default)]
    struct Noted {
        bytes: Vec<u8>,
        writes: Vec<usize>,
    }

    impl Write for Noted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.bytes.extend_from_slice(bytes);
            self.writes.push(bytes.len());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn all_writes_but_the_last_are_whole_pieces() {
        let wanted: Vec<u8> = (0..5 * PIECE / 2 + 17).map(|i| (i % 251) as u8).collect();
        for part in [1 << 10, 3000, PIECE - 1, PIECE, 2 * PIECE + 5] {
            let mut pieces = Pieces::new(Noted::default());
            wanted.chunks(part).for_each(|part| pieces.write_all(part).unwrap());
            let Noted { bytes, writes } = pieces.finish().unwrap();
            assert!(bytes == wanted, "parts of {part}");
            assert_eq!(writes, [PIECE, PIECE, PIECE / 2 + 17], "parts of {part}");
        }
        assert!(Pieces::new(Noted::default()).finish().unwrap().bytes.is_empty());
    }
}
