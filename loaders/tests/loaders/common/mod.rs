//! Small data sets in the temporary directory. They are removed when they are dropped.
#![allow(dead_code, unused_imports)] // Each of the two test binaries uses only a part.

mod mentions;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use loaders::example::{self, Example};
use loaders::protobuf::Message;
use loaders::record::append_record;
use loaders::{
    Dataset, Draws, Error, Fault, ImageSpec, Images, Loader, Manifest, Options, Order, Pipeline, ShardManifest, Split,
    SplitManifest, decode, shard,
};
use turbojpeg::{Image, PixelFormat, Subsamp};

pub use mentions::{assert_mentions, is_mentioned};

pub const SPEC: ImageSpec = ImageSpec::new(8, 8, 3);

pub struct TestData {
    pub dir: PathBuf,
    pub manifest: Manifest,
}

pub fn pixels(id: u64, spec: ImageSpec) -> Vec<u8> {
    let mut draws = Draws::new(99, id, 0, 0);
    (0..spec.values()).map(|_| draws.next_u32() as u8).collect()
}

pub fn label(id: u64) -> u32 {
    (id * 7 % 10) as u32
}

pub fn raw(id: u64, encoded: &[u8], spec: ImageSpec) -> Vec<u8> {
    let mut payload = Vec::new();
    let example = Example { label: i64::from(label(id)), ..Example::from_raw(encoded, spec) };
    example::encode(&example, &mut payload);
    payload
}

/// Creates the record of a RAW image with one row. The label follows the pixels.
pub fn label_last(id: u64, encoded: &[u8]) -> Vec<u8> {
    let entry =
        |key: &str, feature: Message| Message::new().message(1, Message::new().text(1, key).message(2, feature));
    let bytes = |value: &[u8]| Message::new().message(1, Message::new().raw(1, value));
    // A list of integers that is not packed.
    let number = |value: i64| Message::new().message(3, Message::new().int(1, value));
    let features = entry("image/encoded", bytes(encoded))
        .join(entry("image/format", bytes(b"RAW")))
        .join(entry("image/height", number(1)))
        .join(entry("image/width", number(encoded.len() as i64 / 3)))
        .join(entry("image/channels", number(3)))
        .join(entry("image/class/label", number(label(id).into())));
    Message::new().message(1, features).bytes().to_vec()
}

/// Compresses RGB pixels (H, W, 3) as a JPEG.
pub fn jpeg(pixels: &[u8], height: usize, width: usize, quality: i32, subsampling: Subsamp) -> Vec<u8> {
    let image = Image { pixels, width, pitch: 3 * width, height, format: PixelFormat::RGB };
    turbojpeg::compress(image, quality, subsampling).unwrap().to_vec()
}

/// Decodes a whole image to RGB. Returns its shape and its pixels.
pub fn decoded(example: &Example<'_>) -> (ImageSpec, Vec<u8>) {
    let shape = ImageSpec { channels: 3, ..decode::spec(example).unwrap() };
    (shape, decode::decode(example, shape, &mut Vec::new()).unwrap().to_vec())
}

/// Inserts EXIF data with this orientation into a JPEG: a little-endian TIFF with one entry.
pub fn with_orientation(file: &[u8], orientation: u8) -> Vec<u8> {
    let mut exif = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".to_vec();
    exif.extend([orientation, 0, 0, 0, 0, 0, 0, 0]);
    let length = (exif.len() as u16 + 2).to_be_bytes();
    [&file[..2], &[0xff, 0xe1], &length, &exif, &file[2..]].concat()
}

/// Creates an empty directory with a unique name.
pub fn folder() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("loaders-{}-{number}", std::process::id()));
    // A killed test with the same process id may have left a directory.
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    dir
}

