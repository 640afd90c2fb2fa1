//! Four inks to RGB, for JPEG files from printing.

/// Whether a file has Adobe's marker: its CMYK values are inverted then, 255 for no ink.
pub(super) fn has_adobe_marker(file: &[u8]) -> bool {
    // segments from SOI to the start of the scan: marker, then the length, which includes its own two bytes
    let mut rest = file.get(2..).unwrap_or(&[]);
    while let [0xff, marker, high, low, ..] = *rest {
        let length = 2 + usize::from(u16::from_be_bytes([high, low]));
        match marker {
            0xff => rest = &rest[1..],
            0xda => return false,
            0xee if rest.get(4..9) == Some(b"Adobe") => return true,
            _ => rest = rest.get(length..).unwrap_or(&[]),
        }
    }
    false
}

/// Converts CMYK to RGB in place; each four bytes become three. R = C * K / 255 of inverted inks, and so on.
pub(super) fn to_rgb(pixels: &mut [u8], inverted: bool) {
    let flip = if inverted { 0 } else { 255 };
    for i in 0..pixels.len() / 4 {
        let [c, m, y, k] = std::array::from_fn(|ink| u32::from(pixels[4 * i + ink] ^ flip));
        for (channel, ink) in [c, m, y].into_iter().enumerate() {
            pixels[3 * i + channel] = ((ink * k + 127) / 255) as u8;
        }
    }
}
