//! Band statistics for raw images, in stored units: mean, deviation, minimum, maximum and percentiles.
//!
//! Each band has a histogram. For integers it counts every value separately, so all statistics are exact. For float32
//! it groups values by sign, exponent and the highest seven mantissa bits. A percentile is the middle of a group, so
//! its relative error is at most 1/256. Float means and deviations are computed per image in f64 and merged with the
//! formula by Chan, Golub and LeVeque.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Mutex;

use base::text::shown;
use loaders::{Bands, Dtype};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::pool::lock;
use crate::raw::values::{Value, Values};
use crate::text;

/// The percentiles that are measured.
const PERCENTILES: [u8; 7] = [1, 2, 5, 50, 95, 98, 99];
/// Number of counts that are allocated together.
const PAGE: usize = 256;
/// The size of a histogram that has all values, in bytes.
pub(crate) const HISTOGRAM_BYTES: u64 = 65_536 * 8;

/// Statistics of all bands. Merging is exact for integers. For floats it rounds, so the order matters.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct BandStats {
    dtype: Dtype,
    bands: Vec<Band>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Band {
    /// Counts by [`position`], in pages that are empty if all their counts are 0.
    #[serde(with = "sparse")]
    counts: Vec<Vec<u64>>,
    /// Only for floats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    floats: Option<Floats>,
}

/// Stores the nonzero counts, each after its position.
mod sparse {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::Band;

    pub(super) fn serialize<S: Serializer>(counts: &[Vec<u64>], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(Band::filled_in(counts).flat_map(|(position, count)| [position as u64, count]))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Vec<u64>>, D::Error> {
        let mut band = Band::default();
        for &[position, count] in Vec::<u64>::deserialize(deserializer)?.as_chunks().0 {
            let position = u16::try_from(position).map_err(D::Error::custom)?;
            band.count(position.into(), count);
        }
        Ok(band.counts)
    }
}

/// Moments of float values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Floats {
    count: u64,
    mean: f64,
    /// Sum of squared differences from the mean.
    squares: f64,
    min: f32,
    max: f32,
}

impl Floats {
    /// Returns the moments for a single value.
    pub(crate) fn of(value: f32) -> Self {
        Self { count: 1, mean: value.into(), squares: 0.0, min: value, max: value }
    }

    /// Returns the mean and the population standard deviation.
    pub(crate) fn mean_and_std(&self) -> (f64, f64) {
        (self.mean, (self.squares / self.count as f64).sqrt())
    }

    pub(crate) fn range(&self) -> [f32; 2] {
        [self.min, self.max]
    }

    /// Merges `more` into `all`, element by element. If `more` is longer, its additional elements are appended.
    pub(crate) fn merge_all(all: &mut Vec<Self>, more: impl IntoIterator<Item = Self>) {
        let known = all.len();
        for (at, other) in more.into_iter().enumerate() {
            if at < known { all[at].merge(other) } else { all.push(other) }
        }
    }

    fn merge(&mut self, other: Self) {
        let (count, other_count) = (self.count as f64, other.count as f64);
        let (sum, difference) = (count + other_count, other.mean - self.mean);
        self.mean += difference * other_count / sum;
        self.squares += other.squares + difference * difference * count * other_count / sum;
        self.count += other.count;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }
}

impl BandStats {
    /// Adds an image. Values equal to `nodata` are left out.
    pub fn add(&mut self, values: Values, bytes: &[u8], nodata: Option<f64>) {
        self.dtype = values.dtype;
        self.bands.resize_with(values.channels.max(self.bands.len()), Band::default);
        let is_float = values.dtype == Dtype::F32;
        let (bands, dtype) = (&mut self.bands, values.dtype);
        let mut image = vec![Floats { count: 0, mean: 0.0, squares: 0.0, min: f32::MAX, max: f32::MIN }; bands.len()];
        values.for_each(bytes, nodata, |band, value| {
            bands[band].count(position(dtype, value), 1);
            if let Value::Float(value) = value {
                let own = &mut image[band];
                (own.count, own.mean) = (own.count + 1, own.mean + f64::from(value));
                (own.min, own.max) = (own.min.min(value), own.max.max(value));
            }
        });
        if !is_float {
            return;
        }
        image.iter_mut().filter(|own| own.count > 0).for_each(|own| own.mean /= own.count as f64);
        values.for_each(bytes, nodata, |band, value| {
            if let Value::Float(value) = value {
                let difference = f64::from(value) - image[band].mean;
                image[band].squares += difference * difference;
            }
        });
        bands.iter_mut().zip(image).for_each(|(band, own)| band.merge_floats(Some(own)));
    }

