//! Types of the weights in files.

use half::f16;

/// A type of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    /// As they were trained.
    F32,
    /// Rounded to the nearest, half the size.
    F16,
}

impl Number {
    /// Bytes of one value.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
        }
    }

    /// Little-endian values.
    pub fn encode(self, values: &[f32]) -> Vec<u8> {
        match self {
            Self::F32 => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
            Self::F16 => values.iter().flat_map(|value| f16::from_f32(*value).to_le_bytes()).collect(),
        }
    }
}
