//! Image files that are not decoded here, told by their first bytes, so that messages can name them.

/// What a file of another format is, with an article.
pub fn other_format(file: &[u8]) -> Option<&'static str> {
    let at = |offset: usize, bytes: &[u8]| file.get(offset..).is_some_and(|rest| rest.starts_with(bytes));
    // header sizes for Windows and OS/2
    const BMP_HEADERS: [u8; 8] = [12, 16, 40, 52, 56, 64, 108, 124];
    let known: [(bool, &'static str); 11] = [
        (at(0, b"RIFF") && at(8, b"WEBP"), "a WebP file"),
        (at(0, b"GIF8"), "a GIF file"),
        (at(0, b"BM") && BMP_HEADERS.iter().any(|&length| at(14, &[length, 0, 0, 0])), "a BMP file"),
        (at(0, b"II*\0") || at(0, b"MM\0*") || at(0, b"II+\0\x08\0") || at(0, b"MM\0+\0\x08"), "a TIFF file"),
        (at(4, b"ftypavif"), "an AVIF file"),
        (at(4, b"ftyphei") || at(4, b"ftypmif1"), "a HEIC file"),
        (at(0, &[0xff, 0x0a]) || at(4, b"JXL "), "a JPEG XL file"),
        (at(4, b"jP  "), "a JPEG 2000 file"),
        (at(0, b"%PDF"), "a PDF file"),
        (at(0, b"PK\x03\x04"), "a ZIP archive"),
        (at(0, b"<svg") || at(0, b"<?xml"), "an SVG or XML file"),
    ];
    known.into_iter().find(|(is, _)| *is).map(|(_, name)| name)
}

/// What to do with a file that is neither a PNG nor a JPEG.
pub(super) fn advice(file: &[u8]) -> String {
    match other_format(file) {
        Some(name @ ("a WebP file" | "a GIF file" | "a BMP file" | "a TIFF file")) => {
            format!("it is {name}; `trireme data convert` takes it, for `predict` save it as PNG or JPEG")
        }
        Some("a ZIP archive") => "it is a ZIP archive; unpack it first (unzip FILE -d DIR)".into(),
        Some(name) => format!("it is {name}; save it as PNG or JPEG"),
        None => match &file[..file.len().min(16)] {
            [] => "the file is empty (0 bytes)".into(),
            head => format!("it starts with \"{}\"", head.escape_ascii()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_by_their_first_bytes() {
        assert_eq!(other_format(b"RIFF\x10\0\0\0WEBPVP8L"), Some("a WebP file"));
        assert_eq!(other_format(b"RIFF\x10\0\0\0AVI LIST"), None);
        assert_eq!(other_format(b"BM\x36\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0"), Some("a BMP file"));
        assert_eq!(other_format(b"BM\x36\0\0\0\x07\0\0\0\x1a\0\0\0\x0c\0\0\0"), Some("a BMP file"));
        assert_eq!(other_format(b"II+\0\x08\0\0\0"), Some("a TIFF file"));
        assert_eq!(other_format(b"MM\0*\0\0\0\x08"), Some("a TIFF file"));
        assert_eq!(other_format(b"\0\0\0\x18ftypheic"), Some("a HEIC file"));
        assert!(advice(b"GIF89a..").contains("it is a GIF file; `trireme data convert` takes it"));
        assert!(advice(b"%PDF-1.4").contains("it is a PDF file; save it as PNG or JPEG"));
        assert!(advice(b"PK\x03\x04").contains("unpack it first"));
        assert!(advice(b"").contains("empty") && advice(b"hello").contains("\"hello\""));
    }
}
