//! CRC-32C (Castagnoli), the checksum of TFRecords. It must be fast, because every read of a record verifies it.

use crc_fast::{CrcAlgorithm::Crc32Iscsi, Digest, crc32_iscsi};

pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32_iscsi(bytes)
}

/// Extends a checksum: if `crc` is the CRC-32C of some bytes, returns the CRC-32C of these bytes followed by `bytes`.
/// The CRC-32C of zero bytes is 0.
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    // Until it is finished, the state of the digest is the complement of the checksum.
    let mut sum = Digest::new_with_init_state(Crc32Iscsi, u64::from(!crc));
    sum.update(bytes);
    sum.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes the checksum bit by bit. The polynomial is 0x1EDC6F41 (RFC 3720, appendix B.4), in reflected form
    /// 0x82F63B78.
    fn by_bits(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!0, |crc, &byte| {
            (0..8).fold(crc ^ u32::from(byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 })
        })
    }

    #[test]
    fn crc32c_matches_published_values() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        // RFC 3720, appendix B.4
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!((crc32c(b""), crc32c_append(0, b"")), (0, 0));
    }

    #[test]
    fn crc32c_matches_the_bitwise_loop_at_any_length_and_offset() {
        let bytes: Vec<u8> = (0..5000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for length in (0..300).chain([511, 1024, 1025, 3072, 4095, 4900]) {
            for from in [0, 1, 7, 63] {
                let bytes = &bytes[from..from + length];
                let expected = by_bits(bytes);
                assert_eq!(crc32c(bytes), expected, "{from} {length}");
                for at in [0, length / 3, length] {
                    assert_eq!(crc32c_append(crc32c(&bytes[..at]), &bytes[at..]), expected, "{from} {length} {at}");
                }
            }
        }
    }
}
