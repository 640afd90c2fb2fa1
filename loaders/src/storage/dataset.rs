//! A data set: a folder with `dataset.json`, shards, and their indexes. A sample's id is its index in
//! dataset.json's order of shards and, within them, records.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use crate::decode;
use crate::error::{Error, Fault};
use crate::file::regular;
use crate::file::replace::replace;
use crate::format::example::{self, Example};
use crate::spec::{ImageSpec, Images};
use crate::storage::shard::{Access, Shard};

/// The manifest's file name.
pub const MANIFEST: &str = "dataset.json";

/// The version of `dataset.json` that is written and read.
pub const VERSION: u32 = 1;

/// Most samples that tell what the images of a split are like.
const LOOKS: u64 = 64;

/// What `dataset.json` holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`VERSION`].
    pub version: u32,
    /// Names of the classes, in order of their labels.
    pub classes: Vec<String>,
    /// Taken off each stored label; 1 for TensorFlow's ImageNet shards, else 0.
    #[serde(default)]
    pub label_offset: i64,
    /// Mean of pixel / 255 over the training split, per channel; empty if not measured.
    #[serde(default)]
    pub mean: Vec<f64>,
    /// Population standard deviation of pixel / 255 over the training split, per channel.
    #[serde(default)]
    pub std: Vec<f64>,
    /// The splits by name.
    pub splits: BTreeMap<String, SplitManifest>,
}

/// A split in `dataset.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SplitManifest {
    /// Number of samples.
    pub count: u64,
    /// The shards, in the order that defines the samples' ids.
    pub shards: Vec<ShardManifest>,
    /// Height and width, where all images are known to have one size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<[u32; 2]>,
    /// Least height and width, greatest height and width, where the images are known to differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sizes: Option<[[u32; 2]; 2]>,
    /// Number of images that `mean` and `std` were measured on, where not on all of the split.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<u64>,
}

/// A shard in `dataset.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardManifest {
    /// File name, in the data set's folder.
    pub file: String,
    /// Number of records.
    pub count: u64,
    /// Size of the file.
    pub bytes: u64,
}

impl Manifest {
    /// Reads and checks `dir/dataset.json`; keys unknown here are ignored.
    pub fn read(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(MANIFEST);
        let text = match regular::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(Error::NoDataset { dir: dir.to_owned(), problem: no_manifest(dir) });
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

    /// Writes `dir/dataset.json`, whole or not at all; refuses what `read` would refuse.
    pub fn write(&self, dir: &Path) -> Result<(), Error> {
        let path = dir.join(MANIFEST);
        let problem = |problem| Error::Manifest { path: path.clone(), problem };
        self.check().map_err(problem)?;
        let mut text = serde_json::to_string_pretty(self).map_err(|e| problem(e.to_string()))?;
        text.push('\n');
        replace(&path, text.as_bytes())
    }

    fn check(&self) -> Result<(), String> {
        if self.version != VERSION {
            return Err(format!("`version`: expected {VERSION}, got {}", self.version));
        }
        if self.classes.is_empty() {
            return Err("`classes` is empty".into());
        }
        if self.mean.len() != self.std.len() {
            return Err(format!("`mean` has {} values but `std` has {}", self.mean.len(), self.std.len()));
        }
        if !self.mean.iter().all(|m| m.is_finite()) || !self.std.iter().all(|s| s.is_finite() && *s >= 0.0) {
            return Err("`mean` and `std` must be finite, `std` not negative".into());
        }
        for (name, split) in &self.splits {
            let sum = split.shards.iter().try_fold(0u64, |sum, shard| sum.checked_add(shard.count));
            if sum != Some(split.count) {
                return Err(format!(
                    "split `{name}`: `count` is {}, but the counts of its shards sum to {}",
                    split.count,
                    sum.map_or("more than 2^64".into(), |sum| sum.to_string())
                ));
            }
            if let Some(shard) = split.shards.iter().find(|shard| !is_file_name(&shard.file)) {
                return Err(format!(
                    "split `{name}`: expected the name of a file in the folder, got \"{}\"",
                    shard.file.escape_debug()
                ));
            }
        }
        Ok(())
    }
}

fn is_file_name(name: &str) -> bool {
    Path::new(name).file_name() == Some(name.as_ref())
}

fn no_manifest(dir: &Path) -> String {
    match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => "there is no such folder".into(),
        Err(e) => format!("it cannot be listed ({e})"),
        Ok(mut entries) => match entries.next() {
            None => "the folder is empty".into(),
            Some(_) => format!("it has no {MANIFEST}"),
        },
    }
}

