//! `dataset.json`: the classes, splits and shards of a data set.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::file::regular;
use crate::file::replace::replace;
use crate::file::safe_create;
use crate::format::bands::Bands;
use crate::label_sets::LabelKind;

pub const MANIFEST: &str = "dataset.json";

/// The version of `dataset.json` for data sets with one label per image.
pub const VERSION: u32 = 1;

/// The version for multi-label data sets. Programs that only support one label reject it.
pub const MULTI_LABEL_VERSION: u32 = 2;

/// The version for images that are not 8-bit grey or RGB, multi-label or not. Older programs reject it.
pub const BANDS_VERSION: u32 = 3;

/// The version for labels that are numbers, whatever the images are. Older programs reject it.
pub const TARGETS_VERSION: u32 = 4;

/// The most targets that a data set may have.
pub const MAX_TARGETS: usize = 4096;

/// The contents of `dataset.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the format of `dataset.json`, as [`Manifest::version_for`] returns it.
    pub version: u32,
    /// True if an image may have any number of labels, including zero.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub multi_label: bool,
    /// Class names, where the index is the label. Empty if images have targets instead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
    /// Names and statistics of the targets, if each image has numbers instead of classes. Otherwise empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<Target>,
    /// Subtracted from each stored label. 1 for TensorFlow's ImageNet shards, otherwise 0.
    #[serde(default)]
    pub label_offset: i64,
    /// The bands' type, number and statistics.
    #[serde(flatten)]
    pub bands: Bands,
    /// Mean over the training split, per channel. Bytes are divided by 255 first. Other types have the stored units. Empty
    /// if not measured.
    #[serde(default)]
    pub mean: Vec<f64>,
    /// Population standard deviation over the training split, per channel, in the same units.
    #[serde(default)]
    pub std: Vec<f64>,
    pub splits: BTreeMap<String, SplitManifest>,
}

/// A number that each image has, such as a position or an age, and its distribution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Target {
    pub name: String,
    /// Mean over the split `train`. 0 without such a split.
    #[serde(default)]
    pub mean: f64,
    /// Population standard deviation over the split `train`. 1 without such a split.
    #[serde(default = "one")]
    pub std: f64,
}

fn one() -> f64 {
    1.0
}

impl Target {
    /// Creates a target that was not measured.
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), mean: 0.0, std: 1.0 }
    }

    /// Returns the divisor of [`Self::standardize`]: the standard deviation, or 1 if all values are equal.
    pub fn scale(&self) -> f64 {
        if self.std > 0.0 { self.std } else { 1.0 }
    }

    /// Converts a number to the form that networks predict: with mean 0 and deviation 1.
    pub fn standardize(&self, value: f64) -> f64 {
        (value - self.mean) / self.scale()
    }

    /// Converts a network's prediction to the target's own units.
    pub fn restore(&self, predicted: f64) -> f64 {
        predicted * self.scale() + self.mean
    }

    /// Returns an error unless there are at most [`MAX_TARGETS`] targets with distinct names and finite statistics.
    pub fn check(all: &[Self]) -> Result<(), String> {
        if all.len() > MAX_TARGETS {
            return Err(format!("`targets`: expected at most {MAX_TARGETS}, got {}", all.len()));
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = all.iter().find(|target| !seen.insert(&target.name)) {
            return Err(format!("`targets`: expected different names, got \"{}\" twice", twice.name.escape_debug()));
        }
        match all.iter().find(|t| !(t.mean.is_finite() && t.std.is_finite() && t.std >= 0.0)) {
            Some(wrong) => Err(format!(
                "`targets`: `mean` and `std` of \"{}\" must be finite, `std` not negative; got {} and {}",
                wrong.name.escape_debug(),
                wrong.mean,
                wrong.std
            )),
            None => Ok(()),
        }
    }
}

/// The entry of a split in `dataset.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SplitManifest {
    /// Number of samples in all shards.
    pub count: u64,
    /// The shards, in the order that defines the sample ids.
    pub shards: Vec<ShardManifest>,
    /// Height and width, if all images are known to have the same size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<[u32; 2]>,
    /// Smallest height and width, then largest height and width, if the images are known to differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sizes: Option<[[u32; 2]; 2]>,
    /// Number of images on which `mean` and `std` were measured, if it was not the whole split.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<u64>,
    /// Number of images with entry points in their records, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry_points: Option<u64>,
}

/// The entry of a shard in `dataset.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardManifest {
    /// File name in the directory of the data set.
    pub file: String,
    /// Number of records in the shard.
    pub count: u64,
    /// Size of the shard file in bytes.
    pub bytes: u64,
}

impl Manifest {
    /// Returns the format version of `dataset.json` for images with these labels and bands.
    pub fn version_for(labels: LabelKind, bands: &Bands) -> u32 {
        match (bands.need_version(), labels) {
            (_, LabelKind::Numbers) => TARGETS_VERSION,
            (true, _) => BANDS_VERSION,
            (false, LabelKind::Classes) => MULTI_LABEL_VERSION,
            (false, LabelKind::OneClass) => VERSION,
        }
    }

    /// Returns the label kind.
    pub fn label_kind(&self) -> LabelKind {
        LabelKind::new(!self.targets.is_empty(), self.multi_label)
    }

    /// Returns the names for a network's outputs: the classes, or the targets if the labels are numbers.
    pub fn outputs(&self) -> Vec<String> {
        match self.targets.is_empty() {
            true => self.classes.clone(),
            false => self.targets.iter().map(|target| target.name.clone()).collect(),
        }
    }

