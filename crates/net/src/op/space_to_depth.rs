//! Moves neighbouring pixels to channels.

use super::shape::Shape;
use super::spec::OpSpec;
use super::toml_keys::{Keys, OpFormat};

/// Concatenates the channels of the pixels in each square of this size (Swin's patch merging, Liu et al. 2021, arXiv
/// 2103.14030, section 3.1). The pixels of a square are taken column by column, as in torchvision. Pixels beyond the
/// image are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceToDepth(pub usize);

/// A channel of a pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PixelChannel {
    pub channel: usize,
    /// Index of the pixel in its plane.
    pub position: usize,
}

impl SpaceToDepth {
    /// Returns the input's channel that this channel of the output copies, or `None` if it is beyond the image. `x` is
    /// the input's shape.
    pub fn source(&self, x: Shape, y: PixelChannel) -> Option<PixelChannel> {
        let (size, width) = (self.0, x.w.div_ceil(self.0));
        let (row, column) = (y.position / width * size, y.position % width * size);
        let (pixel, channel) = (y.channel / x.c, y.channel % x.c);
        let (row, column) = (row + pixel % size, column + pixel / size);
        (row < x.h && column < x.w).then_some(PixelChannel { channel, position: row * x.w + column })
    }

    /// Returns the output's channel that copies this channel of the input.
    pub fn target(&self, x: Shape, from: PixelChannel) -> PixelChannel {
        let (size, width) = (self.0, x.w.div_ceil(self.0));
        let (row, column) = (from.position / x.w, from.position % x.w);
        let pixel = column % size * size + row % size;
        PixelChannel { channel: pixel * x.c + from.channel, position: row / size * width + column / size }
    }
}

impl OpSpec for SpaceToDepth {
    fn output(&self, x: &[Shape]) -> Result<Shape, String> {
        let (x, size) = (x[0], self.0);
        if size == 0 || size > x.h.max(x.w) {
            return Err(format!("squares of {size}x{size} pixels are larger than its input, {}", x.with_plane()));
        }
        Ok(Shape::image(x.c * size * size, x.h.div_ceil(size), x.w.div_ceil(size)))
    }
}

impl OpFormat for SpaceToDepth {
    const WORDS: &'static [&'static str] = &["space_to_depth"];
    const CURE: &'static str = "try a smaller size";

    fn plain(_: &str) -> Self {
        Self(2)
    }

    fn keys(&mut self, keys: &mut Keys<'_>) {
        keys.key("size", &mut self.0);
    }
}
