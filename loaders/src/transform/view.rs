//! Windows and parts of an image: what a canvas sees, what it needs of the stored image, and what it is given.

use crate::spec::ImageSpec;
use crate::transform::resample::Stretch;

/// Rows and columns of the image, ends excluded; may reach outside of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub top: i64,
    pub left: i64,
    pub bottom: i64,
    pub right: i64,
}

impl Window {
    pub fn meet(self, other: Self) -> Self {
        Self {
            top: self.top.max(other.top),
            left: self.left.max(other.left),
            bottom: self.bottom.min(other.bottom),
            right: self.right.min(other.right),
        }
    }

    pub fn whole(height: u32, width: u32) -> Self {
        Self { top: 0, left: 0, bottom: i64::from(height), right: i64::from(width) }
    }

    pub fn height(&self) -> usize {
        (self.bottom - self.top) as usize
    }

    pub fn width(&self) -> usize {
        (self.right - self.left) as usize
    }
}

/// Rows and columns of the stored image, ends excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Region {
    pub top: usize,
    pub left: usize,
    pub bottom: usize,
    pub right: usize,
}

/// What a canvas asks of the stored image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Need {
    /// The part that it will look at.
    pub region: Region,
    /// How much smaller the image becomes in both directions: it may come at 1/2 if this is at least 2, and so on.
    pub shrink: f64,
}

impl Need {
    /// All of an image, at its own size.
    pub fn whole(spec: ImageSpec) -> Self {
        let (bottom, right) = (spec.height as usize, spec.width as usize);
        Self { region: Region { top: 0, left: 0, bottom, right }, shrink: 1.0 }
    }
}

/// The stored image as it was decoded: at least the part that is needed, perhaps at reduced size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part<'a> {
    /// Interleaved bytes.
    pub bytes: &'a [u8],
    /// Columns of `bytes`.
    pub columns: usize,
    /// Row and column of the first pixel, in the reduced image.
    pub origin: (usize, usize),
    /// 1, or 2 or 4 for an image of 1/2 or 1/4 of the size.
    pub reduction: u32,
}

/// A part of the stored image, and the size that it is seen in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Resize {
    pub region: Region,
    pub height: u32,
    pub width: u32,
}

/// A stretch of the stored image, in an image of 1/`reduction` of its size.
pub(super) fn stretch(from: usize, to: usize, reduction: u32) -> Stretch {
    let by = f64::from(reduction);
    Stretch { start: from as f64 / by, length: (to - from) as f64 / by }
}
