//! Draws a contact sheet of a split: pictures with their classes, as stored or as a network sees them after transforms.

mod picture;
mod sheet;

use super::extract;
use crate::error::Error;
use crate::text;
use image::DynamicImage;
use loaders::Dataset;
use serde_json::json;
use std::fmt;
use std::path::{Path, PathBuf};

pub use picture::{Thumbnail, Viewer, check_shown_bands};
use sheet::{MAX_CELLS, columns};

pub use sheet::{ContactSheet, matrix};

#[derive(Debug, Clone)]
pub struct ShowOptions {
    /// The split. If empty, the only split of the data set, or `train`.
    pub split: String,
    /// Number of samples, evenly spread over the split.
    pub count: u64,
    /// Transforms as in a recipe's `[augment]` section. If empty, pictures are shown as stored.
    pub transforms: Vec<String>,
    /// How often each sample is shown, next to each other, with the random draws of epochs 0, 1, ...
    pub epochs: u32,
    /// Seed of the random draws, as in a recipe.
    pub seed: u64,
    /// Three bands to show as red, green and blue, or a single band to show as grey, counted from 1. If empty, the
    /// first three, or the first if there are fewer. Only for images that are not grey or RGB.
    pub bands: Vec<u32>,
}

impl Default for ShowOptions {
    fn default() -> Self {
        Self { split: String::new(), count: 48, transforms: Vec::new(), epochs: 1, seed: 1, bands: Vec::new() }
    }
}

/// What [`show`] has drawn and written.
#[derive(Debug, Clone)]
pub struct ShowSummary {
    pub path: PathBuf,
    /// Width and height in pixels.
    pub size: (u32, u32),
    pub split: String,
    /// Indices of the samples in the split.
    pub samples: Vec<u64>,
    /// The transforms with all arguments.
    pub transforms: Vec<String>,
}

/// Writes a contact sheet of the data set in `dir` to `out`, as PNG or JPEG depending on the file name. The file is
/// replaced atomically.
///
/// Random draws use the same sample numbers as training, so a sample looks as in epoch e of a recipe with the same seed
/// and transforms. Normalised values are scaled back to 0 to 255 and clipped.
///
/// # Errors
///
/// Returns an error if the file name has a different ending, the split or a transform does not exist, a record is
/// damaged or cannot be decoded, or a band does not exist. Also returns an error if there is nothing or
/// too much to show, or if the output exists and is not a contact sheet, or cannot be written.
pub fn show(dir: &Path, out: &Path, options: &ShowOptions) -> Result<ShowSummary, Error> {
    let format = extract::format_of(out)?;
    extract::check_sheet(out)?;
    let dataset = Dataset::open(dir)?;
    let name = extract::split_or_default(&dataset, &options.split);
    let split = dataset.split(&name)?;
    let count = options.count.min(split.len());
    check_cells(dir, &name, count.saturating_mul(u64::from(options.epochs)))?;
    let samples: Vec<u64> =
        (0..count).map(|k| (u128::from(k) * u128::from(split.len()) / u128::from(count)) as u64).collect();
    let mut viewer = Viewer::new(&dataset.manifest, &split, &options.transforms, options.seed, &options.bands)?;
    let mut cells = Vec::new();
    for &id in &samples {
        for epoch in 0..options.epochs {
            cells.push(viewer.cell(id, epoch)?);
        }
    }
    let sheet = sheet::lay_out(&cells, columns(count as usize, options.epochs as usize));
    let size = sheet.dimensions();
    extract::write_sheet(out, &DynamicImage::ImageRgb8(sheet), format)?;
    Ok(ShowSummary { path: out.to_path_buf(), size, split: name, samples, transforms: viewer.ops() })
}

fn check_cells(dir: &Path, split: &str, cells: u64) -> Result<(), Error> {
    if (1..=MAX_CELLS).contains(&cells) {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "{}, split `{split}`: {} requested; a sheet can show 1 to {MAX_CELLS}; change --count or --epochs",
        dir.display(),
        text::plural(cells, "picture")
    )))
}

impl ShowSummary {
    pub fn to_json(&self) -> serde_json::Value {
        json!({
            "path": self.path.display().to_string(),
            "width": self.size.0,
            "height": self.size.1,
            "split": self.split,
            "samples": self.samples,
            "transforms": self.transforms,
        })
    }
}

impl fmt::Display for ShowSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (width, height) = self.size;
        let images = text::plural(self.samples.len() as u64, "image");
        write!(f, "{}: {images} of {}, {width} x {height} pixels", text::path(&self.path), self.split)?;
        match self.transforms.is_empty() {
            true => write!(f, ", as stored"),
            false => write!(f, "\n  after {}", self.transforms.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::columns;

    #[test]
    fn the_repeats_of_a_sample_stay_in_one_row() {
        for samples in 1..60 {
            for epochs in 1..12 {
                let n = columns(samples, epochs);
                assert!(n.is_multiple_of(epochs) && n <= samples * epochs, "{samples} {epochs}: {n}");
            }
        }
        assert_eq!((columns(48, 1), columns(6, 6), columns(4, 20)), (8, 6, 20));
    }
}
