//! Tests WebP, TIFF, BMP and GIF files. They become PNGs with the same pixels, or JPEGs if they have lossy compression.
//! Files that are not images are reported.

use crate::common::pictures::{self, *};
use crate::common::{Temp, options, skipping};
use data_tools::{ConvertOptions, convert, verify};
use loaders::Format;
use std::fs;
use std::path::Path;
use support::mentions;

const ENDINGS: [&str; 4] = ["webp", "gif", "tiff", "bmp"];

/// Writes a folder of pictures in these formats.
fn small(src: &Path) {
    for ending in ENDINGS {
        let name = format!("picture.{ending}");
        write(&src.join("a").join(&name), &fs::read(pictures::file(&name)).unwrap());
    }
    write(&src.join("b/photo.WEBP"), &fs::read(pictures::file("photo.webp")).unwrap());
}

#[test]
fn foreign_formats_keep_their_pixels_and_photos_become_jpegs() {
    let temp = Temp::new();
    let (src, out) = (temp.path("src"), temp.path("out"));
    small(&src);
    convert("folder", &src, &out, &options()).unwrap();
    assert!(verify(&out, 1).unwrap().is_ok());
    for (name, (_, format, height, width, _)) in records(&out, "train") {
        let expected = if name.starts_with('b') { Format::Jpeg } else { Format::Png };
        assert_eq!((format, height as usize, width as usize), (expected, HEIGHT, WIDTH), "{name}");
    }
    let found = images(&out, "train");
    assert_eq!(found.len(), 5);
    for image in found {
        let far = mean_difference(&image.pixels, &pixels(1));
        // A GIF has 256 colours, but the picture has more.
        let most = match image.name.rsplit_once('.').unwrap().1 {
            "gif" => 12.0,
            "WEBP" => 25.0,
            _ => 0.0,
        };
        assert!(far <= most, "{}: {far}", image.name);
    }
}

#[test]
fn options_apply_to_foreign_formats() {
    let temp = Temp::new();
    small(&temp.path("src"));
    let smaller = ConvertOptions { resize: Some(10), ..options() };
    convert("folder", &temp.path("src"), &temp.path("small"), &smaller).unwrap();
    assert!(records(&temp.path("small"), "train").values().all(|r| (r.1, r.2, r.3) == (Format::Jpeg, 12, 10)));
    let raw = ConvertOptions { raw: true, ..options() };
    convert("folder", &temp.path("src"), &temp.path("raw"), &raw).unwrap();
    let found = images(&temp.path("raw"), "train");
    assert!(
        found.iter().filter(|i| !i.name.ends_with("gif") && i.name.starts_with('a')).all(|i| i.pixels == pixels(1))
    );
    let coarse = ConvertOptions { quality: Some(50), ..options() };
    convert("folder", &temp.path("src"), &temp.path("coarse"), &coarse).unwrap();
    assert!(records(&temp.path("coarse"), "train").values().all(|r| r.1 == Format::Jpeg));
}

#[test]
fn damaged_foreign_files_are_named() {
    let temp = Temp::new();
    let src = temp.path("src");
    for ending in ENDINGS {
        let whole = fs::read(pictures::file(&format!("picture.{ending}"))).unwrap();
        let _ = fs::remove_dir_all(&src);
        write(&src.join(format!("a/cut.{ending}")), &whole[..whole.len() / 2]);
        let error = convert("folder", &src, &temp.path("out"), &options()).unwrap_err();
        mentions(error, &[&format!("a/cut.{ending}: "), "cannot decode", "fetch"]);
        write(&src.join("a/good.png"), &png(9, 9, 1));
        let made = convert("folder", &src, &temp.path("skipped"), &skipping()).unwrap();
        assert_eq!(made.skipped.len(), 1, "{made}");
        fs::remove_dir_all(temp.path("skipped")).unwrap();
    }
}

/// Returns the start of a VP8L picture that claims this size. There is no data after it.
fn webp_claiming(height: u32, width: u32) -> Vec<u8> {
    let mut body = vec![0x2f];
    body.extend(((width - 1) | (height - 1) << 14).to_le_bytes());
    body.resize(64, 0);
    let mut file = b"RIFF".to_vec();
    file.extend((body.len() as u32 + 12).to_le_bytes());
    file.extend(b"WEBPVP8L");
    file.extend((body.len() as u32).to_le_bytes());
    file.extend(body);
    file
}

#[test]
fn files_that_claim_too_much_memory_are_refused() {
    let temp = Temp::new();
    let src = temp.path("src");
    let mut gif = fs::read(pictures::file("picture.gif")).unwrap();
    gif[6..10].fill(0xff);
    let mut bmp = fs::read(pictures::file("picture.bmp")).unwrap();
    bmp[18..26].copy_from_slice(&[40_000u32.to_le_bytes(), 40_000u32.to_le_bytes()].concat());
    for (name, file) in [("bomb.webp", webp_claiming(16_000, 16_000)), ("bomb.gif", gif), ("bomb.bmp", bmp)] {
        let _ = fs::remove_dir_all(&src);
        write(&src.join("a").join(name), &file);
        let error = convert("folder", &src, &temp.path("out"), &options()).unwrap_err();
        mentions(error, &[name, "--limit-memory"]);
    }
}

#[test]
fn folders_that_are_not_laid_out_say_what_to_do() {
    let temp = Temp::new();
    let refused = |src: &Path, parts: &[&str]| {
        mentions(convert("folder", src, &temp.path("out"), &options()).unwrap_err(), parts);
    };
    let flat = temp.path("flat");
    (0..3).for_each(|i| write(&flat.join(format!("{i}.jpg")), &jpeg(9, 9, i)));
    refused(&flat, &["3 images", "no class folders", "CLASS/0.jpg", "convert csv"]);
    let zip = temp.path("photos.zip");
    fs::write(&zip, b"PK\x03\x04rest").unwrap();
    refused(&zip, &["photos.zip: ", "ZIP archive", "unzip"]);
    write(&temp.path("zipped/photos.zip"), b"PK\x03\x04rest");
    refused(&temp.path("zipped"), &["photos.zip: ", "ZIP archive", "unzip"]);
    write(&temp.path("heic/a/x.jpg"), b"\0\0\0\x18ftypheic....");
    refused(&temp.path("heic"), &["a/x.jpg: ", "HEIC", "PNG or JPEG"]);
}
