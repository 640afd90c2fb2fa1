//! Tests ImageFolder: splits, classes, nested folders and file extensions.

use crate::common::pictures::*;
use crate::common::*;
use data_tools::{ConvertOptions, convert, verify};
use loaders::Format;
use std::fs;
use support::mentions;

#[test]
fn files_stay_as_they_are() {
    let temp = Temp::new();
    let (src, out) = (temp.path("src"), temp.path("out"));
    small(&src);
    let made = convert("folder", &src, &out, &options()).unwrap();
    assert_eq!(made.manifest.classes, ["cat", "dog"]);
    assert!(made.to_string().contains("1 file in "), "{made}");
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
    mentions(data_tools::info(&out).unwrap(), &["heights 20 to 40", "widths 30 to 36"]);
    // The split is small enough to be measured completely.
    assert_eq!(made.manifest.splits["train"].measured, None);
    let stats = data_tools::stats(&out, "train", 1).unwrap();
    for c in 0..3 {
        // `stats` uses a different decoder, so the last digits differ.
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

    // 6 % is less than one `dog` image, so this class gets no validation image.
    let small = ConvertOptions { validation_fraction: Some(0.06), ..options() };
    let made = convert("folder", &src.join("train"), &temp.path("small"), &small).unwrap();
    let [.., note] = &made.notes[..] else { panic!("{made}") };
    assert!(note.starts_with("1 class ") && note.ends_with(": dog"), "{note}");
    mentions(note, &["--validation-fraction"]);

    let twice = ConvertOptions { validation_fraction: Some(0.25), ..options() };
    let error = convert("folder", &src, &temp.path("e"), &twice).unwrap_err();
    assert!(error.is_usage(), "{error}");
    mentions(&error, &["validation split", "--validation-fraction"]);
}

fn mapped(map: &[(&str, &str)]) -> ConvertOptions {
    let split_map = map.iter().map(|(name, split)| (name.to_string(), split.to_string())).collect();
    ConvertOptions { split_map, ..options() }
}

/// Converting the parent of the splits would turn all images into a single class, or each split into a class.
#[test]
fn folders_one_level_too_high() {
    let temp = Temp::new();
    let src = temp.path("src");
    let class = |split: &str, salt: u32| {
        write(&src.join(split).join("cat/1.jpg"), &jpeg(9, 9, salt));
        write(&src.join(split).join("dog/1.jpg"), &jpeg(9, 9, salt + 1));
    };
    ["a/dataset/train", "a/dataset/val", "b/train", "b/train_small", "c/train", "c/more", "d/set/train"]
        .iter()
        .zip(0..)
        .for_each(|(split, salt)| class(split, 2 * salt));
    write(&src.join("e/cat/train/1.jpg"), &jpeg(9, 9, 20));
    write(&src.join("e/cat/val/1.jpg"), &jpeg(9, 9, 21));
    write(&src.join("e/dog/1.jpg"), &jpeg(9, 9, 22));
    for (folder, parts) in [
        ("a", ["splits train, val", "a/dataset"]),
        ("", ["splits train, val", "a/dataset"]),
        ("b", ["`train_small`", "--split-map train_small=validation"]),
        ("c", ["`more`", "--split-map more=validation"]),
        ("d", ["splits train", "d/set"]),
        ("e", ["splits train, val", "e/cat"]),
    ] {
        let from = if folder.is_empty() { temp.path("src/a/..").join("a") } else { src.join(folder) };
        mentions(convert("folder", &from, &temp.path("out"), &options()).unwrap_err(), &parts);
    }
    let made =
        convert("folder", &src.join("c"), &temp.path("c"), &mapped(&[("more", "val")].map(|(a, _)| (a, "validation"))))
            .unwrap();
    assert_eq!((made.manifest.splits["validation"].count, made.manifest.classes.len()), (2, 2));
    // A data set of vehicles, where `train` is a class.
    ["car", "train"].iter().for_each(|class| write(&src.join("f").join(class).join("1.jpg"), &jpeg(9, 9, 30)));
    write(&src.join("f/__MACOSX/car/._1.jpg"), b"x");
    assert_eq!(
        convert("folder", &src.join("f"), &temp.path("f"), &options()).unwrap().manifest.classes,
        ["car", "train"]
    );
    // Names of splits may have years and CamelCase, or be `eval`.
    ["g/train2017", "g/ValSet", "g/eval"].iter().for_each(|split| class(split, 40));
    let made = convert("folder", &src.join("g"), &temp.path("g"), &options()).unwrap();
    assert_eq!(made.manifest.splits.keys().collect::<Vec<_>>(), ["test", "train", "validation"]);
}

/// Any word for a split is accepted in upper or lower case. Two folders for the same split are rejected.
#[test]
fn folders_of_splits_by_other_words() {
    let temp = Temp::new();
    let src = temp.path("src");
    for (salt, name) in (0u32..).zip(["Training", "valid", "Testing"]) {
        write(&src.join(name).join("cat/1.jpg"), &jpeg(9, 9, salt));
        write(&src.join(name).join("dog/1.jpg"), &jpeg(9, 9, salt));
    }
    write(&src.join("extra/cat/1.jpg"), &jpeg(9, 9, 9));
    let error = convert("folder", &src, &temp.path("a"), &options()).unwrap_err();
    mentions(error, &["`extra`", "Testing, Training, extra, valid"]);
    fs::create_dir(src.join("notes")).unwrap();
    let made = convert("folder", &src, &temp.path("a"), &mapped(&[("extra", "none")])).unwrap();
    assert_eq!(made.manifest.classes, ["cat", "dog"]);
    assert_eq!(made.manifest.splits.keys().collect::<Vec<_>>(), ["test", "train", "validation"]);
    assert_eq!(made.notes.len(), 1, "{made}");
    mentions(&made.notes[0], &["no images: notes"]);
    let made = convert("folder", &src, &temp.path("more"), &mapped(&[("extra", "train")])).unwrap();
    assert_eq!((made.manifest.splits["train"].count, made.manifest.splits.len()), (3, 3));
    ["extra/cat/1.jpg", "Training/cat/1.jpg"]
        .iter()
        .for_each(|name| assert!(records(&temp.path("more"), "train").contains_key(*name)));
    ["notes", "extra"].iter().for_each(|name| fs::remove_dir_all(src.join(name)).unwrap());
    assert!(records(&temp.path("a"), "validation").contains_key("valid/cat/1.jpg"));
    fs::create_dir(src.join("dev")).unwrap();
    let error = convert("folder", &src, &temp.path("b"), &options()).unwrap_err();
    mentions(error, &["dev and valid", "split validation", "--split-map NAME=none"]);
    // Without a folder for `train`, all folders are classes.
    ["dev", "Training"].iter().for_each(|name| fs::remove_dir_all(src.join(name)).unwrap());
    let made = convert("folder", &src, &temp.path("c"), &options()).unwrap();
    assert_eq!(made.manifest.classes, ["Testing", "valid"]);
}

#[test]
fn a_list_of_classes_gives_the_labels() {
    let temp = Temp::new();
    small(&temp.path("src"));
    write(&temp.path("src/emu/1.jpg"), &jpeg(9, 9, 1));
    // The list begins with the byte order mark that some editors write.
    fs::write(temp.path("labels.txt"), "\u{feff}dog\ncat\n").unwrap();
    let options = ConvertOptions { classes: Some(temp.path("labels.txt")), ..options() };
    let made = convert("folder", &temp.path("src"), &temp.path("out"), &options).unwrap();
    assert_eq!(made.manifest.classes, ["dog", "cat"]);
    assert_eq!(records(&temp.path("out"), "train")["cat/00.jpg"].0, 1);
    mentions(&made, &["emu (1 image)"]);
    for (list, parts) in [
        ("dog\ncat\nyak\n", &["no image", ".npy", "`yak`"][..]),
        ("dog\nDog\n", &["labels.txt: ", "`dog` and `Dog`"]),
        ("dog\ndog\n", &["labels.txt: ", "`dog`", "twice"]),
        ("\n", &["labels.txt: ", "empty"]),
    ] {
        fs::write(temp.path("labels.txt"), list).unwrap();
        mentions(convert("folder", &temp.path("src"), &temp.path("no"), &options).unwrap_err(), parts);
    }
}

/// Faults of the source as a whole, not of a single file.
#[test]
fn classes_that_cannot_be() {
    let temp = Temp::new();
    let src = temp.path("src");
    small(&src.join("train"));
    let refused = |parts: &[&str]| {
        mentions(convert("folder", &src, &temp.path("out"), &options()).unwrap_err(), parts);
        assert_eq!(names(&temp.path("")), ["src"]);
    };
    fs::create_dir_all(src.join("train/empty")).unwrap();
    refused(&["no image", ".tiff", "`empty`"]);
    let made = convert("folder", &src, &temp.path("skip"), &skipping()).unwrap();
    assert_eq!(made.manifest.classes, ["cat", "dog"]);
    mentions(&made, &["left out: 1 class ", "images: empty"]);
    fs::remove_dir_all(temp.path("skip")).unwrap();
    fs::remove_dir(src.join("train/empty")).unwrap();

    write(&src.join("train/Cat/1.jpg"), &jpeg(9, 9, 1));
    refused(&["`Cat` and `cat`"]);
    fs::remove_dir_all(src.join("train/Cat")).unwrap();

    write(&src.join("val/cat/1.jpg"), &jpeg(9, 9, 1));
    write(&src.join("val/yak/1.jpg"), &jpeg(9, 9, 1));
    refused(&["yak (1 image)", "--on-bad skip"]);
    let made = convert("folder", &src, &temp.path("skip"), &skipping()).unwrap();
    assert_eq!(made.manifest.splits["validation"].count, 1);
    mentions(&made, &["yak (1 image)"]);
    fs::remove_dir_all(temp.path("skip")).unwrap();
    fs::remove_dir_all(src.join("val")).unwrap();

    std::os::unix::fs::symlink(src.join("train"), src.join("train/cat/round")).unwrap();
    refused(&["more than 32 levels"]);
}

/// Images next to the class folders are an error, because they would be missing from the data set. A ZIP archive there is
/// only noted: the folders were probably unpacked from it.
#[test]
fn images_beside_the_folders() {
    let temp = Temp::new();
    let src = temp.path("src");
    (0..4).for_each(|i| write(&src.join(format!("{}/{i}.jpg", ["a", "b"][i as usize % 2])), &jpeg(8, 8, i)));
    write(&src.join("photos.ZIP"), b"PK\x03\x04rest");
    write(&src.join("README.txt"), b"x");
    let made = convert("folder", &src, &temp.path("zip"), &options()).unwrap();
    let zip = made.notes;
    assert_eq!(zip.len(), 1, "{zip:?}");
    mentions(&zip[0], &["1 ZIP archive", &format!("{}: photos.ZIP", src.display()), "unpack"]);

    (0..7).for_each(|i| write(&src.join(format!("00{i}.jpg")), &jpeg(8, 8, i)));
    let error = convert("folder", &src, &temp.path("no"), &options()).unwrap_err();
    let first = "000.jpg, 001.jpg, 002.jpg, 003.jpg, 004.jpg and 2 more";
    mentions(error, &["src: ", "7 images", first, "`--on-bad skip`", "`--classes`"]);
    let made = convert("folder", &src, &temp.path("skip"), &skipping()).unwrap();
    assert_eq!((made.manifest.splits["train"].count, &made.notes[1..]), (4, &zip[..]));
    mentions(&made.notes[0], &["7 images", &src.display().to_string(), first]);
    fs::write(temp.path("labels.txt"), "b\na\n").unwrap();
    let given = ConvertOptions { classes: Some(temp.path("labels.txt")), ..options() };
    assert_eq!(convert("folder", &src, &temp.path("given"), &given).unwrap().notes, made.notes);
}

/// Images next to the split folders are ignored, and a `test` without classes is left out. Images next to the class
/// folders of `train` are an error.
#[test]
fn images_beside_the_folders_of_splits() {
    let temp = Temp::new();
    let src = temp.path("src");
    (0..3).for_each(|i| write(&src.join(format!("{}/a/{i}.jpg", ["train", "val"][i as usize % 2])), &jpeg(8, 8, i)));
    write(&src.join("test/1.jpg"), &jpeg(8, 8, 5));
    write(&src.join("overview.png"), &png(8, 8, 6));
    let made = convert("folder", &src, &temp.path("out"), &options()).unwrap();
    let (folder, test) = (src.display(), src.join("test"));
    assert_eq!(made.notes.len(), 3, "{made}");
    mentions(&made.notes[0], &[&format!("1 image in {folder},"), "splits: overview.png"]);
    mentions(&made.notes[1], &[&format!("1 image in {},", test.display()), ": 1.jpg"]);
    mentions(&made.notes[2], &["split test ", "no class folder"]);
    for split in ["train", "val"] {
        let loose = src.join(split).join("7.jpg");
        write(&loose, &jpeg(8, 8, 7));
        let error = convert("folder", &src, &temp.path("no"), &options()).unwrap_err();
        mentions(error, &[&format!("{split}: "), "1 image", ": 7.jpg"]);
        fs::remove_file(loose).unwrap();
    }
}

/// A dangling link is a file that cannot be opened, even by root.
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

/// A shard that loses all its images is empty, and this is not an error.
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
    mentions(convert("folder", &src, &temp.path("no"), &skipping()).unwrap_err(), &["train: no image"]);
}
