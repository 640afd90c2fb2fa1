//! Random crops that are resized to the output size.

use crate::format::example::BoundingBox;
use crate::random::Draws;
use crate::spec::ImageSpec;
use crate::transform::call::{Arguments, Size, no_arguments, size_first};
use crate::transform::canvas::Canvas;
use crate::transform::geometry::Rectangle;
use crate::transform::op::{BuildResult, Context, Misfit, Sizes, Transform, Varied};
use crate::transform::resample::Filter;

/// A random part of an image, resized to `size`. Accepts images of any size.
#[derive(Debug)]
struct ResizedCrop {
    size: Size,
    part: PartChoice,
    filter: Filter,
}

/// How the part of a [`ResizedCrop`] is drawn.
#[derive(Debug)]
enum PartChoice {
    /// `random_resized_crop(size, ...)`: torchvision's `RandomResizedCrop`.
    Torchvision(Ranges),
    /// `inception_crop(size)`: the crop of TensorFlow's Inception training (`tf.image.sample_distorted_bounding_box`).
    /// width / height is uniform over 0.75 to 1.33. The height is a uniform integer in the range for 0.05 to 1 of the
    /// image's area. The crop must cover at least 0.1 of one of the record's boxes, or of the image if there are no boxes.
    /// After 100 failed attempts, the crop is the whole image.
    ///
    /// TensorFlow then resizes with one of four methods without antialiasing, chosen by its thread number. Here the resize
    /// is the one of `random_resized_crop`.
    TensorFlow,
}

#[derive(Debug)]
struct Ranges {
    /// Minimum and maximum fraction of the image's area.
    area: (f64, f64),
    /// Minimum and maximum width / height.
    aspect: (f64, f64),
}

pub(super) fn build_random_resized_crop(arguments: &Arguments<'_>, _context: Context<'_>) -> BuildResult {
    let (size, rest) = size_first(arguments)?;
    let filter = arguments.choice(Filter::NAMES)?;
    let (area, aspect) = ((0.08, 1.0), (3.0 / 4.0, 4.0 / 3.0));
    let (area, aspect) = match *rest {
        [] => (area, aspect),
        [least] => ((least, 1.0), aspect),
        [least, most] => ((least, most), aspect),
        [least, most, narrowest, widest] => ((least, most), (narrowest, widest)),
        _ => return Err(format!("expected 1, 2, 3 or 5 arguments, got {}", rest.len() + 1)),
    };
    if !(0.0 < area.0 && area.0 <= area.1 && area.1 <= 1.0) {
        return Err(format!("expected 0 < min_area <= max_area <= 1, got {} and {}", area.0, area.1));
    }
    if !(0.0 < aspect.0 && aspect.0 <= aspect.1) {
        return Err(format!("expected 0 < min_aspect <= max_aspect, got {} and {}", aspect.0, aspect.1));
    }
    Ok(Box::new(ResizedCrop { size, part: PartChoice::Torchvision(Ranges { area, aspect }), filter }))
}

pub(super) fn build_inception_crop(arguments: &Arguments<'_>, _context: Context<'_>) -> BuildResult {
    let (size, rest) = size_first(arguments)?;
    no_arguments(rest).map_err(|_| format!("expected 1 argument, got {}", rest.len() + 1))?;
    Ok(Box::new(ResizedCrop { size, part: PartChoice::TensorFlow, filter: arguments.choice(Filter::NAMES)? }))
}

const TORCHVISION_TRIES: usize = 10;

impl Ranges {
    /// Draws a part of the image. The uniform numbers are f32 and their products f64, as in torchvision.
    fn draw(&self, height: u32, width: u32, draws: &mut Draws) -> Rectangle {
        let (h, w) = (f64::from(height), f64::from(width));
        let (narrowest, widest) = ((self.aspect.0 as f32).ln(), (self.aspect.1 as f32).ln());
        for _ in 0..TORCHVISION_TRIES {
            let area = h * w * f64::from(draws.range(self.area.0 as f32, self.area.1 as f32));
            let logarithm = draws.range(narrowest, widest);
            // Rounded once, to the nearest f32.
            let aspect = f64::from(f64::from(logarithm).exp() as f32);
            let columns = (area * aspect).sqrt().round_ties_even();
            let rows = (area / aspect).sqrt().round_ties_even();
            if 0.0 < columns && columns <= w && 0.0 < rows && rows <= h {
                let (rows, columns) = (rows as u32, columns as u32);
                let top = draws.below(height - rows + 1);
                let left = draws.below(width - columns + 1);
                return Rectangle { top, left, height: rows, width: columns };
            }
        }
        self.fallback(height, width)
    }

