//! `resize(n)`: makes the short side n long and the long side floor(n * long / short), as torchvision's `Resize(n)`:
//! bilinear with antialiasing, what PIL calls BILINEAR. Accepts images of any size.

use std::fmt;

use crate::random::Draws;
use crate::spec::ImageSpec;
use crate::transform::arguments::one_size;
use crate::transform::canvas::Canvas;
use crate::transform::op::{Context, Sizes, Transform, Varied};
use crate::transform::rectangle::Rectangle;

#[derive(Debug)]
struct Resize {
    size: u32,
}

pub(super) fn build(arguments: &[f64], _context: Context<'_>) -> Result<Box<dyn Transform>, String> {
    let size = one_size(arguments, 1)?;
    Ok(Box::new(Resize { size }))
}

impl Resize {
    /// The height and width that an image of this height and width is resized to.
    fn sizes(&self, height: u32, width: u32) -> (u32, u32) {
        // in f64, as Python computes int(n * long / short)
        let long = |short: u32, long: u32| (f64::from(self.size) * f64::from(long) / f64::from(short)) as u32;
        if width <= height { (long(width, height), self.size) } else { (self.size, long(height, width)) }
    }
}

impl Transform for Resize {
    fn output(&self, input: ImageSpec) -> Result<ImageSpec, String> {
        let (height, width) = self.sizes(input.height, input.width);
        Ok(ImageSpec::new(height, width, input.channels))
    }

    fn output_of_varied(&self, input: Varied) -> Result<Sizes, String> {
        Ok(Sizes::Varied(Varied { short_side: Some(self.size), ..input }))
    }

    fn resizes(&self) -> bool {
        true
    }

    fn is_geometric(&self) -> bool {
        true
    }

    fn apply(&self, image: &mut Canvas<'_>, _draws: &mut Draws) {
        let ImageSpec { height, width, .. } = image.spec();
        let (rows, columns) = self.sizes(height, width);
        image.resize(Rectangle { top: 0, left: 0, height, width }, rows, columns);
    }
}

impl fmt::Display for Resize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "resize({})", self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::testing::run;

    /// torchvision.transforms.v2.functional's `_compute_resized_output_size`.
    #[test]
    fn the_long_side_is_cut_to_a_whole_pixel() {
        let of = |height, width| Resize { size: 256 }.sizes(height, width);
        assert_eq!(of(375, 500), (256, 341));
        assert_eq!(of(500, 375), (341, 256));
        assert_eq!(of(333, 500), (256, 384));
        assert_eq!(of(256, 300), (256, 300));
        assert_eq!(of(1, 9), (256, 2304));
    }

    #[test]
    fn a_flat_image_stays_flat() {
        let spec = ImageSpec::new(5, 7, 1);
        for size in [1, 2, 3, 5, 8, 13] {
            let out = run(build, &format!("resize({size})"), spec, &[77; 35], 0);
            assert!(out.iter().all(|v| (v - 77.0).abs() < 1e-4), "{size}: {out:?}");
        }
    }

    #[test]
    fn the_same_size_gives_the_same_bytes() {
        let bytes: Vec<u8> = (0..36).map(|i| i * 7).collect();
        let out = run(build, "resize(3)", ImageSpec::new(4, 3, 3), &bytes, 0);
        let planes: Vec<f32> = (0..3).flat_map(|c| bytes.iter().skip(c).step_by(3).map(|&b| f32::from(b))).collect();
        assert_eq!(out, planes);
    }
}
