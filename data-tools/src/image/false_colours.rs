//! Draws raw images as 8-bit pictures: three bands as red, green and blue, or a single band as grey. Each band is
//! stretched so that a low percentile becomes black and a high percentile white.

use loaders::{Bands, Dtype, Example, Format};

use crate::raw::values::Values;

/// The percentiles that become black and white.
const RANGE: [&str; 2] = ["2", "98"];

/// Which bands are shown, and with which range of values.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct FalseColours {
    /// The bands to draw, counted from 0. If empty, the first three, or the first if there are fewer.
    picks: Vec<usize>,
    /// The values per band that become black and white. If empty, each image uses its own minimum and maximum.
    ranges: Vec<(f64, f64)>,
}

/// Returns true if the image is grey or RGB with bytes, which needs no false colours.
pub(crate) fn is_photo(example: &Example<'_>) -> bool {
    example.format != Format::Raw || example.dtype == Dtype::U8 && [1, 3].contains(&example.channels)
}

impl FalseColours {
    /// Creates false colours for a data set. `chosen` lists three bands or a single band, counted from 1. It is empty
    /// for the default.
    pub fn new(bands: &Bands, chosen: &[u32]) -> Result<Self, String> {
        let channels = bands.channels.unwrap_or(0);
        if ![0, 1, 3].contains(&chosen.len()) {
            return Err(format!("{} bands to show; expected three (red, green, blue) or one (grey)", chosen.len()));
        }
        if let Some(band) = chosen.iter().find(|&&band| band > channels) {
            return Err(format!(
                "band {band} was requested, but the images have {} (bands are counted from 1)",
                base::text::plural(channels, "band")
            ));
        }
        let [low, high] = RANGE.map(|key| bands.percentiles.get(key).map_or(&[][..], Vec::as_slice));
        let picks = chosen.iter().map(|&band| band as usize - 1).collect();
        Ok(FalseColours { picks, ranges: low.iter().copied().zip(high.iter().copied()).collect() })
    }

    /// Returns the false colours after transforms that keep only these bands, counted from 0. If a chosen band is not
    /// kept, the default bands are drawn. Transforms change the units, so the data set's ranges do not apply.
    pub fn of_selection(&self, kept: &[usize]) -> Self {
        let place = |pick: &usize| kept.iter().position(|band| band == pick);
        let picks = self.picks.iter().map(place).collect::<Option<Vec<_>>>().unwrap_or_default();
        FalseColours { picks, ranges: Vec::new() }
    }

    /// Returns the bands to draw, one or three, for an image with this band count.
    fn picks(&self, channels: usize) -> Vec<usize> {
        match channels {
            _ if !self.picks.is_empty() && self.picks.iter().all(|&pick| pick < channels) => self.picks.clone(),
            0..3 => vec![0],
            _ => vec![0, 1, 2],
        }
    }

    /// Returns the picture as interleaved bytes, and its channel count: 1 or 3.
    pub fn picture(&self, values: Values, bytes: &[u8]) -> (Vec<u8>, usize) {
        let channels = values.channels;
        let count = bytes.len() / values.dtype.bytes() / channels;
        self.stretched(channels, count, |pixel, band| values.at(bytes, pixel * channels + band))
    }

    /// Works like [`FalseColours::picture`], but for planar floats, and always stretches from minimum to maximum.
    /// Transforms have changed the units, so the data set's ranges do not apply.
    pub fn picture_of_planes(&self, planes: &[f32], channels: usize) -> (Vec<u8>, usize) {
        let count = planes.len() / channels;
        let own = FalseColours { picks: self.picks.clone(), ranges: Vec::new() };
        own.stretched(channels, count, |pixel, band| f64::from(planes[band * count + pixel]))
    }

