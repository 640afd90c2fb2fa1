//! Measures images: the mean and standard deviation of their pixels per channel, and the distribution of their sizes.
//!
//! The sums are exact integers. Only the final division rounds.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use loaders::ImageSpec;
use loaders::channels::add_sums;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::Error;
use crate::text;

/// Sums of byte values and of their squares per channel. Merging two of them is exact, so the result does not depend on
/// how the work was divided.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Moments {
    pixels: u64,
    sum: Vec<u64>,
    squares: Vec<u64>,
    /// The sums of grey images, which count as colour images if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    grey: Option<Box<Moments>>,
}

impl Moments {
    /// Adds an image with interleaved channels. If there are colour images, a grey image counts as one with equal
    /// channels, as in training. Returns an error if earlier colour images have a different number of channels.
    pub(crate) fn add(&mut self, image: &[u8], channels: usize) -> Result<(), String> {
        match channels {
            1 => self.grey.get_or_insert_default().add_own(image, 1),
            _ => self.add_own(image, channels),
        }
    }

    fn add_own(&mut self, image: &[u8], channels: usize) -> Result<(), String> {
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

    pub(crate) fn merge(&mut self, other: &Moments) -> Result<(), String> {
        if let Some(grey) = &other.grey {
            self.grey.get_or_insert_default().merge(grey)?;
        }
        if other.pixels > 0 {
            self.fit(other.sum.len())?;
            self.add_all(other);
        }
        Ok(())
    }

    /// Adds sums over further images, which must have the same number of channels.
    fn add_all(&mut self, other: &Moments) {
        self.pixels += other.pixels;
        let sums = self.sum.iter_mut().zip(&other.sum);
        sums.chain(self.squares.iter_mut().zip(&other.squares)).for_each(|(mine, theirs)| *mine += theirs);
    }

    /// Adds `part`, the sums of `shard`. An error names the shard.
    pub(crate) fn merge_shard(&mut self, part: &Moments, shard: &Path) -> Result<(), Error> {
        self.merge(part).map_err(|what| Error::input(shard, format!("images of {what}")))
    }

    /// Returns the sums of grey images as if they had `channels` equal channels.
    fn repeated(&self, channels: usize) -> Self {
        let grey = |sums: &[u64]| sums.first().map_or(Vec::new(), |&sum| vec![sum; channels]);
        Moments { pixels: self.pixels, sum: grey(&self.sum), squares: grey(&self.squares), grey: None }
    }

    fn fit(&mut self, channels: usize) -> Result<(), String> {
        if channels == 0 {
            return Err("0 channels; expected at least 1".to_string());
        }
        if self.sum.is_empty() {
            self.sum.resize(channels, 0);
            self.squares.resize(channels, 0);
        }
        if self.sum.len() != channels {
            return Err(format!(
                "{}, but other images have {}; all images need the same number of channels",
                text::plural(channels as u64, "channel"),
                self.sum.len()
            ));
        }
        Ok(())
    }

    /// Returns the mean and population standard deviation of `value / 255` per channel. Both are empty if there are no
    /// images.
    pub(crate) fn finish(&self) -> (Vec<f64>, Vec<f64>) {
        let Some(grey) = self.grey.as_ref().filter(|grey| grey.pixels > 0) else { return self.mean_and_std() };
        let mut all = grey.repeated(self.sum.len().max(1));
        all.add_all(self);
        all.mean_and_std()
    }

    fn mean_and_std(&self) -> (Vec<f64>, Vec<f64>) {
        let n = u128::from(self.pixels);
        let mean = |sum: u64| sum as f64 / (self.pixels as f64 * 255.0);
        let std = |sum: u64, squares: u64| {
            // n * S2 - S1^2 is exact. Rounding begins with the conversion to f64. A damaged journal can make it negative.
            let spread = (n * u128::from(squares)).saturating_sub(u128::from(sum) * u128::from(sum));
            (spread as f64).sqrt() / (self.pixels as f64 * 255.0)
        };
        let both = self.sum.iter().zip(&self.squares);
        (self.sum.iter().map(|&s| mean(s)).collect(), both.map(|(&s, &q)| std(s, q)).collect())
    }
}

/// Bounds of the histogram bins for width / height.
const ASPECTS: [f64; 8] = [0.5, 0.67, 0.8, 0.95, 1.05, 1.25, 1.5, 2.0];

/// The distributions of heights, widths and aspect ratios.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sizes {
    heights: BTreeMap<u32, u64>,
    widths: BTreeMap<u32, u64>,
    /// Number of images per aspect ratio bin: below the first bound, then from each bound on.
    aspects: [u64; ASPECTS.len() + 1],
}

/// Minimum, median and maximum. For an even number of values, the median is the lower of the two middle values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spread {
    pub min: u32,
    pub median: u32,
    pub max: u32,
}

impl Sizes {
    pub(crate) fn add(&mut self, spec: ImageSpec) {
        *self.heights.entry(spec.height).or_default() += 1;
        *self.widths.entry(spec.width).or_default() += 1;
        let aspect = f64::from(spec.width) / f64::from(spec.height.max(1));
        self.aspects[ASPECTS.partition_point(|end| *end <= aspect)] += 1;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (mine, theirs) in [(&mut self.heights, &other.heights), (&mut self.widths, &other.widths)] {
            for (side, count) in theirs {
                *mine.entry(*side).or_default() += count;
            }
        }
        for (mine, theirs) in self.aspects.iter_mut().zip(other.aspects) {
            *mine += theirs;
        }
    }