    /// Returns the largest centred part with an allowed aspect ratio.
    fn fallback(&self, height: u32, width: u32) -> Rectangle {
        let (h, w) = (f64::from(height), f64::from(width));
        let (rows, columns) = match w / h {
            aspect if aspect < self.aspect.0 => ((w / self.aspect.0).round_ties_even() as u32, width),
            aspect if aspect > self.aspect.1 => (height, (h * self.aspect.1).round_ties_even() as u32),
            _ => (height, width),
        };
        // Rounding can give 0, or more than the image has if it has only one row or column.
        let (rows, columns) = (rows.clamp(1, height), columns.clamp(1, width));
        Rectangle { top: (height - rows) / 2, left: (width - columns) / 2, height: rows, width: columns }
    }
}

impl Transform for ResizedCrop {
    fn output(&self, input: ImageSpec) -> Result<ImageSpec, String> {
        Ok(ImageSpec::new(self.size.height, self.size.width, input.channels))
    }

    fn output_of_varied(&self, input: Varied) -> Result<Sizes, Misfit> {
        Ok(Sizes::Equal(ImageSpec::new(self.size.height, self.size.width, input.channels)))
    }

    fn resizes(&self) -> bool {
        true
    }

    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        let ImageSpec { height, width, .. } = image.spec();
        let part = match &self.part {
            PartChoice::Torchvision(ranges) => ranges.draw(height, width, draws),
            PartChoice::TensorFlow => {
                let objects = || image.boxes().map(|found| Object::of(found, height, width));
                let whole = Object::of(WHOLE, height, width);
                let has_objects = objects().next().is_some();
                let covers = |crop: &Rectangle| match has_objects {
                    true => objects().any(|object| object.is_covered(crop)),
                    false => whole.is_covered(crop),
                };
                sample(height, width, covers, draws)
            }
        };
        image.resize(part, self.size, self.filter);
    }

    fn text(&self) -> String {
        let (size, suffix) = (self.size, self.filter.suffix());
        match &self.part {
            PartChoice::Torchvision(Ranges { area, aspect }) => {
                format!("random_resized_crop({size}, {}, {}, {}, {}{suffix})", area.0, area.1, aspect.0, aspect.1)
            }
            PartChoice::TensorFlow => format!("inception_crop({size}{suffix})"),
        }
    }
}

trait Uniform {
    /// Draws a number uniformly from [0, 1).
    fn unit(&mut self) -> f32;
    /// Draws a number uniformly from 0..n.
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
const INCEPTION_CROP_TRIES: usize = 100;

/// The range of rows and columns of a box. The ends are exclusive.
#[derive(Debug, Clone, Copy)]
struct Object {
    rows: [i64; 2],
    columns: [i64; 2],
}

impl Object {
    /// Computes the pixels of a box. Its edges are truncated to integers.
    fn of(b: BoundingBox, height: u32, width: u32) -> Self {
        let pixel = |edge: f32, length: u32| (edge * length as f32) as i64;
        Object {
            rows: [pixel(b.ymin, height), pixel(b.ymax, height)],
            columns: [pixel(b.xmin, width), pixel(b.xmax, width)],
        }
    }

    fn area(self) -> i64 {
        (self.rows[1] - self.rows[0]).max(0) * (self.columns[1] - self.columns[0]).max(0)
    }

