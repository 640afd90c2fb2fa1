//! The shape of an image.

use std::fmt;

/// Height, width and channels of an image; pixels are interleaved (H, W, C) while bytes and planar
/// (C, H, W) once they are floats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ImageSpec {
    /// Rows.
    pub height: u32,
    /// Columns.
    pub width: u32,
    /// 1 = grey, 3 = RGB; raw images may have any number.
    pub channels: u32,
}

impl ImageSpec {
    /// A shape.
    pub const fn new(height: u32, width: u32, channels: u32) -> Self {
        Self { height, width, channels }
    }

    /// Number of values in one image, H * W * C; `usize::MAX` if it is above that.
    pub const fn values(&self) -> usize {
        self.pixels().saturating_mul(self.channels as usize)
    }

    /// Number of pixels, H * W; `usize::MAX` if it is above that.
    pub const fn pixels(&self) -> usize {
        (self.height as usize).saturating_mul(self.width as usize)
    }
}

impl fmt::Display for ImageSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}", self.height, self.width, self.channels)
    }
}
