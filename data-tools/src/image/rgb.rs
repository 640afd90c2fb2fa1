//! An RGB image in memory, and its size.

/// Height and width of an image in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Size {
    pub height: usize,
    pub width: usize,
}

impl Size {
    /// The size of a JPEG decoded at 1 / `reduction`.
    pub fn reduced(self, reduction: u32) -> Self {
        let side = |pixels: usize| pixels.div_ceil(reduction as usize);
        Self { height: side(self.height), width: side(self.width) }
    }
}

/// An image of interleaved RGB bytes, row by row. Its buffer keeps its memory from image to image.
#[derive(Debug, Default)]
pub(super) struct Rgb {
    pub size: Size,
    /// True for the image of a grey file: its three channels are equal.
    pub is_grey: bool,
    /// `3 * height * width` bytes.
    pub pixels: Vec<u8>,
}
