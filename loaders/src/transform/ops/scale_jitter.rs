//! `scale_jitter(least, most)`: makes the short side of the image a length drawn from least to most, all equally likely (Simonyan and
//! Zisserman 2014, section 3.1: 256 to 512, before `random_crop(224)`); bilinear with antialiasing, or `bicubic` or `lanczos` by a
//! last argument. Accepts images of any size.

use std::fmt;

use crate::random::Draws;
use crate::spec::ImageSpec;
use crate::transform::arguments::pixels;
use crate::transform::call::Arguments;
use crate::transform::canvas::Canvas;
use crate::transform::op::{Built, Context, Sizes, Transform, Varied};
use crate::transform::rectangle::Rectangle;
use crate::transform::resample::Filter;
use crate::transform::size::Size;

#[derive(Debug)]
struct ScaleJitter {
    least: u32,
    most: u32,
    filter: Filter,
}

pub(super) fn build(arguments: &Arguments<'_>, _context: Context<'_>) -> Built {
    let &[least, most] = arguments.no_size()? else {
        return Err(format!("expected 2 numbers, got {}", arguments.numbers.len()));
    };
    let (least, most) = (pixels(least, 1)?, pixels(most, 1)?);
    if least > most {
        return Err(format!("expected least <= most, got {least} and {most}"));
    }
    Ok(Box::new(ScaleJitter { least, most, filter: arguments.choice(Filter::NAMES)? }))
}

impl Transform for ScaleJitter {
    fn varies(&self) -> bool {
        true
    }

    fn output_of_varied(&self, input: Varied) -> Result<Sizes, String> {
        Ok(Sizes::Varied(Varied { short_side: Some(self.least), ..input }))
    }

    fn resizes(&self) -> bool {
        true
    }

    fn is_geometric(&self) -> bool {
        true
    }

    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        let ImageSpec { height, width, .. } = image.spec();
        let side = self.least + draws.below(self.most - self.least + 1);
        let size = Size::with_short_side(side, height, width);
        image.resize(Rectangle { top: 0, left: 0, height, width }, size, self.filter);
    }
}

impl fmt::Display for ScaleJitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "scale_jitter({}, {}{})", self.least, self.most, self.filter.suffix())
    }
}
