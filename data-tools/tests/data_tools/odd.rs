//! Tests that conversion, verification and training accept the same files.

use crate::common::foreign::{Foreign, write_dataset};
use crate::common::pictures::*;
use crate::common::*;
use data_tools::{ConvertOptions, OnBad, To8Bit, convert, verify};
use image::DynamicImage;
use image::ImageFormat::Png;
use loaders::{Dataset, EvalOrder, Format, ImageSpec, Images, Loader, Options, Pipeline};
use std::path::Path;
use std::sync::Arc;
use turbojpeg::{Compressor, Image, PixelFormat, Subsamp};

const SIDE: usize = 48;

fn jpeg_of(format: PixelFormat, change: impl FnOnce(&mut Compressor)) -> Vec<u8> {
    let pixels: Vec<u8> = (0..SIDE * SIDE * format.size()).map(byte).collect();
    let mut encoder = Compressor::new().unwrap();
    encoder.set_quality(90).unwrap();
    change(&mut encoder);
    let pitch = SIDE * format.size();
    encoder.compress_to_vec(Image { pixels: &pixels[..], width: SIDE, pitch, height: SIDE, format }).unwrap()
}

fn place(file: &[u8], marker: u8) -> usize {
    file.windows(2).position(|pair| pair == [0xff, marker]).unwrap()
}

/// Inserts `bytes` before the segment with this marker.
fn before(file: &[u8], marker: u8, bytes: &[u8]) -> Vec<u8> {
    let at = place(file, marker);
    [&file[..at], bytes, &file[at..]].concat()
}

/// Returns unusual files, and whether they are valid. `None` if that depends on libjpeg-turbo.
fn files() -> Vec<(&'static str, Vec<u8>, Option<bool>)> {
    let rgb = PixelFormat::RGB;
    let plain = jpeg_of(rgb, |_| {});
    let progressive = jpeg_of(rgb, |e| e.set_progressive(true).unwrap());
    let lossless = jpeg_of(rgb, |e| e.set_lossless(true).unwrap());
    let middle = place(&plain, 0xda) + (plain.len() - place(&plain, 0xda)) / 2;
    let closed = |file: &[u8]| [file, &[0xff, 0xd9]].concat();
    let deep = |file: &[u8], bits| {
        let mut file = file.to_vec();
        let frame = place(&file, 0xc0);
        file[frame + 4] = bits;
        file
    };
    let changed = |at: usize, to: &[u8]| [&plain[..at], to, &plain[at + to.len()..]].concat();
    let photo = || DynamicImage::ImageRgb8(picture(SIDE as u32, SIDE as u32, 1));
    let png = png(SIDE as u32, SIDE as u32, 1);
    let mut flipped = png.clone();
    flipped[png.len() / 2] ^= 1;
    vec![
        ("baseline", plain.clone(), Some(true)),
        ("progressive", progressive.clone(), Some(true)),
        ("grey", jpeg_of(PixelFormat::GRAY, |e| e.set_subsamp(Subsamp::Gray).unwrap()), Some(true)),
        ("4:2:0", jpeg_of(rgb, |e| e.set_subsamp(Subsamp::Sub2x2).unwrap()), Some(true)),
        ("4:4:1", jpeg_of(rgb, |e| e.set_subsamp(Subsamp::Sub1x4).unwrap()), Some(true)),
        ("arithmetic", jpeg_of(rgb, |e| e.set_arithmetic(true).unwrap()), Some(true)),
        (
            "arithmetic, progressive",
            jpeg_of(rgb, |e| {
                e.set_arithmetic(true).unwrap();
                e.set_progressive(true).unwrap();
            }),
            Some(true),
        ),
        ("lossless", lossless.clone(), Some(true)),
        ("lossless, grey", jpeg_of(PixelFormat::GRAY, |e| e.set_lossless(true).unwrap()), Some(true)),
        ("lossless, cut", lossless[..lossless.len() - 9].to_vec(), Some(false)),
        ("four inks", cmyk_jpeg(SIDE, SIDE, [9, 99, 199, 255]), Some(true)),
        ("12 bits", deep(&plain, 12), Some(false)),
        ("9 bits", deep(&plain, 9), Some(false)),
        ("stray bytes", before(&plain, 0xc4, &[1, 2, 3]), Some(true)),
        ("fill bytes", before(&plain, 0xc4, &[0xff; 5]), Some(true)),
        ("trailing bytes", [&plain[..], b"trailing"].concat(), Some(true)),
        ("without an end", plain[..plain.len() - 2].to_vec(), Some(false)),
        ("cut", plain[..middle].to_vec(), Some(false)),
        ("cut and closed", closed(&plain[..middle]), Some(false)),
        ("stray bytes, cut and closed", before(&closed(&plain[..middle]), 0xc4, &[1, 2, 3]), Some(false)),
        (
            "progressive without its last scan",
            {
                let last = progressive.windows(2).rposition(|pair| pair == [0xff, 0xda]).unwrap();
                closed(&progressive[..last])
            },
            Some(false),
        ),
        ("a code that is none", changed(middle, &[0xff, 0].repeat(16)), None),
        ("a marker in the data", changed(middle, &[0xff, 0xd1]), None),
        ("wrong data", changed(middle, &[0x5a; 40]), None),
        ("tables alone", closed(&plain[..place(&plain, 0xda)]), Some(false)),
        ("two frames", before(&plain, 0xda, &plain[place(&plain, 0xc0)..place(&plain, 0xc4)]), Some(false)),
        (
            "no rows",
            {
                let mut file = plain.clone();
                let frame = place(&file, 0xc0);
                file[frame + 5..frame + 7].fill(0);
                file
            },
            Some(false),
        ),
        ("PNG", png.clone(), Some(true)),
        ("PNG with alpha", encoded(DynamicImage::ImageRgba8(photo().into_rgba8()), Png), Some(true)),
        ("PNG of 16 bits", encoded(DynamicImage::ImageRgb16(photo().into_rgb16()), Png), Some(true)),
        ("grey PNG", encoded(DynamicImage::ImageLuma8(photo().into_luma8()), Png), Some(true)),
        ("PNG without an end", png[..png.len() - 12].to_vec(), Some(false)),
        ("PNG with a wrong bit", flipped, Some(false)),
        ("PNG that claims more", png_claiming(3000, 3000), Some(false)),
        ("PNG of too many pixels", png_claiming(14_000, 13_000), Some(false)),
        ("text", b"GIF89a".to_vec(), Some(false)),
        ("nothing", Vec::new(), Some(false)),
    ]
}

