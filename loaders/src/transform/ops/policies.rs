//! Augmentation policies: each applies randomly chosen operations to an image.

use base::text::did_you_mean;

use crate::random::Draws;
use crate::transform::bytes::{self, Edge, Sampling};
use crate::transform::call::{Arguments, whole};
use crate::transform::canvas::Canvas;
use crate::transform::op::{BuildResult, Context, Transform};
use crate::transform::policy::{
    AUGMIX, AUGMIX_PARTIAL, CIFAR10, IMAGENET, Policy, RAND_AUGMENT, SVHN, Space, TRIVIAL_AUGMENT, draw_operation,
    magnitudes,
};

/// Sampling methods of all policies except AugMix, by name. The first is the default, as in torchvision.
const SAMPLINGS: [(&str, Sampling); 2] = [Sampling::Nearest.named(), Sampling::Bilinear(Edge::Plain).named()];
/// The policies, named after the data set on which they were learned.
const POLICIES: [(&str, &Policy); 3] = [("imagenet", IMAGENET), ("cifar10", CIFAR10), ("svhn", SVHN)];
/// Number of magnitudes per operation.
const BINS: u32 = 10;

#[derive(Debug)]
struct AutoAugment {
    name: &'static str,
    policy: &'static Policy,
    sampling: Sampling,
}

pub(super) fn build_auto_augment(arguments: &Arguments<'_>, _context: Context<'_>) -> BuildResult {
    if let Some(number) = arguments.no_size()?.first() {
        return Err(format!("expected only names, got the number {number}"));
    }
    let learned = |word: &str| POLICIES.iter().find(|(name, _)| *name == word).copied();
    let named = arguments.words.first().and_then(|word| learned(word));
    let words = &arguments.words[usize::from(named.is_some())..];
    if let (None, [word]) = (named, words)
        && SAMPLINGS.iter().all(|(name, _)| name != word)
    {
        let [policies, samplings] = [POLICIES.map(|(name, _)| name).to_vec(), SAMPLINGS.map(|(name, _)| name).to_vec()];
        return Err(format!(
            "expected a policy ({}) or a sampling method ({}), got \"{word}\"{}",
            policies.join(", "),
            samplings.join(", "),
            did_you_mean(word, &[policies, samplings].concat())
        ));
    }
    let (name, policy) = named.unwrap_or(POLICIES[0]);
    let sampling = Arguments { words: words.to_vec(), ..Arguments::default() }.choice(&SAMPLINGS)?;
    Ok(Box::new(AutoAugment { name, policy, sampling }))
}

impl Transform for AutoAugment {
    fn keeps_bytes(&self) -> bool {
        true
    }

    /// Draws one of the pairs of operations. For each operation of the pair, draws whether it is applied, and then its
    /// sign if it has one.
    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        let image = image.byte_image();
        for step in &self.policy[draws.below(self.policy.len() as u32) as usize] {
            if draws.unit() <= step.probability {
                let magnitude = magnitudes(step.operation).draw_sign(step.bin, BINS, image.shape(), draws);
                step.operation.apply(image, magnitude, self.sampling);
            }
        }
    }

    fn text(&self) -> String {
        format!("auto_augment({}, {})", self.name, self.sampling.name())
    }
}

// `rand_augment(n, m, bins)`: applies n operations in sequence, each drawn from 14, all with magnitude m of `bins`
// (Cubuk et al. 2019). This is torchvision's `RandAugment`, with its defaults 2, 9 and 31. Operations that rotate,
// shear or move take the nearest pixel, or interpolate between four pixels with a last argument `bilinear`. Pixels from
// outside the image are zero.

const MAX_OPERATIONS: u32 = 100;
const MAX_MAGNITUDES: u32 = 1001;

#[derive(Debug)]
struct RandAugment {
    operations: u32,
    magnitude: u32,
    bins: u32,
    sampling: Sampling,
}

pub(super) fn build_rand_augment(arguments: &Arguments<'_>, _context: Context<'_>) -> BuildResult {
    let (n, magnitude, bins) = match *arguments.no_size()? {
        [] => (2.0, 9.0, 31.0),
        [n, m] => (n, m, 31.0),
        [n, m, bins] => (n, m, bins),
        ref other => return Err(format!("expected 0, 2 or 3 numbers, got {}", other.len())),
    };
    let operations = whole(n, 0, MAX_OPERATIONS).map_err(|problem| format!("operations: {problem}"))?;
    let bins = whole(bins, 2, MAX_MAGNITUDES).map_err(|problem| format!("magnitudes: {problem}"))?;
    let magnitude = whole(magnitude, 0, bins - 1).map_err(|problem| format!("magnitude: {problem}"))?;
    Ok(Box::new(RandAugment { operations, magnitude, bins, sampling: arguments.choice(&SAMPLINGS)? }))
}