impl TestData {
    /// Creates a split `train` with `count` RAW noise images in `shards` shards.
    pub fn noise(count: u64, shards: u64, spec: ImageSpec) -> Self {
        let payloads: Vec<_> = (0..count).map(|id| raw(id, &pixels(id, spec), spec)).collect();
        Self::of(&payloads, shards, spec.channels as usize)
    }

    /// Creates a split `train` from these payloads, with 10 classes.
    pub fn of(payloads: &[Vec<u8>], shards: u64, channels: usize) -> Self {
        let dir = folder();
        let mut split = SplitManifest::default();
        for number in 0..shards {
            let file = format!("train-{number:05}-of-{shards:05}.tfrecord");
            let path = dir.join(&file);
            let count = payloads.len() as u64;
            let range = number * count / shards..(number + 1) * count / shards;
            let (mut records, mut entries) = (Vec::new(), Vec::new());
            for id in range {
                let write = |out: &mut Vec<u8>| out.extend_from_slice(&payloads[id as usize]);
                entries.push((records.len() as u64, append_record(&mut records, write)));
            }
            fs::write(&path, &records).unwrap();
            shard::write_index(&path, &entries).unwrap();
            split.count += entries.len() as u64;
            split.shards.push(ShardManifest {
                file,
                count: entries.len() as u64,
                bytes: fs::metadata(&path).unwrap().len(),
            });
        }
        let manifest = Manifest {
            version: 1,
            classes: (0..10).map(|class| format!("class {class}")).collect(),
            mean: vec![0.5; channels],
            std: vec![0.25; channels],
            splits: [("train".to_owned(), split)].into(),
            ..Manifest::default()
        };
        manifest.write(&dir).unwrap();
        Self { dir, manifest }
    }

    pub fn shard(&self, number: usize) -> PathBuf {
        let shards = &self.manifest.splits["train"].shards;
        self.dir.join(&shards[number].file)
    }

    pub fn split(&self) -> Result<Split, Error> {
        Dataset::open(&self.dir)?.split("train")
    }

    pub fn shared(&self) -> Arc<Split> {
        Arc::new(self.split().unwrap())
    }

    pub fn pipeline(&self, ops: &[&str], images: impl Into<Images>) -> Pipeline {
        let ops: Vec<_> = ops.iter().map(|op| op.to_string()).collect();
        Pipeline::new(&ops, images, &self.manifest, 3).unwrap()
    }

    /// Returns the split without opening its shards.
    pub fn lazy(&self) -> Arc<Split> {
        Arc::new(Dataset::open(&self.dir).unwrap().split_lazily("train").unwrap())
    }

    /// Starts a loader with this list of transforms.
    pub fn loader(
        &self,
        ops: &[&str],
        images: impl Into<Images>,
        order: impl Order + 'static,
        options: Options,
    ) -> Loader {
        Loader::start(self.shared(), self.pipeline(ops, images), Box::new(order), options).unwrap()
    }

    /// Returns the error of opening the split, or of reading its first bad record.
    pub fn complaint(&self) -> Error {
        let split = match self.split() {
            Ok(split) => split,
            Err(error) => return error,
        };
        (0..split.len()).find_map(|id| split.record(id, &mut Vec::new()).err()).expect("some record is bad")
    }
}

impl Drop for TestData {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Changes a file's bytes in place.
pub fn edit(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

/// Returns the shard's name, the record's number and the fault. Panics for any other error.
#[track_caller]
pub fn record_fault(error: &Error) -> (&str, u64, &Fault) {
    match error {
        Error::Record { path, record, fault, .. } => (path.file_name().unwrap().to_str().unwrap(), *record, fault),
        other => panic!("not the error of a record: {other}"),
    }
}

/// Returns a transform's position, its text and the problem. Panics for any other error.
#[track_caller]
pub fn transform_problem(error: &Error) -> (usize, &str, &str) {
    match error {
        Error::Transform { index, text, problem, .. } => (*index, text, problem),
        other => panic!("not the error of a transform: {other}"),
    }
}
