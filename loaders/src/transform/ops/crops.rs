//! Transforms that crop an image without resizing it.

use crate::random::Draws;
use crate::spec::ImageSpec;
use crate::transform::call::{Arguments, Size, one_size, only_size, size_first, whole};
use crate::transform::canvas::Canvas;
use crate::transform::geometry::Rectangle;
use crate::transform::op::{BuildResult, Context, Misfit, Sizes, Transform, Varied};

/// A crop to a window of a fixed size. It does not pad, so the window must fit.
#[derive(Debug)]
struct Crop {
    size: Size,
    position: Position,
}

/// The window of a [`Crop`].
#[derive(Debug)]
enum Position {
    /// `center_crop(n)`: the window in the middle. Its offset is (H - n) / 2, rounded with ties to even as in
    /// torchvision.
    Center,
    /// `corner_crop(n, corner)`: the window in a corner, as in torchvision's FiveCrop: 0 is top left, 1 top right, 2
    /// bottom left, 3 bottom right.
    Corner(u32),
    /// `random_crop(n)`: a random window. Every position is equally likely. This is `tf.image.random_crop`. TensorFlow's
    /// CIFAR tutorial uses n = 24.
    Random,
}

pub(super) fn build_center_crop(arguments: &Arguments<'_>, _context: Context<'_>) -> BuildResult {
    Ok(Box::new(Crop { size: only_size(arguments)?, position: Position::Center }))
}

pub(super) fn build_corner_crop(arguments: &Arguments<'_>, _context: Context<'_>) -> BuildResult {
    match (size_first(arguments)?, arguments.words.first()) {
        ((size, [corner]), None) => Ok(Box::new(Crop { size, position: Position::Corner(whole(*corner, 0, 3)?) })),
        ((_, rest), None) => {
            Err(format!("expected 2 arguments, a size and a corner from 0 to 3, got {}", rest.len() + 1))
        }
        (_, Some(word)) => Err(format!("expected a size and a corner from 0 to 3, got the name \"{word}\"")),
    }
}

pub(super) fn build_random_crop(arguments: &Arguments<'_>, _context: Context<'_>) -> BuildResult {
    Ok(Box::new(Crop { size: only_size(arguments)?, position: Position::Random }))
}

impl Transform for Crop {
    fn output(&self, input: ImageSpec) -> Result<ImageSpec, String> {
        let Size { height, width } = self.size;
        if height > input.height || width > input.width {
            return Err(format!("a crop of {height}x{width} does not fit into an image of {input}"));
        }
        Ok(ImageSpec::new(height, width, input.channels))
    }

    fn output_of_varied(&self, input: Varied) -> Result<Sizes, Misfit> {
        let Size { height, width } = self.size;
        match input.short_side {
            Some(side) if height.max(width) <= side => Ok(Sizes::Equal(ImageSpec::new(height, width, input.channels))),
            Some(side) => {
                Err(format!("a crop of {height}x{width} does not fit into images whose short side is {side}").into())
            }
            None => Err(Misfit::VariousSizes),
        }
    }

    fn is_geometric(&self) -> bool {
        true
    }

    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        let (spec, Size { height, width }) = (image.spec(), self.size);
        let (down, right) = (spec.height - height, spec.width - width);
        let (top, left) = match self.position {
            Position::Center => (half(down), half(right)),
            Position::Corner(corner) => {
                (if corner < 2 { 0 } else { down }, if corner.is_multiple_of(2) { 0 } else { right })
            }
            Position::Random => (draws.below(down + 1), draws.below(right + 1)),
        };
        image.crop(Rectangle { top, left, height, width });
    }

    fn text(&self) -> String {
        match self.position {
            Position::Center => format!("center_crop({})", self.size),
            Position::Corner(corner) => format!("corner_crop({}, {corner})", self.size),
            Position::Random => format!("random_crop({})", self.size),
        }
    }
}

/// Computes Python's `int(round(margin / 2.0))`.
fn half(margin: u32) -> u32 {
    (f64::from(margin) / 2.0).round_ties_even() as u32
}

