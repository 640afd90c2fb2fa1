//! What is known about the values of a data set's images before a transform, which may depend on it.

use crate::format::bands::Bands;
use crate::format::manifest::Manifest;
use crate::spec::Dtype;

/// The numbers of each channel over the training split, for the values that a transform receives.
#[derive(Debug, Clone)]
pub struct Statistics {
    /// Mean and standard deviation. Empty if they are unknown.
    pub(super) mean: Vec<f64>,
    pub(super) std: Vec<f64>,
    /// The transform that made mean and deviation unknown, if any.
    pub(super) forgotten: Option<&'static str>,
    /// True if values are on the scale 0 to 255, and mean and deviation on the scale 0 to 1.
    pub(super) are_bytes: bool,
    /// Type and names of the stored bands, and the smallest and largest value and the percentiles.
    pub(super) bands: Bands,
}

impl Statistics {
    /// Returns the statistics in `manifest`. With `as_rgb`, the numbers of a grey data set are repeated for three channels.
    pub(super) fn new(manifest: &Manifest, as_rgb: bool) -> Self {
        let numbers = |numbers: &[f64]| match numbers {
            [grey] if as_rgb => vec![*grey; 3],
            _ => numbers.to_vec(),
        };
        let (mean, std, bands) = (numbers(&manifest.mean), numbers(&manifest.std), manifest.bands.clone());
        Self { mean, std, forgotten: None, are_bytes: bands.dtype == Dtype::U8, bands }
    }

    /// Returns the smallest and largest value of each of `channels`, or why they are not known. Bytes are from 0 to 255.
    pub(super) fn range(&self, channels: u32) -> Result<Vec<(f64, f64)>, String> {
        let Bands { min, max, .. } = &self.bands;
        if self.are_bytes {
            return Ok(vec![(0.0, 255.0); channels as usize]);
        }
        if min.len() != channels as usize || max.len() != channels as usize {
            return Err("dataset.json has no `min` and `max` of each band (`trireme data stats` measures them)".into());
        }
        Ok(min.iter().copied().zip(max.iter().copied()).collect())
    }

    /// Keeps these channels, in this order.
    pub(super) fn select(&mut self, selection: &[usize]) {
        let Self { mean, std, bands, .. } = self;
        let Bands { channels, names, min, max, percentiles, .. } = bands;
        for list in [mean, std, min, max].into_iter().chain(percentiles.values_mut()) {
            *list = selection.iter().flat_map(|&band| list.get(band).copied()).collect();
        }
        *names = selection.iter().flat_map(|&band| names.get(band).cloned()).collect();
        *channels = Some(selection.len() as u32);
    }

    /// Applies an increasing function to the smallest and largest values and the percentiles.
    pub(super) fn map(&mut self, of: impl Fn(usize, f64) -> f64) {
        let Bands { min, max, percentiles, .. } = &mut self.bands;
        for list in [min, max].into_iter().chain(percentiles.values_mut()) {
            list.iter_mut().enumerate().for_each(|(channel, value)| *value = of(channel, *value));
        }
    }

    /// Applies `(value - shift) / divisor` per channel to all statistics.
    pub(super) fn scale(&mut self, of: impl Fn(usize) -> (f64, f64)) {
        let unit = if self.are_bytes { 255.0 } else { 1.0 };
        if self.are_bytes {
            let channels = self.mean.len();
            (self.bands.min, self.bands.max) = (vec![0.0; channels], vec![255.0; channels]);
        }
        for (channel, (mean, std)) in self.mean.iter_mut().zip(&mut self.std).enumerate() {
            let (shift, divisor) = of(channel);
            (*mean, *std) = ((*mean * unit - shift) / divisor, *std * unit / divisor);
        }
        self.map(|channel, value| {
            let (shift, divisor) = of(channel);
            (value - shift) / divisor
        });
        self.are_bytes = false;
    }

    /// Declares that mean and deviation are not known after `transform`.
    pub(super) fn forget(&mut self, transform: &'static str) {
        (self.mean, self.std, self.forgotten, self.are_bytes) = (Vec::new(), Vec::new(), Some(transform), false);
    }
}
