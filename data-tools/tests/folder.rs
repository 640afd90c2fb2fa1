//! ImageFolder: splits, nested folders, endings, resizing, and every kind of bad file.

mod common;

use common::pictures::*;
use common::*;
use data_tools::{ConvertOptions, OnBad, convert, verify};
use image::DynamicImage;
use loaders::{Dataset, Format};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

fn options() -> ConvertOptions {
    ConvertOptions { shards: 3, progress: false, ..ConvertOptions::default() }
}

fn skipping() -> ConvertOptions {
    ConvertOptions { on_bad: OnBad::Skip, ..options() }
}

/// 2 classes of 12 and 7 images, in all spellings, some nested, with what people leave lying about.
fn small(src: &Path) {
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
fn records(out: &Path, split: &str) -> BTreeMap<String, (u32, Format, u32, u32, Vec<u8>)> {
    let split = Dataset::open(out).unwrap().split(split).unwrap();
    let record = |id| {
        let (e, label) = split.record(id).unwrap();
        (e.filename.to_string(), (label, e.format, e.height, e.width, e.encoded.to_vec()))
    };
    (0..split.len()).map(record).collect()
}

#[test]
fn files_stay_as_they_are() {
    let temp = Temp::new();
    let (src, out) = (temp.path("src"), temp.path("out"));
    small(&src);
    let made = convert("folder", &src, &out, &options()).unwrap();
    assert_eq!(made.manifest.classes, ["cat", "dog"]);
    assert!(made.to_string().contains("1 file below"), "{made}");
    let train = records(&out, "train");
    assert_eq!(train.len(), 19);
    for (name, (label, format, _, _, bytes)) in &train {
        assert_eq!(*bytes, fs::read(src.join(name)).unwrap());
        let png = name.to_lowercase().ends_with("png");
        assert_eq!((*label, *format), if png { (1, Format::Png) } else { (0, Format::Jpeg) }, "{name}");
    }
    assert_eq!(train["cat/05.jpeg"].2, 25);
    assert_eq!(train["dog/deep/er/2.png"].3, 32);
    assert_eq!(made.manifest.splits["train"].sizes, Some([[20, 30], [40, 36]]));
    assert!(verify(&out, 2).unwrap().is_ok());
    let text = data_tools::info(&out).unwrap().to_string();
    assert!(text.contains("heights 20 to 40, widths 30 to 36"), "{text}");
    // Small enough to be measured whole.
    assert_eq!(made.manifest.splits["train"].measured, None);
    let stats = data_tools::stats(&out, "train", 1).unwrap();
    for c in 0..3 {
        // another decoder, so not to the last digit
        assert!((stats.mean[c] - made.manifest.mean[c]).abs() < 2e-3, "{stats} {:?}", made.manifest.mean);
    }
}

#[test]
fn jobs_do_not_change_a_byte() {
    let temp = Temp::new();
    small(&temp.path("src"));
    for (name, more) in [
        ("plain", options()),
        ("small", ConvertOptions { resize: Some(16), ..options() }),
        ("raw", ConvertOptions { resize: Some(16), raw: true, ..options() }),
    ] {
        for jobs in [1, 2, 5] {
            let options = ConvertOptions { jobs, ..more.clone() };
            convert("folder", &temp.path("src"), &temp.path(&format!("{name}{jobs}")), &options).unwrap();
        }
        let one = contents(&temp.path(&format!("{name}1")));
        assert!(one == contents(&temp.path(&format!("{name}2"))) && one == contents(&temp.path(&format!("{name}5"))));
    }
}

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
            let sum: u64 = got.iter().zip(expected.as_raw()).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
            let mean = sum as f64 / got.len() as f64;
            assert!(mean < limit, "{what} {name}: mean difference {mean}");
        }
    }
    let all = ConvertOptions { quality: Some(60), ..options() };
    convert("folder", &src, &temp.path("q"), &all).unwrap();
    let files = records(&temp.path("q"), "train");
    assert!(files.values().all(|f| f.1 == Format::Jpeg) && files["a/tall.png"].2 == 90);
    assert!(files["a/wide.jpg"].4.len() < fs::metadata(src.join("a/wide.jpg")).unwrap().len() as usize);
}

