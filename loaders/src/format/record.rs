//! The framing of TFRecords: lengths and masked checksums. The module `example` reads the payloads. The module `shard`
//! adds the file and the number of the record to the errors.
//!
//! A record is `u64 length | u32 mask(crc(length bytes)) | payload | u32 mask(crc(payload))`, little-endian, with
//! CRC-32C (Castagnoli). A file is a sequence of records without header or footer.

use crate::crc32c::crc32c;

pub use crate::fault::RecordFault;

/// Bytes that the framing adds to each payload.
pub const OVERHEAD: u64 = 16;

/// Bytes before the payload: the length and its checksum.
pub const HEADER: usize = 12;

const MASK_DELTA: u32 = 0xa282_ead8;

/// Returns the CRC-32C of `bytes`, rotated right by 15 and offset, as TFRecord stores it.
pub fn masked_crc32c(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(MASK_DELTA)
}

/// Appends a record to `out` and returns its size including framing. `write` must append the payload to the buffer and
/// must not change the bytes before it. The payload is not copied again.
pub fn append_record(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) -> u64 {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER]);
    write(out);
    let length = ((out.len() - start - HEADER) as u64).to_le_bytes();
    out[start..start + 8].copy_from_slice(&length);
    out[start + 8..start + HEADER].copy_from_slice(&masked_crc32c(&length).to_le_bytes());
    let checksum = masked_crc32c(&out[start + HEADER..]);
    out.extend_from_slice(&checksum.to_le_bytes());
    (out.len() - start) as u64
}

/// Returns the size, including framing, of the record at the start of `bytes`. Verifies the header's checksum.
pub fn record_size(bytes: &[u8]) -> Result<u64, RecordFault> {
    let Some((header, _)) = bytes.split_first_chunk::<HEADER>() else {
        return Err(RecordFault::Truncated { need: OVERHEAD, have: bytes.len() as u64 });
    };
    let [l0, l1, l2, l3, l4, l5, l6, l7, c0, c1, c2, c3] = *header;
    let length = [l0, l1, l2, l3, l4, l5, l6, l7];
    let (stored, computed) = (u32::from_le_bytes([c0, c1, c2, c3]), masked_crc32c(&length));
    if stored != computed {
        return Err(RecordFault::LengthChecksum { stored, computed });
    }
    Ok(u64::from_le_bytes(length).saturating_add(OVERHEAD))
}

/// Reads the record at `offset` of a file's bytes and verifies both checksums.
///
/// Returns the payload and the offset of the next record. A wrong length cannot cause reads beyond `file`, because
/// bounds are checked before any byte is read.
pub fn read_record(file: &[u8], offset: u64) -> Result<(&[u8], u64), RecordFault> {
    let rest = usize::try_from(offset).ok().and_then(|at| file.get(at..)).unwrap_or(&[]);
    let have = rest.len() as u64;
    let size = record_size(rest)?;
    let truncated = RecordFault::Truncated { need: size, have };
    let (length, body) = (size.saturating_sub(OVERHEAD), &rest[HEADER..]);
    let Some((payload, tail)) = usize::try_from(length).ok().and_then(|n| body.split_at_checked(n)) else {
        return Err(truncated);
    };
    let Some(&footer) = tail.first_chunk::<4>() else {
        return Err(truncated);
    };
    let stored = u32::from_le_bytes(footer);
    let computed = masked_crc32c(payload);
    if stored != computed {
        return Err(RecordFault::PayloadChecksum { stored, computed });
    }
    Ok((payload, offset + length + OVERHEAD))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// A GZIP file with one or more members.
    Gzip,
    Zlib,
}

impl Compression {
    /// Detects the compression of a file from its first bytes. `head` should have at least 12 bytes, unless the file is
    /// shorter. Returns `None` for plain records.
    pub fn detect(head: &[u8]) -> Option<Self> {
        match *head {
            // The length of a record may look like the start of a compressed file. In that case its checksum is valid.
            _ if head.len() >= HEADER && record_size(head).is_ok() => None,
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            [0x78, second, ..] if u16::from_be_bytes([0x78, second]).is_multiple_of(31) => Some(Self::Zlib),
            _ => None,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "GZIP",
            Self::Zlib => "ZLIB",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(payloads: &[&[u8]]) -> Vec<u8> {
        let mut file = Vec::new();
        for payload in payloads {
            let start = file.len();
            let size = append_record(&mut file, |out| out.extend_from_slice(payload));
            assert_eq!(size, (file.len() - start) as u64);
        }
        file
    }

    #[test]
    fn the_masked_crc_matches_the_published_check_value() {
        // CRC-32C("123456789") = e3069283, and masked = rotr(crc, 15) + a282ead8.
        assert_eq!(masked_crc32c(b"123456789"), 0xc78a_b0e5);
    }

    #[test]
    fn read_record_returns_payload_and_next_offset() {
        let bytes = file(&[b"abc", b"", b"0123456789"]);
        assert_eq!(bytes.len(), 3 + 10 + 3 * 16);
        assert_eq!(read_record(&bytes, 0), Ok((&b"abc"[..], 19)));
        assert_eq!(read_record(&bytes, 19), Ok((&b""[..], 35)));
        assert_eq!(read_record(&bytes, 35), Ok((&b"0123456789"[..], 61)));
        assert_eq!(read_record(&bytes, 61), Err(RecordFault::Truncated { need: 16, have: 0 }));
    }

    #[test]
    fn every_flipped_bit_is_detected() {
        let good = file(&[b"a payload of some bytes"]);
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                let fault = read_record(&bad, 0).unwrap_err();
                match fault {
                    RecordFault::LengthChecksum { .. } => assert!(at < 12),
                    RecordFault::PayloadChecksum { .. } => assert!(at >= 12),
                    RecordFault::Truncated { .. } => panic!("a bad length was trusted"),
                }
            }
        }
    }

    #[test]
    fn hostile_lengths_and_offsets_are_refused() {
        for length in [24u64, 1 << 40, u64::MAX - 8, u64::MAX] {
            let mut bytes = length.to_le_bytes().to_vec();
            bytes.extend(masked_crc32c(&length.to_le_bytes()).to_le_bytes());
            bytes.extend([0; 20]);
            assert_eq!(
                read_record(&bytes, 0),
                Err(RecordFault::Truncated { need: length.saturating_add(16), have: 32 })
            );
        }
        assert!(read_record(b"abc", u64::MAX).is_err());
    }

    #[test]
    fn every_truncation_is_detected() {
        let good = file(&[b"abcdef"]);
        for keep in 0..good.len() {
            assert!(
                matches!(
                    read_record(&good[..keep], 0),
                    Err(RecordFault::Truncated { have, .. }) if have == keep as u64
                ),
                "kept {keep}"
            );
        }
    }

    #[test]
    fn compressed_files_are_told_from_records() {
        assert_eq!(Compression::detect(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1, 2]), Some(Compression::Gzip));
        for second in [0x01, 0x5e, 0x9c, 0xda] {
            assert_eq!(Compression::detect(&[0x78, second, 1, 2, 3]), Some(Compression::Zlib));
        }
        assert_eq!(Compression::detect(&[0x78, 0x9d, 1, 2, 3]), None);
        assert_eq!(Compression::detect(&[]), None);
        // Lengths that look like the start of GZIP and ZLIB.
        for length in [0x8b1f, 0x9c78] {
            let file = file(&[&vec![0; length]]);
            assert_eq!(Compression::detect(&file[..12]), None);
            assert!(file.starts_with(&[length as u8, (length >> 8) as u8]));
        }
    }
}
