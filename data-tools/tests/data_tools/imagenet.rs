//! Tests ILSVRC2012 in miniature, in its published layout. Class numbers and labels have different orders, a PNG and a
//! CMYK file are named .JPEG, and there are tars in a tar.

use crate::common::pictures::*;
use crate::common::*;
use data_tools::{ConvertOptions, Error, convert, info, verify};
use loaders::Format;
use std::fs;
use std::path::Path;
use support::mentions;

/// Number, WordNet id, words and number of children of each synset, sorted by number. Sorting by id gives another order.
const SYNSETS: [(f64, &str, &str, f64); 5] = [
    (1.0, "n02119789", "kit fox, Vulpes macrotis", 0.0),
    (2.0, "n02100735", "English setter", 0.0),
    (3.0, "n02105855", "Shetland sheepdog, Shetland", 0.0),
    (4.0, "n01440764", "tench, Tinca tinca", 0.0),
    (5.0, "n02084071", "dog, domestic dog, Canis familiaris", 120.0),
];
/// The leaves sorted by id. Their labels are 1 to 4.
const SORTED: [&str; 4] = ["n01440764", "n02100735", "n02105855", "n02119789"];
const TRUTH: [u32; 6] = [4, 1, 1, 3, 2, 4];

/// Returns name and content for each file in a class.
fn class(label: usize) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> = (0..3 + label as u32)
        .map(|i| (format!("{}_{i}.JPEG", SORTED[label]), jpeg(20 + i, 30, 10 * label as u32 + i)))
        .collect();
    if label == 2 {
        files.push(("n02105855_2933.JPEG".into(), png(12, 10, 5)));
        files.push(("n02105855_77.JPEG".into(), cmyk_jpeg(16, 8, [255, 0, 100, 200])));
    }
    files
}

fn validation() -> Vec<(String, Vec<u8>)> {
    (1..=6).map(|i| (format!("ILSVRC2012_val_{i:08}.JPEG"), jpeg(18, 25, 100 + i))).collect()
}

fn train_tar() -> Vec<u8> {
    // Not sorted by name, because a tar may have any order.
    let inner = |l: usize| (format!("{}.tar", SORTED[l]), tar("", &class(l)));
    tar("", &[inner(3), inner(0), inner(1), inner(2)])
}

fn kit(compressed: bool) -> Vec<(String, Vec<u8>)> {
    let truth: String = TRUTH.iter().map(|id| format!("{id}\n")).collect();
    vec![
        ("data/meta.mat".to_string(), meta_mat(&SYNSETS, compressed)),
        ("data/ILSVRC2012_validation_ground_truth.txt".to_string(), truth.into_bytes()),
    ]
}

fn published(src: &Path) {
    write(&src.join("ILSVRC2012_img_train.tar"), &train_tar());
    write(&src.join("ILSVRC2012_img_val.tar"), &tar("", &validation()));
    write(&src.join("ILSVRC2012_devkit_t12.tar.gz"), &gz(&tar("ILSVRC2012_devkit_t12", &kit(true))));
}

#[test]
fn the_published_files() {
    let temp = Temp::new();
    published(&temp.path("src"));
    let out = temp.path("out");
    let made = convert("imagenet", &temp.path("src"), &out, &options()).unwrap();
    assert_eq!((made.skipped.len(), made.notes.len()), (0, 0), "{made}");
    assert!(verify(&out, 2).unwrap().is_ok());
    assert_eq!(made.manifest.classes[0], "n01440764 tench, Tinca tinca");
    assert_eq!((made.manifest.classes.len(), made.manifest.label_offset), (4, 1));
    assert_eq!(made.manifest.splits["train"].count, 3 + 4 + 7 + 6);
    assert_eq!(made.manifest.splits["validation"].size, Some([18, 25]));
    assert_eq!(made.manifest.splits["train"].sizes, Some([[12, 8], [25, 30]]));
    assert!(names(&out).iter().all(|name| name.contains("tfrecord") || name == "dataset.json"), "{:?}", names(&out));

    each_record(&out, "train", |_, example, label| {
        let wnid = SORTED[label as usize];
        assert!(example.filename.starts_with(wnid) && example.format == Format::Jpeg, "{}", example.filename);
        let words = SYNSETS.iter().find(|s| s.1 == wnid).unwrap().2;
        assert_eq!((example.text, example.label, example.channels), (words, i64::from(label) + 1, 3));
        let (_, original) = class(label as usize).into_iter().find(|(name, _)| name == example.filename).unwrap();
        match example.filename {
            "n02105855_2933.JPEG" | "n02105855_77.JPEG" => check_repaired(example.filename, example.encoded),
            _ => assert_eq!(example.encoded, original),
        }
    });
    each_record(&out, "validation", |_, example, label| {
        let number: usize = example.filename[15..23].parse().unwrap();
        let wnid = SYNSETS[TRUTH[number - 1] as usize - 1].1;
        assert_eq!(SORTED[label as usize], wnid, "{}", example.filename);
    });
    let shard = fs::read(out.join("validation-00000-of-00001.tfrecord")).unwrap();
    let key = b"image/class/synset";
    assert!(shard.windows(key.len()).any(|w| w == key));
    mentions(info(&out).unwrap(), &["start at 1"]);
}