/// `pad_crop(n)`: pads each side with n zero pixels, then crops to the original size at a random position. Offsets are
/// uniform over 0 to 2n. The usual augmentation for CIFAR has n = 4. `pad_crop(n, reflect)` mirrors the image at its
/// borders instead, without repeating the border pixels. airbench uses this with n = 2.
#[derive(Debug)]
struct PadCrop {
    padding: u32,
    reflects: bool,
}

pub(super) fn build_pad_crop(arguments: &Arguments<'_>, _context: Context<'_>) -> BuildResult {
    let padding = one_size(arguments.no_size()?, 0)?;
    let reflects = arguments.choice(&[("zeros", false), ("reflect", true)])?;
    Ok(Box::new(PadCrop { padding, reflects }))
}

impl Transform for PadCrop {
    fn output(&self, input: ImageSpec) -> Result<ImageSpec, String> {
        if self.reflects && self.padding >= input.height.min(input.width) {
            return Err(format!(
                "a padding of {} cannot be filled by mirroring an image of {input}; it must be smaller than the shorter side, {}",
                self.padding,
                input.height.min(input.width)
            ));
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
            true => image.shift_reflected(down, right),
            false => image.shift(down, right),
        }
    }

    fn text(&self) -> String {
        format!("pad_crop({}{})", self.padding, if self.reflects { ", reflect" } else { "" })
    }
}

/// `shift(rows, columns)`: replaces the image by a window of the same size. The window starts `rows` rows below and
/// `columns` columns right of the image's top left corner. Both numbers may be negative. Beyond its borders, the image
/// is mirrored without repeating the border pixels. airbench uses such views for test-time augmentation.
#[derive(Debug)]
struct Shift {
    rows: i32,
    columns: i32,
}

pub(super) fn build_shift(arguments: &Arguments<'_>, _context: Context<'_>) -> BuildResult {
    let offset = |number: f64| {
        let whole = number.fract() == 0.0 && number.abs() <= f64::from(u16::MAX);
        if whole { Ok(number as i32) } else { Err(format!("expected a whole number of pixels, got {number}")) }
    };
    match (arguments.no_size()?, arguments.words.first()) {
        ([rows, columns], None) => Ok(Box::new(Shift { rows: offset(*rows)?, columns: offset(*columns)? })),
        (numbers, None) => Err(format!("expected 2 numbers of pixels, rows and columns, got {}", numbers.len())),
        (_, Some(word)) => Err(format!("expected 2 numbers of pixels, rows and columns, got the name \"{word}\"")),
    }
}

impl Transform for Shift {
    fn output(&self, input: ImageSpec) -> Result<ImageSpec, String> {
        if self.rows.unsigned_abs() >= input.height || self.columns.unsigned_abs() >= input.width {
            return Err(format!(
                "an image of {input} cannot be shifted by {} rows and {} columns; expected less than {} rows and {} columns",
                self.rows, self.columns, input.height, input.width
            ));
        }
        Ok(input)
    }

    fn keeps_bytes(&self) -> bool {
        true
    }

    fn apply(&self, image: &mut Canvas<'_>, _draws: &mut Draws) {
        image.shift_reflected(self.rows, self.columns);
    }