/// A folder with its manifest.
#[derive(Debug, Clone)]
pub struct Dataset {
    /// The folder.
    pub dir: PathBuf,
    /// Its `dataset.json`.
    pub manifest: Manifest,
}

impl Dataset {
    /// Reads the manifest; shards are opened by [`Dataset::split`].
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, Error> {
        let dir = dir.as_ref().to_owned();
        let manifest = Manifest::read(&dir)?;
        Ok(Self { dir, manifest })
    }

    /// Opens and maps all shards of a split and checks sizes, indexes and counts against the manifest.
    pub fn split(&self, name: &str) -> Result<Split, Error> {
        let split = self.split_lazily(name)?;
        (0..split.shards().len()).try_for_each(|place| split.shard(place).map(|_| ()))?;
        Ok(split)
    }

    /// The same, but each shard is opened and checked when first used: for orders in which a rank needs few.
    pub fn split_lazily(&self, name: &str) -> Result<Split, Error> {
        let manifest = self.manifest.splits.get(name).ok_or_else(|| Error::UnknownSplit {
            dir: self.dir.clone(),
            name: name.to_owned(),
            known: self.known_splits(),
        })?;
        let mut starts = vec![0];
        manifest.shards.iter().for_each(|shard| starts.push(starts[starts.len() - 1] + shard.count));
        Ok(Split {
            name: name.to_owned(),
            dir: self.dir.clone(),
            classes: self.manifest.classes.clone().into(),
            label_offset: self.manifest.label_offset,
            opened: manifest.shards.iter().map(|_| OnceLock::new()).collect(),
            shards: manifest.shards.clone(),
            starts,
        })
    }

    fn known_splits(&self) -> String {
        let names: Vec<_> = self.manifest.splits.keys().map(|name| format!("`{name}`")).collect();
        if names.is_empty() { "none".into() } else { names.join(", ") }
    }
}

fn open_shard(path: &Path, expected: &ShardManifest, access: Access) -> Result<Shard, Error> {
    let differs = |what, expected, got| Error::Shard { path: path.to_owned(), what, expected, got };
    // Before the index is read: of a shard cut short, the size is the better news.
    let bytes = fs::metadata(path).map_err(|source| Error::Io { action: "open", path: path.to_owned(), source })?.len();
    if bytes != expected.bytes {
        return Err(differs("bytes", expected.bytes, bytes));
    }
    let shard = Shard::open_for(path, access)?;
    if shard.len() != expected.count {
        return Err(differs("records", expected.count, shard.len()));
    }
    Ok(shard)
}

/// All samples of one split.
#[derive(Debug)]
pub struct Split {
    name: String,
    dir: PathBuf,
    classes: Arc<[String]>,
    label_offset: i64,
    shards: Vec<ShardManifest>,
    /// Those mapped so far, for good.
    opened: Vec<OnceLock<Shard>>,
    /// Id of each shard's first sample, then the number of samples.
    starts: Vec<u64>,
}

