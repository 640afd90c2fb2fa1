//! What an image file is and whether it is whole, by its first and last bytes.

use loaders::Format;

/// Bytes at the end of a file in which its end marker is searched: some files have trailing bytes behind it.
const TAIL: usize = 1 << 16;

/// The format by a file's first bytes, whatever its name.
pub(super) fn format(file: &[u8]) -> Result<Format, String> {
    if file.starts_with(b"\x89PNG\r\n\x1a\n") {
        return Ok(Format::Png);
    }
    if file.starts_with(&[0xff, 0xd8]) {
        return Ok(Format::Jpeg);
    }
    if file.is_empty() {
        return Err("the file is empty (0 bytes)".into());
    }
    let head = &file[..file.len().min(16)];
    Err(format!("neither a PNG nor a JPEG file: it starts with \"{}\"", head.escape_ascii()))
}

/// Whether `marker` is among the last bytes of a file.
pub(super) fn ends_with(file: &[u8], marker: &[u8]) -> bool {
    let tail = &file[file.len().saturating_sub(TAIL)..];
    tail.windows(marker.len()).rev().any(|window| window == marker)
}
