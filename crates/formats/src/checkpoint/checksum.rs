//! A checksum over a whole HDF5 file, stored in 16 bytes after the end of the HDF5 data, where HDF5 readers never look.
//!
//! It detects damage by disks and networks: changed bits or a missing end. It is not a signature: anybody who changes a
//! file can also recompute it, so security must not depend on it. The 16 bytes are `TRIREME\0`, the number of bytes
//! before them modulo 2^32, and the checksum, both as little-endian u32. The checksum is the masked CRC-32C (as in
//! TFRecords) of the masked CRC-32Cs of all blocks of 1 MiB, as little-endian u32. Another program that writes to the
//! file drops these bytes.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use loaders::record::masked_crc32c;
use loaders::regular;

use super::error::Error;

/// The first bytes of an HDF5 file.
const SIGNATURE: [u8; 8] = *b"\x89HDF\r\n\x1a\n";
const MAGIC: &[u8; 8] = b"TRIREME\0";
/// Bytes after the end of the HDF5 data: magic, length and checksum.
pub(super) const LENGTH: u64 = 16;
const BLOCK: usize = 1 << 20;

/// An HDF5 file with a matching checksum, or without a checksum.
#[derive(Debug)]
pub(super) struct CheckedFile {
    pub(super) file: File,
    /// Length of the HDF5 data in bytes, without the checksum.
    pub(super) length: u64,
    /// True if the file has a checksum. If it has none, another program wrote or changed the file.
    pub(super) sealed: bool,
}

pub(super) fn append(path: &Path) -> Result<(), Error> {
    let write = || {
        let mut file = OpenOptions::new().read(true).append(true).open(path)?;
        let length = file.metadata()?.len();
        let checksum = checksum(&file, length)?;
        file.write_all(&encode(length, checksum))
    };
    write().map_err(|source| Error::Io { action: "write", path: path.to_path_buf(), source })
}

/// Opens a regular file, which must be HDF5, and verifies its checksum. A file without a checksum is accepted, unless
/// its superblock records another length.
///
/// # Errors
///
/// Returns [`Error::Foreign`] if it is not an HDF5 file, [`Error::Truncated`] if its end is missing, [`Error::OtherEnd`] if
/// other bytes than the checksum follow the HDF5 data, and [`Error::Damaged`] if the checksum does not match.
pub(super) fn open(path: &Path) -> Result<CheckedFile, Error> {
    let refuse = |source| Error::Io { action: "read", path: path.to_path_buf(), source };
    let file = regular::open(path).map_err(refuse)?;
    let length = file.metadata().map_err(refuse)?.len();
    let mut start = [0; SIGNATURE.len()];
    let begun = length >= SIGNATURE.len() as u64 && file.read_exact_at(&mut start, 0).map_err(refuse).map(|()| true)?;
    if !begun || start != SIGNATURE {
        let text = format!("it is not an HDF5 file ({length} bytes)");
        return Err(Error::Foreign { path: path.to_path_buf(), text });
    }
    let before = length.saturating_sub(LENGTH);
    let mut end = [0; LENGTH as usize];
    if length >= LENGTH {
        file.read_exact_at(&mut end, before).map_err(refuse)?;
    }
    if !end.starts_with(MAGIC) {
        return match superblock_length(&file, length).map_err(refuse)? {
            Some(expected) if expected.saturating_add(LENGTH) <= length => {
                Err(Error::OtherEnd { path: path.to_path_buf(), expected, got: length })
            }
            Some(expected) if expected != length => {
                Err(Error::Truncated { path: path.to_path_buf(), expected, got: length })
            }
            _ => Ok(CheckedFile { file, length, sealed: false }),
        };
    }
    let got = checksum(&file, before).map_err(refuse)?;
    if end == encode(before, got) {
        return Ok(CheckedFile { file, length: before, sealed: true });
    }
    let expected = u32::from_le_bytes([end[12], end[13], end[14], end[15]]);
    Err(Error::Damaged { path: path.to_path_buf(), expected, got })
}

