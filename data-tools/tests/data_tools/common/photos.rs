//! A small folder of image files, and the records that a folder becomes.

use super::pictures::{jpeg, png, write};
use loaders::{Dataset, Format};
use std::collections::BTreeMap;
use std::path::Path;

/// 2 classes of 12 and 7 images, with all endings, some nested, beside other files.
pub fn small(src: &Path) {
    for i in 0..12 {
        let ending = ["jpg", "jpeg", "JPG", "JPEG"][i as usize % 4];
        write(&src.join(format!("cat/{i:02}.{ending}")), &jpeg(20 + i, 32, i));
    }
    for i in 0..7 {
        let name = if i < 3 { format!("dog/deep/er/{i}.png") } else { format!("dog/{i}.PNG") };
        write(&src.join(name), &png(40, 30 + i, 50 + i));
    }
    write(&src.join("dog/Thumbs.db"), b"x");
    write(&src.join("dog/.hidden.jpg"), b"x");
    write(&src.join(".git/a.jpg"), b"x");
}

/// Name -> (label, format, height, width, bytes) of a split.
pub fn records(out: &Path, split: &str) -> BTreeMap<String, (u32, Format, u32, u32, Vec<u8>)> {
    let split = Dataset::open(out).unwrap().split(split).unwrap();
    let record = |id| {
        let mut copy = Vec::new();
        let (e, label) = split.record(id, &mut copy).unwrap();
        (e.filename.to_string(), (label, e.format, e.height, e.width, e.encoded.to_vec()))
    };
    (0..split.len()).map(record).collect()
}