    /// Returns the spread of the heights, or `None` if there are no images.
    pub fn height(&self) -> Option<Spread> {
        spread(&self.heights)
    }

    /// Returns the spread of the widths, or `None` if there are no images.
    pub fn width(&self) -> Option<Spread> {
        spread(&self.widths)
    }

    /// Returns the bins of width / height as (lower bound, exclusive upper bound, number of images). The last bin has
    /// no upper bound.
    pub fn aspects(&self) -> Vec<(f64, Option<f64>, u64)> {
        let from = std::iter::once(0.0).chain(ASPECTS);
        let to = ASPECTS.into_iter().map(Some).chain([None]);
        from.zip(to).zip(self.aspects).map(|((from, to), count)| (from, to, count)).collect()
    }

    pub fn to_json(&self) -> Value {
        let spread = |s: Option<Spread>| s.map(|s| json!({"min": s.min, "median": s.median, "max": s.max}));
        let aspect = |(from, to, count): (f64, Option<f64>, u64)| json!({"from": from, "to": to, "count": count});
        json!({
            "height": spread(self.height()),
            "width": spread(self.width()),
            "aspects": self.aspects().into_iter().map(aspect).collect::<Vec<_>>(),
        })
    }
}

fn spread(counts: &BTreeMap<u32, u64>) -> Option<Spread> {
    let half = counts.values().sum::<u64>().div_ceil(2);
    let (&min, &max) = (counts.first_key_value()?.0, counts.last_key_value()?.0);
    let mut sum = 0;
    let median = counts.iter().find(|(_, count)| {
        sum += **count;
        sum >= half
    });
    Some(Spread { min, median: *median?.0, max })
}

/// Formats one line if all images have the same size. Otherwise formats the spreads and a bar for each bin that is not
/// empty.
impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(height), Some(width)) = (self.height(), self.width()) else {
            return write!(f, "  no images");
        };
        if height.min == height.max && width.min == width.max {
            return write!(f, "  size {} x {} (width x height), all", width.min, height.min);
        }
        for (name, s) in [("width ", width), ("height", height)] {
            writeln!(f, "  {name}  {} to {}, median {}", s.min, s.max, s.median)?;
        }
        write!(f, "  width / height")?;
        let most = self.aspects.iter().copied().max().unwrap_or(0);
        for (from, to, count) in self.aspects().into_iter().filter(|(.., count)| *count > 0) {
            let range = match to {
                Some(to) if from == 0.0 => format!("below {to}"),
                Some(to) => format!("{from} to {to}"),
                None => format!("{from} and up"),
            };
            write!(f, "\n    {range:12} {:>11}  {}", text::count(count), text::bar(count, most))?;
        }
        Ok(())
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
        assert!(one.add(&b, 3).unwrap_err().contains("3 channels"));
    }

    /// The order of the images does not matter, nor whether the sums were stored in between.
    #[test]
    fn grey_images_count_as_colour_if_there_are_colour_images() {
        let (grey, colour) = ([5u8, 250], [1u8, 2, 3]);
        let (mut first, mut second) = (Moments::default(), Moments::default());
        first.add(&grey, 1).unwrap();
        assert_eq!(first.finish(), (vec![0.5], vec![245.0 / 510.0]));
        second.add(&colour, 3).unwrap();
        let mut whole = Moments::default();
        whole.add(&[5, 5, 5, 250, 250, 250, 1, 2, 3], 3).unwrap();
        let stored: Moments = serde_json::from_str(&serde_json::to_string(&first).unwrap()).unwrap();
        first.merge(&second).unwrap();
        second.merge(&stored).unwrap();
        assert_eq!([first.finish(), second.finish()], [whole.finish(), whole.finish()]);
    }

    fn sizes(of: &[(u32, u32)]) -> Sizes {
        let mut sizes = Sizes::default();
        for &(height, width) in of {
            sizes.add(ImageSpec::new(height, width, 3));
        }
        sizes
    }

    #[test]
    fn medians_and_shapes() {
        let mut all = sizes(&[(375, 500), (500, 375)]);
        all.merge(&sizes(&[(300, 300), (100, 500), (90, 40)]));
        assert_eq!(all.height(), Some(Spread { min: 90, median: 300, max: 500 }));
        assert_eq!(all.width(), Some(Spread { min: 40, median: 375, max: 500 }));
        let counts: Vec<u64> = all.aspects().iter().map(|a| a.2).collect();
        // The aspect ratios are 0.44, 0.75, 1, 1.33 and 5.
        assert_eq!(counts, [1, 0, 1, 0, 1, 0, 1, 0, 1]);
        let text = all.to_string();
        assert!(text.contains("height  90 to 500, median 300") && text.contains("1.25 to 1.5"), "{text}");
        assert_eq!(sizes(&[(1, 9), (2, 9)]).height().unwrap().median, 1);
    }

    #[test]
    fn one_size_is_one_line() {
        let one = sizes(&[(32, 24); 3]).to_string();
        assert!(one.contains("size 24 x 32 ") && one.ends_with(", all") && one.lines().count() == 1, "{one}");
        assert_eq!(sizes(&[]).to_string(), "  no images");
        assert!(sizes(&[]).to_json()["height"].is_null());
    }
}
