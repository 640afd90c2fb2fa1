//! The options of a conversion, and which of them make sense.

use crate::error::Error;
use loaders::Limits;
use std::path::PathBuf;

/// The most shards that the five digits of a shard's name can count.
const MAX_SHARDS: usize = 99_999;

/// The option that sets [`ConvertOptions::split_map`].
const SPLIT_MAP: &str = "split-map";

/// What to do with an image that cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnBad {
    /// End the conversion with an error that names it.
    #[default]
    Fail,
    /// Leave it out, and list it at the end.
    Skip,
}

/// How to convert values with more than 8 bits. If an image has more than three bands, only the first three are kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum To8Bit {
    /// Maps the full range: divides 16-bit values by 257, and multiplies floats from 0 to 1 by 255.
    Whole,
    /// Maps this range linearly to 0 to 255 and clamps values outside.
    Range(f64, f64),
}

/// Parses `MIN,MAX`, or an empty text.
///
/// # Errors
/// Returns an error for any other text.
pub fn to_8bit(text: &str) -> Result<To8Bit, String> {
    if text.is_empty() {
        return Ok(To8Bit::Whole);
    }
    let numbers =
        text.split_once(',').and_then(|(min, max)| Some((min.trim().parse().ok()?, max.trim().parse().ok()?)));
    match numbers {
        Some((min, max)) if min < max && f64::is_finite(max - min) => Ok(To8Bit::Range(min, max)),
        _ => Err("expected MIN,MAX, the values that become 0 and 255, as --to-8bit=0,4095".into()),
    }
}

/// The options of a conversion.
#[derive(Debug, Clone, PartialEq)]
pub struct ConvertOptions {
    /// Shards of the split `train` (every other split gets a quarter of it, at least one), but no more than samples.
    pub shards: usize,
    /// Threads; 0 means one for each core. The output does not depend on it.
    pub jobs: usize,
    /// Seed of the shuffle that mixes the classes over the shards, and of the draw of a validation split.
    pub seed: u64,
    /// Show a progress bar, or a line every few seconds where standard error is no terminal.
    pub progress: bool,
    /// Pixels of the short side; larger images are scaled down to it, smaller ones stay.
    pub resize: Option<u32>,
    /// Quality of JPEGs that are written, 1 to 100; with it every image becomes such a JPEG.
    pub quality: Option<u8>,
    /// Store pixels instead of files.
    pub raw: bool,
    /// Accepts images with more than 8 bits or three bands, and drops the excess.
    pub to_8bit: Option<To8Bit>,
    /// Keep entry points with each JPEG, so that training decodes little more of it than the part that it needs.
    pub entry_points: bool,
    /// File with one class a line: only these classes, in this order.
    pub classes: Option<PathBuf>,
    /// Table or JSON file with the labels of the images of a folder: each may have several, or none.
    pub labels: Option<PathBuf>,
    /// What parts the labels of an image in a table; with it each may have several, or none.
    pub label_separator: Option<char>,
    /// Whether a table or list may refer to files outside its image folder.
    pub allow_outside: bool,
    /// Share of each class of `train` that becomes the split `validation`; in (0, 1).
    pub validation_fraction: Option<f64>,
    /// Maps files, folders, arrays or values to splits by name. The split `none` skips a part.
    pub split_map: Vec<(String, String)>,
    /// What to do with an image that cannot be used.
    pub on_bad: OnBad,
    /// What reading one file may cost.
    pub limits: Limits,
    /// Maximum shard bytes. The default is 64 times the source's bytes, plus 1 GiB.
    pub max_output: Option<u64>,
}

impl Default for ConvertOptions {
    fn default() -> Self {
        ConvertOptions {
            shards: 16,
            jobs: 0,
            seed: 0,
            progress: true,
            resize: None,
            quality: None,
            raw: false,
            to_8bit: None,
            entry_points: false,
            classes: None,
            labels: None,
            label_separator: None,
            allow_outside: false,
            validation_fraction: None,
            split_map: Vec::new(),
            on_bad: OnBad::Fail,
            limits: Limits::DEFAULT,
            max_output: None,
        }
    }
}