impl Transform for RandAugment {
    fn keeps_bytes(&self) -> bool {
        true
    }

    /// Draws each operation, and its sign if it has one.
    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        let image = image.byte_image();
        for _ in 0..self.operations {
            draw_operation(RAND_AUGMENT, self.bins, |_| self.magnitude, image, self.sampling, draws);
        }
    }

    fn text(&self) -> String {
        format!("rand_augment({}, {}, {}, {})", self.operations, self.magnitude, self.bins, self.sampling.name())
    }
}

// `trivial_augment(bins)`: applies one of 14 operations with one of `bins` magnitudes (default 31), all equally likely
// (Müller and Hutter 2021). This is torchvision's `TrivialAugmentWide`. The last argument is that of `rand_augment`.

#[derive(Debug)]
struct TrivialAugment {
    bins: u32,
    sampling: Sampling,
}

pub(super) fn build_trivial_augment(arguments: &Arguments<'_>, _context: Context<'_>) -> BuildResult {
    let bins = match *arguments.no_size()? {
        [] => 31.0,
        [bins] => bins,
        ref other => return Err(format!("expected 0 or 1 numbers, got {}", other.len())),
    };
    let bins = whole(bins, 2, MAX_MAGNITUDES).map_err(|problem| format!("magnitudes: {problem}"))?;
    Ok(Box::new(TrivialAugment { bins, sampling: arguments.choice(&SAMPLINGS)? }))
}

impl Transform for TrivialAugment {
    fn keeps_bytes(&self) -> bool {
        true
    }

    /// Draws an operation, and its magnitude and sign if it has them.
    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        let bins = self.bins;
        draw_operation(TRIVIAL_AUGMENT, bins, |draws| draws.below(bins), image.byte_image(), self.sampling, draws);
    }

    fn text(&self) -> String {
        format!("trivial_augment({}, {})", self.bins, self.sampling.name())
    }
}

// `augmix(severity, chains, depth, alpha)`: mixes the image with the results of chains of operations (Hendrycks et al.
// 2019). This is torchvision's `AugMix`. Each chain has `depth` operations, or 1 to 3 if `depth` is -1. Each operation
// has one of the first `severity` of ten magnitudes. The weights are drawn from Dirichlet distributions with parameter
// `alpha`: one set mixes the chains with each other, and one mixes the result with the image. The defaults are 3, 3, -1
// and 1. Moved pixels are interpolated between four pixels, or take the nearest pixel with a last argument `nearest`.
// The argument `partial`, before `nearest` if there are both, leaves out brightness, color, contrast and sharpness.

/// Sampling methods by name. The first is the default, as in torchvision.
const AUGMIX_SAMPLINGS: [(&str, Sampling); 2] = [Sampling::Bilinear(Edge::Plain).named(), Sampling::Nearest.named()];
const MAX_CHAINS: usize = 10;
const MAX_DEPTH: u32 = 10;

#[derive(Debug)]
struct AugMix {
    severity: u32,
    chains: usize,
    /// Number of operations in a chain. If `None`, it is drawn.
    depth: Option<u32>,
    alpha: f64,
    partial: bool,
    sampling: Sampling,
}

pub(super) fn build_augmix(arguments: &Arguments<'_>, _context: Context<'_>) -> BuildResult {
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
    Ok(Box::new(AugMix {
        severity: whole(severity, 1, BINS).map_err(|problem| format!("severity: {problem}"))?,
        chains: whole(chains, 1, MAX_CHAINS as u32).map_err(|problem| format!("chains: {problem}"))? as usize,
        depth: match depth {
            -1.0 => None,
            depth => Some(whole(depth, 1, MAX_DEPTH).map_err(|problem| format!("depth: {problem}, or -1"))?),
        },
        alpha,
        partial,
        sampling: Arguments { words, ..Arguments::default() }.choice(&AUGMIX_SAMPLINGS)?,
    }))
}

