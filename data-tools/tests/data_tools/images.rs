//! Tests the conversion of image files: resizing, the pixel limit, and all kinds of invalid files.

use crate::common::foreign::{Foreign, write_dataset};
use crate::common::pictures::*;
use crate::common::*;
use data_tools::{ConvertOptions, convert, verify};
use image::DynamicImage;
use loaders::Format;
use std::fs;
use support::mentions;

#[test]
fn resized_images_look_like_the_originals() {
    let temp = Temp::new();
    let (src, out, raw) = (temp.path("src"), temp.path("out"), temp.path("raw"));
    write(&src.join("a/wide.jpg"), &jpeg(300, 500, 1));
    write(&src.join("a/tall.png"), &png(90, 64, 2));
    write(&src.join("a/grey.jpg"), &grey_jpeg(100, 100, 3));
    write(&src.join("a/little.jpg"), &jpeg(20, 60, 4));
    let resized = ConvertOptions { resize: Some(32), quality: None, ..options() };
    convert("folder", &src, &out, &resized).unwrap();
    convert("folder", &src, &raw, &ConvertOptions { raw: true, ..resized }).unwrap();
    let (files, pixels) = (records(&out, "train"), records(&raw, "train"));
    let size = |name: &str| (files[name].2, files[name].3);
    assert_eq!([size("a/wide.jpg"), size("a/tall.png"), size("a/grey.jpg")], [(32, 53), (45, 32), (32, 32)]);
    assert_eq!(files["a/little.jpg"].4, fs::read(src.join("a/little.jpg")).unwrap(), "never scaled up");
    assert_eq!((pixels["a/little.jpg"].2, pixels["a/little.jpg"].3), (20, 60));
    for (name, (_, format, height, width, bytes)) in &pixels {
        assert_eq!((*format, bytes.len() as u32), (Format::Raw, 3 * height * width));
        let original = image::open(src.join(name)).unwrap();
        let expected = original.resize_exact(*width, *height, image::imageops::FilterType::Triangle).into_rgb8();
        let stored = image::load_from_memory(&files[name].4).unwrap();
        assert_eq!(stored.color().has_color(), name != "a/grey.jpg");
        for (what, got, limit) in [("RAW", bytes, 2.0), ("JPEG", &stored.into_rgb8().into_raw(), 16.0)] {
            let mean = mean_difference(got, expected.as_raw());
            assert!(mean < limit, "{what} {name}: mean difference {mean}");
        }
    }
    let all = ConvertOptions { quality: Some(60), ..options() };
    convert("folder", &src, &temp.path("q"), &all).unwrap();
    let files = records(&temp.path("q"), "train");
    assert!(files.values().all(|f| f.1 == Format::Jpeg) && files["a/tall.png"].2 == 90);
    assert!(files["a/wide.jpg"].4.len() < fs::metadata(src.join("a/wide.jpg")).unwrap().len() as usize);
}

/// An unchanged file keeps its EXIF orientation. A resized image and RAW pixels are upright.
#[test]
fn turned_photos_become_upright() {
    let temp = Temp::new();
    let (src, file) = (temp.path("src"), jpeg(60, 90, 1));
    // The EXIF data is a little-endian TIFF with one entry: the picture must be rotated clockwise by 90 degrees.
    let exif = b"\xff\xe1\x00\x22Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0";
    let turned = [&file[..2], exif, &file[2..]].concat();
    write(&src.join("a/turned.jpg"), &turned);
    let of = |name: &str, options: ConvertOptions| {
        let out = temp.path(name);
        convert("folder", &src, &out, &options).unwrap();
        assert!(verify(&out, 1).unwrap().is_ok(), "{name}");
        let (_, format, height, width, bytes) = records(&out, "train").remove("a/turned.jpg").unwrap();
        (format, (height, width), bytes)
    };
    assert_eq!(of("kept", options()), (Format::Jpeg, (60, 90), turned.clone()));
    let upright = image::load_from_memory(&file).unwrap().rotate90().into_rgb8();
    let near = |bytes: &[u8], expected: &[u8], limit: f64| {
        let mean = mean_difference(bytes, expected);
        assert!(mean < limit, "{mean}");
    };
    let (format, size, pixels) = of("raw", ConvertOptions { raw: true, ..options() });
    assert_eq!((format, size), (Format::Raw, (90, 60)));
    near(&pixels, upright.as_raw(), 2.0);
    let (_, size, small) = of("small", ConvertOptions { resize: Some(30), ..options() });
    assert_eq!((size, small.windows(4).any(|bytes| bytes == b"Exif")), ((45, 30), false));
    let expected = DynamicImage::ImageRgb8(upright).resize_exact(30, 45, image::imageops::FilterType::Triangle);
    near(image::load_from_memory(&small).unwrap().into_rgb8().as_raw(), expected.into_rgb8().as_raw(), 16.0);
}

