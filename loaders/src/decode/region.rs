//! The needed part of a stored image, the decoded part, and EXIF orientation.

use image::metadata::Orientation;

use crate::format::example::BoundingBox;
use crate::spec::{Dtype, ImageSpec};

/// A range of rows and columns, usually of a stored image in pixels. The ends are exclusive.
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
    /// Rows and columns that must be decoded, in full-size image coordinates.
    pub region: Region,
    /// A transform later reduces the image by this factor in both directions. If it is at least 2, the image may be
    /// decoded at 1/2 of its size, and if it is at least 4, at 1/4.
    pub shrink: f64,
}

impl Region {
    /// Returns a whole image of `height` x `width`.
    pub fn whole(height: usize, width: usize) -> Self {
        Self { top: 0, left: 0, bottom: height, right: width }
    }

    pub fn rows(self) -> usize {
        self.bottom - self.top
    }

    pub fn columns(self) -> usize {
        self.right - self.left
    }
}

impl Need {
    /// Returns the whole image at full size.
    pub fn whole(spec: ImageSpec) -> Self {
        Self { region: Region::whole(spec.height as usize, spec.width as usize), shrink: 1.0 }
    }

    /// Returns the same region without shrinking.
    pub fn in_full(self) -> Self {
        Self { shrink: 1.0, ..self }
    }
}

/// The decoded part of a stored image. It includes at least the needed part and may have a reduced size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Decoded<'a> {
    pub bytes: &'a [u8],
    pub dtype: Dtype,
    /// Number of columns in `bytes`.
    pub columns: usize,
    /// Row and column of the first pixel in the reduced image.
    pub origin: (usize, usize),
    /// 1, 2 or 4 for an image at full, 1/2 or 1/4 size.
    pub reduction: u32,
}

impl Decoded<'_> {
    /// Copies the listed bands of an image with `channels` channels to `selected`.
    pub fn select<'s>(&self, bands: &[usize], channels: usize, selected: &'s mut Vec<u8>) -> Decoded<'s> {
        let size = self.dtype.bytes();
        selected.clear();
        for pixel in self.bytes.chunks_exact(channels * size) {
            bands.iter().for_each(|&band| selected.extend_from_slice(&pixel[band * size..][..size]));
        }
        let Self { dtype, columns, origin, reduction, .. } = *self;
        Decoded { bytes: selected, dtype, columns, origin, reduction }
    }
}

/// The position and size of a decoded part, as in [`Decoded`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub rows: usize,
    pub columns: usize,
    pub origin: (usize, usize),
    pub reduction: u32,
}

impl Part {
    /// Combines the part with its pixels. The pixels are bytes.
    pub fn with_bytes(self, bytes: &[u8]) -> Decoded<'_> {
        let Self { columns, origin, reduction, .. } = self;
        Decoded { bytes, dtype: Dtype::U8, columns, origin, reduction }
    }
}

/// How images with an EXIF orientation are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Exif {
    #[default]
    Applied,
    /// Images are not turned.
    Ignored,
}

/// An image orientation: a transposition, followed by mirroring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExifOrientation {
    /// True if rows and columns are exchanged.
    transposed: bool,
    /// True if left and right are mirrored after the transposition.
    flipped: bool,
    /// True if top and bottom are mirrored after the transposition.
    flipped_vertically: bool,
}

/// Side length in pixels of the squares for exchanging rows and columns.
const TILE: usize = 16;

impl ExifOrientation {
    /// Reads the orientation from EXIF data, and skips a JPEG's `Exif\0\0` prefix. Returns the identity if the data has no orientation.
    pub(crate) fn from_exif(data: &[u8]) -> Self {
        Self::from_orientation(Orientation::from_exif_chunk(data.strip_prefix(b"Exif\0\0").unwrap_or(data)))
    }

    /// Converts EXIF's orientation number, 1 to 8. Other numbers give the identity.
    pub fn from_number(number: u8) -> Self {
        Self::from_orientation(Orientation::from_exif(number))
    }

    fn from_orientation(orientation: Option<Orientation>) -> Self {
        let (transposed, flipped, flipped_vertically) = match orientation {
            None | Some(Orientation::NoTransforms) => (false, false, false),
            Some(Orientation::FlipHorizontal) => (false, true, false),
            Some(Orientation::Rotate180) => (false, true, true),
            Some(Orientation::FlipVertical) => (false, false, true),
            Some(Orientation::Rotate90FlipH) => (true, false, false),
            Some(Orientation::Rotate90) => (true, true, false),
            Some(Orientation::Rotate270FlipH) => (true, true, true),
            Some(Orientation::Rotate270) => (true, false, true),
        };
        Self { transposed, flipped, flipped_vertically }
    }

    /// Returns true if this orientation leaves images unchanged.
    pub fn is_none(self) -> bool {
        self == Self::default()
    }

    /// Returns the shape after turning an image of this shape. The same function computes the inverse.
    pub(crate) fn spec(self, spec: ImageSpec) -> ImageSpec {
        match self.transposed {
            true => ImageSpec { height: spec.width, width: spec.height, ..spec },
            false => spec,
        }
    }