    /// Adds statistics from more images. `shard` is for messages. Returns an error if these images differ in type or
    /// band count.
    pub fn merge(&mut self, other: &BandStats, shard: &Path) -> Result<(), Error> {
        if other.bands.is_empty() {
            return Ok(());
        }
        if self.bands.is_empty() {
            self.clone_from(other);
            return Ok(());
        }
        if (self.dtype, self.bands.len()) != (other.dtype, other.bands.len()) {
            let what = format!(
                "images with {} of {}, but other images have {} of {}",
                text::plural(other.bands.len() as u64, "band"),
                other.dtype,
                self.bands.len(),
                self.dtype
            );
            return Err(Error::input(shard, what));
        }
        for (band, more) in self.bands.iter_mut().zip(&other.bands) {
            band.merge(more);
        }
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.bands.is_empty()
    }

    /// Returns the band means in stored units. The error is the number of a band that has no values, counted from 1.
    pub fn means(&self) -> Result<Vec<f64>, usize> {
        let mean = |(number, band): (usize, &Band)| Ok(band.measured(self.dtype).ok_or(number + 1)?.mean);
        self.bands.iter().enumerate().map(mean).collect()
    }

    /// Returns mean and deviation as `dataset.json` stores them. If `bands` describes the bands, also fills in its
    /// other statistics. The error is the number of a band that has no values, counted from 1.
    pub fn finish(&self, bands: &mut Bands) -> Result<(Vec<f64>, Vec<f64>), usize> {
        let measured = self.bands.iter().enumerate().map(|(number, band)| band.measured(self.dtype).ok_or(number + 1));
        let measured = measured.collect::<Result<Vec<Measured>, usize>>()?;
        if bands.need_version() {
            Self::describe(&measured, bands);
        }
        let unit = if self.dtype == Dtype::U8 { 255.0 } else { 1.0 };
        Ok((
            measured.iter().map(|band| band.mean / unit).collect(),
            measured.iter().map(|band| band.std / unit).collect(),
        ))
    }

    fn describe(measured: &[Measured], bands: &mut Bands) {
        bands.min = measured.iter().map(|band| band.min).collect();
        bands.max = measured.iter().map(|band| band.max).collect();
        let list = |at: usize| measured.iter().map(|band| band.percentiles[at]).collect();
        bands.percentiles =
            PERCENTILES.iter().enumerate().map(|(at, percent)| (percent.to_string(), list(at))).collect();
    }
}

/// The sum of the histograms of a shard or of all shards. Histograms are large and, unlike float moments, can be added in
/// any order. So each thread moves the histograms of a finished chunk or shard here, and only few exist at a time.
#[derive(Default)]
pub(crate) struct Histograms {
    all: Mutex<BandStats>,
}

impl Histograms {
    /// Adds the histograms of `stats` to the sum and removes them from `stats`, which keeps its other fields.
    pub fn take(&self, stats: &mut BandStats, shard: &Path) -> Result<(), Error> {
        let take = |band: &mut Band| Band { counts: std::mem::take(&mut band.counts), floats: None };
        let counts = BandStats { dtype: stats.dtype, bands: stats.bands.iter_mut().map(take).collect() };
        lock(&self.all).merge(&counts, shard)
    }