#[test]
fn splits_by_folder_and_by_draw() {
    let temp = Temp::new();
    let src = temp.path("src");
    small(&src.join("train"));
    small(&src.join("val"));
    write(&src.join("test/cat/0.jpg"), &jpeg(9, 9, 1));
    let made = convert("folder", &src, &temp.path("a"), &options()).unwrap();
    let counts: Vec<_> = made.manifest.splits.iter().map(|(name, s)| (name.as_str(), s.count)).collect();
    assert_eq!(counts, [("test", 1), ("train", 19), ("validation", 19)]);
    assert!(records(&temp.path("a"), "validation").contains_key("val/cat/00.jpg"));

    let draw = |seed, out: &str| {
        let options = ConvertOptions { validation_fraction: Some(0.25), seed, ..options() };
        convert("folder", &src.join("train"), &temp.path(out), &options).unwrap();
        records(&temp.path(out), "validation").into_keys().collect::<Vec<_>>()
    };
    let (one, same, other) = (draw(1, "b"), draw(1, "c"), draw(2, "d"));
    assert!(one == same && one != other);
    // A quarter of each class: 3 of 12, 2 of 7.
    assert_eq!((one.iter().filter(|n| n.starts_with("cat")).count(), one.len()), (3, 5));
    let train = records(&temp.path("b"), "train");
    assert!(train.len() == 14 && one.iter().all(|name| !train.contains_key(name)));

    let twice = ConvertOptions { validation_fraction: Some(0.25), ..options() };
    let error = convert("folder", &src, &temp.path("e"), &twice).unwrap_err();
    assert!(error.is_usage() && error.to_string().contains("has a validation split"), "{error}");
}

#[test]
fn a_list_of_classes_gives_the_labels() {
    let temp = Temp::new();
    small(&temp.path("src"));
    write(&temp.path("src/emu/1.jpg"), &jpeg(9, 9, 1));
    fs::write(temp.path("labels.txt"), "dog\ncat\n").unwrap();
    let options = ConvertOptions { classes: Some(temp.path("labels.txt")), ..options() };
    let made = convert("folder", &temp.path("src"), &temp.path("out"), &options).unwrap();
    assert_eq!(made.manifest.classes, ["dog", "cat"]);
    assert_eq!(records(&temp.path("out"), "train")["cat/00.jpg"].0, 1);
    assert!(made.to_string().contains("not among the classes: emu (1 image)"), "{made}");
    for (list, part) in [
        ("dog\ncat\nyak\n", "no image (.jpg, .jpeg, .png) of the class `yak`"),
        ("dog\nDog\n", "differ in upper and lower case only"),
        ("dog\ndog\n", "`dog` is listed twice"),
        ("\n", "holds no class"),
    ] {
        fs::write(temp.path("labels.txt"), list).unwrap();
        let message = convert("folder", &temp.path("src"), &temp.path("no"), &options).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
}

/// What is wrong with the whole, rather than with one file.
#[test]
fn classes_that_cannot_be() {
    let temp = Temp::new();
    let src = temp.path("src");
    small(&src.join("train"));
    let refused = |part: &str| {
        let message = convert("folder", &src, &temp.path("out"), &options()).unwrap_err().to_string();
        assert!(message.contains(part), "`{part}` is not in: {message}");
        assert_eq!(names(&temp.path("")), ["src"]);
    };
    fs::create_dir_all(src.join("train/empty")).unwrap();
    refused("no image (.jpg, .jpeg, .png) of the class `empty`");
    let made = convert("folder", &src, &temp.path("skip"), &skipping()).unwrap();
    assert!(
        made.manifest.classes == ["cat", "dog"] && made.to_string().contains("left out: 1 class without images: empty")
    );
    fs::remove_dir_all(temp.path("skip")).unwrap();
    fs::remove_dir(src.join("train/empty")).unwrap();

    write(&src.join("train/Cat/1.jpg"), &jpeg(9, 9, 1));
    refused("`Cat` and `cat` differ in upper and lower case only");
    fs::remove_dir_all(src.join("train/Cat")).unwrap();

    write(&src.join("val/cat/1.jpg"), &jpeg(9, 9, 1));
    write(&src.join("val/yak/1.jpg"), &jpeg(9, 9, 1));
    refused("holds a class that train does not have: yak (1 image)");
    let made = convert("folder", &src, &temp.path("skip"), &skipping()).unwrap();
    assert!(made.manifest.splits["validation"].count == 1 && made.to_string().contains("not among the classes: yak"));
    fs::remove_dir_all(temp.path("skip")).unwrap();
    fs::remove_dir_all(src.join("val")).unwrap();

    std::os::unix::fs::symlink(src.join("train"), src.join("train/cat/round")).unwrap();
    refused("does a link lead back?");
}

/// Each with a part of its message.
fn bad_files() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let (jpeg, png) = (jpeg(60, 60, 9), png(60, 60, 9));
    vec![
        (
            "html.jpg",
            b"<!DOCTYPE html><html>".to_vec(),
            "neither a PNG nor a JPEG file: it starts with \"<!DOCTYPE html>",
        ),
        ("zero.jpg", Vec::new(), "the file is empty (0 bytes)"),
        ("bomb.png", bomb(), "30000 x 30000 pixels takes 2700000000 bytes; the limit is 536870912"),
        ("cut.jpg", jpeg[..jpeg.len() - 20].to_vec(), "cut short: it has no end marker"),
        ("cut.png", png[..png.len() / 2].to_vec(), "cut short: it has no end chunk"),
        ("head.jpg", jpeg[..4].to_vec(), "cut short"),
        ("hollow.jpg", vec![0xff, 0xd8, 0xff, 0xd9], "the JPEG file holds no image"),
        ("huffman.jpg", [&jpeg[..300], &jpeg[jpeg.len() - 2..]].concat(), "libjpeg-turbo says"),
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
            let message = convert("folder", &temp.path("src"), &temp.path("out"), &options).unwrap_err().to_string();
            assert!(message.contains(part) && message.contains(&format!("src/cat/{name}: ")), "{message}");
            assert_eq!(names(&temp.path("")), ["src"], "nothing finished, nothing kept");
        }
        let made = convert("folder", &temp.path("src"), &temp.path("out"), &skipping()).unwrap();
        assert_eq!((made.manifest.splits["train"].count, made.skipped.len()), (19, 1));
        assert!(made.skipped[0].contains(part) && made.to_string().contains("1 image left out"), "{made}");
        let list = fs::read_to_string(temp.path("out/skipped.txt")).unwrap();
        assert_eq!(list.lines().collect::<Vec<_>>(), made.skipped);
        let report = verify(&temp.path("out"), 1).unwrap();
        assert!(report.is_ok(), "{name}: {report}");
    }
}

