//! The shape of an image, and the shapes of the images of a data set.

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

/// The shapes of images: those of a split, or those that a pipeline accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Images {
    /// All have this shape.
    Fixed(ImageSpec),
    /// Height and width vary.
    Varied {
        /// 1 or 3; if 3, grey images become RGB.
        channels: u32,
    },
}

impl Images {
    /// Channels of all images, after grey ones became RGB if need be.
    pub const fn channels(self) -> u32 {
        match self {
            Self::Fixed(spec) => spec.channels,
            Self::Varied { channels } => channels,
        }
    }
}

impl From<ImageSpec> for Images {
    fn from(spec: ImageSpec) -> Self {
        Self::Fixed(spec)
    }
}

impl fmt::Display for Images {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(spec) => spec.fmt(f),
            Self::Varied { channels } => write!(f, "various sizes and {channels} channels"),
        }
    }
}
