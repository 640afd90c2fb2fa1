//! `inception_crop(n)`: the crop of TensorFlow's Inception training (`tf.image.sample_distorted_bounding_box` with the
//! whole image as the one object), made n x n: width / height uniform over 0.75 to 1.33, the height a uniform whole number
//! between those of 0.05 and 1 times the image's area, at least 0.1 of the image covered, at most 100 tries, else the whole.
//!
//! TensorFlow then resizes by one of four methods, chosen by its thread, none of them antialiased; this one is bilinear with
//! antialiasing, or `bicubic` or `lanczos` by a last argument, as in `random_resized_crop`. Accepts images of any size.

use std::fmt;

use crate::random::Draws;
use crate::spec::ImageSpec;
use crate::transform::arguments::{no_arguments, size_first};
use crate::transform::call::Arguments;
use crate::transform::canvas::Canvas;
use crate::transform::op::{Built, Context, Sizes, Transform, Varied};
use crate::transform::rectangle::Rectangle;
use crate::transform::resample::Filter;
use crate::transform::size::Size;

#[derive(Debug)]
struct InceptionCrop {
    size: Size,
    filter: Filter,
}

pub(super) fn build(arguments: &Arguments<'_>, _context: Context<'_>) -> Built {
    let (size, rest) = size_first(arguments)?;
    no_arguments(rest).map_err(|_| format!("expected 1 argument, got {}", rest.len() + 1))?;
    Ok(Box::new(InceptionCrop { size, filter: arguments.choice(Filter::NAMES)? }))
}

impl Transform for InceptionCrop {
    fn output(&self, input: ImageSpec) -> Result<ImageSpec, String> {
        Ok(ImageSpec::new(self.size.height, self.size.width, input.channels))
    }

    fn output_of_varied(&self, input: Varied) -> Result<Sizes, String> {
        Ok(Sizes::Equal(ImageSpec::new(self.size.height, self.size.width, input.channels)))
    }

    fn resizes(&self) -> bool {
        true
    }

    fn is_geometric(&self) -> bool {
        true
    }

    /// Draws aspect and height of each try, and row and column of the first that fits.
    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        let ImageSpec { height, width, .. } = image.spec();
        let crop = sample(height, width, draws);
        image.resize(crop, self.size, self.filter);
    }
}

impl fmt::Display for InceptionCrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "inception_crop({}{})", self.size, self.filter.suffix())
    }
}

/// A source of uniform numbers.
trait Uniform {
    /// In [0, 1).
    fn unit(&mut self) -> f32;
    /// In 0..n.
    fn below(&mut self, n: u32) -> u32;
}

impl Uniform for Draws {
    fn unit(&mut self) -> f32 {
        self.unit()
    }

    fn below(&mut self, n: u32) -> u32 {
        self.below(n)
    }
}

const ASPECT: [f32; 2] = [0.75, 1.33];
const AREA: [f32; 2] = [0.05, 1.0];
const MIN_COVERED: f32 = 0.1;
const TRIES: usize = 100;

/// Draws a crop of an image of `height` x `width` pixels, both above 0.
fn sample(height: u32, width: u32, uniform: &mut impl Uniform) -> Rectangle {
    for _ in 0..TRIES {
        let aspect = uniform.unit() * (ASPECT[1] - ASPECT[0]) + ASPECT[0];
        if let Some(crop) = attempt(height, width, aspect, uniform) {
            let covered = (crop.height * crop.width) as f32 / (height * width) as f32;
            if covered >= MIN_COVERED {
                return crop;
            }
        }
    }
    Rectangle { top: 0, left: 0, height, width }
}

