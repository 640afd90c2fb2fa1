//! The options of a conversion and the checks that reject invalid combinations.

use crate::error::Error;
use crate::raw::RawOptions;
use loaders::{Limits, MAX_TARGETS};
use std::path::PathBuf;

/// The highest number of shards. A shard's file name has five digits for it.
const MAX_SHARDS: usize = 99_999;

/// The option that sets [`ConvertOptions::split_map`].
const SPLIT_MAP: &str = "split-map";

/// How to handle an image that cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnBad {
    /// Stops the conversion with an error that names the image.
    #[default]
    Fail,
    /// Leaves the image out and lists it at the end.
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

/// Parses the value of `--to-8bit`: `MIN,MAX`, or an empty text for the full range.
///
/// # Errors
///
/// Returns an error for any other text.
pub fn to_8bit(text: &str) -> Result<To8Bit, String> {
    if text.is_empty() {
        return Ok(To8Bit::Whole);
    }
    let numbers =
        text.split_once(',').and_then(|(min, max)| Some((min.trim().parse().ok()?, max.trim().parse().ok()?)));
    match numbers {
        Some((min, max)) if min < max && f64::is_finite(max - min) => Ok(To8Bit::Range(min, max)),
        _ => Err("expected MIN,MAX, the values that become 0 and 255, such as --to-8bit=0,4095".into()),
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct ConvertOptions {
    /// Number of shards of the split `train`. Every other split gets a quarter of it, but at least one. A split never
    /// has more shards than samples.
    pub shards: usize,
    /// Number of threads. 0 means one per core. The output does not depend on it.
    pub jobs: usize,
    /// Seed for shuffling the samples and for drawing a validation split.
    pub seed: u64,
    /// True to show progress: a bar on a terminal, otherwise a line every few seconds.
    pub progress: bool,
    /// Shorter side of the stored images in pixels. Larger images are scaled down, smaller images keep their size.
    pub resize: Option<u32>,
    /// JPEG quality, 1 to 100. If set, every image is encoded as a JPEG with this quality.
    pub quality: Option<u8>,
    /// True to store decoded pixels instead of image files.
    pub raw: bool,
    /// Accepts images with more than 8 bits or more than three bands and says how to convert them. `None` rejects them.
    pub to_8bit: Option<To8Bit>,
    /// How to read raw images: TIFF, PNG with 16 bits, `.npy` and HDF5.
    pub bands: RawOptions,
    /// Band names for `dataset.json`. Empty if the bands have no names.
    pub band_names: Vec<String>,
    /// True to store entry points with each JPEG, so that training decodes only the part that a crop needs.
    pub entry_points: bool,
    /// Text file with one class name per line. Only these classes are converted, in this order.
    pub classes: Option<PathBuf>,
    /// Names of a table's columns that contain numbers to predict, or names for the columns in a label array. Empty if
    /// images have classes.
    pub targets: Vec<String>,
    /// Table or JSON file with the labels of a folder's images. An image may have any number of labels.
    pub labels: Option<PathBuf>,
    /// Separator of labels in a table cell. If set, an image may have any number of labels.
    pub label_separator: Option<char>,
    /// True if a table or list may refer to files outside its image folder.
    pub allow_outside: bool,
    /// Fraction of each class of `train` that becomes the split `validation`, between 0 and 1, exclusive.
    pub validation_fraction: Option<f64>,
    /// Pairs of a part (a file, folder, array or value) and its split. The split `none` skips the part.
    pub split_map: Vec<(String, String)>,
    pub on_bad: OnBad,
    /// Limits on memory and time for reading one file.
    pub limits: Limits,
    /// Limit on the size of all shards in bytes. The default is 64 times the size of the source plus 1 GiB.
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
            bands: RawOptions::default(),
            band_names: Vec::new(),
            entry_points: false,
            classes: None,
            targets: Vec::new(),
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
    /// Returns an error if an option is invalid for every kind of source.
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
                return usage("--quality and --raw cannot be combined: raw records contain no JPEG data".into());
            }
            _ if self.raw && self.entry_points => {
                return usage("--entry-points and --raw cannot be combined: raw records contain no JPEG data".into());
            }
            _ => {}
        }
        if let Some(name) = self.bands.given().filter(|_| self.to_8bit.is_some()) {
            return usage(format!("--to-8bit and --{name} cannot be combined: --to-8bit makes RGB images of bytes"));
        }
        if let Some(name) = first_repeated(&self.band_names) {
            return usage(format!("--band-names has `{name}` twice; expected a different name for each band"));
        }
        let targets = &self.targets;
        if targets.len() > MAX_TARGETS {
            return usage(format!("--targets has {} names; expected at most {MAX_TARGETS}", targets.len()));
        }
        if let Some(name) = first_repeated(targets) {
            return usage(format!("--targets has `{name}` twice; expected a different name for each number"));
        }
        if targets.iter().any(|name| name.trim().is_empty()) {
            return usage("--targets has an empty name; expected names separated by commas".into());
        }
        let classes = [("classes", self.classes.is_some()), ("label-separator", self.label_separator.is_some())];
        if let Some((name, _)) = classes.into_iter().find(|(_, given)| *given && !targets.is_empty()) {
            return usage(format!("--targets and --{name} cannot be combined: images have numbers instead of classes"));
        }
        match self.validation_fraction {
            Some(share) if !(share > 0.0 && share < 1.0) => {
                usage(format!("validation fraction {share} requested; expected a number above 0 and below 1"))
            }
            _ => Ok(()),
        }
    }

    /// Returns an error if an option is set that only sources of image files accept. `kind` is a different kind of
    /// source.
    pub(crate) fn check_fixed(&self, kind: &str) -> Result<(), Error> {
        self.check_bands(kind)?;
        let why = format!("the images, classes and splits of {kind} are fixed");
        self.refuse_except(|_| false, &why)
    }

    /// Returns an error if an option is set that does not apply to arrays of pixels. Only `classes` and `split_map` may
    /// be set, and `labels` for HDF5.
    pub(crate) fn check_pixels(&self, kind: &str) -> Result<(), Error> {
        let is_accepted =
            |name: &str| ["classes", "targets", SPLIT_MAP].contains(&name) || name == "labels" && kind == "hdf5";
        let why = format!(
            "the images of {kind} are pixels, and its splits are fixed (change them later with `trireme data split`)"
        );
        self.refuse_except(is_accepted, &why)
    }

    /// Returns an error if an option is set that changes records. The records of `kind` are copied unchanged.
    pub(crate) fn check_records(&self, kind: &str) -> Result<(), Error> {
        self.check_bands(kind)?;
        let why = format!(
            "the records of {kind} are copied unchanged (change the result with `trireme data reshard`, `split` or `sample`)"
        );
        self.refuse_except(|name| name == SPLIT_MAP, &why)
    }

    /// Returns an error if an option of [`Self::given`] is set that is not accepted. `why` is the reason.
    fn refuse_except(&self, is_accepted: impl Fn(&str) -> bool, why: &str) -> Result<(), Error> {
        match self.given().into_iter().find(|(name, given)| *given && !is_accepted(name)) {
            None => Ok(()),
            Some((name, _)) => Err(Error::Usage(format!("--{name} applies only to sources of image files; {why}"))),
        }
    }

    /// Returns an error if an option for raw images is set, because `kind` contains no raw images.
    fn check_bands(&self, kind: &str) -> Result<(), Error> {
        let name = self.bands.given().or((!self.band_names.is_empty()).then_some("band-names"));
        name.map_or(Ok(()), |name| {
            Err(Error::Usage(format!("--{name} does not apply to {kind}, because its image format is fixed")))
        })
    }

    /// Returns an error if a label option is set that `kind` does not support.
    pub(crate) fn check_labels(&self, kind: &str) -> Result<(), Error> {
        let given = [
            ("labels", self.labels.is_some() && kind != "folder"),
            ("label-separator", self.label_separator.is_some() && !["folder", "csv"].contains(&kind)),
        ];
        let is_table = kind == "csv" || kind == "folder" && self.labels.is_some();
        if !self.targets.is_empty() && !is_table && !["parquet", "webdataset"].contains(&kind) {
            return Err(Error::Usage(format!(
                "--targets does not apply to {kind}{}; numbers come from a table (`trireme data convert csv` or `parquet`, or `folder` \
                 with --labels TABLE), from JSON files in archives (`webdataset`) or from arrays (`npz`, `hdf5`)",
                if kind == "folder" { " without --labels" } else { "" }
            )));
        }
        match given.into_iter().find(|(_, given)| *given) {
            None if kind == "folder" && self.label_separator.is_some() && self.labels.is_none() => Err(Error::Usage(
                "--label-separator applies only to tables; pass a table with --labels, such as --labels labels.csv"
                    .into(),
            )),
            None => Ok(()),
            Some((name, _)) => Err(Error::Usage(format!(
                "--{name} does not apply to {kind}; images with several labels come from a table (`trireme data convert csv`) or a \
                 folder with a list of labels (`trireme data convert folder --labels`)"
            ))),
        }
    }

    /// Returns the options that only some sources accept, and whether each is set.
    fn given(&self) -> [(&'static str, bool); 11] {
        [
            ("resize", self.resize.is_some()),
            ("quality", self.quality.is_some()),
            ("raw", self.raw),
            ("to-8bit", self.to_8bit.is_some()),
            ("entry-points", self.entry_points),
            ("classes", self.classes.is_some()),
            ("validation-fraction", self.validation_fraction.is_some()),
            ("labels", self.labels.is_some()),
            ("targets", !self.targets.is_empty()),
            ("label-separator", self.label_separator.is_some()),
            (SPLIT_MAP, !self.split_map.is_empty()),
        ]
    }
}

fn first_repeated(names: &[String]) -> Option<&String> {
    names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)).map(|(_, name)| name)
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
            (ConvertOptions { quality: Some(90), raw: true, ..good.clone() }, "--quality and --raw"),
            (ConvertOptions { entry_points: true, raw: true, ..good.clone() }, "--entry-points and --raw"),
            (ConvertOptions { band_names: ["a", "b", "a"].map(String::from).to_vec(), ..good.clone() }, "`a` twice"),
            (ConvertOptions { validation_fraction: Some(1.0), ..good.clone() }, "validation fraction 1"),
            (ConvertOptions { validation_fraction: Some(f64::NAN), ..good.clone() }, "validation fraction NaN"),
        ] {
            let error = bad.check().unwrap_err();
            assert!(error.is_usage() && error.to_string().contains(part), "{error}");
        }
        for (bad, option) in [
            (ConvertOptions { entry_points: true, ..good.clone() }, "--entry-points "),
            (ConvertOptions { raw: true, ..good }, "--raw "),
        ] {
            let error = bad.check_fixed("mnist").unwrap_err();
            assert!(error.is_usage() && error.to_string().starts_with(option), "{error}");
            assert!(error.to_string().contains("mnist"), "{error}");
        }
    }
}
