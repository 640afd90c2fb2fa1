//! Mixes the images of a batch with each other: mixup (Zhang et al. 2018, arXiv 1710.09412) and CutMix (Yun et al.
//! 2019, arXiv 1905.04899). Like timm, it mixes whole batches: row i of n is mixed with row n - 1 - i, and all rows use
//! the same draw.

use crate::random::{Draws, MIX_OP};
use crate::spec::ImageSpec;

/// Settings for mixing batches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MixSettings {
    /// Both parameters of the beta distribution for the weights of mixup. 0 disables mixup.
    pub mixup: f64,
    /// Both parameters of the beta distribution for the weights of CutMix. 0 disables CutMix.
    pub cutmix: f64,
    /// Probability of CutMix if both are enabled.
    pub switch: f64,
    /// Probability that a batch is mixed.
    pub prob: f64,
}

/// How the images of a batch are mixed with each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mix {
    /// Weight of a row's own image and label. Its partner has the weight `1 - share`.
    pub share: f32,
    /// The area that is taken from the partner. `None` if all pixels are weighted sums.
    pub area: Option<Area>,
}

/// A rectangle of pixels. `bottom` and `right` are exclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    pub top: u32,
    pub bottom: u32,
    pub left: u32,
    pub right: u32,
}

/// Identifies a batch. Its random draw depends only on this key.
#[derive(Debug, Clone, Copy)]
pub struct BatchKey {
    pub seed: u64,
    pub epoch: u32,
    /// Counted from 0 within the epoch.
    pub step: u64,
    /// Number of the logical worker.
    pub worker: usize,
}

impl MixSettings {
    /// Draws how the batch of `key` is mixed, or returns `None` if it is not mixed. Depends only on the key and the
    /// shape of the images.
    pub fn draw(&self, key: BatchKey, spec: ImageSpec) -> Option<Mix> {
        let id = (key.step << 32) | key.worker as u64;
        let mut draws = Draws::new(key.seed, id, key.epoch, MIX_OP);
        if f64::from(draws.unit()) >= self.prob {
            return None;
        }
        let cut = match (self.mixup > 0.0, self.cutmix > 0.0) {
            (true, true) => f64::from(draws.unit()) < self.switch,
            (false, false) => return None,
            (_, cut) => cut,
        };
        let share = beta(if cut { self.cutmix } else { self.mixup }, &mut draws);
        let mix = match cut {
            true => cut_mix(share, spec, &mut draws),
            false => Mix { share: share as f32, area: None },
        };
        (mix.share < 1.0).then_some(mix)
    }
}

/// Draws a rectangle with about `1 - share` of the image's area around a random pixel. It is clipped at the image's
/// borders. The returned share is the actual weight.
fn cut_mix(share: f64, spec: ImageSpec, draws: &mut Draws) -> Mix {
    let ImageSpec { height, width, .. } = spec;
    let side = (1.0 - share).sqrt();
    let (rows, columns) = ((f64::from(height) * side) as u32, (f64::from(width) * side) as u32);
    let (y, x) = (draws.below(height), draws.below(width));
    let area = Area {
        top: y.saturating_sub(rows / 2),
        bottom: (y + rows / 2).min(height),
        left: x.saturating_sub(columns / 2),
        right: (x + columns / 2).min(width),
    };
    let taken = f64::from(area.bottom - area.top) * f64::from(area.right - area.left);
    Mix { share: (1.0 - taken / (f64::from(height) * f64::from(width))) as f32, area: Some(area) }
}

/// Samples the beta distribution with both parameters equal to `a`: with Jöhnk's method if `a` is at most 1, otherwise
/// with two gamma samples.
fn beta(a: f64, draws: &mut Draws) -> f64 {
    if a > 1.0 {
        let (x, y) = (gamma(a, draws), gamma(a, draws));
        return x / (x + y);
    }
    loop {
        // Computes the logarithms of u^(1/a), because the powers may be too small for f64.
        let (x, y) = (uniform(draws).ln() / a, uniform(draws).ln() / a);
        if x.exp() + y.exp() <= 1.0 {
            return 1.0 / (1.0 + (y - x).exp());
        }
    }
}

