//! `auto_augment(policy)`: one of 25 pairs of operations, each with a probability and a magnitude of its own, learned on `imagenet`
//! (if it is left out), `cifar10` or `svhn` (Cubuk et al. 2018; torchvision's `AutoAugment`). Operations that turn, shear or move take
//! the nearest pixel, with `bilinear` behind the name between four: `auto_augment(cifar10, bilinear)`; outside is zero.

use std::fmt;

use crate::random::Draws;
use crate::transform::arguments::{grey_or_rgb, no_arguments};
use crate::transform::bytes::{Edge, Sampling};
use crate::transform::call::Arguments;
use crate::transform::canvas::Canvas;
use crate::transform::op::{Built, Context, Transform};
use crate::transform::policy::{CIFAR10, IMAGENET, Policy, SVHN, magnitudes};

/// How pixels are made; torchvision's default first.
const SAMPLINGS: [(&str, Sampling); 2] = [Sampling::Nearest.named(), Sampling::Bilinear(Edge::Plain).named()];
/// The policies by what they were learned on.
const POLICIES: [(&str, &Policy); 3] = [("imagenet", IMAGENET), ("cifar10", CIFAR10), ("svhn", SVHN)];
/// Magnitudes of an operation.
const BINS: u32 = 10;

#[derive(Debug)]
struct AutoAugment {
    name: &'static str,
    policy: &'static Policy,
    sampling: Sampling,
}

pub(super) fn build(arguments: &Arguments<'_>, context: Context<'_>) -> Built {
    no_arguments(arguments.no_size()?).map_err(|_| "expected names alone")?;
    let learned = |word: &str| POLICIES.iter().find(|(name, _)| *name == word).copied();
    let named = arguments.words.first().and_then(|word| learned(word));
    let words = &arguments.words[usize::from(named.is_some())..];
    let (name, policy) = named.unwrap_or(POLICIES[0]);
    let sampling = Arguments { words: words.to_vec(), ..Arguments::default() }.choice(&SAMPLINGS)?;
    grey_or_rgb(context.input)?;
    Ok(Box::new(AutoAugment { name, policy, sampling }))
}

impl Transform for AutoAugment {
    fn keeps_bytes(&self) -> bool {
        true
    }

    /// Draws the pair, then for each of the two whether it happens and, if it has one, its sign.
    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        let image = image.byte_image();
        for step in &self.policy[draws.below(self.policy.len() as u32) as usize] {
            if draws.unit() <= step.probability {
                let magnitude = magnitudes(step.operation).draw_sign(step.bin, BINS, image.shape(), draws);
                step.operation.apply(image, magnitude, self.sampling);
            }
        }
    }
}

impl fmt::Display for AutoAugment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "auto_augment({}, {})", self.name, self.sampling.name())
    }
}