/// The PNG and the CMYK file must become RGB JPEGs that look the same.
fn check_repaired(name: &str, file: &[u8]) {
    let got = image::load_from_memory(file).unwrap();
    assert!(file.starts_with(&[0xff, 0xd8]) && got.color() == image::ColorType::Rgb8);
    let got = got.into_rgb8();
    let expected = |x, y| match name {
        "n02105855_2933.JPEG" => picture(12, 10, 5).get_pixel(x, y).0,
        // ink * black / 255 for the inks 255, 0 and 100 and black 200.
        _ => [200, 0, 78],
    };
    for (x, y, pixel) in got.enumerate_pixels() {
        let near = pixel.0.iter().zip(expected(x, y)).all(|(&a, b)| a.abs_diff(b) <= 12);
        assert!(near, "{name} at {x}, {y}: {:?}, expected {:?}", pixel.0, expected(x, y));
    }
}

#[test]
fn extracted_files_give_the_same_bytes() {
    let temp = Temp::new();
    published(&temp.path("a"));
    convert("imagenet", &temp.path("a"), &temp.path("out-a"), &options()).unwrap();
    for (form, inner) in [("b", "tars"), ("c", "folders")] {
        let src = temp.path(form);
        for (label, wnid) in SORTED.iter().enumerate() {
            match inner {
                "tars" => write(&src.join(format!("train/{wnid}.tar")), &tar("", &class(label))),
                _ => class(label).iter().for_each(|(name, data)| write(&src.join("train").join(wnid).join(name), data)),
            }
        }
        validation().iter().for_each(|(name, data)| write(&src.join("val").join(name), data));
        kit(form == "b").iter().for_each(|(name, data)| write(&src.join("ILSVRC2012_devkit_t12").join(name), data));
        convert("imagenet", &src, &temp.path(&format!("out-{form}")), &options()).unwrap();
        assert_eq!(contents(&temp.path("out-a")), contents(&temp.path(&format!("out-{form}"))), "{inner}");
    }
    // Validation images sorted into classes need no ground truth and no development kit.
    let src = temp.path("c");
    for (i, (name, data)) in validation().iter().enumerate() {
        write(&src.join("val").join(SYNSETS[TRUTH[i] as usize - 1].1).join(name), data);
        fs::remove_file(src.join("val").join(name)).unwrap();
    }
    convert("imagenet", &src, &temp.path("out-d"), &options()).unwrap();
    assert_eq!(fs::read(temp.path("out-d/dataset.json")).unwrap(), fs::read(temp.path("out-a/dataset.json")).unwrap());
    fs::remove_dir_all(src.join("ILSVRC2012_devkit_t12")).unwrap();
    let made = convert("imagenet", &src, &temp.path("out-e"), &options()).unwrap();
    assert_eq!(made.manifest.classes, SORTED);
}

#[test]
fn chosen_classes_in_their_order() {
    let temp = Temp::new();
    published(&temp.path("src"));
    fs::write(temp.path("two"), "n02119789\n\nn01440764 tench\n").unwrap();
    let options = ConvertOptions { classes: Some(temp.path("two")), ..options() };
    let made = convert("imagenet", &temp.path("src"), &temp.path("out"), &options).unwrap();
    assert_eq!(made.manifest.classes, ["n02119789 kit fox, Vulpes macrotis", "n01440764 tench, Tinca tinca"]);
    assert_eq!((made.manifest.splits["train"].count, made.manifest.splits["validation"].count), (9, 4));
    for (list, parts) in [
        ("n00000000\n", ["two: ", "`n00000000`", "4 classes"]),
        ("n01440764 tench\nn01440764 again\n", ["two: ", "`n01440764`", "twice"]),
    ] {
        fs::write(temp.path("two"), list).unwrap();
        mentions(convert("imagenet", &temp.path("src"), &temp.path("x"), &options).unwrap_err(), &parts);
    }
}

