//! One image of a data set as a picture file.

use std::fmt;
use std::path::{Path, PathBuf};

use image::{DynamicImage, GrayImage, ImageFormat, RgbImage};
use loaders::{Dataset, Example, Format, ImageSpec, decode, replace};
use serde_json::json;

use super::picture_file;
use crate::error::Error;
use crate::stall;
use crate::text;

/// A picture that was written.
#[derive(Debug, Clone)]
pub struct Extracted {
    /// The file.
    pub path: PathBuf,
    /// The split, and the number of the image in it.
    pub split: String,
    /// See `split`.
    pub sample: u64,
    /// The name of its class; of several their names.
    pub class: String,
    /// Its size as stored.
    pub spec: ImageSpec,
    /// Whether the file has the very bytes of the record.
    pub as_stored: bool,
}

/// Writes image `sample` of a split of the data set in `dir` to `out`: the record's own bytes where they are of the format that the
/// file's name says, else the decoded pixels.
///
/// # Errors
/// No such split or image; a record that is damaged or cannot be decoded; an image of neither 1 nor 3 channels; a file that is
/// there already, cannot be written or is named neither .png nor .jpg.
pub fn extract(dir: &Path, split: &str, sample: u64, out: &Path) -> Result<Extracted, Error> {
    let _watch = stall::watch()?;
    let format = picture_file::format_of(out)?;
    if out.exists() {
        return Err(Error::Usage(format!("{}: is there already; remove it, or choose another name", out.display())));
    }
    let dataset = Dataset::open(dir)?;
    let name = super::show::split_or_default(&dataset, split);
    let split = dataset.split(&name)?;
    if sample >= split.len() {
        let (dir, last) = (dir.display(), split.len().saturating_sub(1));
        return Err(Error::Usage(format!("{dir}, split `{name}`: no image {sample}; they are 0 to {last}")));
    }
    let mut copy = Vec::new();
    let (example, _) = split.record(sample, &mut copy)?;
    let failed = |fault| Error::Loaders(split.fault(sample, fault));
    let spec = decode::spec(&example).map_err(failed)?;
    let as_stored = same_format(&example, format);
    if as_stored {
        replace::replace(out, example.encoded)?;
    } else {
        let mut pixels = Vec::new();
        let bytes = decode::decode(&example, spec, &mut pixels).map_err(failed)?;
        let picture = picture(bytes, spec);
        let why = || Error::input(out, format!("image {sample} is of {spec}; only 1 or 3 channels make a picture"));
        picture_file::write(out, &picture.ok_or_else(why)?, format)?;
    }
    let class = split.class_text(&example).map_err(failed)?;
    Ok(Extracted { path: out.to_path_buf(), split: name, sample, class, spec, as_stored })
}

fn same_format(example: &Example<'_>, format: ImageFormat) -> bool {
    matches!((example.format, format), (Format::Png, ImageFormat::Png) | (Format::Jpeg, ImageFormat::Jpeg))
}

/// Grey pixels stay grey.
fn picture(bytes: &[u8], spec: ImageSpec) -> Option<DynamicImage> {
    let (width, height, bytes) = (spec.width, spec.height, bytes.to_vec());
    match spec.channels {
        1 => GrayImage::from_raw(width, height, bytes).map(DynamicImage::ImageLuma8),
        3 => RgbImage::from_raw(width, height, bytes).map(DynamicImage::ImageRgb8),
        _ => None,
    }
}

impl Extracted {
    /// The result for scripts.
    pub fn to_json(&self) -> serde_json::Value {
        json!({
            "path": self.path.display().to_string(),
            "split": self.split,
            "sample": self.sample,
            "class": self.class,
            "width": self.spec.width,
            "height": self.spec.height,
            "as_stored": self.as_stored,
        })
    }
}

impl fmt::Display for Extracted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, class) = (text::path(&self.path), loaders::printable(&self.class));
        write!(
            f,
            "{path}: image {} of {}, {class}, {} x {} pixels",
            self.sample, self.split, self.spec.width, self.spec.height
        )?;
        if self.as_stored { write!(f, ", as stored") } else { Ok(()) }
    }
}
