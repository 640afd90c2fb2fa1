//! Shards and data sets as other programs write them.

use super::byte;
use loaders::record::RecordWriter;
use loaders::{Example, Format, Manifest, ShardManifest, SplitManifest, example, shard};
use std::fs;
use std::path::Path;

pub struct Foreign {
    pub encoded: Vec<u8>,
    pub format: Format,
    pub shape: [u32; 3],
    pub label: i64,
    pub text: &'static str,
}

impl Foreign {
    /// Creates a grey RAW image of 2 x 3 pixels.
    pub fn raw(label: i64) -> Self {
        Foreign {
            encoded: (0..6).map(|i| byte(i + label.unsigned_abs() as usize)).collect(),
            format: Format::Raw,
            shape: [2, 3, 1],
            label,
            text: "",
        }
    }

    pub fn example(&self) -> Example<'_> {
        Example {
            encoded: &self.encoded,
            format: self.format,
            height: self.shape[0],
            width: self.shape[1],
            channels: self.shape[2],
            dtype: Default::default(),
            label: self.label,
            text: self.text,
            filename: "",
            boxes: Default::default(),
            entry_points: &[],
            labels: Default::default(),
            targets: Default::default(),
        }
    }
}

pub fn write_shard(path: &Path, records: &[Foreign]) {
    let mut writer = RecordWriter::new(fs::File::create(path).unwrap());
    let mut payload = Vec::new();
    for record in records {
        payload.clear();
        example::encode(&record.example(), &mut payload);
        writer.write(&payload).unwrap();
    }
    writer.finish().unwrap();
}

/// Writes a data set with these records and classes. It has one split `train` in one shard, and no mean and deviation.
pub fn write_dataset(dir: &Path, records: &[Foreign], classes: &[&str]) -> Manifest {
    fs::create_dir_all(dir).unwrap();
    let path = dir.join("train.tfrecord");
    write_shard(&path, records);
    shard::write_index(&path, &shard::scan_index(&path).unwrap()).unwrap();
    let count = records.len() as u64;
    let shard = ShardManifest { file: "train.tfrecord".into(), count, bytes: fs::metadata(&path).unwrap().len() };
    let manifest = Manifest {
        version: 1,
        classes: classes.iter().map(|class| class.to_string()).collect(),
        splits: [("train".to_string(), SplitManifest { count, shards: vec![shard], ..Default::default() })].into(),
        ..Manifest::default()
    };
    manifest.write(dir).unwrap();
    manifest
}