    /// Converts a box in the stored image to a box in the shown image.
    pub fn turn_box(self, stored: BoundingBox) -> BoundingBox {
        let BoundingBox { mut ymin, mut xmin, mut ymax, mut xmax } = stored;
        if self.transposed {
            (ymin, xmin, ymax, xmax) = (xmin, ymin, xmax, ymax);
        }
        if self.flipped {
            (xmin, xmax) = (1.0 - xmax, 1.0 - xmin);
        }
        if self.flipped_vertically {
            (ymin, ymax) = (1.0 - ymax, 1.0 - ymin);
        }
        BoundingBox { ymin, xmin, ymax, xmax }
    }

    /// Returns the part of the stored image that is needed for a part of the `shown` image.
    pub(crate) fn need(self, need: Need, shown: ImageSpec) -> Need {
        let (height, width) = (shown.height as usize, shown.width as usize);
        let Region { mut top, mut left, mut bottom, mut right } = need.region;
        let mut shrink = need.shrink;
        if self.flipped_vertically {
            (top, bottom) = (height - bottom, height - top);
            shrink = shrink.min(most_shrink(height));
        }
        if self.flipped {
            (left, right) = (width - right, width - left);
            shrink = shrink.min(most_shrink(width));
        }
        let region = match self.transposed {
            true => Region { top: left, left: top, bottom: right, right: bottom },
            false => Region { top, left, bottom, right },
        };
        Need { region, shrink }
    }

    /// Turns a decoded part of the stored image into a part of the `shown` image.
    pub(crate) fn apply(self, part: Part, source: &[u8], shown: ImageSpec, target: &mut Vec<u8>) -> Part {
        let (rows, columns) = if self.transposed { (part.columns, part.rows) } else { (part.rows, part.columns) };
        let (mut top, mut left) = if self.transposed { (part.origin.1, part.origin.0) } else { part.origin };
        let reduced = |side: u32| side.div_ceil(part.reduction) as usize;
        if self.flipped_vertically {
            top = reduced(shown.height) - (top + rows);
        }
        if self.flipped {
            left = reduced(shown.width) - (left + columns);
        }
        let turned = Part { rows, columns, origin: (top, left), ..part };
        let channels = shown.channels as usize;
        let values = rows * columns * channels;
        if target.len() < values {
            target.resize(values, 0);
        }
        match channels {
            1 => self.fill::<1>(source, part.columns, &mut target[..values], turned),
            _ => self.fill::<3>(source, part.columns, &mut target[..values], turned),
        }
        turned
    }

    /// Copies pixels of `C` bytes.
    fn fill<const C: usize>(self, source: &[u8], stride: usize, target: &mut [u8], turned: Part) {
        let (source, target) = (source.as_chunks::<C>().0, target.as_chunks_mut::<C>().0);
        let Part { rows, columns, .. } = turned;
        for (top, left) in tiles(rows, columns) {
            for y in top..rows.min(top + TILE) {
                let row = if self.flipped_vertically { rows - 1 - y } else { y };
                for x in left..columns.min(left + TILE) {
                    let column = if self.flipped { columns - 1 - x } else { x };
                    let from = if self.transposed { column * stride + row } else { row * stride + column };
                    target[y * columns + x] = source[from];
                }
            }
        }
    }
}

/// Returns the corners of squares that cover this many rows and columns.
fn tiles(rows: usize, columns: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..rows).step_by(TILE).flat_map(move |top| (0..columns).step_by(TILE).map(move |left| (top, left)))
}

/// Returns an upper bound for [`Need::shrink`] if a side of this length is mirrored. Each pixel of a reduced image
/// covers 2 or 4 pixels of the side, counted from its start. Mirrored, they are counted from its end. Both are the same
/// only if the side is divisible by 2 or 4.
fn most_shrink(side: usize) -> f64 {
    match side {
        side if side.is_multiple_of(4) => f64::INFINITY,
        side if side.is_multiple_of(2) => 3.0,
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bounding_box_follows_the_exif_orientation() {
        // A stored image of 1 x 4 pixels, and a box around its second pixel.
        let stored = BoundingBox { ymin: 0.0, xmin: 0.25, ymax: 1.0, xmax: 0.5 };
        for number in 0..8 {
            let [transposed, flipped, flipped_vertically] = [1, 2, 4].map(|bit| number & bit != 0);
            let turn = ExifOrientation { transposed, flipped, flipped_vertically };
            let part = Part { rows: 1, columns: 4, origin: (0, 0), reduction: 1 };
            let shown = turn.spec(ImageSpec::new(1, 4, 1));
            let mut pixels = Vec::new();
            let Part { rows, columns, .. } = turn.apply(part, &[0, 9, 0, 0], shown, &mut pixels);
            let at = pixels.iter().position(|&value| value == 9).unwrap();
            let (y, x) = ((at / columns) as f32, (at % columns) as f32);
            let (height, width) = (rows as f32, columns as f32);
            let expected =
                BoundingBox { ymin: y / height, xmin: x / width, ymax: (y + 1.0) / height, xmax: (x + 1.0) / width };
            assert_eq!(turn.turn_box(stored), expected, "{turn:?}");
        }
    }
}
