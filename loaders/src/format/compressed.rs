//! TFRecord files that are compressed as a whole, by GZIP or ZLIB: told by their first bytes.

use crate::format::record::{HEADER, record_size};

/// How a file is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compressed {
    /// A GZIP file, of one member or several.
    Gzip,
    /// A ZLIB stream.
    Zlib,
}

impl Compressed {
    /// How the file that begins with `head`, at least 12 bytes unless it is shorter, is compressed; `None` for plain records.
    pub fn of(head: &[u8]) -> Option<Self> {
        match *head {
            // a record's length may begin like a compressed file, but then its checksum tells
            _ if head.len() >= HEADER && record_size(head).is_ok() => None,
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            [0x78, second, ..] if u16::from_be_bytes([0x78, second]).is_multiple_of(31) => Some(Self::Zlib),
            _ => None,
        }
    }

    /// Its name.
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
    use crate::format::record::RecordWriter;

    #[test]
    fn compressed_files_are_told_from_records() {
        assert_eq!(Compressed::of(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1, 2]), Some(Compressed::Gzip));
        for second in [0x01, 0x5e, 0x9c, 0xda] {
            assert_eq!(Compressed::of(&[0x78, second, 1, 2, 3]), Some(Compressed::Zlib));
        }
        assert_eq!(Compressed::of(&[0x78, 0x9d, 1, 2, 3]), None);
        assert_eq!(Compressed::of(&[]), None);
        // lengths that begin like GZIP and like ZLIB
        for length in [0x8b1f, 0x9c78] {
            let mut writer = RecordWriter::new(Vec::new());
            writer.write(&vec![0; length]).unwrap();
            let file = writer.finish().unwrap();
            assert_eq!(Compressed::of(&file[..12]), None);
            assert!(file.starts_with(&[length as u8, (length >> 8) as u8]));
        }
    }
}