impl Split {
    /// The split's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of samples.
    pub fn len(&self) -> u64 {
        self.starts[self.starts.len() - 1]
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the manifest says of the shards, in order of ids.
    pub fn shards(&self) -> &[ShardManifest] {
        &self.shards
    }

    /// The folder of the shards.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A shard by its number, mapped and checked when first asked for.
    ///
    /// # Panics
    /// If there are not so many shards.
    pub fn shard(&self, place: usize) -> Result<&Shard, Error> {
        match self.opened[place].get() {
            Some(shard) => Ok(shard),
            None => {
                let shard = self.open(place, Access::Map)?;
                // where two threads open a shard at once, the first one's stays
                Ok(self.opened[place].get_or_init(|| shard))
            }
        }
    }

    /// Opens a shard for the caller alone.
    pub(crate) fn open(&self, place: usize, access: Access) -> Result<Shard, Error> {
        let expected = &self.shards[place];
        open_shard(&self.dir.join(&expected.file), expected, access)
    }

    /// Number of classes.
    pub fn classes(&self) -> usize {
        self.classes.len()
    }

    /// Names of the classes, in order of labels.
    pub fn class_names(&self) -> &[String] {
        &self.classes
    }

    /// The number of the shard that holds a sample, and the record's number in it.
    pub fn locate(&self, id: u64) -> Result<(usize, u64), Error> {
        if id >= self.len() {
            return Err(Error::NoSample { split: self.name.clone(), id, len: self.len() });
        }
        // The last start that is not above `id`: shards without records are passed over.
        let place = self.starts.partition_point(|&start| start <= id) - 1;
        Ok((place, id - self.starts[place]))
    }

    /// A sample and its label, with the offset taken off: 0 to `classes() - 1`. Checksums verified.
    pub fn record(&self, id: u64) -> Result<(Example<'_>, u32), Error> {
        let (place, number) = self.locate(id)?;
        let shard = self.shard(place)?;
        self.read(shard, number, shard.record(number)?)
    }

    /// The example and label in `payload`, which is record `number` of `shard`.
    pub(crate) fn read<'a>(&self, shard: &Shard, number: u64, payload: &'a [u8]) -> Result<(Example<'a>, u32), Error> {
        example::parse(payload)
            .map_err(Fault::from)
            .and_then(|example| Ok((example, self.label(example.label)?)))
            .map_err(|fault| shard.fault(number, fault))
    }

    /// The error that says what is wrong with sample `id`.
    pub fn fault(&self, id: u64, fault: Fault) -> Error {
        match self.locate(id).and_then(|(place, number)| Ok((self.shard(place)?, number))) {
            Ok((shard, number)) => shard.fault(number, fault),
            Err(error) => error,
        }
    }

    /// What the images are like, by a look at no more than 64 of them, spread evenly: one size, or various ones.
    ///
    /// That is for plans and early errors; whoever needs one size checks each image. Unreadable samples are passed over
    /// unless all of those looked at are.
    pub fn images(&self) -> Result<Images, Error> {
        let mut found = self.look(0).map(Images::Fixed);
        for id in self.looks() {
            if let Ok(spec) = self.look(id) {
                found = Ok(found.map_or(Images::Fixed(spec), |images| common(images, spec)));
            }
        }
        found
    }

    /// The shape of all images, by the same look.
    ///
    /// # Errors
    /// Names the first that differs from those before it.
    pub fn one_size(&self) -> Result<ImageSpec, Error> {
        let expected = self.look(0)?;
        for id in self.looks() {
            let got = self.look(id)?;
            if (got.height, got.width) != (expected.height, expected.width) {
                return Err(self.fault(id, Fault::ImageSize { expected, got }));
            }
        }
        Ok(expected)
    }

    /// The samples looked at, beside the first.
    fn looks(&self) -> impl Iterator<Item = u64> {
        let len = self.len();
        let looks = len.min(LOOKS);
        (1..looks).map(move |look| (u128::from(look) * u128::from(len) / u128::from(looks)) as u64)
    }

    /// The shape of one image, by its header. A shard that is not open yet does not stay open for that.
    fn look(&self, id: u64) -> Result<ImageSpec, Error> {
        let (place, number) = self.locate(id)?;
        let own;
        let shard = match self.opened[place].get() {
            Some(shard) => shard,
            None => {
                own = self.open(place, Access::Map)?;
                &own
            }
        };
        let (example, _) = self.read(shard, number, shard.record(number)?)?;
        decode::spec(&example).map_err(|fault| shard.fault(number, fault))
    }

    fn label(&self, stored: i64) -> Result<u32, Fault> {
        let label = i128::from(stored) - i128::from(self.label_offset);
        u32::try_from(label).ok().filter(|&label| (label as usize) < self.classes.len()).ok_or(Fault::Label {
            stored,
            offset: self.label_offset,
            label,
            last: self.classes.len() as i64 - 1,
        })
    }
}

/// What images are like that were like `images` so far, with one of shape `spec` among them.
fn common(images: Images, spec: ImageSpec) -> Images {
    // Grey images stand among coloured ones, and count as such.
    let channels = images.channels().max(spec.channels);
    match images {
        Images::Fixed(first) if (first.height, first.width) == (spec.height, spec.width) => {
            Images::Fixed(ImageSpec { channels, ..spec })
        }
        _ => Images::Varied { channels },
    }
}
