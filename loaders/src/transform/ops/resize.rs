//! Transforms that resize an image to a fixed or a random size.

use crate::random::Draws;
use crate::spec::ImageSpec;
use crate::transform::call::{Arguments, Size, no_arguments, pixels, size_first};
use crate::transform::canvas::Canvas;
use crate::transform::geometry::Rectangle;
use crate::transform::op::{BuildResult, Context, Misfit, Sizes, Transform, Varied};
use crate::transform::resample::Filter;

/// `resize(n)`: the short side gets length n and the long side floor(n * long / short), like torchvision's `Resize(n)`.
/// The filter is bilinear with antialiasing, which PIL calls BILINEAR. `resize(192x256)` sets height and width and
/// ignores the aspect ratio. A last argument `bicubic` or `lanczos` selects another filter. Accepts images of any size.
#[derive(Debug)]
struct Resize {
    to: Target,
    filter: Filter,
}

#[derive(Debug, Clone, Copy)]
enum Target {
    /// Length of the short side. The aspect ratio is kept.
    ShortSide(u32),
    /// Height and width. The aspect ratio is not kept.
    Exact(Size),
}

pub(super) fn build_resize(arguments: &Arguments<'_>, _context: Context<'_>) -> BuildResult {
    let (size, rest) = size_first(arguments)?;
    no_arguments(rest).map_err(|_| format!("expected 1 argument, got {}", rest.len() + 1))?;
    let to = match arguments.size {
        Some(_) => Target::Exact(size),
        None => Target::ShortSide(size.height),
    };
    Ok(Box::new(Resize { to, filter: arguments.choice(Filter::NAMES)? }))
}

impl Resize {
    fn size(&self, height: u32, width: u32) -> Size {
        match self.to {
            Target::ShortSide(side) => Size::with_short_side(side, height, width),
            Target::Exact(size) => size,
        }
    }
}

impl Transform for Resize {
    fn output(&self, input: ImageSpec) -> Result<ImageSpec, String> {
        let Size { height, width } = self.size(input.height, input.width);
        Ok(ImageSpec::new(height, width, input.channels))
    }

    fn output_of_varied(&self, input: Varied) -> Result<Sizes, Misfit> {
        Ok(match self.to {
            Target::ShortSide(side) => Sizes::Varied(Varied { short_side: Some(side), ..input }),
            Target::Exact(Size { height, width }) => Sizes::Equal(ImageSpec::new(height, width, input.channels)),
        })
    }

    fn resizes(&self) -> bool {
        true
    }

    fn apply(&self, image: &mut Canvas<'_>, _draws: &mut Draws) {
        let ImageSpec { height, width, .. } = image.spec();
        image.resize(Rectangle { top: 0, left: 0, height, width }, self.size(height, width), self.filter);
    }

    fn text(&self) -> String {
        match self.to {
            Target::ShortSide(side) => format!("resize({side}{})", self.filter.suffix()),
            Target::Exact(Size { height, width }) => format!("resize({height}x{width}{})", self.filter.suffix()),
        }
    }
}

/// `scale_jitter(min_side, max_side)`: resizes the short side to a length drawn uniformly from min_side to max_side
/// (Simonyan and Zisserman 2014, section 3.1: 256 to 512, before `random_crop(224)`). The filter is bilinear with
/// antialiasing, or `bicubic` or `lanczos` as a last argument. Accepts images of any size.
#[derive(Debug)]
struct ScaleJitter {
    least: u32,
    most: u32,
    filter: Filter,
}

pub(super) fn build_scale_jitter(arguments: &Arguments<'_>, _context: Context<'_>) -> BuildResult {
    let &[least, most] = arguments.no_size()? else {
        return Err(format!("expected 2 numbers, got {}", arguments.numbers.len()));
    };
    let (least, most) = (pixels(least, 1)?, pixels(most, 1)?);
    if least > most {
        return Err(format!("expected min_side <= max_side, got {least} and {most}"));
    }
    Ok(Box::new(ScaleJitter { least, most, filter: arguments.choice(Filter::NAMES)? }))
}

impl Transform for ScaleJitter {
    fn varies(&self) -> bool {
        true
    }

    fn output_of_varied(&self, input: Varied) -> Result<Sizes, Misfit> {
        Ok(Sizes::Varied(Varied { short_side: Some(self.least), ..input }))
    }

    fn resizes(&self) -> bool {
        true
    }

    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        let ImageSpec { height, width, .. } = image.spec();
        let side = self.least + draws.below(self.most - self.least + 1);
        let size = Size::with_short_side(side, height, width);
        image.resize(Rectangle { top: 0, left: 0, height, width }, size, self.filter);
    }

    fn text(&self) -> String {
        format!("scale_jitter({}, {}{})", self.least, self.most, self.filter.suffix())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::testing::run;

    /// The expected sizes come from `_compute_resized_output_size` in torchvision.transforms.v2.functional.
    #[test]
    fn with_short_side_truncates_the_long_side() {
        let of = |height, width| {
            let Size { height, width } = Size::with_short_side(256, height, width);
            (height, width)
        };
        assert_eq!(of(375, 500), (256, 341));
        assert_eq!(of(500, 375), (341, 256));
        assert_eq!(of(333, 500), (256, 384));
        assert_eq!(of(256, 300), (256, 300));
        assert_eq!(of(1, 9), (256, 2304));
    }

    #[test]
    fn resize_keeps_a_flat_image_flat() {
        let spec = ImageSpec::new(5, 7, 1);
        for size in [1, 2, 3, 5, 8, 13] {
            let out = run(&format!("resize({size})"), spec, &[77; 35], 0);
            assert!(out.iter().all(|v| (v - 77.0).abs() < 1e-4), "{size}: {out:?}");
        }
    }

    #[test]
    fn resize_to_the_same_size_changes_nothing() {
        let bytes: Vec<u8> = (0..36).map(|i| i * 7).collect();
        let out = run("resize(3)", ImageSpec::new(4, 3, 3), &bytes, 0);
        let planes: Vec<f32> = (0..3).flat_map(|c| bytes.iter().skip(c).step_by(3).map(|&b| f32::from(b))).collect();
        assert_eq!(out, planes);
    }
}
