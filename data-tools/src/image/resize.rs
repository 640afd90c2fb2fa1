//! RGB images to a smaller size: the triangle filter with antialiasing (PIL's BILINEAR), rounded to bytes after each of its two
//! passes, by fast_image_resize.

use super::rgb::{Rgb, Size};
use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::U8x3;
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions};

/// A resizer of one thread.
pub(super) struct Resizer(fast_image_resize::Resizer);

impl Resizer {
    pub fn new() -> Self {
        Resizer(fast_image_resize::Resizer::new())
    }

    /// Writes `from`, resized to `size`, into `to`.
    pub fn run(&mut self, from: &Rgb, size: Size, to: &mut Rgb) -> Result<(), String> {
        let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear));
        to.pixels.resize(3 * size.height * size.width, 0);
        (to.size, to.is_grey) = (size, from.is_grey);
        // `resize_typed` compiles the one pixel type that is needed, `resize` all of them.
        let source = TypedImageRef::<U8x3>::from_buffer(from.size.width as u32, from.size.height as u32, &from.pixels);
        let source = source.map_err(|e| e.to_string())?;
        let target = TypedImage::<U8x3>::from_buffer(size.width as u32, size.height as u32, &mut to.pixels);
        let mut target = target.map_err(|e| e.to_string())?;
        self.0.resize_typed(&source, &mut target, &options).map_err(|e| e.to_string())
    }
}
