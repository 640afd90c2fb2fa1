//! Planes of bytes, and the memory in which they are changed.

use crate::transform::geometry::{self, PlanarShape, Rectangle};

/// An image as planes of bytes, channel after channel. Its memory is kept from image to image.
#[derive(Debug, Default)]
pub(crate) struct ByteImage {
    shape: PlanarShape,
    /// The planes, without gaps; what is behind them is left over from larger images.
    pixels: Vec<u8>,
    /// The planes before the last [`ByteImage::remake`].
    spare: Vec<u8>,
    /// The planes at the last [`ByteImage::keep`].
    kept: Vec<u8>,
    lines: Lines,
}

/// A few rows of numbers to work with, kept from image to image.
#[derive(Debug, Default)]
pub(super) struct Lines {
    floats: Vec<f32>,
    places: Vec<u32>,
    inside: Vec<u8>,
}

/// Rows of numbers, of one length each.
pub(super) struct Rows<'a> {
    pub floats: &'a mut [f32],
    pub places: &'a mut [u32],
    pub inside: &'a mut [u8],
}

impl Lines {
    /// So many floats, and so many numbers of each other kind.
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
    /// Starts an image of a shape; its bytes are any.
    pub fn start(&mut self, shape: PlanarShape) -> &mut [u8] {
        self.shape = shape;
        grow(&mut self.pixels, shape.values());
        self.pixels()
    }

    /// The shape.
    pub fn shape(&self) -> PlanarShape {
        self.shape
    }

    /// All planes, one after another.
    pub fn pixels(&mut self) -> &mut [u8] {
        &mut self.pixels[..self.shape.values()]
    }

    /// The planes one by one; none of an image without pixels.
    pub fn planes(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let plane = self.shape.plane().max(1);
        self.pixels().chunks_exact_mut(plane)
    }

    /// Red, green and blue, unless it is grey.
    pub fn rgb(&mut self) -> Option<[&mut [u8]; 3]> {
        let plane = self.shape.plane();
        if self.shape.channels != 3 {
            return None;
        }
        let (red, rest) = self.pixels().split_at_mut(plane);
        let (green, blue) = rest.split_at_mut(plane);
        Some([red, green, blue])
    }

    /// Makes all bytes anew from those there are: `make` gets source and target of equal shape, and rows to work with.
    pub(super) fn remake(&mut self, make: impl FnOnce(&[u8], &mut [u8], &mut Lines)) {
        let values = self.shape.values();
        grow(&mut self.spare, values);
        make(&self.pixels[..values], &mut self.spare[..values], &mut self.lines);
        std::mem::swap(&mut self.pixels, &mut self.spare);
    }

    /// Keeps the bytes as they are for [`ByteImage::restore`].
    pub fn keep(&mut self) {
        let values = self.shape.values();
        grow(&mut self.kept, values);
        self.kept[..values].copy_from_slice(&self.pixels[..values]);
    }

    /// Brings back the bytes that were kept last of an image of this shape.
    pub fn restore(&mut self) {
        let values = self.shape.values();
        self.pixels[..values].copy_from_slice(&self.kept[..values]);
    }

    /// Keeps a part.
    pub fn crop(&mut self, part: Rectangle) {
        let shape = self.shape;
        geometry::crop(self.pixels(), shape, part);
        self.shape = PlanarShape { height: part.height as usize, width: part.width as usize, ..shape };
    }
}

/// Makes a buffer at least this long.
fn grow<T: Copy + Default>(buffer: &mut Vec<T>, len: usize) {
    if buffer.len() < len {
        buffer.resize(len, T::default());
    }
}