/// Samples the gamma distribution of shape `a` > 1 (Marsaglia and Tsang 2000).
fn gamma(a: f64, draws: &mut Draws) -> f64 {
    let d = a - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = f64::from(draws.normals().0);
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && uniform(draws).ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return d * v;
        }
    }
}

/// Draws a number with 53 bits between 0 and 1, both excluded.
fn uniform(draws: &mut Draws) -> f64 {
    let (high, low) = (u64::from(draws.next_u32()), u64::from(draws.next_u32()));
    ((high << 21 | low >> 11) as f64 + 0.5) * (1.0 / (1u64 << 53) as f64)
}

impl Mix {
    /// Returns the row that row `row` of `rows` is mixed with. If `rows` is odd, the row in the middle is mixed with
    /// itself.
    pub fn partner(row: usize, rows: usize) -> usize {
        rows - 1 - row
    }

    /// Mixes images of planar floats (N, C, H, W).
    pub fn apply(&self, images: &mut [f32], spec: ImageSpec) {
        let each = spec.values();
        let rows = images.len() / each;
        for row in 0..rows / 2 {
            let (low, high) = images.split_at_mut(Self::partner(row, rows) * each);
            let (own, partner) = (&mut low[row * each..][..each], &mut high[..each]);
            match self.area {
                Some(area) => swap(own, partner, area, spec),
                None => blend(own, partner, self.share),
            }
        }
    }
}

/// Exchanges the area between two images.
fn swap(a: &mut [f32], b: &mut [f32], area: Area, spec: ImageSpec) {
    let (width, columns) = (spec.width as usize, area.left as usize..area.right as usize);
    for channel in 0..spec.channels as usize {
        for row in area.top..area.bottom {
            let start = (channel * spec.height as usize + row as usize) * width;
            a[start..][columns.clone()].swap_with_slice(&mut b[start..][columns.clone()]);
        }
    }
}

