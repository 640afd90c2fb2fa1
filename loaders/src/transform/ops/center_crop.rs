//! `center_crop(n)`: the n x n window in the middle, its offset (H - n) / 2 with halves rounded to the even neighbour, as
//! torchvision has it. It does not pad: n must fit.

use std::fmt;

use crate::random::Draws;
use crate::spec::ImageSpec;
use crate::transform::arguments::only_size;
use crate::transform::call::Arguments;
use crate::transform::canvas::Canvas;
use crate::transform::cropped::{cropped, cropped_of_varied};
use crate::transform::op::{Built, Context, Sizes, Transform, Varied};
use crate::transform::rectangle::Rectangle;
use crate::transform::size::Size;

#[derive(Debug)]
struct CenterCrop {
    size: Size,
}

pub(super) fn build(arguments: &Arguments<'_>, _context: Context<'_>) -> Built {
    let size = only_size(arguments)?;
    Ok(Box::new(CenterCrop { size }))
}

impl Transform for CenterCrop {
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
        let (spec, Size { height, width }) = (image.spec(), self.size);
        let (top, left) = (offset(spec.height - height), offset(spec.width - width));
        image.crop(Rectangle { top, left, height, width });
    }
}

/// Python's `int(round(margin / 2.0))`.
fn offset(margin: u32) -> u32 {
    (f64::from(margin) / 2.0).round_ties_even() as u32
}

impl fmt::Display for CenterCrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "center_crop({})", self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::testing::run_any;

    #[test]
    fn odd_margins_round_to_the_even_offset() {
        let spec = ImageSpec::new(4, 5, 1);
        let bytes: Vec<u8> = (0..20).collect();
        assert_eq!([1, 2, 3, 5, 7, 31].map(offset), [0, 1, 2, 2, 4, 16]);
        // Margins 1 and 2: offsets 0 and 1.
        assert_eq!(run_any(build, "center_crop(3)", spec, &bytes, 0), [1.0, 2.0, 3.0, 6.0, 7.0, 8.0, 11.0, 12.0, 13.0]);
    }
}
