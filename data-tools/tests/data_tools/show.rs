//! Tests contact sheets: their content, and invalid requests.

use std::fs;
use std::io::Cursor;
use std::path::Path;

use data_tools::{Error, ShowOptions, extract, show};
use image::{ImageFormat, Rgb, RgbImage};
use loaders::Format;
use support::mentions;

use crate::common::foreign::{Foreign, write_dataset};
use crate::common::{Temp, byte};

/// Writes a data set with these records in a split `train` and the classes `cat` and `dog`.
fn dataset(dir: &Path, records: &[Foreign]) {
    let mut manifest = write_dataset(dir, records, &["cat", "dog"]);
    (manifest.mean, manifest.std) = (vec![0.4, 0.5, 0.6], vec![0.2, 0.25, 0.3]);
    manifest.write(dir).unwrap();
}

fn raw(number: usize, shape: [u32; 3]) -> Foreign {
    let n = shape.iter().product::<u32>() as usize;
    Foreign { encoded: (0..n).map(|i| byte(i + 999 * number)).collect(), shape, ..Foreign::raw(number as i64 % 2) }
}

fn options(count: u64, transforms: &[&str], epochs: u32) -> ShowOptions {
    let transforms = transforms.iter().map(|t| t.to_string()).collect();
    ShowOptions { count, transforms, epochs, ..ShowOptions::default() }
}

fn sheet(dir: &Path, out: &Path, options: &ShowOptions) -> RgbImage {
    let shown = show(dir, out, options).unwrap();
    let sheet = image::open(out).unwrap().into_rgb8();
    assert_eq!(shown.size, sheet.dimensions());
    sheet
}

/// Returns a pixel of an image on the sheet. The image of 64 x 64 pixels is doubled to 128 and centred in a cell of
/// width 132 in the first row.
fn at(sheet: &RgbImage, column: u32, row: u32, x: u32) -> Rgb<u8> {
    *sheet.get_pixel(8 + column * 140 + 2 + 2 * x, 8 + 2 * row)
}

#[test]
fn pictures_are_shown_as_stored_or_as_the_network_sees_them() {
    let temp = Temp::new();
    let (dir, out) = (temp.path("d"), temp.path("sheet.png"));
    let records = [raw(0, [64, 64, 3]), raw(1, [64, 64, 3])];
    dataset(&dir, &records);
    let pixel = |n: usize, row: u32, x: u32| -> Rgb<u8> {
        let from = (row * 64 + x) as usize * 3;
        Rgb([0, 1, 2].map(|c| records[n].encoded[from + c]))
    };
    // Normalising and scaling are inverted exactly.
    for transforms in [&[][..], &["normalize"], &["normalize(0.5, 0.5)"], &["scale(0, 255)"]] {
        let sheet = sheet(&dir, &out, &options(10, transforms, 1));
        for n in 0..2 {
            for (row, x) in [(0, 0), (13, 50), (63, 63)] {
                assert_eq!(at(&sheet, n, row, x), pixel(n as usize, row, x), "{transforms:?} {n} {row} {x}");
            }
        }
    }
    // The epochs of a sample are next to each other. Each is the stored picture or its mirror image, and both occur.
    let sheet = sheet(&dir, &out, &options(1, &["flip", "normalize"], 9));
    let mirrored = (0..9).filter(|&epoch| at(&sheet, epoch, 5, 7) == pixel(0, 5, 56)).count();
    let straight = (0..9).filter(|&epoch| at(&sheet, epoch, 5, 7) == pixel(0, 5, 7)).count();
    assert!(mirrored > 0 && straight > 0 && mirrored + straight == 9, "{mirrored} {straight}");
    let again = fs::read(&out).unwrap();
    show(&dir, &out, &options(1, &["flip", "normalize"], 9)).unwrap();
    assert!(again == fs::read(&out).unwrap());
}

#[test]
fn sizes_may_vary_and_grey_may_stand_among_colours() {
    let temp = Temp::new();
    let mut png = Cursor::new(Vec::new());
    RgbImage::from_pixel(300, 20, Rgb([1, 200, 3])).write_to(&mut png, ImageFormat::Png).unwrap();
    let file = Foreign { encoded: png.into_inner(), format: Format::Png, shape: [20, 300, 3], ..Foreign::raw(0) };
    dataset(&temp.path("d"), &[raw(0, [5, 9, 1]), file]);
    let sheet = sheet(&temp.path("d"), &temp.path("sheet.png"), &options(2, &[], 1));
    assert!(sheet.pixels().filter(|p| **p == Rgb([1, 200, 3])).count() >= 224 * 14);
}

