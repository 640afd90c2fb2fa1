//! The pictures in the files of `tests/data` that other programs wrote, see `sources.py` there.

use loaders::{Dataset, decode};
use std::path::{Path, PathBuf};

pub const HEIGHT: usize = 24;
pub const WIDTH: usize = 20;

/// A file of `tests/data`.
pub fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// The pixels of picture `salt`, in RGB.
pub fn pixels(salt: usize) -> Vec<u8> {
    let pixel = |i: usize| {
        let (y, x) = (i / WIDTH, i % WIDTH);
        [x * 5 + salt * 37, y * 9 + salt * 11, x * y + salt * 3].map(|value| (value % 256) as u8)
    };
    (0..HEIGHT * WIDTH).flat_map(pixel).collect()
}

/// An image as it comes out of a data set.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Image {
    pub name: String,
    pub class: String,
    pub pixels: Vec<u8>,
}

/// The images of a split, in order of their names.
pub fn images(out: &Path, split: &str) -> Vec<Image> {
    let split = Dataset::open(out).unwrap().split(split).unwrap();
    let (mut copy, mut pixels) = (Vec::new(), Vec::new());
    let mut found: Vec<Image> = (0..split.len())
        .map(|id| {
            let (example, label) = split.record(id, &mut copy).unwrap();
            let spec = decode::spec(&example).unwrap();
            let pixels = decode::decode(&example, spec, &mut pixels).unwrap().to_vec();
            let class = split.class_names()[label as usize].clone();
            assert_eq!(example.text, class);
            Image { name: example.filename.to_string(), class, pixels }
        })
        .collect();
    found.sort();
    found
}
