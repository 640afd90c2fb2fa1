//! Summarises a data set from `dataset.json` and the first image of each split.

use super::walk::Walk;
use crate::error::Error;
use crate::image::{band_stats, pixels};
use crate::text;
use base::text::shown;
use loaders::{Format, ImageSpec, Manifest, Target, example};
use serde_json::json;
use std::fmt;
use std::path::{Path, PathBuf};

/// How many class names the printed summary lists.
const NAMES_SHOWN: usize = 12;

#[derive(Debug, Clone)]
pub struct Info {
    pub dir: PathBuf,
    /// The content of `dataset.json`.
    pub manifest: Manifest,
    /// The splits: `train` first, then by descending size.
    pub splits: Vec<SplitInfo>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitInfo {
    pub name: String,
    /// Number of images according to `dataset.json`.
    pub count: u64,
    pub shards: u64,
    /// Total size of the shards in bytes.
    pub bytes: u64,
    pub first: Option<FirstImage>,
    /// The smallest height and width, and the largest height and width, if `dataset.json` has them.
    pub sizes: Option<[[u32; 2]; 2]>,
    /// Number of images with entry points according to `dataset.json`.
    pub entry_points: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstImage {
    pub format: Format,
    pub spec: ImageSpec,
}

/// Summarises the data set in `dir`. Reads `dataset.json` and one record of each split.
///
/// # Errors
///
/// Returns an error if `dataset.json` is missing or invalid, or if a split's first shard is missing or its first record
/// is damaged.
pub fn info(dir: &Path) -> Result<Info, Error> {
    let manifest = Manifest::read(dir)?;
    let mut splits = Vec::new();
    for (name, split) in &manifest.splits {
        let first = match split.shards.iter().find(|s| s.count > 0) {
            Some(shard) => first_image(&dir.join(&shard.file))?,
            None => None,
        };
        splits.push(SplitInfo {
            name: name.clone(),
            count: split.count,
            shards: split.shards.len() as u64,
            bytes: split.shards.iter().map(|s| s.bytes).sum(),
            first,
            sizes: split.sizes.or(split.size.map(|size| [size; 2])),
            entry_points: split.entry_points.unwrap_or(0),
        });
    }
    splits.sort_by_key(|s| (s.name != "train", std::cmp::Reverse(s.count)));
    Ok(Info { dir: dir.to_path_buf(), manifest, splits })
}

fn first_image(shard: &Path) -> Result<Option<FirstImage>, Error> {
    let mut walk = Walk::open(shard)?;
    let Some(found) = walk.step()? else {
        return Ok(None);
    };
    let at = found.at;
    let failed = |what: String| at.error(shard, what);
    let payload = found.payload.map_err(|e| failed(e.to_string()))?;
    let example = example::parse(payload).map_err(|e| failed(e.to_string()))?;
    let spec = pixels::header(&example).map_err(failed)?;
    Ok(Some(FirstImage { format: example.format, spec }))
}

impl Info {
    pub fn to_json(&self) -> serde_json::Value {
        let splits: serde_json::Map<String, serde_json::Value> =
            self.splits.iter().map(|s| (s.name.clone(), s.to_json())).collect();
        let mut object = json!({
            "dir": self.dir.display().to_string(),
            "classes": self.manifest.classes,
            "label_offset": self.manifest.label_offset,
            "mean": self.manifest.mean,
            "std": self.manifest.std,
            "splits": splits,
        });
        if self.manifest.multi_label {
            object["multi_label"] = true.into();
        }
        if !self.manifest.targets.is_empty() {
            object["targets"] = json!(self.manifest.targets);
        }
        if self.manifest.bands.need_version() {
            object["bands"] = band_stats::to_json(&self.manifest.bands);
        }
        object
    }

    fn write_classes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Target { name, mean, std }) in self.manifest.targets.iter().enumerate() {
            let start = if at == 0 { "" } else { "\n" };
            write!(f, "{start}  target {}: mean {mean:.6}, std {std:.6}", shown(name))?;
        }
        let classes = &self.manifest.classes;
        if classes.is_empty() {
            return Ok(());
        }
        let names: Vec<_> = classes.iter().take(NAMES_SHOWN).map(|name| shown(name)).collect();
        write!(f, "  classes: {}", names.join(", "))?;
        if classes.len() > NAMES_SHOWN {
            write!(f, " and {} more", classes.len() - NAMES_SHOWN)?;
        }
        if self.manifest.multi_label {
            write!(f, "\n  images may have any number of labels")?;
        }
        if self.manifest.label_offset != 0 {
            write!(f, "\n  labels start at {}", self.manifest.label_offset)?;
        }
        Ok(())
    }

    fn write_measures(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Manifest { mean, std, splits, .. } = &self.manifest;
        if mean.is_empty() {
            return write!(f, "\n  mean and std not measured: `trireme data stats --write`");
        }
        if self.manifest.bands.need_version() {
            writeln!(f)?;
            let mut lines = String::new();
            band_stats::write(&mut lines, &self.manifest.bands, mean, std)?;
            return write!(f, "{}", lines.trim_end());
        }
        let split = if splits.contains_key("train") { ", train" } else { "" };
        write!(f, "\n  mean {}  std {}  (of pixel/255{split})", text::decimals(mean), text::decimals(std))
    }
}

impl SplitInfo {
    fn to_json(&self) -> serde_json::Value {
        let first = self.first.as_ref().map(|i| {
            json!({
                "format": i.format.name(),
                "height": i.spec.height,
                "width": i.spec.width,
                "channels": i.spec.channels,
            })
        });
        json!({
            "count": self.count,
            "shards": self.shards,
            "bytes": self.bytes,
            "first": first,
            "sizes": self.sizes,
            "entry_points": self.entry_points,
        })
    }

    /// Writes the split's line. The name is padded to `width` columns.
    fn write(&self, f: &mut fmt::Formatter<'_>, width: usize) -> fmt::Result {
        let (images, shards) = (text::plural(self.count, "image"), text::plural(self.shards, "shard"));
        write!(f, "  {:width$}  {images} in {shards}, {}", shown(&self.name), text::bytes(self.bytes))?;
        if let Some(first) = &self.first {
            write!(f, "; the first is {} {}", first.format, first.spec)?;
        }
        match self.sizes {
            Some([least, greatest]) if least == greatest => write!(f, ", and all have the same size")?,
            Some([[h0, w0], [h1, w1]]) => write!(f, "; heights {h0} to {h1}, widths {w0} to {w1}")?,
            None => {}
        }
        match self.entry_points {
            0 => writeln!(f),
            all if all == self.count => writeln!(f, "; all have entry points"),
            some => writeln!(f, "; {} have entry points", text::count(some)),
        }
    }
}

impl fmt::Display for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let images = text::plural(self.splits.iter().map(|s| s.count).sum(), "image");
        let bytes = text::bytes(self.splits.iter().map(|s| s.bytes).sum());
        let classes = text::labels(&self.manifest);
        writeln!(f, "{}: {images}, {classes}, {bytes}", text::path(&self.dir))?;
        let width = self.splits.iter().map(|s| shown(&s.name).chars().count()).max().unwrap_or(0);
        for split in &self.splits {
            split.write(f, width)?;
        }
        self.write_classes(f)?;
        self.write_measures(f)
    }
}