fn blend(a: &mut [f32], b: &mut [f32], share: f32) {
    let rest = 1.0 - share;
    for (a, b) in a.iter_mut().zip(b) {
        (*a, *b) = (*a * share + *b * rest, *b * share + *a * rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: ImageSpec = ImageSpec::new(8, 6, 2);
    const BOTH: MixSettings = MixSettings { mixup: 0.8, cutmix: 1.0, switch: 0.5, prob: 1.0 };

    fn key(step: u64, worker: usize) -> BatchKey {
        BatchKey { seed: 7, epoch: 3, step, worker }
    }

    fn draws(settings: MixSettings, n: u64) -> Vec<Option<Mix>> {
        (0..n).map(|step| settings.draw(key(step, 1), SPEC)).collect()
    }

    #[test]
    fn mixup_shares_follow_the_beta_distribution() {
        for a in [0.1, 0.4, 0.8, 1.0, 1.7, 4.0, 40.0] {
            let n = 40_000;
            let mut draws = Draws::new(5, 6, 7, 8);
            let shares: Vec<f64> = (0..n).map(|_| beta(a, &mut draws)).collect();
            assert!(shares.iter().all(|s| (0.0..=1.0).contains(s)), "{a}");
            let mean = shares.iter().sum::<f64>() / f64::from(n);
            let variance = shares.iter().map(|s| (s - 0.5).powi(2)).sum::<f64>() / f64::from(n);
            let expected = 1.0 / (4.0 * (2.0 * a + 1.0));
            // Five standard errors of the mean, and more than five of the variance.
            assert!((mean - 0.5).abs() < 5.0 * (expected / f64::from(n)).sqrt(), "{a}: mean {mean}");
            assert!((variance / expected - 1.0).abs() < 0.05, "{a}: variance {variance} for {expected}");
        }
        // With such a small parameter, a power of a draw is 0 in f64.
        let mut draws = Draws::new(5, 6, 7, 9);
        assert!((0..200).all(|_| (0.0..=1.0).contains(&beta(1e-4, &mut draws))));
    }

    #[test]
    fn mix_depends_only_on_seed_worker_epoch_and_step() {
        let mut seen: Vec<Mix> = Vec::new();
        for key in
            [key(0, 0), key(1, 0), key(0, 1), BatchKey { epoch: 4, ..key(0, 0) }, BatchKey { seed: 8, ..key(0, 0) }]
        {
            let mix = BOTH.draw(key, SPEC).expect("always mixed");
            assert_eq!(BOTH.draw(key, SPEC), Some(mix));
            assert!(!seen.contains(&mix), "{mix:?} twice");
            seen.push(mix);
        }
    }

    #[test]
    fn mix_settings_have_the_same_meaning_as_in_timm() {
        let share = |of: &dyn Fn(&Mix) -> bool, settings| {
            draws(settings, 4000).iter().flatten().filter(|mix| of(mix)).count() as f64 / 4000.0
        };
        let cut = |mix: &Mix| mix.area.is_some();
        assert_eq!(share(&cut, MixSettings { cutmix: 0.0, ..BOTH }), 0.0);
        assert_eq!(share(&|mix| !cut(mix), MixSettings { mixup: 0.0, ..BOTH }), 0.0);
        // An empty area leaves a batch unchanged. With images this small, this happens for about every seventh batch.
        let cuts = share(&cut, MixSettings { switch: 0.25, ..BOTH });
        assert!((0.19..0.26).contains(&cuts), "{cuts}");
        let mixed = share(&|_| true, MixSettings { prob: 0.3, cutmix: 0.0, ..BOTH });
        assert!((mixed - 0.3).abs() < 0.03, "{mixed}");
        assert!(draws(MixSettings { prob: 0.0, ..BOTH }, 100).iter().all(Option::is_none));
        assert!(draws(MixSettings { mixup: 0.0, cutmix: 0.0, ..BOTH }, 100).iter().all(Option::is_none));
    }

    #[test]
    fn cutmix_share_equals_the_share_of_pixels() {
        let mixes = draws(MixSettings { mixup: 0.0, ..BOTH }, 500);
        for Mix { share, area } in mixes.into_iter().flatten() {
            let Area { top, bottom, left, right } = area.expect("only CutMix");
            assert!(top < bottom && bottom <= 8 && left < right && right <= 6, "{area:?}");
            assert_eq!(share, (1.0 - f64::from((bottom - top) * (right - left)) / 48.0) as f32);
        }
    }

    #[test]
    fn rows_are_mixed_with_their_mirror_images() {
        let each = SPEC.values();
        for rows in [1, 2, 5, 6] {
            let old: Vec<f32> = (0..rows * each).map(|i| (i * 37 % 101) as f32 - 50.0).collect();
            let area = Area { top: 2, bottom: 5, left: 1, right: 6 };
            for mix in [Mix { share: 0.3, area: None }, Mix { share: 0.75, area: Some(area) }] {
                let mut new = old.clone();
                mix.apply(&mut new, SPEC);
                for (i, &value) in new.iter().enumerate() {
                    let (row, at) = (i / each, i % each);
                    let (own, other) = (old[i], old[Mix::partner(row, rows) * each + at]);
                    let (y, x) = ((at / 6 % 8) as u32, (at % 6) as u32);
                    let inside = (2..5).contains(&y) && (1..6).contains(&x);
                    let expected = match mix.area {
                        _ if 2 * row + 1 == rows => own,
                        Some(_) if inside => other,
                        Some(_) => own,
                        None => own * 0.3 + other * (1.0 - 0.3),
                    };
                    assert_eq!(value, expected, "{mix:?}, {rows} rows, row {row}, {y}, {x}");
                }
            }
        }
    }
}
