//! Shards and data sets as other programs write them.

use super::byte;
use loaders::record::append_record;
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

/// Returns the content of a shard, and the offset and the size of each record.
fn shard_of(records: &[Foreign]) -> (Vec<u8>, Vec<(u64, u64)>) {
    let (mut bytes, mut entries) = (Vec::new(), Vec::new());
    for record in records {
        let write = |out: &mut Vec<u8>| example::encode(&record.example(), out);
        entries.push((bytes.len() as u64, append_record(&mut bytes, write)));
    }
    (bytes, entries)
}

pub fn write_shard(path: &Path, records: &[Foreign]) {
    fs::write(path, shard_of(records).0).unwrap();
}

/// Writes a data set with these records and classes. It has one split `train` in one shard, and no mean and deviation.
pub fn write_dataset(dir: &Path, records: &[Foreign], classes: &[&str]) -> Manifest {
    fs::create_dir_all(dir).unwrap();
    let path = dir.join("train.tfrecord");
    let (content, entries) = shard_of(records);
    let (count, bytes) = (records.len() as u64, content.len() as u64);
    fs::write(&path, content).unwrap();
    shard::write_index(&path, &entries).unwrap();
    let shard = ShardManifest { file: "train.tfrecord".into(), count, bytes };
    let manifest = Manifest {
        version: 1,
        classes: classes.iter().map(|class| class.to_string()).collect(),
        splits: [("train".to_string(), SplitManifest { count, shards: vec![shard], ..Default::default() })].into(),
        ..Manifest::default()
    };
    manifest.write(dir).unwrap();
    manifest
}