    fn text(&self) -> String {
        format!("shift({}, {})", self.rows, self.columns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mentions::assert_mentions;
    use crate::transform::testing::{build, draws, run};

    #[test]
    fn odd_margins_round_to_the_even_offset() {
        let spec = ImageSpec::new(4, 5, 1);
        let bytes: Vec<u8> = (0..20).collect();
        assert_eq!([1, 2, 3, 5, 7, 31].map(half), [0, 1, 2, 2, 4, 16]);
        // The margins are 1 and 2, so the offsets are 0 and 1.
        assert_eq!(run("center_crop(3)", spec, &bytes, 0), [1.0, 2.0, 3.0, 6.0, 7.0, 8.0, 11.0, 12.0, 13.0]);
    }

    #[test]
    fn corner_crop_returns_the_four_corners() {
        let (spec, bytes) = (ImageSpec::new(3, 4, 1), (0..12).collect::<Vec<u8>>());
        let corner = |k: u32| run(&format!("corner_crop(2, {k})"), spec, &bytes, 0);
        assert_eq!([corner(0), corner(1)], [[0.0, 1.0, 4.0, 5.0], [2.0, 3.0, 6.0, 7.0]]);
        assert_eq!([corner(2), corner(3)], [[4.0, 5.0, 8.0, 9.0], [6.0, 7.0, 10.0, 11.0]]);
    }

    #[test]
    fn random_crops_are_inside_and_reach_every_corner() {
        let spec = ImageSpec::new(3, 3, 1);
        let bytes: Vec<u8> = (0..9).collect();
        let mut seen = [0; 4];
        for id in 0..400 {
            let mut expected = draws(id);
            let (y, x) = (expected.below(2), expected.below(2));
            seen[(y * 2 + x) as usize] += 1;
            let first = (y * 3 + x) as f32;
            assert_eq!(run("random_crop(2)", spec, &bytes, id), [first, first + 1.0, first + 3.0, first + 4.0]);
        }
        // Each count is expected to be 100, with a standard deviation of 8.7.
        assert!(seen.iter().all(|n| (60..140).contains(n)), "{seen:?}");
    }

    #[test]
    fn pad_crop_pads_with_zero_and_uses_every_offset() {
        let spec = ImageSpec::new(2, 2, 1);
        let padded = [[0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 2.0, 0.0], [0.0, 3.0, 4.0, 0.0], [0.0, 0.0, 0.0, 0.0]];
        let mut seen = [0; 9];
        for id in 0..900 {
            let mut expected = draws(id);
            let (y, x) = (expected.below(3) as usize, expected.below(3) as usize);
            seen[y * 3 + x] += 1;
            assert_eq!(
                run("pad_crop(1)", spec, &[1, 2, 3, 4], id),
                [padded[y][x], padded[y][x + 1], padded[y + 1][x], padded[y + 1][x + 1]]
            );
        }
        // Each count is expected to be 100, with a standard deviation of 9.4.
        assert!(seen.iter().all(|n| (60..140).contains(n)), "{seen:?}");
    }

    #[test]
    fn reflect_padding_does_not_repeat_the_border() {
        let spec = ImageSpec::new(1, 4, 1);
        let padded = [3.0, 2.0, 1.0, 2.0, 3.0, 4.0, 3.0, 2.0];
        let image = [1, 2, 3, 4];
        let tall = ImageSpec::new(4, 4, 1);
        for id in 0..100 {
            let mut expected = draws(id);
            let (y, x) = (expected.below(5) as usize, expected.below(5) as usize);
            let rows: Vec<u8> = (0..4).flat_map(|row| image.map(|value| value + 10 * row)).collect();
            let out = run("pad_crop(2, reflect)", tall, &rows, id);
            for (i, value) in out.iter().enumerate() {
                assert_eq!(*value, padded[x + i % 4] + 10.0 * (padded[y + i / 4] - 1.0), "sample {id}, value {i}");
            }
        }
        let too_wide = build("pad_crop(1, reflect)", spec).unwrap();
        assert_mentions(&too_wide.output(spec).unwrap_err(), &["1", "1x4x1"]);
    }

    #[test]
    fn shift_fills_with_the_mirrored_image() {
        let spec = ImageSpec::new(2, 3, 1);
        let shift = |call: &str| run(call, spec, &[1, 2, 3, 4, 5, 6], 0);
        assert_eq!(shift("shift(0, 1)"), [2.0, 3.0, 2.0, 5.0, 6.0, 5.0]);
        assert_eq!(shift("shift(-1, -1)"), [5.0, 4.0, 5.0, 2.0, 1.0, 2.0]);
        assert_eq!(shift("shift(1, 2)"), [6.0, 5.0, 4.0, 3.0, 2.0, 1.0]);
    }

    #[test]
    fn shifts_that_are_fractional_or_too_large_are_refused() {
        let spec = ImageSpec::new(2, 3, 1);
        for call in ["shift(1)", "shift(1, 2, 3)", "shift(0.5, 0)", "shift(1, 1, reflect)"] {
            assert!(build(call, spec).is_err(), "{call}");
        }
        let refused = build("shift(0, -3)", spec).unwrap().output(spec).unwrap_err();
        assert_mentions(&refused, &["2x3x1", "0 rows", "-3 columns"]);
    }
}