/// Converts `src`. The conversion must fail with a message that contains all `parts` and leave no files.
#[track_caller]
fn refused(temp: &Temp, parts: &[&str]) -> Error {
    let error = convert("imagenet", &temp.path("src"), &temp.path("out"), &options()).unwrap_err();
    mentions(&error, parts);
    assert_removed(&temp.path("out.partial"));
    assert!(!temp.path("out").exists());
    error
}

#[test]
fn archives_cut_off() {
    let temp = Temp::new();
    published(&temp.path("src"));
    let (train, val) = (train_tar(), tar("", &validation()));
    let train_path = temp.path("src/ILSVRC2012_img_train.tar");
    for cut in [train.len() / 2, 700, 512, train.len() - 1024, 100] {
        fs::write(&train_path, &train[..cut]).unwrap();
        refused(&temp, &["ILSVRC2012_img_train.tar", "cut short", "fetch"]);
    }
    // An inner archive is truncated, although the outer archive is intact.
    let inner = tar("", &class(0));
    fs::write(&train_path, tar("", &[("n01440764.tar".into(), inner[..inner.len() / 2].to_vec())])).unwrap();
    refused(&temp, &["ILSVRC2012_img_train.tar/n01440764.tar", "cut short"]);
    fs::write(&train_path, gz(&train)).unwrap();
    refused(&temp, &["gzip", "unpack"]);
    fs::write(&train_path, &train).unwrap();
    fs::write(temp.path("src/ILSVRC2012_img_val.tar"), &val[..val.len() / 2]).unwrap();
    refused(&temp, &["ILSVRC2012_img_val.tar", "cut short"]);
}

#[test]
fn a_kit_that_does_not_fit() {
    let temp = Temp::new();
    published(&temp.path("src"));
    let with = |name: &str, data: &[u8], parts: &[&str]| {
        let mut files = kit(true);
        files.iter_mut().filter(|(n, _)| n.ends_with(name)).for_each(|(_, d)| *d = data.to_vec());
        write(&temp.path("src/ILSVRC2012_devkit_t12.tar.gz"), &gz(&tar("ILSVRC2012_devkit_t12", &files)));
        refused(&temp, parts);
    };
    with("truth.txt", b"4\n1\n1\n3\n2\n5\n", &["line 6: `5`", "4 class numbers"]);
    with("truth.txt", b"4\n1\nx\n", &["line 3: `x`"]);
    with("truth.txt", b"4\n1\n1\n3\n2\n", &["1 image ", "ILSVRC2012_val_00000006.JPEG"]);
    with("truth.txt", b"4\n1\n1\n3\n2\n2\n2\n", &["6 images", "7 labels"]);
    let meta = meta_mat(&SYNSETS, false);
    with("meta.mat", b"", &["meta.mat: ", "MATLAB 5"]);
    with("meta.mat", &meta[..meta.len() / 2], &["meta.mat: cut short"]);
    with("meta.mat", &meta[..200], &["meta.mat: ", "`synsets`"]);
    with("meta.mat", &meta_mat(&SYNSETS[..3], true), &["`4`", "3 class numbers"]);
    fs::remove_file(temp.path("src/ILSVRC2012_devkit_t12.tar.gz")).unwrap();
    let error = refused(&temp, &["validation"]);
    assert!(matches!(&error, Error::Missing { path, .. } if path.ends_with("ILSVRC2012_devkit_t12.tar.gz")), "{error}");
}

/// Truncations and changed bits of the MATLAB file must result in an error or in values, never in a panic.
#[test]
fn a_damaged_matlab_file_is_an_error() {
    let temp = Temp::new();
    published(&temp.path("src"));
    fs::remove_file(temp.path("src/ILSVRC2012_devkit_t12.tar.gz")).unwrap();
    let good = meta_mat(&SYNSETS, false);
    kit(false).iter().for_each(|(name, data)| write(&temp.path("src/ILSVRC2012_devkit_t12").join(name), data));
    for at in (128..good.len()).step_by(41) {
        let mut bad = good.clone();
        bad[at] ^= 0xff;
        write(&temp.path("src/ILSVRC2012_devkit_t12/data/meta.mat"), &bad);
        match convert("imagenet", &temp.path("src"), &temp.path("out"), &skipping()) {
            Ok(_) => fs::remove_dir_all(temp.path("out")).unwrap(),
            Err(Error::Panic(what)) => panic!("byte {at}: {what}"),
            Err(_) => {}
        }
    }
}

