//! The shape of an image, and the shapes of a data set's images.

use std::fmt;

use base::text::plural;
use serde::{Deserialize, Serialize};

/// Height, width and channels of an image. Bytes are interleaved (H, W, C), and floats are planar (C, H, W).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ImageSpec {
    pub height: u32,
    pub width: u32,
    /// 1 is grey and 3 is RGB. Raw images may have any number.
    pub channels: u32,
}

impl ImageSpec {
    pub const fn new(height: u32, width: u32, channels: u32) -> Self {
        Self { height, width, channels }
    }

    /// Returns the number of values in an image, H * W * C, or `usize::MAX` if that is larger than `usize::MAX`.
    pub const fn values(&self) -> usize {
        self.pixels().saturating_mul(self.channels as usize)
    }

    /// Returns the number of pixels, H * W, or `usize::MAX` if that is larger than `usize::MAX`.
    pub const fn pixels(&self) -> usize {
        (self.height as usize).saturating_mul(self.width as usize)
    }
}

impl fmt::Display for ImageSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}", self.height, self.width, self.channels)
    }
}

/// The value type in a raw image, as data sets store it: little-endian, unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Dtype {
    #[default]
    #[serde(rename = "uint8")]
    U8,
    #[serde(rename = "uint16")]
    U16,
    #[serde(rename = "int16")]
    I16,
    #[serde(rename = "float32")]
    F32,
}

impl Dtype {
    pub const ALL: [Self; 4] = [Self::U8, Self::U16, Self::I16, Self::F32];

    /// Returns the name in records and in `dataset.json`. NumPy and TensorFlow use the same names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "uint8",
            Self::U16 => "uint16",
            Self::I16 => "int16",
            Self::F32 => "float32",
        }
    }

    /// Returns the type with this name.
    pub fn parse(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name().as_bytes() == name)
    }

    /// Returns a value's size in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::U16 | Self::I16 => 2,
            Self::F32 => 4,
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The shapes of a split's images, or the shapes that a pipeline accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Images {
    /// All images have this shape.
    Fixed(ImageSpec),
    /// Height and width vary from image to image.
    Varied {
        /// 1 or 3. If it is 3, grey images are converted to RGB.
        channels: u32,
    },
}

impl Images {
    /// Returns the number of channels of all images, after any conversion from grey to RGB.
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
            Self::Varied { channels } => write!(f, "various sizes and {}", plural(channels, "channel")),
        }
    }
}
