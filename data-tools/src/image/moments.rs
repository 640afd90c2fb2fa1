//! Mean and standard deviation of pixels per channel, by exact integer sums: the only rounding is at the end.

use crate::error::Error;
use loaders::channels::add_sums;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Sums of bytes and of their squares for each channel. Adding two of them is exact, so the result does not depend on how
/// the work was split.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Moments {
    /// Number of pixels.
    pixels: u64,
    sum: Vec<u64>,
    squares: Vec<u64>,
}

impl Moments {
    /// Adds an image of interleaved `channels`-byte pixels.
    pub(crate) fn add(&mut self, image: &[u8], channels: usize) -> Result<(), String> {
        self.fit(channels)?;
        self.pixels += (image.len() / channels) as u64;
        match channels {
            1 => self.add_channels::<1>(image),
            3 => self.add_channels::<3>(image),
            _ => {
                for (i, &byte) in image.iter().enumerate() {
                    self.sum[i % channels] += u64::from(byte);
                    self.squares[i % channels] += u64::from(byte) * u64::from(byte);
                }
            }
        }
        Ok(())
    }

    fn add_channels<const C: usize>(&mut self, image: &[u8]) {
        let (mut sum, mut squares) = ([0; C], [0; C]);
        add_sums(image, &mut sum, &mut squares);
        for c in 0..C {
            self.sum[c] += sum[c];
            self.squares[c] += squares[c];
        }
    }

    /// Adds the sums of other images.
    pub(crate) fn merge(&mut self, other: &Moments) -> Result<(), String> {
        if other.pixels == 0 {
            return Ok(());
        }
        self.fit(other.sum.len())?;
        self.pixels += other.pixels;
        for (mine, theirs) in self.sum.iter_mut().zip(&other.sum) {
            *mine += theirs;
        }
        for (mine, theirs) in self.squares.iter_mut().zip(&other.squares) {
            *mine += theirs;
        }
        Ok(())
    }

    /// Adds the sums over the shard `shard`; the error names it.
    pub(crate) fn merge_shard(&mut self, part: &Moments, shard: &Path) -> Result<(), Error> {
        self.merge(part).map_err(|what| Error::input(shard, format!("images of {what}")))
    }

    /// Number of channels; 0 before the first image.
    pub(crate) fn channels(&self) -> usize {
        self.sum.len()
    }

    /// The sums of grey images repeated to `channels` equal channels.
    pub(crate) fn repeated(&self, channels: usize) -> Self {
        let grey = |sums: &[u64]| sums.first().map_or(Vec::new(), |&sum| vec![sum; channels]);
        Moments { pixels: self.pixels, sum: grey(&self.sum), squares: grey(&self.squares) }
    }

    fn fit(&mut self, channels: usize) -> Result<(), String> {
        if channels == 0 {
            return Err("an image without channels".to_string());
        }
        if self.sum.is_empty() {
            self.sum.resize(channels, 0);
            self.squares.resize(channels, 0);
        }
        if self.sum.len() != channels {
            return Err(format!(
                "{channels} channels, other images have {}; a data set needs one number of channels",
                self.sum.len()
            ));
        }
        Ok(())
    }

    /// Mean and population standard deviation of pixel/255 per channel; empty without pixels.
    pub(crate) fn finish(&self) -> (Vec<f64>, Vec<f64>) {
        let n = u128::from(self.pixels);
        let mean = |sum: u64| sum as f64 / (self.pixels as f64 * 255.0);
        let std = |sum: u64, squares: u64| {
            // n * S2 - S1^2 is exact; one rounding comes with the conversion to f64.
            let spread = n * u128::from(squares) - u128::from(sum) * u128::from(sum);
            (spread as f64).sqrt() / (self.pixels as f64 * 255.0)
        };
        let both = self.sum.iter().zip(&self.squares);
        (self.sum.iter().map(|&s| mean(s)).collect(), both.map(|(&s, &q)| std(s, q)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_textbook() {
        let image: Vec<u8> = (0..3 * 40_000u32).map(|i| (i * 7 % 251) as u8).collect();
        let mut moments = Moments::default();
        moments.add(&image, 3).unwrap();
        let (mean, std) = moments.finish();
        for c in 0..3 {
            let values: Vec<f64> = image.iter().skip(c).step_by(3).map(|&b| f64::from(b) / 255.0).collect();
            let m = values.iter().sum::<f64>() / values.len() as f64;
            let v = values.iter().map(|x| (x - m) * (x - m)).sum::<f64>() / values.len() as f64;
            assert!((mean[c] - m).abs() < 1e-12 && (std[c] - v.sqrt()).abs() < 1e-12);
        }
    }

    #[test]
    fn white_does_not_overflow_and_has_no_spread() {
        let mut moments = Moments::default();
        moments.add(&vec![255; 3 << 18], 3).unwrap();
        assert_eq!(moments.finish(), (vec![1.0; 3], vec![0.0; 3]));
    }

    #[test]
    fn parts_add_up_in_any_order() {
        let (a, b) = ([1u8, 2, 3, 4], [250u8, 0, 17, 9, 9, 9]);
        let whole = [a.as_slice(), b.as_slice()].concat();
        let mut one = Moments::default();
        one.add(&whole, 2).unwrap();
        let (mut first, mut second) = (Moments::default(), Moments::default());
        first.add(&a, 2).unwrap();
        second.add(&b, 2).unwrap();
        second.merge(&first).unwrap();
        second.merge(&Moments::default()).unwrap();
        assert_eq!(one, second);
        assert!(one.add(&a, 1).unwrap_err().contains("1 channels"));
    }
}