/// A network may read two channels of RGB images. The first is drawn as grey, as for stored images with two channels.
#[test]
fn a_selection_of_two_channels_is_shown_as_its_first() {
    let temp = Temp::new();
    let records = [raw(0, [64, 64, 3]), raw(1, [64, 64, 3])];
    dataset(&temp.path("d"), &records);
    for transforms in [&["select_bands(2, 1)"][..], &["select_bands(2, 1)", "normalize"]] {
        let sheet = sheet(&temp.path("d"), &temp.path("sheet.png"), &options(2, transforms, 1));
        for (row, x) in [(0, 0), (13, 50), (63, 63)] {
            let green = records[1].encoded[(row * 64 + x) as usize * 3 + 1];
            assert_eq!(at(&sheet, 1, row, x), Rgb([green; 3]), "{transforms:?} {row} {x}");
        }
    }
}

/// The extension determines the format, and other extensions are rejected before anything is read.
#[test]
fn a_sheet_is_what_its_name_says() {
    let temp = Temp::new();
    dataset(&temp.path("d"), &[raw(0, [5, 9, 3])]);
    for (name, begins) in
        [("sheet.png", &b"\x89PNG"[..]), ("sheet.jpg", b"\xff\xd8\xff"), ("sheet.JPEG", b"\xff\xd8\xff")]
    {
        let out = temp.path(name);
        show(&temp.path("d"), &out, &options(1, &[], 1)).unwrap();
        assert!(fs::read(&out).unwrap().starts_with(begins), "{name}");
    }
    for name in ["sheet.gif", "sheet", "sheet.webp"] {
        let error = show(&temp.path("no such data set"), &temp.path(name), &options(1, &[], 1)).unwrap_err();
        assert!(error.is_usage(), "{error}");
        mentions(&error, &[&format!("{name}: "), ".png or .jpg"]);
    }
}

#[test]
fn refusals_say_what_to_change() {
    let temp = Temp::new();
    let (dir, out) = (temp.path("d"), temp.path("sheet.png"));
    dataset(&dir, &[raw(0, [4, 4, 3]), raw(1, [4, 4, 2])]);
    let refusal = |options: &ShowOptions| {
        let error = show(&dir, &out, options).unwrap_err();
        assert!(!out.exists(), "{error}");
        error
    };
    for (bad, count) in [(options(0, &[], 1), " 0 pictures"), (options(2, &[], 600), "1,200 pictures")] {
        let error = refusal(&bad);
        assert!(error.is_usage(), "{error}");
        mentions(&error, &[count, "1 to 1024"]);
    }
    let error = refusal(&options(1, &["flop"], 1));
    assert!(error.is_usage(), "{error}");
    mentions(&error, &["`flop`", "\"flip\""]);
    let error = refusal(&ShowOptions { split: "test".into(), ..ShowOptions::default() });
    assert!(
        matches!(&error, Error::Loaders(loaders::Error::UnknownSplit { name, known, .. })
            if name == "test" && known == "`train`"),
        "{error}"
    );
    // An image with two channels is shown as grey: its first channel.
    show(&dir, &temp.path("two.png"), &options(2, &[], 1)).unwrap();
    let error = show(&dir, &temp.path("none/sheet.png"), &options(1, &[], 1)).unwrap_err();
    assert!(error.is_usage(), "{error}");
    mentions(&error, &["none/sheet.png", "mkdir -p"]);
}

/// A sheet may replace an older sheet, but not a photo.
#[test]
fn a_photo_is_not_written_over() {
    let temp = Temp::new();
    let dir = temp.path("d");
    dataset(&dir, &[raw(0, [4, 4, 3])]);
    for (name, format) in [("photo.jpg", ImageFormat::Jpeg), ("photo.png", ImageFormat::Png)] {
        let photo = temp.path(name);
        RgbImage::new(4, 4).save_with_format(&photo, format).unwrap();
        let before = fs::read(&photo).unwrap();
        let error = show(&dir, &photo, &options(1, &[], 1)).unwrap_err();
        assert!(error.is_usage(), "{error}");
        mentions(&error, &[name, "trireme wrote"]);
        assert_eq!(fs::read(&photo).unwrap(), before);
        let drawn = temp.path(&format!("sheet-of-{name}"));
        for _ in 0..2 {
            assert!(sheet(&dir, &drawn, &options(1, &[], 1)).width() > 100, "{name}");
        }
    }
}

// Single images as files: unchanged bytes if the format is the same, otherwise decoded pixels.

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

    for (sample, name, parts) in [
        (3, "d.png", ["no image 3", "0 to 2"]),
        (0, "d.gif", ["d.gif: ", ".png or .jpg"]),
        (0, "a.png", ["a.png: ", "exists"]),
    ] {
        mentions(extract(&dir, "", sample, &temp.path(name)).unwrap_err(), &parts);
    }
    mentions(extract(&dir, "tset", 0, &temp.path("d.png")).unwrap_err(), &["no split", "`tset`"]);
    assert!(!temp.path("d.png").exists());
    assert_eq!(fs::read(temp.path("a.png")).unwrap(), png, "a file that is there is left alone");
}