/// One try with a given width / height; in f32, and with halves to even, as TensorFlow rounds.
fn attempt(height: u32, width: u32, aspect: f32, uniform: &mut impl Uniform) -> Option<Rectangle> {
    let (image_height, image_width) = (height as i64, width as i64);
    let least = AREA[0] * width as f32 * height as f32;
    let most = AREA[1] * width as f32 * height as f32;
    let side = |area: f32| (area / aspect).sqrt().round_ties_even() as i64;
    let beside = |height: i64| (height as f32 * aspect).round_ties_even() as i64;
    let mut highest = side(most);
    if beside(highest) > image_width {
        // The largest height whose width still rounds to the image's.
        highest = ((f64::from(width) + 0.5 - 1e-7) / f64::from(aspect)) as i64;
        if beside(highest) > image_width {
            highest -= 1;
        }
    }
    highest = highest.min(image_height);
    let mut rows = side(least).min(highest);
    if rows < highest {
        rows += i64::from(uniform.below((highest - rows + 1) as u32));
    }
    let mut columns = beside(rows);
    // rounding may have left the range of areas by one row
    if ((rows * columns) as f32) < least {
        rows += 1;
        columns = beside(rows);
    }
    if (rows * columns) as f32 > most {
        rows -= 1;
        columns = beside(rows);
    }
    let area = (rows * columns) as f32;
    let fits = (1..=image_width).contains(&columns) && (1..=image_height).contains(&rows);
    if area < least || area > most || !fits {
        return None;
    }
    // as in TensorFlow, the last offset is never drawn
    let mut offset = |free: i64| if free > 0 { uniform.below(free as u32) } else { 0 };
    let (top, left) = (offset(image_height - rows), offset(image_width - columns));
    Some(Rectangle { top, left, height: rows as u32, width: columns as u32 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::philox4x32;
    use crate::transform::testing::{draws, run_any};

    /// TensorFlow's generator: the same Philox, with other ways from words to numbers.
    struct TensorFlow {
        key: [u32; 2],
        counter: [u32; 4],
        words: Vec<u32>,
    }

    impl TensorFlow {
        fn word(&mut self) -> u32 {
            if self.words.is_empty() {
                self.words = philox4x32(self.counter, self.key).into_iter().rev().collect();
                self.counter[0] += 1;
            }
            self.words.pop().unwrap()
        }
    }

    impl Uniform for TensorFlow {
        fn unit(&mut self) -> f32 {
            (self.word() & 0x7f_ffff) as f32 * 2f32.powi(-23)
        }

        fn below(&mut self, n: u32) -> u32 {
            if n.is_power_of_two() {
                return self.word() & (n - 1);
            }
            let refused = u32::MAX % n + 1;
            loop {
                let word = self.word();
                if word >= refused {
                    return word % n;
                }
            }
        }
    }

    #[derive(serde::Deserialize)]
    struct Golden {
        /// Height, width, seed, second seed; top, left, rows, columns.
        cases: Vec<[u32; 8]>,
    }

    #[test]
    fn windows_are_tensorflows() {
        let golden: Golden = serde_json::from_str(include_str!("../../../tests/golden/boxes.json")).unwrap();
        assert!(golden.cases.len() >= 300);
        for [height, width, seed, seed2, top, left, rows, columns] in golden.cases {
            let mut uniform = TensorFlow { key: [seed, 0], counter: [0, 0, seed2, 0], words: Vec::new() };
            let expected = Rectangle { top, left, height: rows, width: columns };
            assert_eq!(sample(height, width, &mut uniform), expected, "{height}x{width}, seeds {seed} {seed2}");
        }
    }

    #[test]
    fn the_crop_is_what_is_resized() {
        let spec = ImageSpec::new(30, 40, 1);
        // Rows and columns as values: their means tell where the crop was.
        for (axis, of_axis) in [(0, 40), (1, 1)] {
            let bytes: Vec<u8> = (0..1200).map(|i| (i / of_axis % if axis == 0 { 30 } else { 40 }) as u8).collect();
            for id in 0..40 {
                let crop = sample(30, 40, &mut draws(id));
                let (from, length) = [(crop.top, crop.height), (crop.left, crop.width)][axis];
                let out = run_any(build, "inception_crop(8)", spec, &bytes, id);
                let mean = out.iter().sum::<f32>() / 64.0;
                let expected = from as f32 + (length - 1) as f32 / 2.0;
                assert!((mean - expected).abs() < 0.1, "{id}: {mean}, {crop:?}");
            }
        }
    }

    #[test]
    fn windows_lie_inside_at_every_size() {
        for height in 1..40 {
            for width in 1..40 {
                let crop = sample(height, width, &mut Draws::new(3, u64::from(height * 64 + width), 0, 0));
                assert!(crop.height > 0 && crop.top + crop.height <= height, "{height}x{width}: {crop:?}");
                assert!(crop.width > 0 && crop.left + crop.width <= width, "{height}x{width}: {crop:?}");
            }
        }
    }
}
