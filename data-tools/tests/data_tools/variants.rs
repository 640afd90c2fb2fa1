//! Tests images with formats other than 8-bit grey or RGB, which are kept, rejected by name or converted, and folders with
//! grey images.

use crate::common::Temp;
use crate::common::pictures::*;
use crate::common::tiff::{self, long, one_strip, short};
use data_tools::{ConvertOptions, To8Bit, convert, to_8bit, verify};
use image::{DynamicImage, ImageBuffer, ImageFormat, Luma};
use loaders::transform::Scratch;
use loaders::{Dataset, ImageSpec, Images, Pipeline};
use std::fs;
use support::mentions;

fn options() -> ConvertOptions {
    ConvertOptions { shards: 1, progress: false, ..ConvertOptions::default() }
}

fn scaled(scale: To8Bit) -> ConvertOptions {
    ConvertOptions { to_8bit: Some(scale), ..options() }
}

/// Builds a TIFF with a single strip. `tags` are added to the tags that every TIFF needs.
fn tiff(width: u32, height: u32, tags: &[(u16, u16)], bits: &[u16], values: &[u8]) -> Vec<u8> {
    let more = tags.iter().map(|&(tag, value)| (tag, short(value))).chain([(278, long(height))]);
    one_strip(&tiff::tags(height, width, bits, more), values)
}

/// Converts a folder that contains this file. The conversion must fail with a message that names the file and contains
/// all `parts`.
#[track_caller]
fn refused(name: &str, bytes: &[u8], parts: &[&str]) {
    let temp = Temp::new();
    write(&temp.path("src/a").join(name), bytes);
    let error = convert("folder", &temp.path("src"), &temp.path("out"), &options()).unwrap_err();
    mentions(&error, &[&format!("a/{name}: ")]);
    mentions(&error, parts);
}

/// Converts a folder that contains this file and returns the pixels.
#[track_caller]
fn taken(name: &str, bytes: &[u8], options: &ConvertOptions) -> Vec<u8> {
    let temp = Temp::new();
    write(&temp.path("src/a").join(name), bytes);
    convert("folder", &temp.path("src"), &temp.path("out"), options).unwrap();
    assert!(verify(&temp.path("out"), 1).unwrap().is_ok());
    images(&temp.path("out"), "train").remove(0).pixels
}

#[test]
fn sixteen_bits_can_be_scaled_to_eight() {
    let values = [0u16, 257, 1000, 4095, 40_000, 65_535];
    let image = ImageBuffer::<Luma<u16>, _>::from_raw(6, 1, values.to_vec()).unwrap();
    let wide = |format| encoded(DynamicImage::ImageLuma16(image.clone()), format);
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let files = [("w.png", wide(ImageFormat::Png)), ("w.tif", tiff(6, 1, &[(262, 1)], &[16], &bytes))];
    let grey = |values: [u8; 6]| values.to_vec();
    for (name, file) in files {
        assert_eq!(taken(name, &file, &options()), bytes, "without the option, the values are kept");
        assert_eq!(taken(name, &file, &scaled(To8Bit::Whole)), grey([0, 1, 4, 16, 156, 255]), "{name}");
        // 1000 / 4095 * 255 = 62.3
        assert_eq!(taken(name, &file, &scaled(to_8bit("0,4095").unwrap())), grey([0, 16, 62, 255, 255, 255]), "{name}");
        assert_eq!(
            taken(name, &file, &scaled(To8Bit::Range(257.0, 1000.0))),
            grey([0, 0, 255, 255, 255, 255]),
            "{name}"
        );
    }
    assert_eq!(to_8bit(""), Ok(To8Bit::Whole));
    assert!(["5", "5,5", "9,2", "a,b", "0,inf"].iter().all(|text| to_8bit(text).is_err()));
}

#[test]
fn bands_beyond_three_are_kept_or_dropped_on_request() {
    let values = [10, 20, 30, 40, 50, 60, 70, 80];
    let bands = |extra: &[(u16, u16)]| tiff(2, 1, &[&[(262, 2)], extra].concat(), &[8; 4], &values);
    for extra in [&[][..], &[(338, 0)]] {
        assert_eq!(taken("b.tif", &bands(extra), &options()), values);
        assert_eq!(taken("b.tif", &bands(extra), &scaled(To8Bit::Whole)), [10, 20, 30, 50, 60, 70]);
    }
    // The opacity band is always dropped.
    assert_eq!(taken("b.tif", &bands(&[(338, 2)]), &options()), [10, 20, 30, 50, 60, 70]);
}