#[test]
fn missing_classes_and_skipping() {
    let temp = Temp::new();
    published(&temp.path("src"));
    let inner = |l: usize| (format!("{}.tar", SORTED[l]), tar("", &class(l)));
    let strange = ("n09999999.tar".to_string(), tar("", &class(0)));
    write(&temp.path("src/ILSVRC2012_img_train.tar"), &tar("", &[inner(0), inner(1), inner(2), strange.clone()]));
    refused(&temp, &["n09999999", "--on-bad skip"]);
    write(&temp.path("src/ILSVRC2012_img_train.tar"), &tar("", &[inner(0), inner(1), inner(2)]));
    refused(&temp, &["1 class of 4", "n02119789"]);
    let made = convert("imagenet", &temp.path("src"), &temp.path("out"), &skipping()).unwrap();
    mentions(&made, &["1 class of 4", "n02119789"]);
    assert_eq!(made.manifest.classes.len(), 4);
}

/// Unpacking the archives of the classes leaves both the archive and the folder. Their images must count once.
#[test]
fn a_class_with_folder_and_archive_is_refused() {
    let temp = Temp::new();
    let src = temp.path("src");
    let put = |folder: &str, label: usize| {
        class(label).iter().for_each(|(name, data)| write(&src.join(folder).join(SORTED[label]).join(name), data));
    };
    for label in 0..4 {
        put("train", label);
        put("val", label);
    }
    let counts = |out: &str| {
        let made = convert("imagenet", &src, &temp.path(out), &options()).unwrap();
        assert_eq!(made.manifest.classes, SORTED);
        ["train", "validation"].map(|split| made.manifest.splits[split].count)
    };
    assert_eq!(counts("once"), [20, 20]);
    for folder in ["train", "val"] {
        let (dir, archive) = (src.join(folder).join(SORTED[0]), src.join(folder).join("n01440764.tar"));
        write(&archive, &tar("", &class(0)));
        let parts = [folder, "n01440764/", "n01440764.tar", "twice"];
        refused(&temp, &parts);
        let skipped = convert("imagenet", &src, &temp.path("x"), &skipping()).unwrap_err();
        mentions(skipped, &parts);
        // An empty folder next to the archive is accepted.
        fs::remove_dir_all(&dir).unwrap();
        fs::create_dir(&dir).unwrap();
        assert_eq!(counts(&format!("empty-{folder}")), [20, 20]);
        fs::remove_file(&archive).unwrap();
        put(folder, 0);
    }
}

#[test]
fn boxes_of_objects_are_kept() {
    let temp = Temp::new();
    published(&temp.path("src"));
    let xml = "<annotation><size><width>60</width><height>40</height></size><object><bndbox><xmin>6</xmin><ymin>10</ymin>\
               <xmax>30</xmax><ymax>20</ymax></bndbox></object></annotation>";
    let files = [("n01440764_1.xml".to_string(), xml.as_bytes().to_vec())];
    let archive = gz(&tar("n01440764", &files));
    let path = temp.path("src/ILSVRC2012_bbox_train_v2.tar.gz");
    write(&path, &archive);
    let smaller = ConvertOptions { resize: Some(10), ..options() };
    for (out, options) in [("as-is", options()), ("small", smaller)] {
        let out = temp.path(out);
        convert("imagenet", &temp.path("src"), &out, &options).unwrap();
        let boxed = each_record(&out, "train", |_, example, _| {
            let boxes: Vec<_> = example.boxes.iter().map(|b| [b.ymin, b.xmin, b.ymax, b.xmax]).collect();
            let expected: &[[f32; 4]] =
                if example.filename == "n01440764_1.JPEG" { &[[0.25, 0.1, 0.5, 0.5]] } else { &[] };
            assert_eq!(boxes, expected, "{}", example.filename);
            boxes.len()
        });
        assert_eq!(boxed.iter().sum::<usize>(), 1);
        assert!(verify(&out, 1).unwrap().is_ok());
    }
    write(&path, &archive[..archive.len() - 20]);
    let error = convert("imagenet", &temp.path("src"), &temp.path("x"), &options()).unwrap_err();
    mentions(error, &["ILSVRC2012_bbox_train_v2.tar.gz: ", "fetch"]);
}