/// A link to nothing stands for a file that cannot be opened: root may read all others.
#[test]
fn an_unreadable_file_among_thousands() {
    let temp = Temp::new();
    let src = temp.path("src");
    let file = jpeg(8, 8, 1);
    fs::create_dir_all(src.join("a")).unwrap();
    for i in 0..10_000 {
        match i {
            5_000 => std::os::unix::fs::symlink("/nowhere/at/all", src.join("a/05000.jpg")).unwrap(),
            _ => fs::write(src.join(format!("a/{i:05}.jpg")), &file).unwrap(),
        }
    }
    let message = convert("folder", &src, &temp.path("out"), &options()).unwrap_err().to_string();
    assert!(message.contains("a/05000.jpg: cannot read"), "{message}");
    let made = convert("folder", &src, &temp.path("out"), &skipping()).unwrap();
    assert_eq!((made.manifest.splits["train"].count, made.skipped.len()), (9_999, 1));
}

/// A shard that loses all its images is empty and does no harm.
#[test]
fn shards_and_splits_without_an_image() {
    let temp = Temp::new();
    let src = temp.path("src");
    (0..4).for_each(|i| write(&src.join(format!("a/{i}.jpg")), &jpeg(8, 8, i)));
    write(&src.join("a/bad.jpg"), b"");
    let made = convert("folder", &src, &temp.path("out"), &ConvertOptions { shards: 9, ..skipping() }).unwrap();
    assert_eq!(made.manifest.splits["train"].count, 4);
    assert!(made.manifest.splits["train"].shards.iter().any(|s| s.count == 0));
    assert!(verify(&temp.path("out"), 1).unwrap().is_ok());
    assert_eq!(records(&temp.path("out"), "train").len(), 4);

    (0..4).for_each(|i| write(&src.join(format!("a/{i}.jpg")), b""));
    let message = convert("folder", &src, &temp.path("no"), &skipping()).unwrap_err().to_string();
    assert!(message.contains("not one image of this split can be used"), "{message}");
}

/// A scaled decode of a large photo stays close to a full one.
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
    let square = |(a, b): (&u8, &u8)| f64::from(a.abs_diff(*b)).powi(2);
    let error = bytes.iter().zip(expected.as_raw()).map(square).sum::<f64>() / bytes.len() as f64;
    let psnr = 10.0 * (255.0 * 255.0 / error).log10();
    assert!(psnr > 38.0, "{psnr} dB");
}

/// A smaller JPEG is made from the planes of its source, whatever the chroma's resolution and however odd the sizes: close to a
/// whole decode that is resized in RGB by another library and encoded by the same one.
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
            let square = |(a, b): (&u8, &u8)| f64::from(a.abs_diff(*b)).powi(2);
            let error = got.pixels.iter().zip(&expected.pixels).map(square).sum::<f64>() / got.pixels.len() as f64;
            let psnr = 10.0 * (255.0 * 255.0 / error).log10();
            assert!(psnr > 38.0, "{short} {name}: {psnr} dB");
        }
    }
}
