//! The shortcut without parameters in residual networks.

use super::shape::Shape;
use super::spec::OpSpec;
use super::toml_keys::{Keys, OpFormat};

/// Selects every `stride`-th pixel in both directions. Adds channels of zeros before and after the input's channels, so
/// that there are `out_channels` (option A of He et al. 2015, section 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortcut {
    pub out_channels: usize,
    pub stride: usize,
}

impl Shortcut {
    /// Returns the number of zero channels before the input's first channel.
    pub fn before(&self, x: Shape) -> usize {
        (self.out_channels - x.c) / 2
    }
}

impl OpSpec for Shortcut {
    fn output(&self, x: &[Shape]) -> Result<Shape, String> {
        let x = x[0];
        if self.out_channels < x.c || self.stride == 0 {
            return Err(format!(
                "a shortcut from {x} to {} channels with stride {} is not possible",
                self.out_channels, self.stride
            ));
        }
        Ok(Shape::image(self.out_channels, x.h.div_ceil(self.stride), x.w.div_ceil(self.stride)))
    }
}

impl OpFormat for Shortcut {
    const WORDS: &'static [&'static str] = &["shortcut"];

    fn cure(&self, inputs: &[Shape]) -> &'static str {
        match *inputs {
            [x] if self.out_channels < x.c => "channels must be at least the number of input channels",
            [_] if self.stride == 0 => "stride must be at least 1",
            _ => "",
        }
    }

    fn plain(_: &str) -> Self {
        Self { out_channels: 0, stride: 1 }
    }

    fn keys(&mut self, keys: &mut Keys<'_>) {
        let Self { out_channels, stride } = self;
        keys.needed("channels", out_channels);
        keys.key("stride", stride);
    }
}