#[test]
fn variants_are_read_or_named() {
    for (tags, bits, values, part) in [
        (&[(262, 1), (266, 2)][..], &[8u16][..], &[1u8, 2][..], "FillOrder 2"),
        (&[(262, 3)], &[8], &[1, 2], "palette of 8 bits"),
        (&[(262, 1)], &[24], &[1, 2, 3, 4, 5, 6], "unsigned integers of 24 "),
        (&[(262, 6)], &[8, 8, 8], &[1, 2, 3, 4, 5, 6], "8-bit YCbCr"),
    ] {
        refused("v.tif", &tiff(2, 1, tags, bits, values), &[part]);
    }
    // Values of 4 and 12 bits are kept.
    assert_eq!(taken("f.tif", &tiff(2, 1, &[(262, 1)], &[4], &[0x12]), &options()), [1, 2]);
    assert_eq!(taken("t.tif", &tiff(2, 1, &[(262, 1)], &[12], &[0x12, 0x3a, 0xbc]), &options()), [0x23, 1, 0xbc, 0x0a]);
    // An OS/2 bitmap with a 12-byte header, and a bitmap with nonzero values in fields that are zero on Windows.
    let pixels = [3, 2, 1, 6, 5, 4, 0, 0];
    let os2 = [&b"BM\x22\0\0\0\x07\0\x07\0\x1a\0\0\0"[..], &[12, 0, 0, 0, 2, 0, 1, 0, 1, 0, 24, 0], &pixels].concat();
    assert_eq!(taken("o.bmp", &os2, &options()), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn exif_data_of_webp_may_begin_as_in_a_jpeg() {
    let turned = |prefix: &[u8]| {
        let plain = fs::read(file("picture.webp")).unwrap();
        let body = &plain[12..];
        let image = image::load_from_memory(&plain).unwrap();
        let (w, h) = (image.width() - 1, image.height() - 1);
        let tiff = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0";
        let exif = [prefix, tiff].concat();
        let size = |n: u32| n.to_le_bytes()[..3].to_vec();
        let vp8x = [&b"VP8X\x0a\0\0\0\x08\0\0\0"[..], &size(w), &size(h)].concat();
        let chunk = [&b"EXIF"[..], &(exif.len() as u32).to_le_bytes(), &exif].concat();
        let all = [&b"WEBP"[..], &vp8x, body, &chunk].concat();
        let file = [&b"RIFF"[..], &(all.len() as u32).to_le_bytes(), &all].concat();
        taken("t.webp", &file, &options())
    };
    let plain = taken("t.webp", &fs::read(file("picture.webp")).unwrap(), &options());
    assert_eq!(turned(b""), turned(b"Exif\0\0"));
    assert_ne!(turned(b""), plain);
}

#[test]
fn grey_folders_have_one_channel_and_can_be_taken_as_rgb() {
    let temp = Temp::new();
    let (src, out) = (temp.path("src"), temp.path("out"));
    write(&src.join("a/0.jpg"), &grey_jpeg(8, 8, 1));
    write(&src.join("b/1.jpg"), &grey_jpeg(8, 8, 2));
    let made = convert("folder", &src, &out, &options()).unwrap();
    assert!(verify(&out, 1).unwrap().is_ok());
    let split = Dataset::open(&out).unwrap().split("train").unwrap();
    let grey = ImageSpec::new(8, 8, 1);
    assert_eq!(split.images().unwrap(), Images::Fixed(grey));
    let list = |words: &[&str]| words.iter().map(|word| word.to_string()).collect::<Vec<_>>();
    let run = |words: &[&str]| {
        let pipeline = Pipeline::new(&list(words), grey, &made.manifest, 1).unwrap();
        let (mut copy, mut values) = (Vec::new(), vec![0.0; pipeline.output().values()]);
        let (example, _) = split.record(0, &mut copy).unwrap();
        pipeline.run(&example, 0, 0, &mut Scratch::default(), &mut values).unwrap();
        (pipeline.ops(), values)
    };
    let (_, one) = run(&["normalize"]);
    let (words, three) = run(&["rgb", "normalize"]);
    assert_eq!((one.len(), three.len()), (64, 192));
    assert!(three.chunks(64).all(|channel| channel == one), "three equal channels");
    assert_eq!(words[0], "rgb");
    assert_eq!(run(&words.iter().map(String::as_str).collect::<Vec<_>>()).1, three);
}
