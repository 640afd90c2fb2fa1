//! Small data sets that a network can learn. Each class has its own wave pattern, with noise added.
//!
//! The images have the size of MNIST or of CIFAR-10, ten classes, the splits `train` and `test`, and are stored as raw pixels.

use std::fs;
use std::path::{Path, PathBuf};

use loaders::example::{self, Example, FloatList, Format, LabelList};
use loaders::record::append_record;
use loaders::{Draws, Dtype, ImageSpec, Manifest, ShardManifest, SplitManifest, shard};

/// 28x28, grey, as in MNIST.
pub const DIGITS: ImageSpec = ImageSpec::new(28, 28, 1);
/// 32x32, in colour, as in CIFAR-10.
pub const THINGS: ImageSpec = ImageSpec::new(32, 32, 3);

const CLASSES: u64 = 10;
/// The seed of training images.
const TRAINING: u64 = 1;
pub const SEVERAL: i64 = 5;

/// A data set in a folder that the caller owns.
pub struct Images {
    pub dir: PathBuf,
    pub manifest: Manifest,
}

/// One image as it is stored in a record.
pub struct Record {
    /// Interleaved channels (HWC), little-endian.
    pub pixels: Vec<u8>,
    pub spec: ImageSpec,
    pub dtype: Dtype,
    /// The stored number, before `label_offset` is subtracted.
    pub label: i64,
    /// All labels of the image, in a multi-label data set.
    pub labels: Option<LabelList>,
    /// The image's numbers, if the data set has numbers as labels.
    pub numbers: Option<FloatList>,
}

/// Returns sample `id` of the split with this random seed: the wave of its class plus noise.
pub fn record(seed: u64, id: u64, spec: ImageSpec) -> Record {
    let mut draws = Draws::new(seed, id, 0, 0);
    let label = u64::from(draws.below(CLASSES as u32));
    let (angle, wave) = (label as f32 * 0.628, 0.25 + 0.06 * label as f32);
    let (dx, dy) = (angle.cos() * wave, angle.sin() * wave);
    let mut pixels = Vec::with_capacity(spec.values());
    for y in 0..spec.height {
        for x in 0..spec.width {
            for c in 0..spec.channels {
                let bright = ((x as f32 * dx + y as f32 * dy) + c as f32 * label as f32).sin();
                let noise = draws.unit() - 0.5;
                pixels.push((128.0 + 70.0 * bright + 90.0 * noise) as u8);
            }
        }
    }
    Record { pixels, spec, dtype: Dtype::U8, label: label as i64, labels: None, numbers: None }
}

/// Returns multi-label sample `id`: the sum of the waves of its classes plus noise. It has between 0 and [`SEVERAL`] classes.
pub fn record_of_several(seed: u64, id: u64, spec: ImageSpec) -> Record {
    let mut draws = Draws::new(seed, id, 0, 0);
    let classes: Vec<i64> = (0..SEVERAL).filter(|class| draws.unit() < 0.45 - 0.07 * *class as f32).collect();
    let mut pixels = Vec::with_capacity(spec.values());
    for y in 0..spec.height {
        for x in 0..spec.width {
            for _ in 0..spec.channels {
                let wave = |class: &i64| {
                    let (angle, wave) = (*class as f32 * 0.628, 0.25 + 0.16 * *class as f32);
                    (x as f32 * angle.cos() * wave + y as f32 * angle.sin() * wave).sin()
                };
                let bright: f32 = classes.iter().map(wave).sum();
                pixels.push((128.0 + 30.0 * bright + 40.0 * (draws.unit() - 0.5)) as u8);
            }
        }
    }
    let mut labels = LabelList::default();
    labels.set(&classes);
    Record { pixels, spec, dtype: Dtype::U8, label: labels.first(), labels: Some(labels), numbers: None }
}

impl Images {
    /// Writes `train` images in 4 shards and `test` images in 2 shards to `dir`.
    pub fn new(dir: &Path, spec: ImageSpec, train: u64, test: u64) -> Self {
        Self::edited(dir, spec, train, test, |_, _| {})
    }

    /// Works like `new`, but `edit` changes each training record before it is written.
    pub fn edited(dir: &Path, spec: ImageSpec, train: u64, test: u64, edit: impl Fn(u64, &mut Record)) -> Self {
        let manifest = Manifest { classes: names(CLASSES), ..plain_manifest(spec) };
        Self::write(dir, [train, test], manifest, |seed, id| {
            let mut record = record(seed, id, spec);
            if seed == TRAINING {
                edit(id, &mut record);
            }
            record
        })
    }