impl ConvertOptions {
    /// Refuses options that make no sense with any source.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let usage = |what: String| Err(Error::Usage(what));
        if !(1..=MAX_SHARDS).contains(&self.shards) {
            return usage(format!("{} shards requested; expected 1 to {MAX_SHARDS}", self.shards));
        }
        if self.resize == Some(0) {
            return usage("resize to 0 pixels requested; expected at least 1".into());
        }
        match self.quality {
            Some(quality) if !(1..=100).contains(&quality) => {
                return usage(format!("quality {quality} requested; expected 1 to 100"));
            }
            Some(_) if self.raw => {
                return usage("quality is of JPEGs, and raw stores none: give one of them".into());
            }
            _ if self.raw && self.entry_points => {
                return usage("entry points are of JPEGs, and raw stores none: give one of them".into());
            }
            _ => {}
        }
        match self.validation_fraction {
            Some(share) if !(share > 0.0 && share < 1.0) => {
                usage(format!("validation fraction {share} requested; expected a number above 0 and below 1"))
            }
            _ => Ok(()),
        }
    }

    /// Refuses options that only sources of image files have; `kind` is not one.
    pub(crate) fn check_fixed(&self, kind: &str) -> Result<(), Error> {
        match self.given().into_iter().find(|(_, given)| *given) {
            None => Ok(()),
            Some((name, _)) => Err(Error::Usage(format!(
                "--{name} is for sources of image files; the images, classes and splits of {kind} are fixed"
            ))),
        }
    }

    /// Rejects options that do not apply to raw pixels. Only classes and splits can be set.
    pub(crate) fn check_pixels(&self, kind: &str) -> Result<(), Error> {
        match self.given().into_iter().find(|(name, given)| *given && !["classes", SPLIT_MAP].contains(name)) {
            None => Ok(()),
            Some((name, _)) => Err(Error::Usage(format!(
                "--{name} is for sources of image files; the images of {kind} are pixels, and its splits are fixed (`trireme data split` \
                 makes others)"
            ))),
        }
    }

    /// Refuses options that change records or their shards: those of `kind` are copied as they are.
    pub(crate) fn check_records(&self, kind: &str) -> Result<(), Error> {
        match self.given().into_iter().find(|(name, given)| *given && *name != SPLIT_MAP) {
            None => Ok(()),
            Some((name, _)) => Err(Error::Usage(format!(
                "--{name} is for sources of image files; the records of {kind} are copied as they are (`trireme data reshard`, `split` and \
                 `sample` change what was converted)"
            ))),
        }
    }

    /// Refuses lists of labels, which only tables and folders have; `kind` is neither.
    pub(crate) fn check_labels(&self, kind: &str) -> Result<(), Error> {
        let given = [
            ("labels", self.labels.is_some() && kind != "folder"),
            ("label-separator", self.label_separator.is_some() && !["folder", "csv"].contains(&kind)),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            None if kind == "folder" && self.label_separator.is_some() && self.labels.is_none() => {
                Err(Error::Usage("--label-separator is of a table; give the table with --labels, as labels.csv".into()))
            }
            None => Ok(()),
            Some((name, _)) => Err(Error::Usage(format!(
                "--{name} is not for {kind}: images with several labels come from a table (`trireme data convert csv`) or from a folder \
                 with a list of labels (`trireme data convert folder --labels`)"
            ))),
        }
    }

    /// The options that not all sources have, and whether they were given.
    fn given(&self) -> [(&'static str, bool); 10] {
        [
            ("resize", self.resize.is_some()),
            ("quality", self.quality.is_some()),
            ("raw", self.raw),
            ("to-8bit", self.to_8bit.is_some()),
            ("entry-points", self.entry_points),
            ("classes", self.classes.is_some()),
            ("validation-fraction", self.validation_fraction.is_some()),
            ("labels", self.labels.is_some()),
            ("label-separator", self.label_separator.is_some()),
            (SPLIT_MAP, !self.split_map.is_empty()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused() {
        let good = ConvertOptions::default();
        assert!(good.check().is_ok() && good.check_fixed("mnist").is_ok());
        for (bad, part) in [
            (ConvertOptions { resize: Some(0), ..good.clone() }, "0 pixels"),
            (ConvertOptions { quality: Some(101), ..good.clone() }, "quality 101"),
            (ConvertOptions { quality: Some(90), raw: true, ..good.clone() }, "raw stores none"),
            (ConvertOptions { entry_points: true, raw: true, ..good.clone() }, "entry points are of JPEGs"),
            (ConvertOptions { validation_fraction: Some(1.0), ..good.clone() }, "validation fraction 1"),
            (ConvertOptions { validation_fraction: Some(f64::NAN), ..good.clone() }, "validation fraction NaN"),
        ] {
            let error = bad.check().unwrap_err();
            assert!(error.is_usage() && error.to_string().contains(part), "{error}");
        }
        let error = ConvertOptions { entry_points: true, ..good.clone() }.check_fixed("mnist").unwrap_err().to_string();
        assert!(error.contains("--entry-points is for sources of image files"), "{error}");
        let error = ConvertOptions { raw: true, ..good }.check_fixed("mnist").unwrap_err().to_string();
        assert!(error.contains("--raw is for sources of image files"), "{error}");
    }
}