    fn stretched(&self, channels: usize, count: usize, value: impl Fn(usize, usize) -> f64) -> (Vec<u8>, usize) {
        let picks = self.picks(channels);
        let ranges: Vec<(f64, f64)> = picks
            .iter()
            .map(|&band| match self.ranges.get(band).filter(|_| self.ranges.len() == channels) {
                Some(&range) => range,
                None => range((0..count).map(|pixel| value(pixel, band))),
            })
            .collect();
        let mut bytes = Vec::with_capacity(count * picks.len());
        for pixel in 0..count {
            for (&band, &(low, high)) in picks.iter().zip(&ranges) {
                // The cast limits to 0 and 255.
                bytes.push(((value(pixel, band) - low) / width(low, high) * 255.0).round() as u8);
            }
        }
        (bytes, picks.len())
    }
}

/// Returns the smallest and the largest value.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)))
}

/// Returns the width of a range, or 1 for a single value.
fn width(low: f64, high: f64) -> f64 {
    if high > low { high - low } else { 1.0 }
}

/// Returns a grey picture of all bands, each stretched from its smallest to its largest value in the image.
pub(crate) fn grey(values: Values, bytes: &[u8]) -> Vec<u8> {
    let channels = values.channels;
    let count = bytes.len() / values.dtype.bytes() / channels;
    let mut sums = vec![0.0; count];
    for band in 0..channels {
        let own = (0..count).map(|pixel| values.at(bytes, pixel * channels + band));
        let (low, high) = range(own.clone());
        own.zip(&mut sums).for_each(|(value, sum)| *sum += (value - low) / width(low, high));
    }
    sums.into_iter().map(|sum| (sum / channels as f64 * 255.0).round() as u8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_are_chosen_and_stretched() {
        let image: Vec<u8> =
            [0u16, 100, 7, 1000, 50, 7, 2000, 200, 7, 500, 0, 7].iter().flat_map(|v| v.to_le_bytes()).collect();
        let values = Values { dtype: Dtype::U16, channels: 3, width: 2 };
        let percentiles = [("2", vec![0.0, 0.0, 0.0]), ("98", vec![1000.0, 100.0, 7.0])];
        let percentiles = percentiles.map(|(key, list)| (key.to_string(), list)).into();
        let bands = Bands { dtype: Dtype::U16, channels: Some(3), percentiles, ..Bands::default() };
        let all = FalseColours::new(&bands, &[]).unwrap().picture(values, &image);
        assert_eq!(all, (vec![0, 255, 255, 255, 128, 255, 255, 255, 255, 128, 0, 255], 3));
        let one = FalseColours::new(&bands, &[2]).unwrap().picture(values, &image);
        assert_eq!(one, (vec![255, 128, 255, 0], 1));
        // Without percentiles, the minimum and maximum of the image become black and white.
        let own = FalseColours::default().picture(values, &image).0;
        assert_eq!(own[..3], [0, 128, 0]);
        assert!(FalseColours::new(&bands, &[1, 2]).unwrap_err().contains("expected three"));
        assert!(FalseColours::new(&bands, &[4]).unwrap_err().contains("band 4"));
        assert_eq!(grey(values, &image), [43, 64, 170, 21]);
    }

    /// Bands are chosen by their numbers in the data set, so a selection moves them.
    #[test]
    fn chosen_bands_follow_a_selection() {
        let bands = Bands { dtype: Dtype::U16, channels: Some(4), ..Bands::default() };
        let colours = FalseColours::new(&bands, &[4, 3, 2]).unwrap();
        assert_eq!(colours.of_selection(&[0, 1, 2, 3]).picks(4), [3, 2, 1]);
        assert_eq!(colours.of_selection(&[3, 2, 1]).picks(3), [0, 1, 2]);
        assert_eq!(colours.of_selection(&[0, 3, 2, 1]).picks(4), [1, 2, 3]);
        assert_eq!(colours.of_selection(&[0, 3, 2]).picks(3), [0, 1, 2], "band 2 is not kept");
        assert_eq!(FalseColours::new(&bands, &[2]).unwrap().of_selection(&[0, 1]).picks(2), [1]);
    }
}
