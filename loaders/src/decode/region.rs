//! The part of a stored image that is needed, and the part that was decoded.

use crate::spec::ImageSpec;

/// Rows and columns of a stored image, ends excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Region {
    pub top: usize,
    pub left: usize,
    pub bottom: usize,
    pub right: usize,
}

/// The part of a stored image that a canvas needs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Need {
    /// The pixels that are read later.
    pub region: Region,
    /// How much smaller the image becomes in both directions: from 2 on it may be decoded at 1/2 of its size, from 4 on at 1/4.
    pub shrink: f64,
}

impl Need {
    /// All of an image, at its own size.
    pub fn whole(spec: ImageSpec) -> Self {
        let (bottom, right) = (spec.height as usize, spec.width as usize);
        Self { region: Region { top: 0, left: 0, bottom, right }, shrink: 1.0 }
    }

    /// Returns the same region without shrinking.
    pub fn in_full(self) -> Self {
        Self { shrink: 1.0, ..self }
    }
}

/// The decoded part of a stored image: at least what is needed, perhaps at reduced size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Decoded<'a> {
    /// Interleaved bytes.
    pub bytes: &'a [u8],
    /// Columns of `bytes`.
    pub columns: usize,
    /// Row and column of the first pixel, in the reduced image.
    pub origin: (usize, usize),
    /// 1, or 2 or 4 for an image of 1/2 or 1/4 of the size.
    pub reduction: u32,
}

/// Which part of an image was decoded, as [`Decoded`] says it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub rows: usize,
    pub columns: usize,
    pub origin: (usize, usize),
    pub reduction: u32,
}

impl Part {
    /// The part with its bytes.
    pub fn of(self, bytes: &[u8]) -> Decoded<'_> {
        let Self { columns, origin, reduction, .. } = self;
        Decoded { bytes, columns, origin, reduction }
    }
}
