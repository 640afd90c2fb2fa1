//! What images become: their size, and the format and quality in which they are stored.

use super::rgb::Size;
use crate::options::{ConvertOptions, To8Bit};

/// Quality of JPEGs where none is given.
const QUALITY: u8 = 90;
/// Quality of JPEGs that are written only because their source is no RGB JPEG, as in TensorFlow's scripts.
const REPAIR_QUALITY: u8 = 100;

/// What becomes of images.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    resize: Option<u32>,
    quality: Option<u8>,
    /// Whether pixels are stored instead of files.
    pub(super) raw: bool,
    /// How to convert images with more than 8 bits or three bands. `None` rejects them.
    pub(super) to_8bit: Option<To8Bit>,
    /// Whether JPEGs get entry points.
    pub(super) entry_points: bool,
    png_as_jpeg: bool,
}

impl Target {
    /// The target of the options; with `png_as_jpeg` every PNG file becomes a JPEG.
    pub(crate) fn new(options: &ConvertOptions, png_as_jpeg: bool) -> Self {
        let &ConvertOptions { resize, quality, raw, to_8bit, entry_points, .. } = options;
        Target { resize, quality, raw, to_8bit, entry_points, png_as_jpeg }
    }

    /// Whether an RGB JPEG that is not resized is stored as it is.
    pub(super) fn keeps_jpeg(&self) -> bool {
        !self.raw && self.quality.is_none()
    }

    /// Whether a PNG that is not resized is stored as it is.
    pub(super) fn keeps_png(&self) -> bool {
        self.keeps_jpeg() && !self.png_as_jpeg
    }

    /// Whether a JPEG can be resized in its planes: the result has chroma of half the size.
    pub(super) fn keeps_planes(&self) -> bool {
        !self.raw && self.quality != Some(100)
    }

    /// Quality of a JPEG; `repaired` if it replaces a file of the same size that could not stay.
    pub(super) fn quality(&self, repaired: bool) -> u8 {
        self.quality.unwrap_or(if repaired { REPAIR_QUALITY } else { QUALITY })
    }

    /// The size that an image of size `stored` is scaled to, if it is: the short side as requested, the long one in
    /// proportion, cut to an integer (torchvision's rule). Images are never enlarged.
    pub(super) fn size(&self, stored: Size) -> Option<Size> {
        let short = self.resize? as usize;
        let Size { height, width } = stored;
        let long = |long: usize, of: usize| (short * long / of).max(1);
        match height.min(width) {
            least if least <= short => None,
            least if least == height => Some(Size { height: short, width: long(width, height) }),
            _ => Some(Size { height: long(height, width), width: short }),
        }
    }
}
