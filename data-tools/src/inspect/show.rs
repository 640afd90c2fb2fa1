//! A contact sheet of a split: pictures as stored, or as a network will see them after given transforms, with their classes.

mod picture;
mod sheet;

use super::extract;
use crate::error::Error;
use crate::progress;
use crate::text;
use image::DynamicImage;
use loaders::Dataset;
use picture::Viewer;
use serde_json::json;
use std::fmt;
use std::path::{Path, PathBuf};

pub use picture::{Thumbnail, Thumbnails};
use sheet::{MOST_CELLS, columns};

pub use sheet::{ContactSheet, matrix};

/// The content of a sheet.
#[derive(Debug, Clone)]
pub struct ShowOptions {
    /// Split; empty for `train`, or the only one.
    pub split: String,
    /// Samples, evenly spread over the split.
    pub count: u64,
    /// Transforms as a recipe's `[augment]` lists them; without any, pictures are shown as stored.
    pub transforms: Vec<String>,
    /// Times that each sample is shown, side by side, with the draws of epochs 0, 1, ...
    pub epochs: u32,
    /// Seed of the random draws, as a recipe's.
    pub seed: u64,
}

impl Default for ShowOptions {
    fn default() -> Self {
        Self { split: String::new(), count: 48, transforms: Vec::new(), epochs: 1, seed: 1 }
    }
}

/// A sheet that was written.
#[derive(Debug, Clone)]
pub struct Shown {
    /// The picture file.
    pub path: PathBuf,
    /// Its columns and rows of pixels.
    pub size: (u32, u32),
    /// The split.
    pub split: String,
    /// Samples shown, by their number in the split.
    pub samples: Vec<u64>,
    /// The transforms in full.
    pub transforms: Vec<String>,
}

/// Writes a contact sheet of the data set in `dir` to `out`, a PNG or, by its ending, a JPEG file, whole or not at all.
///
/// Sample numbers are training's, so a sample looks here as in epoch e of a recipe with the same seed and transforms.
/// Normalised values are scaled back to 0 to 255 and clipped.
///
/// # Errors
/// Another ending; no such split or transform; a record that is damaged or cannot be decoded; images of neither 1 nor 3 channels;
/// nothing or too much to show; a file that is there and is no sheet, or cannot be written.
pub fn show(dir: &Path, out: &Path, options: &ShowOptions) -> Result<Shown, Error> {
    let _watch = progress::watch()?;
    let format = extract::format_of(out)?;
    extract::check_sheet(out)?;
    let dataset = Dataset::open(dir)?;
    let name = extract::split_or_default(&dataset, &options.split);
    let split = dataset.split(&name)?;
    let count = options.count.min(split.len());
    check_cells(dir, &name, count.saturating_mul(u64::from(options.epochs)))?;
    let samples: Vec<u64> =
        (0..count).map(|k| (u128::from(k) * u128::from(split.len()) / u128::from(count)) as u64).collect();
    let mut viewer = Viewer::new(&dataset.manifest, &split, &options.transforms, options.seed)?;
    let mut cells = Vec::new();
    for &id in &samples {
        for epoch in 0..options.epochs {
            cells.push(viewer.cell(id, epoch)?);
        }
    }
    let sheet = sheet::lay_out(&cells, columns(count as usize, options.epochs as usize));
    let size = sheet.dimensions();
    extract::write_sheet(out, &DynamicImage::ImageRgb8(sheet), format)?;
    Ok(Shown { path: out.to_path_buf(), size, split: name, samples, transforms: viewer.ops() })
}

fn check_cells(dir: &Path, split: &str, cells: u64) -> Result<(), Error> {
    if (1..=MOST_CELLS).contains(&cells) {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "{}, split `{split}`: {} to show; a sheet takes 1 to {MOST_CELLS}, change --count or --epochs",
        dir.display(),
        text::plural(cells, "picture")
    )))
}

impl Shown {
    /// The result for scripts.
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

impl fmt::Display for Shown {
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