    /// Works like `new`, but with multi-label images of [`SEVERAL`] classes.
    pub fn several(dir: &Path, spec: ImageSpec, train: u64, test: u64) -> Self {
        let classes = names(SEVERAL as u64);
        let manifest = Manifest { version: 2, multi_label: true, classes, ..plain_manifest(spec) };
        Self::write(dir, [train, test], manifest, |seed, id| record_of_several(seed, id, spec))
    }

    /// Writes the images that `record` makes from a seed and an id, and `dataset.json` with their number added. The
    /// seed is 1 for the split `train` and 2 for the split `test`.
    pub(super) fn write(
        dir: &Path,
        [train, test]: [u64; 2],
        manifest: Manifest,
        record: impl Fn(u64, u64) -> Record,
    ) -> Self {
        fs::create_dir_all(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
        let splits = [("train", train, 4, TRAINING), ("test", test, 2, 2)].map(|(name, count, shards, seed)| {
            (name.to_string(), split(dir, name, count, shards, |id| record(seed, id)))
        });
        let manifest = Manifest { splits: splits.into(), ..manifest };
        manifest.write(dir).unwrap_or_else(|e| panic!("{e}"));
        Self { dir: dir.to_path_buf(), manifest }
    }

    pub fn copy_to(&self, folder: &Path) {
        fs::create_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        for entry in fs::read_dir(&self.dir).expect("the data set is there") {
            let from = entry.expect("the data set is there").path();
            let to = folder.join(from.file_name().expect("a file's name"));
            fs::copy(&from, &to).unwrap_or_else(|e| panic!("{}: {e}", to.display()));
        }
    }

    pub fn arg(&self) -> String {
        self.dir.display().to_string()
    }

    pub fn shard(&self, split: &str, number: usize) -> PathBuf {
        self.dir.join(&self.manifest.splits[split].shards[number].file)
    }
}

fn names(classes: u64) -> Vec<String> {
    (0..classes).map(|class| format!("wave {class}")).collect()
}

fn plain_manifest(spec: ImageSpec) -> Manifest {
    let channels = spec.channels as usize;
    Manifest { version: 1, mean: vec![0.5; channels], std: vec![0.22; channels], ..Manifest::default() }
}

fn split(dir: &Path, name: &str, count: u64, shards: u64, record: impl Fn(u64) -> Record) -> SplitManifest {
    let mut manifest = SplitManifest { count, ..SplitManifest::default() };
    for number in 0..shards {
        let file = format!("{name}-{number:05}-of-{shards:05}.tfrecord");
        let path = dir.join(&file);
        let (mut records, mut entries) = (Vec::new(), Vec::new());
        for id in number * count / shards..(number + 1) * count / shards {
            let record = record(id);
            let write = |out: &mut Vec<u8>| example::encode(&record.example(), out);
            entries.push((records.len() as u64, append_record(&mut records, write)));
        }
        fs::write(&path, &records).expect("room on the disk");
        shard::write_index(&path, &entries).unwrap_or_else(|e| panic!("{e}"));
        manifest.shards.push(ShardManifest { file, count: entries.len() as u64, bytes: records.len() as u64 });
    }
    manifest
}

/// Returns the byte offset of record `number` of a shard, according to its index.
pub fn offset_of(path: &Path, number: usize) -> u64 {
    let index = fs::read_to_string(shard::index_path(path)).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let line = index.lines().nth(number).expect("a line for each record");
    line.split(' ').next().and_then(|offset| offset.parse().ok()).expect("an offset and a size")
}

impl Record {
    fn example(&self) -> Example<'_> {
        Example {
            encoded: &self.pixels,
            format: Format::Raw,
            height: self.spec.height,
            width: self.spec.width,
            channels: self.spec.channels,
            dtype: self.dtype,
            label: self.label,
            text: "",
            filename: "",
            boxes: Default::default(),
            entry_points: &[],
            targets: self.numbers.as_ref().map(FloatList::floats).unwrap_or_default(),
            labels: self.labels.as_ref().map(LabelList::labels).unwrap_or_default(),
        }
    }
}
