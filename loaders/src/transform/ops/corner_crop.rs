//! `corner_crop(size, corner)`: the window in a corner, as torchvision's FiveCrop has them: 0 top left, 1 top right, 2 bottom left, 3
//! bottom right. It does not pad: the window must fit.

use std::fmt;

use crate::random::Draws;
use crate::spec::ImageSpec;
use crate::transform::arguments::{size_first, whole};
use crate::transform::call::Arguments;
use crate::transform::canvas::Canvas;
use crate::transform::cropped::{cropped, cropped_of_varied};
use crate::transform::op::{Built, Context, Sizes, Transform, Varied};
use crate::transform::rectangle::Rectangle;
use crate::transform::size::Size;

#[derive(Debug)]
struct CornerCrop {
    size: Size,
    corner: u32,
}

pub(super) fn build(arguments: &Arguments<'_>, _context: Context<'_>) -> Built {
    match (size_first(arguments)?, arguments.words.first()) {
        ((size, [corner]), None) => Ok(Box::new(CornerCrop { size, corner: whole(*corner, 0, 3)? })),
        _ => Err("expected a size and a corner from 0 to 3".into()),
    }
}

impl Transform for CornerCrop {
    fn output(&self, input: ImageSpec) -> Result<ImageSpec, String> {
        cropped(self.size, input)
    }

    fn output_of_varied(&self, input: Varied) -> Result<Sizes, String> {
        cropped_of_varied(self.size, input)
    }

    fn is_geometric(&self) -> bool {
        true
    }

    fn apply(&self, image: &mut Canvas<'_>, _draws: &mut Draws) {
        let ImageSpec { height, width, .. } = image.spec();
        let top = if self.corner < 2 { 0 } else { height - self.size.height };
        let left = if self.corner.is_multiple_of(2) { 0 } else { width - self.size.width };
        image.crop(Rectangle { top, left, height: self.size.height, width: self.size.width });
    }
}

impl fmt::Display for CornerCrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "corner_crop({}, {})", self.size, self.corner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::testing::run_any;

    #[test]
    fn four_corners() {
        let (spec, bytes) = (ImageSpec::new(3, 4, 1), (0..12).collect::<Vec<u8>>());
        let corner = |k: u32| run_any(build, &format!("corner_crop(2, {k})"), spec, &bytes, 0);
        assert_eq!([corner(0), corner(1)], [[0.0, 1.0, 4.0, 5.0], [2.0, 3.0, 6.0, 7.0]]);
        assert_eq!([corner(2), corner(3)], [[4.0, 5.0, 8.0, 9.0], [6.0, 7.0, 10.0, 11.0]]);
    }
}
