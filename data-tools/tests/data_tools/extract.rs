//! Single images as files: bytes as stored where the format is the same, else the pixels.

use crate::common::foreign::{Foreign, write_dataset};
use crate::common::{Temp, byte};
use data_tools::extract;
use image::{ImageFormat, RgbImage};
use loaders::Format;
use std::fs;
use std::io::Cursor;

#[test]
fn one_image_becomes_a_file() {
    let temp = Temp::new();
    let mut png = Cursor::new(Vec::new());
    RgbImage::from_fn(7, 4, |x, y| image::Rgb([x as u8, y as u8, 9])).write_to(&mut png, ImageFormat::Png).unwrap();
    let png = png.into_inner();
    let pixels: Vec<u8> = (0..30).map(byte).collect();
    let file = Foreign { encoded: png.clone(), format: Format::Png, shape: [4, 7, 3], ..Foreign::raw(1) };
    let raw = |shape, n| Foreign { encoded: pixels[..n].to_vec(), shape, ..Foreign::raw(0) };
    let dir = temp.path("d");
    let manifest = write_dataset(&dir, &[raw([5, 6, 1], 30), file, raw([3, 5, 2], 30)], &["cat", "dog"]);
    manifest.write(&dir).unwrap();

    let stored = extract(&dir, "train", 1, &temp.path("a.png")).unwrap();
    assert!(stored.as_stored && stored.class == "dog", "{stored}");
    assert_eq!(fs::read(temp.path("a.png")).unwrap(), png);

    assert!(!extract(&dir, "", 0, &temp.path("b.png")).unwrap().as_stored);
    let grey = image::open(temp.path("b.png")).unwrap();
    assert_eq!((grey.width(), grey.height(), grey.color().channel_count()), (6, 5, 1));
    assert_eq!(grey.into_luma8().into_raw(), pixels);

    extract(&dir, "", 1, &temp.path("c.jpg")).unwrap();
    assert_eq!(&fs::read(temp.path("c.jpg")).unwrap()[..3], b"\xff\xd8\xff");

    for (sample, name, part) in [
        (3, "d.png", "no image 3; they are 0 to 2"),
        (2, "d.png", "image 2 is of 3x5x2; only 1 or 3 channels"),
        (0, "d.gif", "name it .png or .jpg"),
        (0, "a.png", "is there already"),
    ] {
        let error = extract(&dir, "", sample, &temp.path(name)).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    assert!(extract(&dir, "tset", 0, &temp.path("d.png")).unwrap_err().to_string().contains("no split `tset`"));
    assert!(!temp.path("d.png").exists());
    assert_eq!(fs::read(temp.path("a.png")).unwrap(), png, "a file that is there is left alone");
}