/// Converts the file, either unchanged or decoded.
fn converts(dir: &Path, file: &[u8], raw: bool) -> Result<(), String> {
    let (src, out) = (dir.join("src"), dir.join(format!("out-{raw}")));
    write(&src.join("a/x.jpg"), file);
    write(&src.join("a/good.png"), &png(SIDE as u32, SIDE as u32, 3));
    let options = ConvertOptions {
        raw,
        to_8bit: Some(To8Bit::Whole),
        shards: 1,
        jobs: 1,
        progress: false,
        on_bad: OnBad::Skip,
        ..Default::default()
    };
    let made = convert("folder", &src, &out, &options).unwrap();
    let bad = made.skipped.first().map(|line| line.split_once(": ").unwrap().1.to_string());
    if bad.is_none() {
        let report = verify(&out, 1).unwrap();
        assert!(report.is_ok(), "{report}");
    }
    bad.map_or(Ok(()), Err)
}

/// Loads the file, at full size and resized.
fn trains(dir: &Path) -> Result<(), String> {
    let data = Dataset::open(dir).unwrap();
    let shape = ImageSpec::new(SIDE as u32, SIDE as u32, 3);
    for (list, images) in
        [(&["flip"][..], Images::Fixed(shape)), (&["resize(20)", "center_crop(20)"], Images::Varied { channels: 3 })]
    {
        let list: Vec<String> = list.iter().map(|op| op.to_string()).collect();
        let pipeline = Pipeline::new(&list, images, &data.manifest, 0).unwrap();
        let split = Arc::new(data.split("train").unwrap());
        let order = Box::new(EvalOrder::new(1, 1, 0, 1));
        let mut loader = Loader::start(split, pipeline, order, Options::default()).unwrap();
        loader.next().map_err(|error| error.to_string())?;
    }
    Ok(())
}

#[test]
fn what_is_converted_can_be_verified_and_trained_on() {
    for (name, file, usable) in files() {
        let temp = Temp::new();
        let dir = temp.path("set");
        let record = Foreign { encoded: file.clone(), format: Format::Jpeg, shape: [0, 0, 3], ..Foreign::raw(0) };
        write_dataset(&dir, &[record], &["a"]);
        let report = verify(&dir, 1).unwrap();
        let verdicts = [
            ("conversion", converts(&temp.path("kept"), &file, false)),
            ("conversion to pixels", converts(&temp.path("raw"), &file, true)),
            ("verification", report.bad.first().map_or(Ok(()), |bad| Err(bad.what.clone()))),
            ("training", trains(&dir)),
        ];
        let usable = usable.unwrap_or(verdicts[0].1.is_ok());
        for (who, verdict) in &verdicts {
            assert_eq!(verdict.is_ok(), usable, "{name}, {who}: {verdict:?}");
        }
    }
}