/// Decoding a large photo at reduced size must give nearly the same result as decoding it at full size.
#[test]
fn large_images_are_decoded_at_a_fraction() {
    let temp = Temp::new();
    let big = DynamicImage::ImageRgb8(image::imageops::blur(&picture(1200, 1600, 7), 3.0));
    write(&temp.path("src/a/big.jpg"), &encoded(big, image::ImageFormat::Jpeg));
    let options = ConvertOptions { resize: Some(128), raw: true, ..options() };
    convert("folder", &temp.path("src"), &temp.path("out"), &options).unwrap();
    let (_, _, height, width, bytes) = records(&temp.path("out"), "train").remove("a/big.jpg").unwrap();
    assert_eq!((height, width), (128, 170));
    let original = image::open(temp.path("src/a/big.jpg")).unwrap();
    let expected = original.resize_exact(width, height, image::imageops::FilterType::Triangle).into_rgb8();
    let psnr = psnr(&bytes, expected.as_raw());
    assert!(psnr > 38.0, "{psnr} dB");
}

/// A smaller JPEG is made from the planes of its source, with any chroma resolution and odd sizes. It must be close to a
/// reference: the fully decoded RGB image, resized with another library and encoded with the same encoder.
#[test]
fn planes_and_rgb_give_the_same_picture() {
    use turbojpeg::Subsamp;
    let temp = Temp::new();
    let photo = image::imageops::blur(&picture(211, 317, 5), 2.0);
    let (width, height) = (photo.width() as usize, photo.height() as usize);
    let encode = |photo: &image::RgbImage, quality: i32, subsampling: Subsamp| {
        let mut encoder = turbojpeg::Compressor::new().unwrap();
        encoder.set_quality(quality).unwrap();
        encoder.set_subsamp(subsampling).unwrap();
        let (width, height) = (photo.width() as usize, photo.height() as usize);
        let pixels = turbojpeg::Image {
            pixels: photo.as_raw().as_slice(),
            width,
            pitch: 3 * width,
            height,
            format: turbojpeg::PixelFormat::RGB,
        };
        encoder.compress_to_vec(pixels).unwrap()
    };
    let all = [Subsamp::None, Subsamp::Sub2x1, Subsamp::Sub2x2, Subsamp::Sub1x2, Subsamp::Sub4x1];
    for (i, subsampling) in all.into_iter().enumerate() {
        write(&temp.path(&format!("src/a/{i}.jpg")), &encode(&photo, 95, subsampling));
    }
    for short in [97, 128, 210] {
        let out = temp.path(&format!("out{short}"));
        convert("folder", &temp.path("src"), &out, &ConvertOptions { resize: Some(short), ..options() }).unwrap();
        for (name, (_, _, rows, columns, file)) in records(&out, "train") {
            assert_eq!((rows, columns as usize), (short, short as usize * width / height));
            let original = image::open(temp.path("src").join(&name)).unwrap();
            let small = original.resize_exact(columns, rows, image::imageops::FilterType::Triangle).into_rgb8();
            let expected =
                turbojpeg::decompress(&encode(&small, 90, Subsamp::Sub2x2), turbojpeg::PixelFormat::RGB).unwrap();
            let got = turbojpeg::decompress(&file, turbojpeg::PixelFormat::RGB).unwrap();
            let psnr = psnr(&got.pixels, &expected.pixels);
            assert!(psnr > 38.0, "{short} {name}: {psnr} dB");
        }
    }
}

