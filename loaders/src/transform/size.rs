//! Height and width that a transform makes, as they are written in a recipe.

use std::fmt;

/// Height and width; written `224` if they are equal, else `192x256`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub height: u32,
    pub width: u32,
}

impl Size {
    /// A square.
    pub const fn square(side: u32) -> Self {
        Self { height: side, width: side }
    }

    /// The size of an image of this height and width whose short side becomes `side` long, the long side cut to a whole pixel.
    pub fn with_short_side(side: u32, height: u32, width: u32) -> Self {
        // in f64, as Python computes int(n * long / short)
        let long = |short: u32, long: u32| (f64::from(side) * f64::from(long) / f64::from(short)) as u32;
        match width <= height {
            true => Self { height: long(width, height), width: side },
            false => Self { height: side, width: long(height, width) },
        }
    }

    /// Whether height and width are equal.
    pub const fn is_square(self) -> bool {
        self.height == self.width
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_square() {
            true => write!(f, "{}", self.height),
            false => write!(f, "{}x{}", self.height, self.width),
        }
    }
}
