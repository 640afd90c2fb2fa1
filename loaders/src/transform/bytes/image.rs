//! An image as planes of bytes, with working memory for changing it.

use crate::transform::geometry::{self, PlanarShape, Rectangle};

/// An image as planes of bytes, channel by channel. Its memory is reused for all images.
#[derive(Debug, Default)]
pub(crate) struct ByteImage {
    shape: PlanarShape,
    /// The planes, without gaps. Bytes after them are left over from larger images.
    pixels: Vec<u8>,
    /// The planes before the last [`ByteImage::replace_with`].
    spare: Vec<u8>,
    /// The planes at the last [`ByteImage::save`].
    kept: Vec<u8>,
    lines: Lines,
}

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

impl ByteImage {
    /// Starts a new image with this shape and unspecified bytes.
    pub fn start(&mut self, shape: PlanarShape) -> &mut [u8] {
        self.shape = shape;
        grow(&mut self.pixels, shape.values());
        self.pixels()
    }

    pub fn shape(&self) -> PlanarShape {
        self.shape
    }

    /// Returns all planes, stored consecutively.
    pub fn pixels(&mut self) -> &mut [u8] {
        &mut self.pixels[..self.shape.values()]
    }

    /// Iterates over the planes. An image without pixels has no planes.
    pub fn planes(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let plane = self.shape.plane().max(1);
        self.pixels().chunks_exact_mut(plane)
    }

    /// Returns the red, green and blue planes, or `None` if there are not three channels.
    pub fn rgb(&mut self) -> Option<[&mut [u8]; 3]> {
        let plane = self.shape.plane();
        if self.shape.channels != 3 {
            return None;
        }
        let (red, rest) = self.pixels().split_at_mut(plane);
        let (green, blue) = rest.split_at_mut(plane);
        Some([red, green, blue])
    }

    /// Replaces all bytes: `make` gets the current bytes, a target of the same shape, and working memory.
    pub(super) fn replace_with(&mut self, make: impl FnOnce(&[u8], &mut [u8], &mut Lines)) {
        let values = self.shape.values();
        grow(&mut self.spare, values);
        make(&self.pixels[..values], &mut self.spare[..values], &mut self.lines);
        std::mem::swap(&mut self.pixels, &mut self.spare);
    }

    /// Saves the bytes for [`ByteImage::restore`].
    pub fn save(&mut self) {
        let values = self.shape.values();
        grow(&mut self.kept, values);
        self.kept[..values].copy_from_slice(&self.pixels[..values]);
    }

    /// Restores the saved bytes. The image must have the same shape as when they were saved.
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