/// Returns names, contents, and a part of the expected message.
fn bad_files() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let (jpeg, png) = (jpeg(60, 60, 9), png(60, 60, 9));
    vec![
        ("html.jpg", b"<!DOCTYPE html><html>".to_vec(), "\"<!DOCTYPE html>"),
        ("zero.jpg", Vec::new(), "0 bytes"),
        ("bomb.png", png_claiming(30_000, 30_000), "30000x30000x3"),
        ("cut.jpg", jpeg[..jpeg.len() - 20].to_vec(), "end marker"),
        ("cut.png", png[..png.len() / 2].to_vec(), "end chunk"),
        ("head.jpg", jpeg[..4].to_vec(), "cut short"),
        ("hollow.jpg", vec![0xff, 0xd8, 0xff, 0xd9], "contains no image"),
        ("tables.jpg", [&jpeg[..300], &jpeg[jpeg.len() - 2..]].concat(), "within its header"),
    ]
}

#[test]
fn bad_files_fail_or_are_left_out() {
    for (name, bytes, part) in bad_files() {
        let temp = Temp::new();
        small(&temp.path("src"));
        write(&temp.path("src/cat").join(name), &bytes);
        for jobs in [1, 3] {
            let options = ConvertOptions { jobs, shards: 1, ..options() };
            let error = convert("folder", &temp.path("src"), &temp.path("out"), &options).unwrap_err();
            mentions(error, &[part, &format!("src/cat/{name}: ")]);
            assert_removed(&temp.path("out.partial"));
            assert_eq!(names(&temp.path("")), ["src"], "nothing finished, nothing kept");
        }
        let made = convert("folder", &temp.path("src"), &temp.path("out"), &skipping()).unwrap();
        assert_eq!((made.manifest.splits["train"].count, made.skipped.len()), (19, 1));
        mentions(&made.skipped[0], &[part]);
        mentions(&made, &["1 image left out"]);
        let list = fs::read_to_string(temp.path("out/skipped.txt")).unwrap();
        assert_eq!(list.lines().collect::<Vec<_>>(), made.skipped);
        let report = verify(&temp.path("out"), 1).unwrap();
        assert!(report.is_ok(), "{name}: {report}");
    }
}

/// Conversion and verification have the same pixel limit and message for every kind of stored image.
#[test]
fn conversion_refuses_what_verification_refuses() {
    let temp = Temp::new();
    let verified = |height: u32, width: u32| {
        let dir = temp.path(&format!("{height}x{width}"));
        let (encoded, shape) = (png_claiming(height, width), [height, width, 3]);
        write_dataset(&dir, &[Foreign { encoded, format: Format::Png, shape, ..Foreign::raw(0) }], &["a"]);
        verify(&dir, 1).unwrap()
    };
    assert!(verified(2, 2).is_ok());
    let report = verified(14_000, 13_000);
    let [bad] = report.bad.as_slice() else { panic!("{report}") };
    write(&temp.path("src/a/large.png"), &png_claiming(14_000, 13_000));
    for options in [
        options(),
        ConvertOptions { resize: Some(256), ..options() },
        ConvertOptions { quality: Some(80), ..options() },
        ConvertOptions { raw: true, ..options() },
    ] {
        let message = convert("folder", &temp.path("src"), &temp.path("out"), &options).unwrap_err().to_string();
        assert!(message.ends_with(&format!("a/large.png: {}", bad.what)), "{message}; verification says {}", bad.what);
    }
}
