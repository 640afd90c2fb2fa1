//! A checksum over a whole HDF5 file, in 16 bytes behind the end that HDF5 knows of, where its readers never look.
//!
//! HDF5 itself would hand out a changed weight as it is, and its library crashes on some damaged structures, so nothing
//! is given to it whose seal is broken or missing. The seal: `TRIREME\0`, the number of bytes before the seal
//! modulo 2^32, and their checksum, both as little-endian u32. The checksum is the masked CRC-32C (as in TFRecords) of
//! the masked CRC-32Cs of each block of 1 MiB, as little-endian u32.
//! A program that writes into the file drops the seal.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use loaders::record::masked_crc32c;

use super::error::Error;

/// What an HDF5 file starts with.
const SIGNATURE: [u8; 8] = *b"\x89HDF\r\n\x1a\n";
const MAGIC: &[u8; 8] = b"TRIREME\0";
const LENGTH: u64 = 16;
const BLOCK: usize = 1 << 20;

/// Appends the seal to a file.
pub(super) fn append(path: &Path) -> Result<(), Error> {
    let write = || {
        let mut file = OpenOptions::new().read(true).append(true).open(path)?;
        let length = file.metadata()?.len();
        let checksum = checksum(&mut file, length)?;
        file.write_all(&encode(length, checksum))
    };
    write().map_err(|source| Error::Io { action: "write", path: path.to_path_buf(), source })
}

/// Checks that a file is HDF5 and ends in its seal.
///
/// # Errors
/// [`Error::Foreign`] if it is no HDF5 file, [`Error::Unsealed`] if it is one without a seal, [`Error::Damaged`] where
/// the bytes are not those that were sealed.
pub(super) fn check(path: &Path) -> Result<(), Error> {
    let refuse = |source| Error::Io { action: "read", path: path.to_path_buf(), source };
    let mut file = File::open(path).map_err(refuse)?;
    let length = file.metadata().map_err(refuse)?.len();
    let mut start = Vec::new();
    Read::by_ref(&mut file).take(SIGNATURE.len() as u64).read_to_end(&mut start).map_err(refuse)?;
    if start != SIGNATURE {
        let text = format!("its {length} bytes are no HDF5 file");
        return Err(Error::Foreign { path: path.to_path_buf(), text });
    }
    let unsealed = || Error::Unsealed { path: path.to_path_buf() };
    let sealed = length.checked_sub(LENGTH).ok_or_else(unsealed)?;
    let mut seal = [0; LENGTH as usize];
    file.seek(SeekFrom::Start(sealed)).and_then(|_| file.read_exact(&mut seal)).map_err(refuse)?;
    if !seal.starts_with(MAGIC) {
        return Err(unsealed());
    }
    let got = checksum(&mut file, sealed).map_err(refuse)?;
    if seal == encode(sealed, got) {
        return Ok(());
    }
    let expected = u32::from_le_bytes([seal[12], seal[13], seal[14], seal[15]]);
    Err(Error::Damaged { path: path.to_path_buf(), expected, got })
}

fn encode(length: u64, checksum: u32) -> [u8; LENGTH as usize] {
    let mut seal = [0; LENGTH as usize];
    seal[..8].copy_from_slice(MAGIC);
    seal[8..12].copy_from_slice(&(length as u32).to_le_bytes());
    seal[12..].copy_from_slice(&checksum.to_le_bytes());
    seal
}

fn checksum(file: &mut File, length: u64) -> io::Result<u32> {
    file.seek(SeekFrom::Start(0))?;
    let mut block = Vec::with_capacity(BLOCK);
    let mut checksums = Vec::new();
    let mut rest = length;
    while rest > 0 {
        block.clear();
        let read = Read::by_ref(file).take(rest.min(BLOCK as u64)).read_to_end(&mut block)?;
        if read == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file shrank while it was read"));
        }
        checksums.extend(masked_crc32c(&block).to_le_bytes());
        rest -= read as u64;
    }
    Ok(masked_crc32c(&checksums))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_changed_or_missing_byte_breaks_the_seal() {
        let path = std::env::temp_dir().join(format!("trireme-seal-{}", std::process::id()));
        // More than two blocks, the last one short.
        let mut bytes: Vec<u8> = (0..2 * BLOCK + 77).map(|i| (i % 251) as u8).collect();
        bytes[..8].copy_from_slice(&SIGNATURE);
        std::fs::write(&path, &bytes).unwrap();
        assert!(matches!(check(&path), Err(Error::Unsealed { .. })));
        append(&path).unwrap();
        assert!(check(&path).is_ok());
        let sealed = std::fs::read(&path).unwrap();
        assert_eq!(&sealed[..bytes.len()], bytes);
        for at in [8, BLOCK - 1, BLOCK, bytes.len() - 1, bytes.len() + 8, bytes.len() + 12] {
            let mut changed = sealed.clone();
            changed[at] ^= 4;
            std::fs::write(&path, changed).unwrap();
            assert!(matches!(check(&path), Err(Error::Damaged { .. })), "byte {at}");
        }
        // A block that is missing in the middle: the seal is there, its length does not fit.
        let mut shorter = sealed.clone();
        shorter.drain(BLOCK..2 * BLOCK);
        std::fs::write(&path, shorter).unwrap();
        assert!(matches!(check(&path), Err(Error::Damaged { .. })));
        std::fs::remove_file(path).unwrap();
    }
}
