//! Shares that sum to one, drawn from Dirichlet's distribution.

use crate::random::Draws;

/// Fills `shares` with a draw from Dirichlet's distribution whose parameters are all `alpha` (above 0): gammas over their sum.
pub(super) fn dirichlet(alpha: f64, shares: &mut [f64], draws: &mut Draws) {
    shares.iter_mut().for_each(|share| *share = gamma(alpha, draws));
    let sum: f64 = shares.iter().sum();
    shares.iter_mut().for_each(|share| *share /= sum);
}

/// A draw from the gamma distribution of shape `alpha` and scale 1 (Marsaglia and Tsang 2000): normals x and uniforms u until one is
/// accepted. Below 1 it is made of one of shape alpha + 1 and a further u.
fn gamma(alpha: f64, draws: &mut Draws) -> f64 {
    if alpha < 1.0 {
        let more = gamma(alpha + 1.0, draws);
        // u in (0, 1]: 0 would make all shares 0 / 0
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

    #[test]
    fn gammas_have_their_moments() {
        for alpha in [0.3, 1.0, 2.5] {
            let n = 20_000;
            let (mut sum, mut squares) = (0.0, 0.0);
            for id in 0..n {
                let value = gamma(alpha, &mut Draws::new(8, id, 0, 0));
                sum += value;
                squares += value * value;
            }
            // mean alpha, variance alpha: standard errors sqrt(alpha / n) and about alpha sqrt((2 + 6 / alpha) / n)
            let (mean, n) = (sum / n as f64, n as f64);
            let variance = squares / n - mean * mean;
            assert!((mean - alpha).abs() < 4.0 * (alpha / n).sqrt(), "{alpha}: mean {mean}");
            assert!((variance - alpha).abs() < 4.0 * alpha * ((2.0 + 6.0 / alpha) / n).sqrt(), "{alpha}: {variance}");
        }
    }

    #[test]
    fn shares_sum_to_one_and_none_is_favoured() {
        let mut sums = [0.0; 3];
        for id in 0..6000 {
            let mut shares = [0.0; 3];
            dirichlet(0.5, &mut shares, &mut Draws::new(8, id, 0, 0));
            assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12 && shares.iter().all(|share| *share >= 0.0));
            sums.iter_mut().zip(shares).for_each(|(sum, share)| *sum += share);
        }
        // 2000 +- 23
        assert!(sums.iter().all(|sum| (1880.0..2120.0).contains(sum)), "{sums:?}");
    }
}
