//! `trivial_augment(bins)`: one operation of 14, its magnitude one of `bins`, 31 if they are left out, all equally likely (Müller and
//! Hutter 2021; torchvision's `TrivialAugmentWide`). Operations that turn, shear or move take the nearest pixel, with a last argument
//! `bilinear` between four; outside is zero.

use std::fmt;

use crate::random::Draws;
use crate::transform::arguments::{grey_or_rgb, whole};
use crate::transform::bytes::{Edge, Sampling};
use crate::transform::call::Arguments;
use crate::transform::canvas::Canvas;
use crate::transform::op::{Built, Context, Transform};
use crate::transform::policy::{TRIVIAL_AUGMENT, draw_operation};

/// How pixels are made; torchvision's default first.
const SAMPLINGS: [(&str, Sampling); 2] = [Sampling::Nearest.named(), Sampling::Bilinear(Edge::Plain).named()];
/// The most magnitudes.
const MOST_BINS: u32 = 1001;

#[derive(Debug)]
struct TrivialAugment {
    bins: u32,
    sampling: Sampling,
}

pub(super) fn build(arguments: &Arguments<'_>, context: Context<'_>) -> Built {
    let bins = match *arguments.no_size()? {
        [] => 31.0,
        [bins] => bins,
        ref other => return Err(format!("expected 0 or 1 numbers, got {}", other.len())),
    };
    let bins = whole(bins, 2, MOST_BINS).map_err(|problem| format!("magnitudes: {problem}"))?;
    grey_or_rgb(context.input)?;
    Ok(Box::new(TrivialAugment { bins, sampling: arguments.choice(&SAMPLINGS)? }))
}

impl Transform for TrivialAugment {
    fn keeps_bytes(&self) -> bool {
        true
    }

    /// Draws an operation and, if it has them, its magnitude and its sign.
    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        let bins = self.bins;
        draw_operation(TRIVIAL_AUGMENT, bins, |draws| draws.below(bins), image.byte_image(), self.sampling, draws);
    }
}

impl fmt::Display for TrivialAugment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "trivial_augment({}, {})", self.bins, self.sampling.name())
    }
}