/// Returns an error if a file has no checksum. This is for checkpoints, because their parts have no checksums of their
/// own.
pub(super) fn require_checksum(sealed: bool, path: &Path) -> Result<(), Error> {
    let text = "its checksum is missing, so trireme cannot tell what was changed".to_string();
    if sealed { Ok(()) } else { Err(Error::Unsealed { path: path.to_path_buf(), text }) }
}

/// Returns the file length that a superblock of version 2 records, or `None` for other versions. For a file that is too
/// short for a superblock, returns the superblock's length.
fn superblock_length(file: &File, length: u64) -> io::Result<Option<u64>> {
    const SUPERBLOCK: u64 = 48;
    if length < SUPERBLOCK {
        return Ok(Some(SUPERBLOCK));
    }
    let (mut version, mut end) = ([0; 1], [0; 8]);
    file.read_exact_at(&mut version, 8)?;
    file.read_exact_at(&mut end, 28)?;
    Ok((version == [2]).then(|| u64::from_le_bytes(end)))
}

fn encode(length: u64, checksum: u32) -> [u8; LENGTH as usize] {
    let mut end = [0; LENGTH as usize];
    end[..8].copy_from_slice(MAGIC);
    end[8..12].copy_from_slice(&(length as u32).to_le_bytes());
    end[12..].copy_from_slice(&checksum.to_le_bytes());
    end
}

fn checksum(file: &File, length: u64) -> io::Result<u32> {
    let mut block = vec![0; BLOCK.min(length as usize)];
    let mut checksums = Vec::new();
    for at in (0..length).step_by(BLOCK) {
        let block = &mut block[..(length - at).min(BLOCK as u64) as usize];
        file.read_exact_at(block, at)?;
        checksums.extend(masked_crc32c(block).to_le_bytes());
    }
    Ok(masked_crc32c(&checksums))
}

/// Recomputes the checksum of a modified file, for tests.
#[cfg(test)]
pub(super) fn update_checksum(bytes: &mut Vec<u8>, path: &Path) {
    bytes.truncate(bytes.len().saturating_sub(LENGTH as usize));
    std::fs::write(path, &*bytes).unwrap();
    append(path).unwrap();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::temporary::Temporary;

    #[test]
    fn checksum_detects_any_changed_or_missing_byte() {
        let Temporary(path) = &Temporary::new("checksum");
        // More than two blocks, with a shorter last block.
        let mut bytes: Vec<u8> = (0..2 * BLOCK + 77).map(|i| (i % 251) as u8).collect();
        bytes[..8].copy_from_slice(&SIGNATURE);
        // The superblock's version, and the file length in the superblock.
        bytes[8] = 2;
        let length = bytes.len() as u64;
        bytes[28..36].copy_from_slice(&length.to_le_bytes());
        std::fs::write(path, &bytes).unwrap();
        assert!(!open(path).unwrap().sealed);
        append(path).unwrap();
        assert!(open(path).unwrap().sealed);
        let whole = std::fs::read(path).unwrap();
        assert_eq!(&whole[..bytes.len()], bytes);
        for at in [8, BLOCK - 1, BLOCK, bytes.len() - 1, bytes.len() + 8, bytes.len() + 12] {
            let mut changed = whole.clone();
            changed[at] ^= 4;
            std::fs::write(path, changed).unwrap();
            assert!(matches!(open(path), Err(Error::Damaged { .. })), "byte {at}");
        }
        // A block is missing in the middle. The checksum is present, but the length does not match.
        let mut shorter = whole.clone();
        shorter.drain(BLOCK..2 * BLOCK);
        std::fs::write(path, shorter).unwrap();
        assert!(matches!(open(path), Err(Error::Damaged { .. })));
        for end in [bytes.len() - 1, bytes.len() + 1] {
            std::fs::write(path, &whole[..end]).unwrap();
            assert!(matches!(open(path), Err(Error::Truncated { .. })), "{end}");
        }
        std::fs::write(path, [&whole[..], b"\n"].concat()).unwrap();
        assert!(matches!(open(path), Err(Error::OtherEnd { .. })));
    }
}