impl AugMix {
    fn space(&self) -> &'static Space {
        if self.partial { AUGMIX_PARTIAL } else { AUGMIX }
    }

    /// Draws a weight for the image and for each chain.
    fn draw_shares(&self, draws: &mut Draws) -> (f32, [f32; MAX_CHAINS]) {
        let (mut parts, mut shares) = ([0.0; 2], [0.0; MAX_CHAINS]);
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

    /// Draws the weights. Then, for each chain, draws its depth, followed by each operation with its magnitude and its
    /// sign.
    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        let (image, sums) = image.byte_image_and_floats();
        let (own, shares) = self.draw_shares(draws);
        image.save();
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

    fn text(&self) -> String {
        let Self { severity, chains, alpha, .. } = self;
        let depth = self.depth.map_or(-1, i64::from);
        let partial = if self.partial { "partial, " } else { "" };
        format!("augmix({severity}, {chains}, {depth}, {alpha}, {partial}{})", self.sampling.name())
    }
}

/// Fills `shares` with a sample of the Dirichlet distribution with all parameters equal to `alpha` (above 0). They are
/// gamma samples divided by their sum.
pub(super) fn dirichlet(alpha: f64, shares: &mut [f64], draws: &mut Draws) {
    shares.iter_mut().for_each(|share| *share = gamma(alpha, draws));
    let sum: f64 = shares.iter().sum();
    shares.iter_mut().for_each(|share| *share /= sum);
}

/// Samples the gamma distribution with shape `alpha` and scale 1 (Marsaglia and Tsang 2000): draws a normal x and a
/// uniform u until a pair is accepted. For an `alpha` below 1, the sample is computed from one with shape alpha + 1 and
/// another u.
fn gamma(alpha: f64, draws: &mut Draws) -> f64 {
    if alpha < 1.0 {
        let more = gamma(alpha + 1.0, draws);
        // u is in (0, 1]. With 0, all weights would be 0 / 0.
        return more * (1.0 - f64::from(draws.unit())).powf(1.0 / alpha);
    }
    let d = alpha - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let (x, _) = draws.normals();
        let u = 1.0 - f64::from(draws.unit());
        let x = f64::from(x);
        let v = (1.0 + c * x) * (1.0 + c * x) * (1.0 + c * x);
        if v > 0.0 && u.ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return d * v;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ImageSpec;
    use crate::transform::testing::run;

    #[test]
    fn augmix_with_weak_magnitudes_rarely_changes_a_flat_image() {
        // The result is a weighted sum of the image and one chain with one operation.
        let spec = ImageSpec::new(4, 4, 1);
        let mut moved = 0;
        for id in 0..200 {
            let out = run("augmix(1, 1, 1)", spec, &[100; 16], id);
            assert!(out.iter().all(|value| (0.0..=255.0).contains(value) && value.fract() == 0.0));
            moved += usize::from(out.iter().any(|value| (value - 100.0).abs() > 1.0));
        }
        // With the weakest magnitudes, posterize to 4 bits turns 100 into 96. The other operations do not change an image with
        // equal pixels.
        assert!((1..60).contains(&moved), "{moved}");
    }

    #[test]
    fn gamma_has_the_moments_of_the_gamma_distribution() {
        for alpha in [0.3, 1.0, 2.5] {
            let n = 20_000;
            let (mut sum, mut squares) = (0.0, 0.0);
            for id in 0..n {
                let value = gamma(alpha, &mut Draws::new(8, id, 0, 0));
                sum += value;
                squares += value * value;
            }
            // The mean and the variance are alpha. The standard errors are sqrt(alpha / n) and about alpha sqrt((2 + 6
            // / alpha) / n).
            let (mean, n) = (sum / n as f64, n as f64);
            let variance = squares / n - mean * mean;
            assert!((mean - alpha).abs() < 4.0 * (alpha / n).sqrt(), "{alpha}: mean {mean}");
            assert!((variance - alpha).abs() < 4.0 * alpha * ((2.0 + 6.0 / alpha) / n).sqrt(), "{alpha}: {variance}");
        }
    }

    #[test]
    fn dirichlet_shares_sum_to_one_with_equal_means() {
        let mut sums = [0.0; 3];
        for id in 0..6000 {
            let mut shares = [0.0; 3];
            dirichlet(0.5, &mut shares, &mut Draws::new(8, id, 0, 0));
            assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12 && shares.iter().all(|share| *share >= 0.0));
            sums.iter_mut().zip(shares).for_each(|(sum, share)| *sum += share);
        }
        // Each sum is expected to be 2000, with a standard deviation of 23.
        assert!(sums.iter().all(|sum| (1880.0..2120.0).contains(sum)), "{sums:?}");
    }
}
