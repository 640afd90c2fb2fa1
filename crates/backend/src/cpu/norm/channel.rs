//! What batch normalisation knows of a channel.

use super::super::lanes::{LANES, Lanes};

/// Statistics of a channel's last batch, and what follows from them; all zero in padding.
#[derive(Clone, Copy, Default)]
pub struct Channel {
    pub mean: f64,
    /// Sum of squared offsets from the mean.
    pub m2: f64,
    /// gamma / sqrt(var + eps), and beta - mean * that.
    pub scale: f32,
    pub shift: f32,
}

impl Channel {
    /// From the sums of (x - near) and its square over `n` values.
    pub fn set_statistics(&mut self, near: f32, [s, q]: [f64; 2], n: f64) {
        let offset = s / n;
        self.mean = f64::from(near) + offset;
        self.m2 = (q - n * offset * offset).max(0.0);
    }

    /// For a mean and 1 / standard deviation.
    pub fn set_scale(&mut self, gamma: Option<f32>, beta: f32, [mean, inverse_std]: [f64; 2]) {
        let scale = gamma.map_or(1.0, f64::from) * inverse_std;
        self.scale = scale as f32;
        self.shift = (f64::from(beta) - mean * scale) as f32;
    }

    /// 1 / sqrt(var + eps), of a batch of `n` values a channel.
    pub fn inverse_std(&self, n: f64, eps: f32) -> f64 {
        1.0 / (self.m2 / n + f64::from(eps)).sqrt()
    }
}

/// Of group `group` of the lanes of a row, one value for each lane; a block's channels come again and again.
pub fn lanes<T>(block: &[T], group: usize, to: impl Fn(&T) -> f32) -> Lanes {
    std::array::from_fn(|lane| to(&block[(group * LANES + lane) % block.len()]))
}