    /// Moves all histograms to the merged statistics of the same chunks or shards.
    pub fn put_into(&self, stats: &mut BandStats, place: &Path) -> Result<(), Error> {
        let all = std::mem::take(&mut *lock(&self.all));
        stats.merge(&all, place)
    }
}

/// Returns a value's position in the histogram. Larger values have larger positions.
fn position(dtype: Dtype, value: Value) -> usize {
    match value {
        Value::Integer(value) if dtype == Dtype::I16 => (value + 32_768) as usize,
        Value::Integer(value) => value as usize,
        Value::Float(value) => {
            let bits = value.to_bits();
            let ordered = if value.is_sign_negative() { !bits } else { bits | 1 << 31 };
            (ordered >> 16) as usize
        }
    }
}

/// Returns the value at a position. For floats, returns the middle of the group.
fn value(dtype: Dtype, position: usize) -> f64 {
    match dtype {
        Dtype::U8 | Dtype::U16 => position as f64,
        Dtype::I16 => position as f64 - 32_768.0,
        Dtype::F32 => {
            let ordered = (position as u32) << 16 | 0x8000;
            let bits = if ordered >> 31 == 1 { ordered & !(1 << 31) } else { !ordered };
            f64::from(f32::from_bits(bits))
        }
    }
}

struct Measured {
    mean: f64,
    std: f64,
    min: f64,
    max: f64,
    percentiles: Vec<f64>,
}

impl Band {
    fn count(&mut self, position: usize, count: u64) {
        if self.counts.is_empty() {
            self.counts.resize(65_536 / PAGE, Vec::new());
        }
        let page = &mut self.counts[position / PAGE];
        if page.is_empty() {
            page.resize(PAGE, 0);
        }
        page[position % PAGE] += count;
    }

    fn merge(&mut self, other: &Band) {
        if self.counts.is_empty() {
            self.counts.clone_from(&other.counts);
        } else {
            for (mine, theirs) in self.counts.iter_mut().zip(&other.counts).filter(|(_, theirs)| !theirs.is_empty()) {
                mine.resize(PAGE, 0);
                mine.iter_mut().zip(theirs).for_each(|(sum, count)| *sum += count);
            }
        }
        self.merge_floats(other.floats);
    }

    fn merge_floats(&mut self, other: Option<Floats>) {
        let Some(other) = other.filter(|other| other.count > 0) else { return };
        match &mut self.floats {
            Some(floats) => floats.merge(other),
            none => *none = Some(other),
        }
    }

    /// Returns all positions that have values, with their counts, in ascending order.
    fn filled(&self) -> impl Iterator<Item = (usize, u64)> {
        Self::filled_in(&self.counts)
    }

    fn filled_in(counts: &[Vec<u64>]) -> impl Iterator<Item = (usize, u64)> {
        let pages = counts.iter().enumerate();
        let all = pages.flat_map(|(page, counts)| counts.iter().enumerate().map(move |(at, &n)| (page * PAGE + at, n)));
        all.filter(|(_, count)| *count > 0)
    }

    /// Returns the statistics, or `None` if there are no values.
    fn measured(&self, dtype: Dtype) -> Option<Measured> {
        let (first, last) = (self.filled().next()?.0, self.filled().last()?.0);
        let count: u64 = self.filled().map(|(_, count)| count).sum();
        let (mean, std, min, max) = match self.floats {
            Some(floats) => {
                let (mean, std) = floats.mean_and_std();
                (mean, std, f64::from(floats.min), f64::from(floats.max))
            }
            None => {
                let sums = |power: u32| {
                    let term = |(at, n): (usize, u64)| i128::from(n) * (value(dtype, at) as i128).pow(power);
                    self.filled().map(term).sum::<i128>()
                };
                let (sum, squares, n) = (sums(1), sums(2), i128::from(count));
                // n * squares - sum * sum is exact. Rounding begins with the conversion to f64.
                let std = ((n * squares - sum * sum) as f64).sqrt() / count as f64;
                (sum as f64 / count as f64, std, value(dtype, first), value(dtype, last))
            }
        };
        let percentiles = PERCENTILES.iter().map(|&percent| self.percentile(percent, count, dtype).clamp(min, max));
        Some(Measured { mean, std, min, max, percentiles: percentiles.collect() })
    }

