//! The logical size of one sample's tensor.

use std::fmt;

/// Channels, height, width of one sample; a vector of F features is (F, 1, 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Channels, or features.
    pub c: usize,
    /// Rows.
    pub h: usize,
    /// Columns.
    pub w: usize,
}

impl Shape {
    /// An image of `c` channels, `h` rows, `w` columns.
    pub const fn image(c: usize, h: usize, w: usize) -> Self {
        Self { c, h, w }
    }

    /// A vector of `f` features.
    pub const fn vector(f: usize) -> Self {
        Self { c: f, h: 1, w: 1 }
    }

    /// Elements of one sample.
    pub const fn elems(&self) -> usize {
        self.c * self.h * self.w
    }

    /// The one shape of all inputs.
    pub(super) fn alike(x: &[Self]) -> Result<Self, String> {
        match x.iter().find(|other| **other != x[0]) {
            Some(other) => Err(format!("both inputs must have one shape, got {} and {other}", x[0])),
            None => Ok(x[0]),
        }
    }

    /// Channels, height and width, a plane of one position too: where a window does not fit, that is the matter.
    pub(super) fn with_plane(&self) -> String {
        format!("{}x{}x{}", self.c, self.h, self.w)
    }

    /// Positions of one channel.
    pub const fn plane(&self) -> usize {
        self.h * self.w
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.h == 1 && self.w == 1 { write!(f, "{}", self.c) } else { write!(f, "{}x{}x{}", self.c, self.h, self.w) }
    }
}
