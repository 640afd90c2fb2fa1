//! Transforms for any bands and values: selecting bands, clipping to percentiles, scaling to 0 to 1 and
//! logarithms.

use base::text::did_you_mean;

use crate::format::bands::Bands;
use crate::random::Draws;
use crate::spec::ImageSpec;
use crate::transform::call::{self, exactly, no_arguments, whole};
use crate::transform::canvas::Canvas;
use crate::transform::op::{BuildResult, Context, Misfit, Sizes, Transform, Varied};
use crate::transform::statistics::Statistics;

/// `select_bands(4, 3, 2)` or `select_bands(B4, B3, B2)`: keeps these bands, in this order. Names come from
/// dataset.json, and numbers count from 1. If a text is both a name and a number, it is used as the name. A band may be repeated.
#[derive(Debug)]
struct SelectBands {
    /// The bands, from 0.
    bands: Vec<usize>,
    /// A text that selects each band in the same data set: its number, or its name if another band has this number as
    /// its name.
    texts: Vec<String>,
}

pub(super) fn build_select_bands(words: &[&str], context: Context<'_>) -> BuildResult {
    let (names, channels) = (&context.statistics.bands.names, context.input.channels);
    let bands: Vec<usize> = words.iter().map(|word| band(word, names, channels)).collect::<Result<_, String>>()?;
    if bands.is_empty() {
        return Err("expected at least one band".into());
    }
    let text = |&band: &usize| {
        let number = (band + 1).to_string();
        match names.iter().position(|name| *name == number) {
            Some(other) if other != band => names.get(band).cloned().unwrap_or(number),
            _ => number,
        }
    };
    Ok(Box::new(SelectBands { texts: bands.iter().map(text).collect(), bands }))
}

/// Number of bands that a message lists.
const MOST_NAMED: usize = 20;

/// Returns the index (from 0) of the band with this name or with this number (from 1).
fn band(word: &str, names: &[String], channels: u32) -> Result<usize, String> {
    if let Some(band) = names.iter().position(|name| name == word) {
        return Ok(band);
    }
    if let Ok(number) = word.parse() {
        return Ok(whole(number, 1, channels).map_err(|problem| format!("band: {problem}"))? as usize - 1);
    }
    if names.is_empty() {
        return Err(format!(
            "the bands have no names in dataset.json; write numbers from 1 to {channels}, got \"{}\"",
            word.escape_debug()
        ));
    }
    let known: Vec<&str> = names.iter().map(String::as_str).collect();
    let meant = did_you_mean(word, &known);
    let more = match known.len().saturating_sub(MOST_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let first = known[..known.len().min(MOST_NAMED)].join(", ");
    Err(format!("there is no band \"{}\"{meant}; the bands are {first}{more}", word.escape_debug()))
}

/// Applies all `select_bands` in a list to images with these bands. Returns the bands that are kept, from 0.
///
/// # Errors
///
/// Describes the first selection that does not fit the bands.
pub fn selected_bands(list: &[String], bands: &Bands, channels: u32) -> Result<Vec<usize>, String> {
    let (mut kept, mut names) = ((0..channels as usize).collect::<Vec<_>>(), bands.names.clone());
    for text in list {
        let ("select_bands", words) = call::split(text)? else { continue };
        let count = kept.len() as u32;
        let chosen: Vec<usize> = words.iter().map(|word| band(word, &names, count)).collect::<Result<_, String>>()?;
        names = chosen.iter().flat_map(|&band| names.get(band).cloned()).collect();
        kept = chosen.iter().map(|&band| kept[band]).collect();
    }
    Ok(kept)
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

    fn text(&self) -> String {
        format!("select_bands({})", self.texts.join(", "))
    }
}

/// `clip_percentile(low, high)`: clips each band to the range between two percentiles from the training split, which
/// dataset.json contains.
#[derive(Debug)]
struct ClipPercentile {
    percents: [f64; 2],
    /// Each band's range.
    ranges: Vec<(f32, f32)>,
}

pub(super) fn build_clip_percentile(arguments: &[f64], context: Context<'_>) -> BuildResult {
    let [low, high] = exactly(arguments)?;
    if low >= high {
        return Err(format!("expected low < high, got {low} and {high}"));
    }
    let find = |percent| context.statistics.percentile(percent);
    let ranges: Vec<(f32, f32)> =
        find(low)?.iter().zip(find(high)?).map(|(&low, &high)| (low as f32, high as f32)).collect();
    if let Some(band) = ranges.iter().position(|(low, high)| low > high) {
        return Err(format!("percentile {low} of band {} is above percentile {high} in dataset.json", band + 1));
    }
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
            // NaN stays NaN.
            move |value| value.clamp(low, high)
        });
    }

    fn text(&self) -> String {
        format!("clip_percentile({}, {})", self.percents[0], self.percents[1])
    }
}

/// `scale(min, max)`: (x - min) / (max - min), so that this range becomes 0 to 1. Values outside it are not clipped.
#[derive(Debug)]
struct ScaleRange {
    min: f64,
    max: f64,
}

pub(super) fn build_scale(arguments: &[f64], _context: Context<'_>) -> BuildResult {
    match exactly(arguments)? {
        [min, max] if min < max => Ok(Box::new(ScaleRange { min, max })),
        [min, max] => Err(format!("expected min < max, got {min} and {max}")),
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

    fn text(&self) -> String {
        format!("scale({}, {})", self.min, self.max)
    }
}

/// Returns ln(1 + value), with values below 0 as 0. NaN stays NaN. libm's results are the same on every CPU.
fn log1p(value: f64) -> f64 {
    libm::log1p(if value < 0.0 { 0.0 } else { value })
}

/// `log1p`: ln(1 + x). Values below 0 count as 0.
#[derive(Debug)]
struct Log1p;

pub(super) fn build_log1p(arguments: &[f64], context: Context<'_>) -> BuildResult {
    no_arguments(arguments)?;
    let Statistics { bands, .. } = context.statistics;
    match bands.min.iter().enumerate().find(|(_, min)| **min < 0.0) {
        Some((band, min)) => Err(format!(
            "the logarithm needs values of at least 0, but the smallest value of band {} is {min} (dataset.json)",
            band + 1
        )),
        None => Ok(Box::new(Log1p)),
    }
}

impl Transform for Log1p {
    fn rescales(&self) -> bool {
        true
    }

    fn restate(&self, statistics: &mut Statistics) {
        statistics.map(|_, value| log1p(value));
        statistics.forget("log1p");
    }

    fn apply(&self, image: &mut Canvas<'_>, _draws: &mut Draws) {
        image.map_values(|_| |value: f32| log1p(value.into()) as f32);
    }

    fn text(&self) -> String {
        "log1p".to_owned()
    }
}
