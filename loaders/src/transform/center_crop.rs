//! `center_crop(n)`: the n x n window in the middle, its offset floor((H - n) / 2), as
//! `tf.image.resize_with_crop_or_pad` has it. It does not pad: n must fit.

use std::fmt;

use super::{Canvas, Context, Transform, cropped, one_size};
use crate::random::Draws;
use crate::spec::ImageSpec;

#[derive(Debug)]
struct CenterCrop {
    size: u32,
}

pub(super) fn build(arguments: &[f64], _context: Context<'_>) -> Result<Box<dyn Transform>, String> {
    let size = one_size(arguments, 1)?;
    Ok(Box::new(CenterCrop { size }))
}

impl Transform for CenterCrop {
    fn output(&self, input: ImageSpec) -> Result<ImageSpec, String> {
        cropped(self.size, input)
    }

    fn is_geometric(&self) -> bool {
        true
    }

    fn apply(&self, image: &mut Canvas<'_>, _draws: &mut Draws) {
        let ImageSpec { height, width, .. } = image.spec();
        image.crop((height - self.size) / 2, (width - self.size) / 2, self.size, self.size);
    }
}

impl fmt::Display for CenterCrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "center_crop({})", self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::run;
    use super::*;

    #[test]
    fn odd_margins_round_towards_the_top_left() {
        let spec = ImageSpec::new(4, 5, 1);
        let bytes: Vec<u8> = (0..20).collect();
        // Offsets floor(1/2) = 0 and floor(2/2) = 1.
        assert_eq!(run("center_crop(3)", spec, &bytes, 0), [1.0, 2.0, 3.0, 6.0, 7.0, 8.0, 11.0, 12.0, 13.0]);
    }
}
