//! An image as planes of bytes or floats, with working memory for changing it.

use crate::transform::geometry::{self, PlanarShape, Rectangle};

/// Rounds to the nearest integer, with ties to even, and clamps to 0 to 255.
#[inline]
pub(in crate::transform) fn nearest(value: f32) -> u8 {
    // Floats from 2^23 to 2^24 have no fraction bits, so the lowest 8 bits of the sum are the rounded value.
    (value.clamp(0.0, 255.0) + (1 << 23) as f32).to_bits() as u8
}

/// Returns `a` if `condition` is true, otherwise `b`, without a branch.
#[inline]
pub(in crate::transform) fn select(condition: bool, a: f32, b: f32) -> f32 {
    let mask = u32::from(condition).wrapping_neg();
    f32::from_bits((a.to_bits() & mask) | (b.to_bits() & !mask))
}

/// A value in a plane: a byte or a float.
pub(crate) trait Pixel: Copy + Default {
    fn value(self) -> f32;

    /// Returns the nearest value of this type.
    fn nearest(value: f32) -> Self;

    /// Returns the value if `mask` is 255, and 0 if it is 0.
    fn masked(self, mask: u8) -> Self;
}

impl Pixel for u8 {
    #[inline]
    fn value(self) -> f32 {
        f32::from(self)
    }

    #[inline]
    fn nearest(value: f32) -> Self {
        nearest(value)
    }

    #[inline]
    fn masked(self, mask: u8) -> Self {
        self & mask
    }
}

impl Pixel for f32 {
    #[inline]
    fn value(self) -> f32 {
        self
    }

    #[inline]
    fn nearest(value: f32) -> Self {
        value
    }

    #[inline]
    fn masked(self, mask: u8) -> Self {
        select(mask != 0, self, 0.0)
    }
}

/// An image as planes, channel by channel. Its memory is reused for all images.
#[derive(Debug, Default)]
pub(crate) struct Planes<T> {
    shape: PlanarShape,
    /// The planes, without gaps. Values after them are left over from larger images.
    pixels: Vec<T>,
    /// Buffer for the result of [`Planes::replace_with`], which then swaps it with `pixels`.
    spare: Vec<T>,
    /// The planes that [`Planes::save`] has saved.
    kept: Vec<T>,
    lines: Lines,
}

/// An image as planes of bytes.
pub(crate) type ByteImage = Planes<u8>;

/// Buffers for a few rows of numbers, reused for all images.
#[derive(Debug, Default)]
pub(super) struct Lines {
    floats: Vec<f32>,
    places: Vec<u32>,
    inside: Vec<u8>,
}

/// Working memory for rows of numbers.
pub(super) struct Rows<'a> {
    pub floats: &'a mut [f32],
    pub places: &'a mut [u32],
    pub inside: &'a mut [u8],
}

impl Lines {
    /// Returns buffers of `floats` f32 values, and of `others` u32 and u8 values.
    pub fn rows(&mut self, floats: usize, others: usize) -> Rows<'_> {
        grow(&mut self.floats, floats);
        grow(&mut self.places, others);
        grow(&mut self.inside, others);
        Rows {
            floats: &mut self.floats[..floats],
            places: &mut self.places[..others],
            inside: &mut self.inside[..others],
        }
    }
}

impl<T: Pixel> Planes<T> {
    /// Starts a new image with this shape and unspecified values.
    pub fn start(&mut self, shape: PlanarShape) -> &mut [T] {
        self.shape = shape;
        grow(&mut self.pixels, shape.values());
        self.pixels()
    }

    pub fn shape(&self) -> PlanarShape {
        self.shape
    }

    /// Returns all planes, stored consecutively.
    pub fn pixels(&mut self) -> &mut [T] {
        &mut self.pixels[..self.shape.values()]
    }

    /// Iterates over the planes. An image without pixels has no planes.
    pub fn planes(&mut self) -> impl Iterator<Item = &mut [T]> {
        let plane = self.shape.plane().max(1);
        self.pixels().chunks_exact_mut(plane)
    }

    /// Returns the red, green and blue planes, or `None` if there are not three channels.
    pub fn rgb(&mut self) -> Option<[&mut [T]; 3]> {
        (self.shape.channels == 3).then(|| geometry::rgb(self.pixels()))
    }

    /// Replaces all values: `make` gets the current values, a target with the same shape, and working memory.
    pub(super) fn replace_with(&mut self, make: impl FnOnce(&[T], &mut [T], &mut Lines)) {
        let values = self.shape.values();
        grow(&mut self.spare, values);
        make(&self.pixels[..values], &mut self.spare[..values], &mut self.lines);
        std::mem::swap(&mut self.pixels, &mut self.spare);
    }

    /// Saves the values for [`Planes::restore`].
    pub fn save(&mut self) {
        let values = self.shape.values();
        grow(&mut self.kept, values);
        self.kept[..values].copy_from_slice(&self.pixels[..values]);
    }

    /// Restores the saved values. The image must have the same shape as when they were saved.
    pub fn restore(&mut self) {
        let values = self.shape.values();
        self.pixels[..values].copy_from_slice(&self.kept[..values]);
    }

    pub fn crop(&mut self, part: Rectangle) {
        let shape = self.shape;
        geometry::crop(self.pixels(), shape, part);
        self.shape = PlanarShape { height: part.height as usize, width: part.width as usize, ..shape };
    }
}

/// Extends a buffer to at least this length.
fn grow<T: Copy + Default>(buffer: &mut Vec<T>, len: usize) {
    if buffer.len() < len {
        buffer.resize(len, T::default());
    }
}