    /// Returns a percentile as NumPy's default method does: between two neighbouring values it interpolates linearly.
    fn percentile(&self, percent: u8, count: u64, dtype: Dtype) -> f64 {
        let rank = f64::from(percent) / 100.0 * (count - 1) as f64;
        let lower = rank.floor() as u64;
        let (mut seen, mut below) = (0, None);
        for (at, n) in self.filled() {
            seen += n;
            if below.is_none() && seen > lower {
                below = Some(value(dtype, at));
            }
            if let Some(below) = below
                && (seen > lower + 1 || seen == count)
            {
                return below + (rank - lower as f64) * (value(dtype, at) - below);
            }
        }
        0.0
    }
}

/// Writes a line per band with its statistics.
pub(crate) fn write(f: &mut impl fmt::Write, bands: &Bands, mean: &[f64], std: &[f64]) -> fmt::Result {
    let unit = if bands.dtype == Dtype::U8 { 255.0 } else { 1.0 };
    let name =
        |at: usize| bands.names.get(at).map_or_else(|| format!("band {}", at + 1), |name| shown(name).to_string());
    let width = (0..mean.len()).map(|at| name(at).chars().count()).max().unwrap_or(0);
    writeln!(f, "  {} of {}, in units of the stored values:", text::plural(mean.len() as u64, "band"), bands.dtype)?;
    let title = ["mean", "std", "min", "2 %", "50 %", "98 %", "max"].map(|word| format!("{word:>12}")).concat();
    writeln!(f, "    {:width$}{title}", "")?;
    for (at, mean) in mean.iter().enumerate() {
        let percentile = |key| bands.percentiles.get(key).and_then(|list| list.get(at)).copied();
        let of = |list: &[f64]| list.get(at).copied();
        let (low, middle, high) = (percentile("2"), percentile("50"), percentile("98"));
        let all =
            [Some(mean * unit), std.get(at).map(|std| std * unit), of(&bands.min), low, middle, high, of(&bands.max)];
        let numbers = all.map(|value| value.map_or_else(String::new, short)).map(|word| format!("{word:>12}")).concat();
        writeln!(f, "    {:width$}{numbers}", name(at))?;
    }
    Ok(())
}

/// Formats a number with up to five significant digits.
fn short(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if value.fract() == 0.0 && size < 1e9 => format!("{value}"),
        0.001..10.0 => format!("{value:.4}"),
        10.0..1e4 => format!("{value:.2}"),
        1e4..1e9 => format!("{value:.0}"),
        _ => format!("{value:.3e}"),
    }
}

