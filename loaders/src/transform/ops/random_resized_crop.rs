//! `random_resized_crop(n)`: a random part of the image made n x n: bilinear with antialiasing, what PIL calls BILINEAR;
//! `random_resized_crop(192x256)`: height and width; a last argument `bicubic` or `lanczos`: by that filter.
//! torchvision's sampler: up to 10 times draw an area, a share of the image's between `min_area` and `max_area`, and an
//! aspect, log-uniform between `min_aspect` and `max_aspect`; the first pair that fits gets a random place. If none fits: the
//! largest part in the middle whose aspect is allowed.
//!
//! Draws, in order: area and aspect of each try, then row and column. Accepts images of any size.

use std::fmt;

use crate::random::Draws;
use crate::spec::ImageSpec;
use crate::transform::arguments::size_first;
use crate::transform::call::Arguments;
use crate::transform::canvas::Canvas;
use crate::transform::op::{Built, Context, Sizes, Transform, Varied};
use crate::transform::rectangle::Rectangle;
use crate::transform::resample::Filter;
use crate::transform::size::Size;

const TRIES: usize = 10;

#[derive(Debug)]
struct RandomResizedCrop {
    size: Size,
    /// Least and greatest share of the image's area.
    area: (f64, f64),
    /// Least and greatest width / height.
    aspect: (f64, f64),
    filter: Filter,
}

pub(super) fn build(arguments: &Arguments<'_>, _context: Context<'_>) -> Built {
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
    Ok(Box::new(RandomResizedCrop { size, area, aspect, filter }))
}

impl RandomResizedCrop {
    /// Draws a part of an image. Uniform numbers are f32 and their products f64, as in torchvision.
    fn draw(&self, height: u32, width: u32, draws: &mut Draws) -> Rectangle {
        let (h, w) = (f64::from(height), f64::from(width));
        let (narrowest, widest) = ((self.aspect.0 as f32).ln(), (self.aspect.1 as f32).ln());
        for _ in 0..TRIES {
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

    /// The largest part in the middle whose aspect is allowed.
    fn fallback(&self, height: u32, width: u32) -> Rectangle {
        let (h, w) = (f64::from(height), f64::from(width));
        let (rows, columns) = match w / h {
            aspect if aspect < self.aspect.0 => ((w / self.aspect.0).round_ties_even() as u32, width),
            aspect if aspect > self.aspect.1 => (height, (h * self.aspect.1).round_ties_even() as u32),
            _ => (height, width),
        };
        // rounding may give 0, or more than an image of one row or column has
        let (rows, columns) = (rows.clamp(1, height), columns.clamp(1, width));
        Rectangle { top: (height - rows) / 2, left: (width - columns) / 2, height: rows, width: columns }
    }
}

impl Transform for RandomResizedCrop {
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

    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        let ImageSpec { height, width, .. } = image.spec();
        let part = self.draw(height, width, draws);
        image.resize(part, self.size, self.filter);
    }
}

impl fmt::Display for RandomResizedCrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { size, area, aspect, filter } = self;
        let suffix = filter.suffix();
        write!(f, "random_resized_crop({size}, {}, {}, {}, {}{suffix})", area.0, area.1, aspect.0, aspect.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::testing::draws;

    /// The parts of torchvision with the same draws: `tests/golden/crops.py`.
    #[test]
    fn parts_are_those_of_torchvision() {
        type Row = (f64, u32, u32, u64, u32, u32, u32, u32);
        let rows: Vec<Row> = serde_json::from_str(include_str!("../../../tests/golden/crops.json")).unwrap();
        assert_eq!(rows.len(), 800);
        for (least, image_height, image_width, sample, top, left, height, width) in rows {
            let filter = Filter::Bilinear;
            let op =
                RandomResizedCrop { size: Size::square(8), area: (least, 1.0), aspect: (3.0 / 4.0, 4.0 / 3.0), filter };
            let part = op.draw(image_height, image_width, &mut draws(sample));
            let expected = Rectangle { top, left, height, width };
            assert_eq!(part, expected, "{image_height} x {image_width}, area from {least}, sample {sample}");
        }
    }
}
