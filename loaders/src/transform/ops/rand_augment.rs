//! `rand_augment(n, m, bins)`: n operations, drawn from 14, one after another, all of magnitude m of `bins` (Cubuk et al. 2019;
//! torchvision's `RandAugment`, its 2, 9 and 31 where they are left out). Operations that turn, shear or move take the nearest pixel,
//! with a last argument `bilinear` between four; outside is zero.

use std::fmt;

use crate::random::Draws;
use crate::transform::arguments::{grey_or_rgb, whole};
use crate::transform::bytes::{Edge, Sampling};
use crate::transform::call::Arguments;
use crate::transform::canvas::Canvas;
use crate::transform::op::{Built, Context, Transform};
use crate::transform::policy::{RAND_AUGMENT, draw_operation};

/// How pixels are made; torchvision's default first.
const SAMPLINGS: [(&str, Sampling); 2] = [Sampling::Nearest.named(), Sampling::Bilinear(Edge::Plain).named()];
/// The most operations for an image.
const MOST: u32 = 100;
/// The most magnitudes.
const MOST_BINS: u32 = 1001;

#[derive(Debug)]
struct RandAugment {
    operations: u32,
    magnitude: u32,
    bins: u32,
    sampling: Sampling,
}

pub(super) fn build(arguments: &Arguments<'_>, context: Context<'_>) -> Built {
    let (n, magnitude, bins) = match *arguments.no_size()? {
        [] => (2.0, 9.0, 31.0),
        [n, m] => (n, m, 31.0),
        [n, m, bins] => (n, m, bins),
        ref other => return Err(format!("expected 0, 2 or 3 numbers, got {}", other.len())),
    };
    let operations = whole(n, 0, MOST).map_err(|problem| format!("operations: {problem}"))?;
    let bins = whole(bins, 2, MOST_BINS).map_err(|problem| format!("magnitudes: {problem}"))?;
    let magnitude = whole(magnitude, 0, bins - 1).map_err(|problem| format!("magnitude: {problem}"))?;
    grey_or_rgb(context.input)?;
    Ok(Box::new(RandAugment { operations, magnitude, bins, sampling: arguments.choice(&SAMPLINGS)? }))
}

impl Transform for RandAugment {
    fn keeps_bytes(&self) -> bool {
        true
    }

    /// Draws an operation and, if it has one, its sign, for each in turn.
    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        let image = image.byte_image();
        for _ in 0..self.operations {
            draw_operation(RAND_AUGMENT, self.bins, |_| self.magnitude, image, self.sampling, draws);
        }
    }
}

impl fmt::Display for RandAugment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rand_augment({}, {}, {}, {})", self.operations, self.magnitude, self.bins, self.sampling.name())
    }
}
