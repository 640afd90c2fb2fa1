//! Statistics of the values that a transform receives, such as their mean. They come from `dataset.json` and are updated
//! for each earlier transform in the list. Some transforms compute their parameters from them.

use crate::format::bands::Bands;
use crate::format::manifest::Manifest;
use crate::spec::Dtype;

/// Per-channel statistics over the training split, for the values that a transform receives.
#[derive(Debug, Clone)]
pub struct Statistics {
    /// Mean and standard deviation. Empty if they are unknown.
    pub(super) mean: Vec<f64>,
    pub(super) std: Vec<f64>,
    /// The transform that made mean and deviation unknown, if any.
    pub(super) forgotten: Option<&'static str>,
    /// The transform that made the range and the percentiles unknown, if any.
    pub(super) no_range_after: Option<&'static str>,
    /// True if values are on the scale 0 to 255, and mean and deviation on the scale 0 to 1.
    pub(super) are_bytes: bool,
    /// True for 8-bit grey or RGB images, for which no command measures percentiles.
    are_photos: bool,
    /// `min`, `max` and `percentiles` describe the current values, or are empty if unknown. Bytes have the range 0 to 255.
    pub(super) bands: Bands,
}

impl Statistics {
    /// Returns the statistics in `manifest` for images with `channels`. With `as_rgb`, a grey data set's numbers are
    /// repeated for three channels.
    pub(super) fn new(manifest: &Manifest, channels: u32, as_rgb: bool) -> Self {
        let channels = channels as usize;
        let repeated = |numbers: &mut Vec<f64>| {
            if let ([grey], true) = (&numbers[..], as_rgb) {
                *numbers = vec![*grey; channels];
            }
        };
        let Manifest { mean, std, bands, .. } = manifest;
        let (mut mean, mut std, mut bands) = (mean.clone(), std.clone(), bands.clone());
        let (are_bytes, are_photos) = (bands.dtype == Dtype::U8, !bands.need_version());
        if are_bytes {
            (bands.min, bands.max) = (vec![0.0; channels], vec![255.0; channels]);
        }
        [&mut mean, &mut std].into_iter().for_each(repeated);
        for list in bands.lists() {
            repeated(list);
            if list.len() != channels {
                list.clear();
            }
        }
        Self { mean, std, forgotten: None, no_range_after: None, are_bytes, are_photos, bands }
    }

    /// Returns each channel's smallest and largest value, or why they are not known.
    pub(super) fn range(&self) -> Result<Vec<(f64, f64)>, String> {
        let Bands { min, max, .. } = &self.bands;
        match (min.is_empty() || max.is_empty(), self.no_range_after) {
            (true, Some(transform)) => Err(no_range(transform)),
            (true, None) => Err(not_measured("`min` and `max`")),
            (false, _) => Ok(min.iter().copied().zip(max.iter().copied()).collect()),
        }
    }

    /// Returns a percentile for each channel, or why it is not known.
    pub(super) fn percentile(&self, percent: f64) -> Result<&[f64], String> {
        if let Some(transform) = self.no_range_after {
            return Err(no_range(transform));
        }
        let known = &self.bands.percentiles;
        if let Some(values) = known.get(&percent.to_string()).filter(|values| !values.is_empty()) {
            return Ok(values);
        }
        let mut percents: Vec<u32> =
            known.iter().filter(|(_, values)| !values.is_empty()).filter_map(|(key, _)| key.parse().ok()).collect();
        percents.sort_unstable();
        if percents.is_empty() {
            return Err(match self.are_photos {
                true => "dataset.json has percentiles only for images with bands, not for 8-bit grey or RGB images; remove clip_percentile"
                    .into(),
                false => not_measured("`percentiles`"),
            });
        }
        let percents: Vec<String> = percents.iter().map(u32::to_string).collect();
        Err(format!("dataset.json has no percentile {percent}; it has {}", percents.join(", ")))
    }

    /// Keeps these channels, in this order.
    pub(super) fn select(&mut self, selection: &[usize]) {
        let Self { mean, std, bands, .. } = self;
        for list in [mean, std].into_iter().chain(bands.lists()) {
            *list = selection.iter().flat_map(|&band| list.get(band).copied()).collect();
        }
        bands.names = selection.iter().flat_map(|&band| bands.names.get(band).cloned()).collect();
        bands.channels = Some(selection.len() as u32);
    }

    /// Applies an increasing function to the smallest and largest values and the percentiles.
    pub(super) fn map(&mut self, of: impl Fn(usize, f64) -> f64) {
        for list in self.bands.lists() {
            list.iter_mut().enumerate().for_each(|(channel, value)| *value = of(channel, *value));
        }
    }

    /// Updates the statistics for a transform that computes `(value - shift) / divisor` per channel. `of` returns the
    /// channel's shift and divisor.
    pub(super) fn scale(&mut self, of: impl Fn(usize) -> (f64, f64)) {
        let unit = if self.are_bytes { 255.0 } else { 1.0 };
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

    /// Declares that nothing is known about the values after `transform`.
    pub(super) fn forget_all(&mut self, transform: &'static str) {
        self.forget(transform);
        self.no_range_after = Some(transform);
        self.bands.lists().for_each(Vec::clear);
    }
}

fn not_measured(keys: &str) -> String {
    format!("dataset.json has no {keys} of each band (`trireme data stats DIR --write` measures and stores them)")
}

fn no_range(transform: &str) -> String {
    format!("the range of the values is not known after {transform}; move it before {transform}")
}
