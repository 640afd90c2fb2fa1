//! CMYK JPEGs: how they are recognised, and their pixels as RGB.

use turbojpeg::{Colorspace, DecompressHeader};

/// Bytes of a file in which Adobe's marker is searched.
const SEARCHED: usize = 1 << 16;

/// Whether the file holds four inks.
pub(super) fn is_cmyk(header: &DecompressHeader) -> bool {
    matches!(header.colorspace, Colorspace::CMYK | Colorspace::YCCK)
}

/// Whether an Adobe program has written the file: then the inks are stored inverted.
pub(super) fn has_adobe_marker(file: &[u8]) -> bool {
    file.windows(9).take(SEARCHED).any(|w| w[..2] == [0xff, 0xee] && &w[4..] == b"Adobe")
}

/// CMYK to RGB in place, as in TensorFlow's decoder: (255 - ink) * (255 - black) / 255, where inverted files store the
/// differences.
pub(super) fn to_rgb(pixels: &mut Vec<u8>, inverted: bool) {
    let count = pixels.len() / 4;
    for i in 0..count {
        let [c, m, y, k] = [0, 1, 2, 3].map(|j| {
            let ink = u32::from(pixels[4 * i + j]);
            if inverted { ink } else { 255 - ink }
        });
        for (j, ink) in [c, m, y].into_iter().enumerate() {
            pixels[3 * i + j] = (ink * k / 255) as u8;
        }
    }
    pixels.truncate(3 * count);
}