/// Returns the description and statistics of the bands as a JSON object, for `--json`.
pub(crate) fn to_json(bands: &Bands) -> serde_json::Value {
    let percentiles: &BTreeMap<String, Vec<f64>> = &bands.percentiles;
    // Taken from the serialized form, which writes a NaN nodata value as a string.
    let stored = serde_json::to_value(bands).unwrap_or_default();
    serde_json::json!({
        "dtype": bands.dtype.name(),
        "channels": bands.channels,
        "bands": bands.names,
        "min": bands.min,
        "max": bands.max,
        "percentiles": percentiles,
        "nodata": stored["nodata"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(dtype: Dtype, channels: usize, images: &[Vec<u8>], nodata: Option<f64>) -> (Bands, Vec<f64>, Vec<f64>) {
        let values = Values { dtype, channels, width: 1 };
        let (mut all, histograms) = (BandStats::default(), Histograms::default());
        for image in images {
            let mut one = BandStats::default();
            one.add(values, image, nodata);
            histograms.take(&mut one, Path::new("shard")).unwrap();
            all.merge(&one, Path::new("shard")).unwrap();
        }
        histograms.put_into(&mut all, Path::new("train")).unwrap();
        let back: BandStats = serde_json::from_str(&serde_json::to_string(&all).unwrap()).unwrap();
        assert_eq!(back, all);
        let mut bands = Bands { dtype, channels: Some(channels as u32), ..Bands::default() };
        let (mean, std) = all.finish(&mut bands).unwrap();
        (bands, mean, std)
    }

    #[test]
    fn integers_are_exact() {
        // Band 0 has the values -2 to 2. Band 1 has ten times these values.
        let image =
            |values: &[i16]| values.iter().flat_map(|v| [v.to_le_bytes(), (10 * v).to_le_bytes()].concat()).collect();
        let images: Vec<Vec<u8>> = vec![image(&[-2, 2, 1]), image(&[-1, 0, -3000])];
        let (bands, mean, std) = measured(Dtype::I16, 2, &images, None);
        assert_eq!((mean[0], bands.min[0], bands.max[1]), (-500.0, -3000.0, 20.0));
        let (bands, mean, std_masked) = measured(Dtype::I16, 2, &images, Some(-3000.0));
        assert!(std[0] > std_masked[0]);
        assert_eq!((mean[0], std_masked[0], bands.min[0], bands.max[0]), (0.0, 2f64.sqrt(), -2.0, 2.0));
        // numpy.percentile([-2, -1, 0, 1, 2], [1, 5, 50, 99])
        let percentiles = ["1", "5", "50", "99"].map(|key| bands.percentiles[key][0]);
        let expected = [-1.96, -1.8, 0.0, 1.96];
        assert!(percentiles.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12), "{percentiles:?}");
        let (bands, mean, std) = measured(Dtype::U8, 2, &[vec![0, 7, 255, 9]], None);
        assert_eq!((mean[0], std[0], bands.max), (0.5, 0.5, vec![255.0, 9.0]));
        // dataset.json has no statistics for bands of 8-bit grey or RGB images.
        let (bands, mean, _) = measured(Dtype::U8, 1, &[vec![0, 255, 7]], Some(7.0));
        assert_eq!((mean[0], bands.max, bands.percentiles.len()), (0.5, vec![], 0));
    }

    #[test]
    fn floats_are_stable_and_percentiles_are_near() {
        let values: Vec<f32> = (0..10_000).map(|i| 1e6 + (i as f32 * 0.7).sin()).collect();
        let images: Vec<Vec<u8>> =
            values.chunks(1000).map(|v| v.iter().flat_map(|v| v.to_le_bytes()).collect()).collect();
        let (bands, mean, std) = measured(Dtype::F32, 1, &images, None);
        let exact: Vec<f64> = values.iter().map(|&v| f64::from(v)).collect();
        let m = exact.iter().sum::<f64>() / 1e4;
        let s = (exact.iter().map(|v| (v - m) * (v - m)).sum::<f64>() / 1e4).sqrt();
        assert!((mean[0] - m).abs() < 1e-9 && (std[0] - s).abs() < 1e-9, "{mean:?} {std:?} {m} {s}");
        assert!(bands.percentiles["50"][0] >= bands.min[0] && bands.percentiles["50"][0] <= bands.max[0]);
        let values: Vec<f32> = (0..=1000).map(|i| (i as f32 - 500.0) / 7.0).collect();
        let image = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let (bands, ..) = measured(Dtype::F32, 1, &[image], None);
        for (key, at) in [("1", 10), ("5", 50), ("95", 950), ("99", 990)] {
            let (found, exact) = (bands.percentiles[key][0], f64::from(values[at]));
            assert!((found - exact).abs() <= exact.abs() / 256.0, "{key}: {found} {exact}");
        }
    }

    #[test]
    fn a_band_without_data_is_named() {
        let values = Values { dtype: Dtype::U16, channels: 2, width: 1 };
        let mut stats = BandStats::default();
        stats.add(values, &[1, 0, 9, 0, 2, 0, 9, 0], Some(9.0));
        assert_eq!((stats.means(), stats.finish(&mut Bands::default())), (Err(2), Err(2)));
    }
}
