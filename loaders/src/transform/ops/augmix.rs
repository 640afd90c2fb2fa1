//! `augmix(severity, chains, depth, alpha)`: the image mixed with chains of operations of it (Hendrycks et al. 2019; torchvision's
//! `AugMix`). Each chain has `depth` operations, 1 to 3 if it is -1, of the first `severity` of ten magnitudes; shares are drawn from
//! Dirichlet's distribution: of the image and the mixed chains, and of the chains. Left out: 3, 3, -1 and 1. Pixels that move are
//! made between four, with a last argument `nearest` of one; `partial` ahead of it leaves out brightness, color, contrast and sharpness.

use std::fmt;

use crate::random::Draws;
use crate::transform::arguments::{grey_or_rgb, whole};
use crate::transform::bytes::{self, Edge, Sampling};
use crate::transform::call::Arguments;
use crate::transform::canvas::Canvas;
use crate::transform::dirichlet::dirichlet;
use crate::transform::op::{Built, Context, Transform};
use crate::transform::policy::{AUGMIX, AUGMIX_PARTIAL, Space, draw_operation};

/// How pixels are made; torchvision's default first.
const SAMPLINGS: [(&str, Sampling); 2] = [Sampling::Bilinear(Edge::Plain).named(), Sampling::Nearest.named()];
/// Magnitudes of an operation.
const BINS: u32 = 10;
/// The most chains.
const CHAINS: usize = 10;
/// The most operations of a chain.
const DEPTH: u32 = 10;

#[derive(Debug)]
struct AugMix {
    severity: u32,
    chains: usize,
    /// Operations of a chain, if they are given.
    depth: Option<u32>,
    alpha: f64,
    partial: bool,
    sampling: Sampling,
}

pub(super) fn build(arguments: &Arguments<'_>, context: Context<'_>) -> Built {
    let given = arguments.no_size()?;
    let mut numbers = [3.0, 3.0, -1.0, 1.0];
    if given.len() > numbers.len() {
        return Err(format!("expected 0 to 4 numbers, got {}", given.len()));
    }
    numbers[..given.len()].copy_from_slice(given);
    let [severity, chains, depth, alpha] = numbers;
    if !(0.01..=100.0).contains(&alpha) {
        return Err(format!("expected an alpha from 0.01 to 100, got {alpha}"));
    }
    let partial = arguments.words.first() == Some(&"partial");
    let words = arguments.words[usize::from(partial)..].to_vec();
    grey_or_rgb(context.input)?;
    Ok(Box::new(AugMix {
        severity: whole(severity, 1, BINS).map_err(|problem| format!("severity: {problem}"))?,
        chains: whole(chains, 1, CHAINS as u32).map_err(|problem| format!("chains: {problem}"))? as usize,
        depth: match depth {
            -1.0 => None,
            depth => Some(whole(depth, 1, DEPTH).map_err(|problem| format!("depth: {problem}, or -1"))?),
        },
        alpha,
        partial,
        sampling: Arguments { words, ..Arguments::default() }.choice(&SAMPLINGS)?,
    }))
}

impl AugMix {
    fn space(&self) -> &'static Space {
        if self.partial { AUGMIX_PARTIAL } else { AUGMIX }
    }

    /// Draws the shares of the image and of each chain.
    fn draw_shares(&self, draws: &mut Draws) -> (f32, [f32; CHAINS]) {
        let (mut parts, mut shares) = ([0.0; 2], [0.0; CHAINS]);
        dirichlet(self.alpha, &mut parts, draws);
        dirichlet(self.alpha, &mut shares[..self.chains], draws);
        let [image, chains] = parts.map(|part| part as f32);
        (image, shares.map(|share| share as f32 * chains))
    }
}

impl Transform for AugMix {
    fn keeps_bytes(&self) -> bool {
        true
    }

    /// Draws the shares; then for each chain its depth, and for each operation which, its magnitude and its sign.
    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        let (image, sums) = image.byte_image_and_floats();
        let (own, shares) = self.draw_shares(draws);
        image.keep();
        bytes::start_sum(image, sums, own);
        for &share in &shares[..self.chains] {
            image.restore();
            let depth = self.depth.unwrap_or_else(|| 1 + draws.below(3));
            for _ in 0..depth {
                let bin = |draws: &mut Draws| draws.below(self.severity);
                draw_operation(self.space(), BINS, bin, image, self.sampling, draws);
            }
            bytes::add_to_sum(image, sums, share);
        }
        bytes::take_sum(image, sums);
    }
}

impl fmt::Display for AugMix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { severity, chains, alpha, .. } = self;
        let depth = self.depth.map_or(-1, i64::from);
        let partial = if self.partial { "partial, " } else { "" };
        write!(f, "augmix({severity}, {chains}, {depth}, {alpha}, {partial}{})", self.sampling.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ImageSpec;
    use crate::transform::testing::run_any;

    #[test]
    fn a_flat_image_that_no_operation_moves_stays_near_itself() {
        // one chain of one operation; the image has a share of its own
        let spec = ImageSpec::new(4, 4, 1);
        let mut moved = 0;
        for id in 0..200 {
            let out = run_any(build, "augmix(1, 1, 1)", spec, &[100; 16], id);
            assert!(out.iter().all(|value| (0.0..=255.0).contains(value) && value.fract() == 0.0));
            moved += usize::from(out.iter().any(|value| (value - 100.0).abs() > 1.0));
        }
        // of the weakest magnitudes: posterize to 4 bits gives 96, the others leave such an image as it is
        assert!((1..60).contains(&moved), "{moved}");
    }
}
