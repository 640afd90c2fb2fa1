//! Transforms for images of any bands and values: selecting bands, clipping to percentiles, scaling to 0 to 1 and
//! logarithms.

use std::fmt;

use base::text::did_you_mean;

use crate::random::Draws;
use crate::spec::ImageSpec;
use crate::transform::call::{Arguments, no_arguments, whole};
use crate::transform::canvas::Canvas;
use crate::transform::op::{BuildResult, Context, Misfit, Sizes, Transform, Varied};
use crate::transform::statistics::Statistics;

/// `select_bands(3, 2, 1)` or `select_bands(B4, B3, B2)`: keeps these bands, in this order. Numbers count from 0. Names
/// are those of dataset.json. A band may be repeated.
#[derive(Debug)]
struct SelectBands {
    bands: Vec<usize>,
}

pub(super) fn build_select_bands(arguments: &Arguments<'_>, context: Context<'_>) -> BuildResult {
    let names = &context.statistics.bands.names;
    let last = context.input.channels - 1;
    let by_name = |word: &str| {
        names.iter().position(|name| name == word).ok_or_else(|| {
            let known: Vec<&str> = names.iter().map(String::as_str).collect();
            match known.is_empty() {
                true => {
                    format!("the bands have no names in dataset.json; give numbers from 0 to {last}, got \"{word}\"")
                }
                false => {
                    format!(
                        "there is no band \"{word}\"{}; the bands are {}",
                        did_you_mean(word, &known),
                        known.join(", ")
                    )
                }
            }
        })
    };
    let numbers = arguments.no_size()?;
    if !numbers.is_empty() && !arguments.words.is_empty() {
        return Err("expected only numbers or only names of bands".into());
    }
    let numbers = numbers
        .iter()
        .map(|&number| Ok(whole(number, 0, last).map_err(|problem| format!("band: {problem}"))? as usize));
    let bands: Vec<usize> =
        numbers.chain(arguments.words.iter().map(|word| by_name(word))).collect::<Result<_, String>>()?;
    if bands.is_empty() {
        return Err("expected at least one band".into());
    }
    Ok(Box::new(SelectBands { bands }))
}

impl Transform for SelectBands {
    fn output(&self, input: ImageSpec) -> Result<ImageSpec, String> {
        Ok(ImageSpec { channels: self.bands.len() as u32, ..input })
    }

    fn output_of_varied(&self, input: Varied) -> Result<Sizes, Misfit> {
        Ok(Sizes::Varied(Varied { channels: self.bands.len() as u32, ..input }))
    }

    fn is_geometric(&self) -> bool {
        true
    }

    fn selection(&self) -> Option<&[usize]> {
        Some(&self.bands)
    }

    fn restate(&self, statistics: &mut Statistics) {
        statistics.select(&self.bands);
    }

    /// Does nothing, because the bands are selected when the image is decoded.
    fn apply(&self, _image: &mut Canvas<'_>, _draws: &mut Draws) {}
}

impl fmt::Display for SelectBands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bands: Vec<String> = self.bands.iter().map(usize::to_string).collect();
        write!(f, "select_bands({})", bands.join(", "))
    }
}

/// `clip_percentile(low, high)`: clips each band to the range between two percentiles of the training split, which
/// dataset.json has.
#[derive(Debug)]
struct ClipPercentile {
    percents: [f64; 2],
    /// The range of each band.
    ranges: Vec<(f32, f32)>,
}

pub(super) fn build_clip_percentile(arguments: &[f64], context: Context<'_>) -> BuildResult {
    let &[low, high] = arguments else {
        return Err(format!("expected 2 arguments, got {}", arguments.len()));
    };
    if low >= high {
        return Err(format!("expected low < high, got {low} and {high}"));
    }
    let known = &context.statistics.bands.percentiles;
    let find = |percent: f64| {
        let values = known.get(&percent.to_string()).filter(|values| values.len() == context.input.channels as usize);
        values.ok_or_else(|| {
            let mut percents: Vec<u32> = known.keys().filter_map(|key| key.parse().ok()).collect();
            percents.sort_unstable();
            match percents.is_empty() {
                true => "dataset.json has no `percentiles` (`trireme data stats` measures them)".to_owned(),
                false => {
                    let percents: Vec<String> = percents.iter().map(u32::to_string).collect();
                    format!("dataset.json has no percentile {percent}; it has {}", percents.join(", "))
                }
            }
        })
    };
    let ranges = find(low)?.iter().zip(find(high)?).map(|(&low, &high)| (low as f32, high as f32)).collect();
    Ok(Box::new(ClipPercentile { percents: [low, high], ranges }))
}

impl Transform for ClipPercentile {
    fn restate(&self, statistics: &mut Statistics) {
        statistics.map(|channel, value| {
            let (low, high) = self.ranges[channel];
            value.clamp(low.into(), high.into())
        });
    }

    fn apply(&self, image: &mut Canvas<'_>, _draws: &mut Draws) {
        image.map_values(|channel| {
            let (low, high) = self.ranges[channel];
            move |value| value.max(low).min(high)
        });
    }
}

impl fmt::Display for ClipPercentile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "clip_percentile({}, {})", self.percents[0], self.percents[1])
    }
}

/// `scale(min, max)`: (x - min) / (max - min), so that this range becomes 0 to 1. Values outside it are not clipped.
#[derive(Debug)]
struct ScaleRange {
    min: f64,
    max: f64,
}

pub(super) fn build_scale(arguments: &[f64], _context: Context<'_>) -> BuildResult {
    match *arguments {
        [min, max] if min < max => Ok(Box::new(ScaleRange { min, max })),
        [min, max] => Err(format!("expected min < max, got {min} and {max}")),
        _ => Err(format!("expected 2 arguments, got {}", arguments.len())),
    }
}

impl Transform for ScaleRange {
    fn rescales(&self) -> bool {
        true
    }

    fn restate(&self, statistics: &mut Statistics) {
        statistics.scale(|_| (self.min, self.max - self.min));
    }

    fn apply(&self, image: &mut Canvas<'_>, _draws: &mut Draws) {
        let (min, range) = (self.min as f32, (self.max - self.min) as f32);
        image.map_values(|_| move |value| (value - min) / range);
    }
}

impl fmt::Display for ScaleRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "scale({}, {})", self.min, self.max)
    }
}

/// `log1p`: ln(1 + x). Values below 0 count as 0.
#[derive(Debug)]
struct Log1p;

pub(super) fn build_log1p(arguments: &[f64], context: Context<'_>) -> BuildResult {
    no_arguments(arguments)?;
    let Statistics { bands, .. } = context.statistics;
    match bands.min.iter().enumerate().find(|(_, min)| **min < 0.0) {
        Some((band, min)) => Err(format!(
            "the logarithm needs values of at least 0, but the smallest value of band {band} is {min} (dataset.json)"
        )),
        None => Ok(Box::new(Log1p)),
    }
}

impl Transform for Log1p {
    fn rescales(&self) -> bool {
        true
    }

    fn restate(&self, statistics: &mut Statistics) {
        statistics.map(|_, value| value.max(0.0).ln_1p());
        statistics.forget("log1p");
    }

    fn apply(&self, image: &mut Canvas<'_>, _draws: &mut Draws) {
        // The logarithms of f64 differ between CPUs by less than f32 can show.
        image.map_values(|_| |value: f32| f64::from(value.max(0.0)).ln_1p() as f32);
    }
}

impl fmt::Display for Log1p {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("log1p")
    }
}
