//! Batch normalisation over a batch that is distributed over ranks: sums the ranks' statistics and gradients.

use super::error::Error;

/// Computes sums over all ranks in the middle of a forward or backward pass. Every rank must call [`Across::sum`]
/// equally often, in the same order, with the same number of values.
pub trait Across {
    /// Replaces `values` by their sums over all ranks.
    fn sum(&self, values: &mut [f64]) -> Result<(), Error>;

    /// Contributes zeros to the sum of a forward pass's statistics over `channels` channels. A rank without samples
    /// calls this.
    fn no_statistics(&self, channels: usize) -> Result<(), Error> {
        self.sum(&mut vec![0.0; 1 + 2 * channels])
    }

    /// Contributes zeros to the sums of a backward pass. A rank without samples calls this.
    fn no_gradients(&self, channels: usize) -> Result<(), Error> {
        self.sum(&mut vec![0.0; 2 * channels])
    }
}

/// Combines the statistics of all ranks into the whole batch's statistics. On entry, `mean` and `m2` (sum of squared
/// deviations from the mean) have this rank's values for each channel, and `n` is this rank's number of values per
/// channel. On return, `mean` and `m2` have the whole batch's values. Returns the whole batch's number of values per
/// channel.
///
/// Let r be the running mean, which is the same on all ranks, d = mean - r, and S the sum over ranks. One call sums n,
/// n d and M2 + n d^2. Then mean = r + S(n d)/S(n) and M2 = S(M2 + n d^2) - S(n d)^2/S(n). Offsets from r stay precise
/// if |mean| is much larger than the deviation. The result equals Chan's pairwise formula, but needs only one sum over
/// ranks.
pub(super) fn statistics(
    across: &dyn Across,
    n: f64,
    running: &[f32],
    mean: &mut [f64],
    m2: &mut [f64],
) -> Result<f64, Error> {
    let c = running.len() / 2;
    let mut values = vec![n];
    values.extend((0..c).map(|i| n * (mean[i] - f64::from(running[i]))));
    values.extend((0..c).map(|i| m2[i] + n * (mean[i] - f64::from(running[i])).powi(2)));
    across.sum(&mut values)?;
    let (n, (offsets, squares)) = (values[0], values[1..].split_at(c));
    for i in 0..c {
        mean[i] = f64::from(running[i]) + offsets[i] / n;
        m2[i] = (squares[i] - offsets[i] * offsets[i] / n).max(0.0);
    }
    Ok(n)
}

/// Replaces the sums `s` and `sx` of a rank's backward pass by their sums over all ranks. Each has a value for each of
/// `channels` channels, and may have padding after them.
pub(super) fn gradients(across: &dyn Across, channels: usize, s: &mut [f64], sx: &mut [f64]) -> Result<(), Error> {
    let mut values = [&s[..channels], &sx[..channels]].concat();
    across.sum(&mut values)?;
    s[..channels].copy_from_slice(&values[..channels]);
    sx[..channels].copy_from_slice(&values[channels..]);
    Ok(())
}
