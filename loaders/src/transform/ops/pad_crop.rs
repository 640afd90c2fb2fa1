//! `pad_crop(n)`: n zero pixels on each side, then a random crop back to the same size; offsets
//! uniform over 0 to 2n. The usual CIFAR augmentation with n = 4. `pad_crop(n, reflect)`: the image mirrored at its borders
//! in place of zeros, without repeating them (airbench's, with n = 2).

use std::fmt;

use crate::random::Draws;
use crate::spec::ImageSpec;
use crate::transform::arguments::one_size;
use crate::transform::bytes::shift_reflected;
use crate::transform::call::Arguments;
use crate::transform::canvas::Canvas;
use crate::transform::op::{Built, Context, Transform};

#[derive(Debug)]
struct PadCrop {
    padding: u32,
    reflects: bool,
}

pub(super) fn build(arguments: &Arguments<'_>, _context: Context<'_>) -> Built {
    let padding = one_size(arguments.no_size()?, 0)?;
    let reflects = arguments.choice(&[("zeros", false), ("reflect", true)])?;
    Ok(Box::new(PadCrop { padding, reflects }))
}

impl Transform for PadCrop {
    fn output(&self, input: ImageSpec) -> Result<ImageSpec, String> {
        if self.reflects && self.padding >= input.height.min(input.width) {
            return Err(format!("{} pixels cannot be mirrored within an image of {input}", self.padding));
        }
        Ok(input)
    }

    fn is_geometric(&self) -> bool {
        !self.reflects
    }

    fn keeps_bytes(&self) -> bool {
        self.reflects
    }

    fn pads(&self) -> bool {
        !self.reflects
    }

    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        let mut offset = || draws.below(2 * self.padding + 1) as i32 - self.padding as i32;
        let (down, right) = (offset(), offset());
        match self.reflects {
            true => shift_reflected(image.byte_image(), down, right),
            false => image.shift(down, right),
        }
    }
}

impl fmt::Display for PadCrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pad_crop({}{})", self.padding, if self.reflects { ", reflect" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::testing::{draws, run_any};

    #[test]
    fn every_offset_occurs_and_pads_with_zero() {
        let spec = ImageSpec::new(2, 2, 1);
        let padded = [[0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 2.0, 0.0], [0.0, 3.0, 4.0, 0.0], [0.0, 0.0, 0.0, 0.0]];
        let mut seen = [0; 9];
        for id in 0..900 {
            let mut expected = draws(id);
            let (y, x) = (expected.below(3) as usize, expected.below(3) as usize);
            seen[y * 3 + x] += 1;
            assert_eq!(
                run_any(build, "pad_crop(1)", spec, &[1, 2, 3, 4], id),
                [padded[y][x], padded[y][x + 1], padded[y + 1][x], padded[y + 1][x + 1]]
            );
        }
        // 100 +- 9.4 each.
        assert!(seen.iter().all(|n| (60..140).contains(n)), "{seen:?}");
    }

    #[test]
    fn reflections_do_not_repeat_the_border() {
        let spec = ImageSpec::new(1, 4, 1);
        let padded = [3.0, 2.0, 1.0, 2.0, 3.0, 4.0, 3.0, 2.0];
        let image = [1, 2, 3, 4];
        let tall = ImageSpec::new(4, 4, 1);
        for id in 0..100 {
            let mut expected = draws(id);
            let (y, x) = (expected.below(5) as usize, expected.below(5) as usize);
            let rows: Vec<u8> = (0..4).flat_map(|row| image.map(|value| value + 10 * row)).collect();
            let out = run_any(build, "pad_crop(2, reflect)", tall, &rows, id);
            for (i, value) in out.iter().enumerate() {
                assert_eq!(*value, padded[x + i % 4] + 10.0 * (padded[y + i / 4] - 1.0), "sample {id}, value {i}");
            }
        }
        let refused = build(&crate::transform::call::parse("pad_crop(1, reflect)").unwrap().arguments, CONTEXT);
        assert!(
            refused.unwrap().output(spec).unwrap_err().contains("1 pixels cannot be mirrored within an image of 1x4x1")
        );
    }

    const CONTEXT: Context<'_> = Context { input: ImageSpec::new(1, 4, 1), mean: &[], std: &[] };
}