    /// Returns the entry of a split. `dir` is the directory of the data set, which the error names.
    pub fn split(&self, dir: &Path, name: &str) -> Result<&SplitManifest, Error> {
        self.splits.get(name).ok_or_else(|| {
            let names: Vec<_> = self.splits.keys().map(|name| format!("`{name}`")).collect();
            let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            Error::UnknownSplit { dir: dir.to_owned(), name: name.to_owned(), known }
        })
    }

    /// Reads and checks `dir/dataset.json`. Unknown keys are ignored.
    pub fn read(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(MANIFEST);
        let text = match regular::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Err(Error::NoDataset { dir: dir.to_owned(), problem: why_no_manifest(dir) });
            }
            Err(source) => {
                return Err(Error::Io { action: "read", path, source });
            }
        };
        let problem = |problem| Error::Manifest { path: path.clone(), problem };
        let manifest: Self = serde_json::from_str(&text).map_err(|e| problem(e.to_string()))?;
        manifest.check().map_err(problem)?;
        Ok(manifest)
    }

    /// Writes `dir/dataset.json` atomically. Returns an error for a manifest that `read` would reject.
    pub fn write(&self, dir: &Path) -> Result<(), Error> {
        let path = dir.join(MANIFEST);
        replace(&path, self.text(&path)?.as_bytes())
    }

    /// Works like [`Manifest::write`], for a new directory that has no manifest and that no program reads yet. The content
    /// is synced to disk. The caller must sync the directory to make the name durable.
    pub fn create(&self, dir: &Path) -> Result<(), Error> {
        let path = dir.join(MANIFEST);
        let text = self.text(&path)?;
        let mut file = safe_create::create_new(&path).map_err(Error::io("create", &path))?;
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        written.map_err(Error::io("write", &path))
    }

    fn text(&self, path: &Path) -> Result<String, Error> {
        let problem = |problem| Error::Manifest { path: path.to_owned(), problem };
        self.check().map_err(problem)?;
        let mut text = serde_json::to_string_pretty(self).map_err(|e| problem(e.to_string()))?;
        text.push('\n');
        Ok(text)
    }

    fn check(&self) -> Result<(), String> {
        if !(VERSION..=TARGETS_VERSION).contains(&self.version) {
            return Err(format!("`version`: expected {VERSION} to {TARGETS_VERSION}, got {}", self.version));
        }
        if !self.targets.is_empty() && (!self.classes.is_empty() || self.multi_label) {
            return Err(
                "`targets` means that labels are numbers, so `classes` and `multi_label` must be missing".into()
            );
        }
        Target::check(&self.targets)?;
        let expected = Self::version_for(self.label_kind(), &self.bands);
        if self.version != expected {
            let labels = match (self.targets.is_empty(), self.multi_label) {
                (false, _) => "`targets`",
                (true, true) => "`multi_label`",
                (true, false) => "one label per image",
            };
            let images = match (self.bands.dtype, self.bands.channels) {
                (dtype, Some(channels)) => format!("{dtype} with {}", base::text::plural(channels, "channel")),
                (dtype, None) => dtype.to_string(),
            };
            return Err(format!(
                "`version` is {}, expected {expected} for a data set with {labels} and images of {images}",
                self.version
            ));
        }
        self.bands.check()?;
        if self.classes.is_empty() && self.targets.is_empty() {
            return Err("`classes` is empty, and there are no `targets`".into());
        }
        if self.mean.len() != self.std.len() {
            return Err(format!("`mean` has {} values but `std` has {}", self.mean.len(), self.std.len()));
        }
        self.bands.check_length("mean", self.mean.len())?;
        if let Some(wrong) = self.mean.iter().find(|mean| !mean.is_finite()) {
            return Err(format!("`mean`: expected finite numbers, got {wrong}"));
        }
        if let Some(wrong) = self.std.iter().find(|std| !(std.is_finite() && **std >= 0.0)) {
            return Err(format!("`std`: expected finite numbers of at least 0, got {wrong}"));
        }
        self.splits.iter().try_for_each(|(name, split)| {
            // Shards are named after splits, so a split's name must be a valid file name.
            if !is_file_name(name) {
                let name = name.escape_debug();
                return Err(format!("the name of a split must be a valid file name, got \"{name}\""));
            }
            split.check().map_err(|problem| format!("split `{name}`: {problem}"))
        })
    }
}

impl SplitManifest {
    fn check(&self) -> Result<(), String> {
        let sum = self.shards.iter().try_fold(0u64, |sum, shard| sum.checked_add(shard.count));
        if sum != Some(self.count) {
            let sum = sum.map_or("more than 2^64".into(), |sum| sum.to_string());
            return Err(format!("`count` is {}, but the counts of its shards sum to {sum}", self.count));
        }
        match self.shards.iter().find(|shard| !is_file_name(&shard.file)) {
            Some(shard) => Err(format!(
                "`file` of a shard: expected the name of a file in the folder of the data set, got \"{}\"",
                shard.file.escape_debug()
            )),
            None => Ok(()),
        }
    }
}

fn is_file_name(name: &str) -> bool {
    Path::new(name).file_name() == Some(name.as_ref())
}

/// Returns the reason why a directory has no `dataset.json`.
fn why_no_manifest(dir: &Path) -> String {
    match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => "there is no such folder".into(),
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => "it is a file, not a folder".into(),
        Err(e) => format!("it cannot be listed ({e})"),
        Ok(mut entries) => match entries.next() {
            None => "the folder is empty".into(),
            Some(_) => format!("it has no {MANIFEST}"),
        },
    }
}