    /// Returns true if the crop covers at least [`MIN_COVERED`] of the object's area. An object without pixels is never
    /// covered.
    fn is_covered(self, crop: &Rectangle) -> bool {
        let part = |[from, to]: [i64; 2], start: u32, length: u32| {
            [from.max(start.into()), to.min(i64::from(start) + i64::from(length))]
        };
        let rows = part(self.rows, crop.top, crop.height);
        let common = Object { rows, columns: part(self.columns, crop.left, crop.width) };
        self.area() > 0 && common.area() as f32 / self.area() as f32 >= MIN_COVERED
    }
}

/// The whole image as an object.
const WHOLE: BoundingBox = BoundingBox { ymin: 0.0, xmin: 0.0, ymax: 1.0, xmax: 1.0 };

/// Draws a crop for which `covers` is true. The image has `height` x `width` pixels, both above 0. Each attempt draws the
/// aspect ratio and the height and then, if these are valid, row and column.
fn sample(height: u32, width: u32, covers: impl Fn(&Rectangle) -> bool, uniform: &mut impl Uniform) -> Rectangle {
    for _ in 0..INCEPTION_CROP_TRIES {
        let aspect = uniform.unit() * (ASPECT[1] - ASPECT[0]) + ASPECT[0];
        if let Some(crop) = attempt(height, width, aspect, uniform).filter(&covers) {
            return crop;
        }
    }
    Rectangle { top: 0, left: 0, height, width }
}

/// Draws a crop with the ratio `aspect` of width to height. Returns `None` if no such crop fits. Computes in f32 and
/// rounds ties to even, like TensorFlow.
fn attempt(height: u32, width: u32, aspect: f32, uniform: &mut impl Uniform) -> Option<Rectangle> {
    let (image_height, image_width) = (height as i64, width as i64);
    let least = AREA[0] * width as f32 * height as f32;
    let most = AREA[1] * width as f32 * height as f32;
    let side = |area: f32| (area / aspect).sqrt().round_ties_even() as i64;
    let beside = |height: i64| (height as f32 * aspect).round_ties_even() as i64;
    let mut highest = side(most);
    if beside(highest) > image_width {
        // The largest height for which the width still rounds to the image's width.
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
    // Because of rounding, the area may be outside of the allowed range. One row less or more corrects this.
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
    // As in TensorFlow, the largest possible offset is never drawn.
    let mut offset = |free: i64| if free > 0 { uniform.below(free as u32) } else { 0 };
    let (top, left) = (offset(image_height - rows), offset(image_width - columns));
    Some(Rectangle { top, left, height: rows as u32, width: columns as u32 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::philox4x32;
    use crate::transform::testing::{draws, run};

    /// Compares with torchvision's crops for the same draws. `tests/golden/crops.py` records them.
    #[test]
    fn random_resized_crops_match_torchvision() {
        type Row = (f64, u32, u32, u64, u32, u32, u32, u32);
        let rows: Vec<Row> = serde_json::from_str(include_str!("../../../tests/golden/crops.json")).unwrap();
        assert_eq!(rows.len(), 800);
        for (least, image_height, image_width, sample, top, left, height, width) in rows {
            let ranges = Ranges { area: (least, 1.0), aspect: (3.0 / 4.0, 4.0 / 3.0) };
            let part = ranges.draw(image_height, image_width, &mut draws(sample));
            let expected = Rectangle { top, left, height, width };
            assert_eq!(part, expected, "{image_height} x {image_width}, area from {least}, sample {sample}");
        }
    }

    /// TensorFlow's generator: the same Philox, but words are converted to numbers in other ways.
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

    /// Returns a crop that covers at least a tenth of the image.
    fn plain(height: u32, width: u32, uniform: &mut impl Uniform) -> Rectangle {
        boxed(height, width, &[Object::of(WHOLE, height, width)], uniform)
    }

    /// Returns a crop that covers at least a tenth of one of these objects.
    fn boxed(height: u32, width: u32, objects: &[Object], uniform: &mut impl Uniform) -> Rectangle {
        sample(height, width, |crop| objects.iter().any(|object| object.is_covered(crop)), uniform)
    }

    #[derive(serde::Deserialize)]
    struct Golden {
        /// Height, width, seed, second seed, top, left, rows, columns.
        cases: Vec<[u32; 8]>,
    }

    #[test]
    fn inception_crops_match_tensorflow() {
        let golden: Golden = serde_json::from_str(include_str!("../../../tests/golden/boxes.json")).unwrap();
        assert!(golden.cases.len() >= 300);
        for [height, width, seed, seed2, top, left, rows, columns] in golden.cases {
            let mut uniform = TensorFlow { key: [seed, 0], counter: [0, 0, seed2, 0], words: Vec::new() };
            let expected = Rectangle { top, left, height: rows, width: columns };
            assert_eq!(plain(height, width, &mut uniform), expected, "{height}x{width}, seeds {seed} {seed2}");
        }
    }

    #[test]
    fn random_resized_crop_resizes_the_drawn_crop() {
        let spec = ImageSpec::new(30, 40, 1);
        // The pixel values are the row or column numbers, so their mean tells where the crop was.
        for (axis, of_axis) in [(0, 40), (1, 1)] {
            let bytes: Vec<u8> = (0..1200).map(|i| (i / of_axis % if axis == 0 { 30 } else { 40 }) as u8).collect();
            for id in 0..40 {
                let crop = plain(30, 40, &mut draws(id));
                let (from, length) = [(crop.top, crop.height), (crop.left, crop.width)][axis];
                let out = run("inception_crop(8)", spec, &bytes, id);
                let mean = out.iter().sum::<f32>() / 64.0;
                let expected = from as f32 + (length - 1) as f32 / 2.0;
                assert!((mean - expected).abs() < 0.1, "{id}: {mean}, {crop:?}");
            }
        }
    }

    #[derive(serde::Deserialize)]
    struct WithObjects {
        cases: Vec<Case>,
    }

    #[derive(serde::Deserialize)]
    struct Case {
        /// The numbers of a case, as in [`Golden`].
        case: [u32; 8],
        /// The edges: ymin, xmin, ymax, xmax.
        objects: Vec<[f32; 4]>,
    }

    #[test]
    fn crops_with_objects_match_tensorflow() {
        let golden: WithObjects = serde_json::from_str(include_str!("../../../tests/golden/objects.json")).unwrap();
        assert!(golden.cases.len() >= 150);
        for Case { case: [height, width, seed, seed2, top, left, rows, columns], objects } in golden.cases {
            let mut uniform = TensorFlow { key: [seed, 0], counter: [0, 0, seed2, 0], words: Vec::new() };
            let object =
                |[ymin, xmin, ymax, xmax]: [f32; 4]| Object::of(BoundingBox { ymin, xmin, ymax, xmax }, height, width);
            let mut objects: Vec<Object> = objects.into_iter().map(object).collect();
            if objects.is_empty() {
                objects.push(Object::of(WHOLE, height, width));
            }
            let expected = Rectangle { top, left, height: rows, width: columns };
            assert_eq!(
                boxed(height, width, &objects, &mut uniform),
                expected,
                "{height}x{width}, seeds {seed} {seed2}"
            );
        }
    }

    #[test]
    fn a_crop_covers_a_tenth_of_an_object() {
        let object = |ymin, xmin, ymax, xmax| Object::of(BoundingBox { ymin, xmin, ymax, xmax }, 100, 200);
        assert_eq!(object(0.101, 0.25, 0.5, 0.999).area(), (50 - 10) * (199 - 50));
        let (corner, point) = (object(0.9, 0.9, 1.0, 1.0), object(0.5, 0.5, 0.5, 0.5));
        let covered = |crop: Rectangle| {
            let rows = (crop.top + crop.height).saturating_sub(crop.top.max(90)).min(10);
            let columns = (crop.left + crop.width).saturating_sub(crop.left.max(180)).min(20);
            rows * columns
        };
        let mut less = 0;
        for id in 0..300 {
            let crop = boxed(100, 200, &[corner, point], &mut draws(id));
            assert!(covered(crop) >= 20, "{crop:?}");
            less += u32::from(covered(plain(100, 200, &mut draws(id))) < 20);
        }
        assert!(less > 50, "without boxes the corner is often left out: {less}");
        // It is enough to cover one object. Objects without pixels cannot be covered.
        let both = [object(0.0, 0.0, 0.1, 0.1), corner];
        assert!((0..300).any(|id| covered(boxed(100, 200, &both, &mut draws(id))) == 0));
        let whole = Rectangle { top: 0, left: 0, height: 100, width: 200 };
        assert_eq!(boxed(100, 200, &[point], &mut draws(1)), whole);
    }

    #[test]
    fn crops_are_inside_at_every_image_size() {
        for height in 1..40 {
            for width in 1..40 {
                let crop = plain(height, width, &mut Draws::new(3, u64::from(height * 64 + width), 0, 0));
                assert!(crop.height > 0 && crop.top + crop.height <= height, "{height}x{width}: {crop:?}");
                assert!(crop.width > 0 && crop.left + crop.width <= width, "{height}x{width}: {crop:?}");
            }
        }
    }
}
