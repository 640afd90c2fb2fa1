//! Tests images with any number of bands, and with 16-bit or float values.

use std::fs;
use std::path::Path;

use data_tools::raw::{self, Page, RawOptions};
use data_tools::{
    ConvertOptions, Error, OnBad, ReshapeOptions, ShowOptions, To8Bit, convert, export_webdataset, extract, info,
    merge, reshard, show, stats, verify,
};
use loaders::{Dtype, Format, Limits, Manifest};

use crate::common::pictures::*;
use crate::common::tiff::{one_strip, short, strip, tags, text};
use crate::common::*;
use support::mentions;

pub fn options() -> ConvertOptions {
    ConvertOptions { shards: 3, jobs: 1, progress: false, ..ConvertOptions::default() }
}

pub fn with(bands: RawOptions) -> ConvertOptions {
    ConvertOptions { bands, ..options() }
}

/// Returns the values of tile `number`: 4 x 5 pixels, 6 bands.
pub fn tile(number: u16) -> Vec<u16> {
    (0..120).map(|i| (i % 6 * 1000 + i * 7 + number * 311) % 9973).collect()
}

pub fn bytes16(values: &[u16]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

pub fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Writes 24 tiles in two classes.
fn tiles(src: &Path) {
    for number in 0..24 {
        let file = strip(4, 5, 6, 16, 1, &bytes16(&tile(number)), &[]);
        write(&src.join(format!("{}/{number:02}.tif", ["a", "b"][usize::from(number) % 2])), &file);
    }
}

/// Converts a folder with only these files and returns the error.
#[track_caller]
pub fn refused(files: &[(&str, Vec<u8>)], options: &ConvertOptions) -> String {
    let temp = Temp::new();
    files.iter().for_each(|(name, file)| write(&temp.path("src/a").join(name), file));
    convert("folder", &temp.path("src"), &temp.path("out"), options).unwrap_err().to_string()
}

/// Returns the image data of each record in `train`.
fn stored(dir: &Path) -> Vec<Vec<u8>> {
    each_record(dir, "train", |_, example, _| example.encoded.to_vec())
}

/// Reads one file with the library function for single images.
pub fn one(name: &str, file: &[u8], options: &RawOptions) -> Result<raw::RawImage, String> {
    let temp = Temp::new();
    write(&temp.path(name), file);
    raw::read(&temp.path(name), options, &Limits::DEFAULT).map_err(|e| e.to_string())
}

#[test]
fn sixteen_bits_and_six_bands_are_kept_and_described() {
    let temp = Temp::new();
    tiles(&temp.path("src"));
    let names = ["b1", "b2", "b3", "b4", "b5", "b6"].map(String::from).to_vec();
    let named = ConvertOptions { band_names: names.clone(), ..options() };
    let made = convert("folder", &temp.path("src"), &temp.path("out"), &named).unwrap();
    let manifest = made.manifest;
    assert_eq!((manifest.version, manifest.bands.dtype, manifest.bands.channels), (3, Dtype::U16, Some(6)));
    assert_eq!(manifest.bands.names, names);
    for jobs in [2, 3] {
        let other = temp.path(&format!("jobs{jobs}"));
        convert("folder", &temp.path("src"), &other, &ConvertOptions { jobs, ..named.clone() }).unwrap();
        assert_eq!(contents(&other), contents(&temp.path("out")));
    }
    let stored = each_record(&temp.path("out"), "train", |_, example, _| {
        let number: u16 = example.filename[2..4].parse().unwrap();
        assert_eq!((example.format, example.dtype, example.channels), (Format::Raw, Dtype::U16, 6));
        assert_eq!(example.encoded, bytes16(&tile(number)));
        example.encoded.to_vec()
    });
    assert_eq!(stored.len(), 24);
    let band = |band: usize| -> Vec<f64> {
        (0..24).flat_map(|n| tile(n).into_iter().skip(band).step_by(6).map(f64::from).collect::<Vec<_>>()).collect()
    };
    for number in 0..6 {
        let mut values = band(number);
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / values.len() as f64;
        assert!((manifest.mean[number] - mean).abs() < 1e-9 && (manifest.std[number] - variance.sqrt()).abs() < 1e-9);
        values.sort_by(f64::total_cmp);
        assert_eq!((manifest.bands.min[number], manifest.bands.max[number]), (values[0], values[479]));
        assert_eq!(manifest.bands.percentiles["50"][number], (values[239] + values[240]) / 2.0);
    }
    assert!(verify(&temp.path("out"), 2).unwrap().is_ok());
    let measured = stats(&temp.path("out"), "train", 2).unwrap();
    assert_eq!((&measured.mean, &measured.std, &measured.bands), (&manifest.mean, &manifest.std, &manifest.bands));
    assert!(measured.to_string().contains("6 bands of uint16") && measured.to_string().contains("b6 "), "{measured}");
    assert!(info(&temp.path("out")).unwrap().to_string().contains("6 bands of uint16"));

    let copy = ReshapeOptions { shards: 2, jobs: 1, progress: false, ..ReshapeOptions::default() };
    let copied = reshard(&temp.path("out"), &temp.path("copy"), true, &copy).unwrap().manifest;
    assert_eq!(
        (&copied.bands, &copied.mean, &copied.std, copied.version),
        (&manifest.bands, &manifest.mean, &manifest.std, 3)
    );
    assert!(verify(&temp.path("copy"), 1).unwrap().is_ok());
    let both = merge(&[&temp.path("out"), &temp.path("copy")], &temp.path("both"), &copy).unwrap().manifest;
    let facts = |manifest: &Manifest| (manifest.bands.min.clone(), manifest.bands.max.clone(), manifest.mean.clone());
    assert_eq!(facts(&both), facts(&manifest), "each image twice has the same mean");
    assert_eq!(both.bands.names, names);

    export_webdataset(&temp.path("out"), &temp.path("tars"), 1, false).unwrap();
    let tar = fs::read(temp.path("tars/train-000000.tar")).unwrap();
    assert!(tar.windows(13).any(|part| part == b"000000000.npy"), "raw images are exported exactly");
    let back = convert("webdataset", &temp.path("tars"), &temp.path("back"), &options()).unwrap().manifest;
    assert_eq!((&back.bands.max, back.bands.dtype, &back.mean), (&manifest.bands.max, Dtype::U16, &manifest.mean));
    extract(&temp.path("out"), "train", 5, &temp.path("five.npy")).unwrap();
    let back = raw::read(&temp.path("five.npy"), &RawOptions::default(), &Limits::DEFAULT).unwrap();
    assert_eq!(back.bytes, stored[5]);
    for (name, bands) in [("sheet.png", vec![4, 3, 2]), ("grey.png", vec![6]), ("usual.png", vec![])] {
        let options = ShowOptions { count: 2, bands, ..ShowOptions::default() };
        show(&temp.path("out"), &temp.path(name), &options).unwrap();
    }
    let sheet = |name: &str| image::open(temp.path(name)).unwrap().into_rgb8();
    assert!(sheet("grey.png").pixels().all(|pixel| pixel[0] == pixel[1] && pixel[1] == pixel[2]));
    assert_ne!(sheet("sheet.png"), sheet("usual.png"));
    // Bands are chosen by their numbers in the data set, also after a selection.
    for (name, selection) in [("three.png", "select_bands(4, 3, 2)"), ("four.png", "select_bands(6, 4, 3, 2)")] {
        let transforms = vec![selection.to_string()];
        let options = ShowOptions { count: 2, bands: vec![4, 3, 2], transforms, ..ShowOptions::default() };
        show(&temp.path("out"), &temp.path(name), &options).unwrap();
    }
    assert_eq!(sheet("three.png"), sheet("four.png"));
    let wrong = ShowOptions { bands: vec![7, 1, 2], ..ShowOptions::default() };
    let error = show(&temp.path("out"), &temp.path("no.png"), &wrong).unwrap_err().to_string();
    assert!(error.contains("band 7") && error.contains("6 bands"), "{error}");
}

#[test]
fn a_stopped_conversion_ends_with_the_same_statistics() {
    let temp = Temp::new();
    let src = temp.path("src");
    for number in 0..24u16 {
        let values: Vec<f32> = tile(number).iter().map(|&v| f32::from(v) / 7.0).collect();
        let path = src.join(format!("{}/{number:02}.tif", ["a", "b"][usize::from(number) % 2]));
        write(&path, &strip(4, 5, 6, 32, 3, &floats(&values), &[]));
    }
    convert("folder", &src, &temp.path("whole"), &options()).unwrap();
    let bad = src.join(&file_names(&temp.path("whole"), "train")[20]);
    let good = fs::read(&bad).unwrap();
    fs::write(&bad, &good[..good.len() / 2]).unwrap();
    let error = convert("folder", &src, &temp.path("out"), &options()).unwrap_err();
    assert!(matches!(error, Error::Stopped { .. }), "{error}");
    mentions(error, &["decode the TIFF"]);
    fs::write(&bad, good).unwrap();
    let made = convert("folder", &src, &temp.path("out"), &ConvertOptions { jobs: 2, ..options() }).unwrap();
    assert_eq!(made.resumed, 2);
    assert_eq!(contents(&temp.path("out")), contents(&temp.path("whole")));
}

#[test]
fn images_of_another_kind_are_named() {
    let six = strip(4, 5, 6, 16, 1, &bytes16(&tile(0)), &[]);
    let five = strip(4, 6, 5, 16, 1, &bytes16(&tile(0)), &[]);
    let bytes = strip(4, 5, 6, 8, 1, &bytes16(&tile(0))[..120], &[]);
    for (other, found) in [(five, "5 bands of uint16"), (bytes, "6 bands of uint8"), (png(4, 5, 1), "3 bands of uint8")]
    {
        let name = if other.starts_with(b"II") { "1.tif" } else { "1.png" };
        let error = refused(&[("0.tif", six.clone()), (name, other)], &options());
        let parts = [&format!("a/{name}: ")[..], "expected 6 bands of uint16", "a/0.tif", &format!("found {found}")];
        mentions(error, &parts);
    }
    let error = refused(&[("0.tif", six.clone())], &ConvertOptions { resize: Some(2), ..options() });
    mentions(error, &["--resize", "6 bands of uint16"]);
    let error = refused(&[("0.tif", six)], &ConvertOptions { band_names: vec!["a".into()], ..options() });
    mentions(error, &["--band-names", "1 name", "6 bands"]);
    let error = refused(&[("0.jpg", jpeg(4, 4, 1))], &with(RawOptions { bands: vec![1], ..RawOptions::default() }));
    mentions(error, &["--bands does not apply"]);
}

#[test]
fn pixels_without_data_become_the_mean() {
    let temp = Temp::new();
    let values = |missing: bool| floats(&[1.0, 10.0, 2.0, if missing { -9999.0 } else { 20.0 }, 3.0, 30.0]);
    for (name, missing) in [("0", false), ("1", true)] {
        write(
            &temp.path("src/a").join(format!("{name}.tif")),
            &strip(1, 3, 2, 32, 3, &values(missing), &[(42113, "-9999")]),
        );
    }
    let made = convert("folder", &temp.path("src"), &temp.path("out"), &options()).unwrap().manifest;
    assert_eq!((made.bands.nodata, &made.bands.min), (Some(-9999.0), &vec![1.0, 10.0]));
    assert_eq!(made.mean, [2.0, 20.0]);
    assert_eq!(stored(&temp.path("out")), [values(false), values(false)]);
    let error = stats(&temp.path("out"), "train", 1).unwrap().write().unwrap_err();
    mentions(error, &["dataset.json", "value -9999", "convert the images again"]);
    // A different value in one file is an error, unless `--nodata` sets the value for all files.
    write(&temp.path("src/a/2.tif"), &strip(1, 3, 2, 32, 3, &values(false), &[(42113, "0")]));
    let error = convert("folder", &temp.path("src"), &temp.path("two"), &options()).unwrap_err();
    mentions(error, &["a/2.tif: ", "nodata value 0", "a/0.tif", "nodata value -9999"]);
    let given = with(RawOptions { nodata: Some(3.0), ..RawOptions::default() });
    let made = convert("folder", &temp.path("src"), &temp.path("three"), &given).unwrap().manifest;
    assert_eq!((made.bands.max[0], made.mean[0]), (2.0, 1.5));
    let everywhere = strip(1, 3, 2, 32, 3, &floats(&[1.0, 5.0, 2.0, 5.0, 3.0, 5.0]), &[(42113, "5")]);
    let error = refused(&[("0.tif", everywhere)], &options());
    mentions(error, &["band 2", "no pixel"]);
}

#[test]
fn values_that_are_not_finite_are_named() {
    let file = strip(1, 3, 1, 32, 3, &floats(&[1.0, f32::NAN, 3.0]), &[]);
    let error = refused(&[("0.tif", file.clone())], &options());
    mentions(error, &["a/0.tif: ", "band 1", "row 0", "column 1", "is NaN", "--nan zero", "--nodata NaN"]);
    let zero = RawOptions { nan_as_zero: true, ..RawOptions::default() };
    assert_eq!(one("0.tif", &file, &zero).unwrap().bytes, floats(&[1.0, 0.0, 3.0]));
    let temp = Temp::new();
    write(&temp.path("src/a/0.tif"), &file);
    let masked = with(RawOptions { nodata: Some(f64::NAN), ..RawOptions::default() });
    let made = convert("folder", &temp.path("src"), &temp.path("out"), &masked).unwrap().manifest;
    assert_eq!(made.mean, [2.0]);
    // JSON has no NaN, so dataset.json stores NaN as a text.
    assert!(Manifest::read(&temp.path("out")).unwrap().bands.nodata.unwrap().is_nan());
    assert!(verify(&temp.path("out"), 1).unwrap().is_ok());
    let measured = stats(&temp.path("out"), "train", 1).unwrap();
    assert_eq!(measured.to_json()["bands"]["nodata"], "nan");
    mentions(measured.write().unwrap_err(), &["dataset.json", "value NaN", "convert the images again"]);
}

/// Returns a `.npy` file.
pub fn npy(descr: &str, shape: &str, values: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    [b"\x93NUMPY\x01\0", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), values].concat()
}

#[test]
fn arrays_of_any_type_are_taken() {
    let temp = Temp::new();
    // Four images (C, H, W) with two bands and 3 x 4 pixels, big-endian.
    let values: Vec<u16> = (0..96).map(|i| i * 501).collect();
    let big: Vec<u8> = values.iter().flat_map(|v| v.to_be_bytes()).collect();
    write(&temp.path("src/x_train.npy"), &npy(">u2", "4, 2, 3, 4", &big));
    write(
        &temp.path("src/y_train.npy"),
        &npy("<i8", "4", &[0u64, 1, 0, 1].iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>()),
    );
    // An array that is neither images nor labels need not be readable.
    write(&temp.path("src/notes.npy"), b"text");
    let one_shard = ConvertOptions { shards: 1, ..options() };
    let unclear = convert("npz", &temp.path("src"), &temp.path("out"), &one_shard).unwrap_err();
    mentions(unclear, &["x_train", "[2, 3, 4]", "--layout"]);
    let paged = ConvertOptions { bands: RawOptions { page: Page::All, ..RawOptions::default() }, ..one_shard.clone() };
    mentions(convert("npz", &temp.path("src"), &temp.path("out"), &paged).unwrap_err(), &["--page", "TIFF"]);
    let planes = RawOptions { layout: Some(raw::Layout::Planes), ..RawOptions::default() };
    let planes = ConvertOptions { bands: planes, ..one_shard.clone() };
    let made = convert("npz", &temp.path("src"), &temp.path("out"), &planes).unwrap().manifest;
    assert_eq!((made.bands.dtype, made.bands.channels, made.bands.max[1]), (Dtype::U16, Some(2), 95.0 * 501.0));
    let checked = each_record(&temp.path("out"), "train", |_, example, _| {
        let number: usize = example.filename.rsplit('#').next().unwrap().parse().unwrap();
        let image = &values[number * 24..][..24];
        let expected: Vec<u16> = (0..24).map(|i| image[i % 2 * 12 + i / 2]).collect();
        assert_eq!(example.encoded, bytes16(&expected));
    });
    assert_eq!(checked.len(), 4);
    write(&temp.path("src/x_train.npy"), &npy("<f8", "4, 3, 4", &[0; 384]));
    let error = convert("npz", &temp.path("src"), &temp.path("two"), &one_shard).unwrap_err().to_string();
    assert!(error.contains("x_train") && error.contains("<f8") && error.contains("astype('float32')"), "{error}");
    write(&temp.path("src/x_train.npy"), &npy("<f4", "4, 3, 4", &[0; 192]));
    write(&temp.path("src/y_train.npy"), &npy("<f4", "4", &[0; 16]));
    let error = convert("npz", &temp.path("src"), &temp.path("two"), &one_shard).unwrap_err().to_string();
    assert!(error.contains("y_train") && error.contains("expected integers"), "{error}");
    // A table can list single images in `.npy` files.
    write(&temp.path("list/one.npy"), &npy("<i2", "2, 3", &[1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0]));
    write(&temp.path("list/labels.csv"), b"path,label\none.npy,a\n");
    let bytes = ConvertOptions { to_8bit: Some(To8Bit::Whole), ..one_shard.clone() };
    let error = convert("csv", &temp.path("list/labels.csv"), &temp.path("bytes"), &bytes).unwrap_err();
    mentions(error, &["one.npy", "--to-8bit", "1 band of int16"]);
    let made = convert("csv", &temp.path("list/labels.csv"), &temp.path("listed"), &one_shard).unwrap().manifest;
    assert_eq!((made.bands.dtype, made.mean), (Dtype::I16, vec![3.5]));
}

#[test]
fn data_sets_of_bytes_stay_as_they_were() {
    let temp = Temp::new();
    write(&temp.path("src/a/0.jpg"), &jpeg(8, 8, 1));
    write(&temp.path("src/b/1.png"), &png(8, 8, 2));
    convert("folder", &temp.path("src"), &temp.path("out"), &options()).unwrap();
    let manifest = Manifest::read(&temp.path("out")).unwrap();
    assert_eq!((manifest.version, manifest.bands.need_version()), (1, false));
    let text = fs::read_to_string(temp.path("out/dataset.json")).unwrap();
    let json: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
    let keys: Vec<&str> = json.keys().map(String::as_str).collect();
    assert_eq!(keys, ["classes", "label_offset", "mean", "splits", "std", "version"]);
    let checked = each_record(&temp.path("out"), "train", |_, example, _| {
        assert_eq!(example.encoded, fs::read(temp.path("src").join(example.filename)).unwrap());
    });
    assert_eq!(checked.len(), 2);
}

#[test]
fn bytes_without_data_are_masked() {
    let temp = Temp::new();
    // The images are RGB. The value 0 marks missing data.
    let images = [[1, 10, 100, 0, 20, 100], [3, 0, 0, 5, 60, 250]];
    for (number, image) in images.iter().enumerate() {
        let file = one_strip(&tags(1, 2, &[8; 3], [(262, short(2)), (42113, text("255"))]), image);
        write(&temp.path("src/a").join(format!("{number}.tif")), &file);
    }
    let made = convert("folder", &temp.path("src"), &temp.path("photos"), &options()).unwrap();
    mentions(made.notes.concat(), &["2 TIFF files", "nodata", "--nodata"]);
    let masked = with(RawOptions { nodata: Some(0.0), ..RawOptions::default() });
    let made = convert("folder", &temp.path("src"), &temp.path("out"), &masked).unwrap();
    let manifest = made.manifest;
    assert_eq!((manifest.version, manifest.bands.nodata, made.notes.len()), (1, Some(0.0), 0));
    // Without missing data, the bands have the values 1, 3, 5, then 10, 20, 60, then 100, 100, 250.
    assert_eq!(manifest.mean, [3.0 / 255.0, 30.0 / 255.0, 150.0 / 255.0]);
    let deviation = [(8.0f64 / 3.0).sqrt(), (1400.0f64 / 3.0).sqrt(), 5000f64.sqrt()];
    assert!(manifest.std.iter().zip(deviation).all(|(found, std)| (found - std / 255.0).abs() < 1e-12));
    let mut stored = stored(&temp.path("out"));
    stored.sort();
    assert_eq!(stored, [[1, 10, 100, 3, 20, 100], [3, 30, 150, 5, 60, 250]]);
    mentions(
        stats(&temp.path("out"), "train", 1).unwrap().write().unwrap_err(),
        &["dataset.json", "value 0", "convert the images again"],
    );

    // Commands that measure the pixels again cannot tell missing values from real ones.
    let copy = ReshapeOptions { shards: 1, jobs: 1, progress: false, ..ReshapeOptions::default() };
    let [out, photos, both] = ["out", "photos", "both"].map(|name| temp.path(name));
    let copied = reshard(&out, &temp.path("copy"), false, &copy).unwrap();
    assert_eq!((copied.manifest.bands.nodata, copied.note), (Some(0.0), None));
    mentions(merge(&[&out, &photos], &both, &copy).unwrap_err(), &["photos", "no nodata value", "nodata value 0"]);
    let merged = merge(&[&out, &temp.path("copy")], &both, &copy).unwrap();
    mentions(merged.note.as_deref().unwrap_or_default(), &["nodata value 0"]);
    assert_eq!((merged.manifest.bands.nodata, merged.manifest.mean[0]), (Some(0.0), 3.0 / 255.0));
    mentions(stats(&both, "train", 1).unwrap().write().unwrap_err(), &["dataset.json", "value 0"]);
    // The result still fits the data set that it was made from.
    merge(&[&out, &both], &temp.path("all"), &copy).unwrap();
}

/// `predict` reads files with the options of the first data set.
#[test]
fn merging_data_sets_that_were_read_differently_is_noted() {
    let temp = Temp::new();
    let tile = |number| strip(4, 5, 3, 16, 1, &bytes16(&tile(number)[..60]), &[]);
    (0..2).for_each(|number| write(&temp.path("src/a").join(format!("{number}.tif")), &tile(number)));
    let [plain, reversed, out] = ["plain", "reversed", "out"].map(|name| temp.path(name));
    convert("folder", &temp.path("src"), &plain, &options()).unwrap();
    let bands = with(RawOptions { bands: vec![3, 2, 1], ..RawOptions::default() });
    convert("folder", &temp.path("src"), &reversed, &bands).unwrap();
    let copy = ReshapeOptions { shards: 1, jobs: 1, progress: false, ..ReshapeOptions::default() };
    for (first, second) in [(&plain, &reversed), (&reversed, &plain)] {
        let merged = merge(&[first, second], &out, &copy).unwrap();
        let note = format!("dataset.json keeps those of {}", first.display());
        mentions(merged.note.as_deref().unwrap_or_default(), &["different options for reading files", &note]);
        assert_eq!(merged.manifest.bands.reading, Manifest::read(first).unwrap().bands.reading);
        fs::remove_dir_all(&out).unwrap();
    }
    assert_eq!(merge(&[&plain, &plain], &out, &copy).unwrap().note, None);
    fs::remove_dir_all(&out).unwrap();

    let grey = |number: u16| strip(4, 5, 1, 16, 1, &bytes16(&self::tile(number)[..20]), &[]);
    (0..2).for_each(|number| write(&temp.path("grey/a").join(format!("{number}.tif")), &grey(number)));
    let [mapped, bytes] = ["mapped", "bytes"].map(|name| temp.path(name));
    for (to_8bit, out) in [(To8Bit::Range(0.0, 4095.0), &mapped), (To8Bit::Whole, &bytes)] {
        let options = ConvertOptions { to_8bit: Some(to_8bit), ..options() };
        convert("folder", &temp.path("grey"), out, &options).unwrap();
    }
    for (first, second) in [(&mapped, &bytes), (&bytes, &mapped)] {
        let merged = merge(&[first, second], &out, &copy).unwrap();
        assert!(merged.note.is_some_and(|note| note.contains("different options")));
        assert_eq!(merged.manifest.bands.to_8bit, Some([0.0, 4095.0]));
        fs::remove_dir_all(&out).unwrap();
    }
}

/// Writes `count` tiles to a folder. Each has missing values and the nodata tag. Its first value is `first`.
fn tiles_with_gaps(folder: &Path, count: u16, first: impl Fn(u16) -> f32) {
    for number in 0..count {
        let mut values: Vec<f32> = tile(number).iter().map(|&v| f32::from(v) / 7.0 + 1.0).collect();
        (values[0], values[usize::from(number) + 20]) = (first(number), -1.0);
        let path = folder.join(format!("{}/{number:02}.tif", ["a", "b"][usize::from(number) % 2]));
        write(&path, &strip(4, 5, 6, 32, 3, &floats(&values), &[(42113, "-1")]));
    }
}

#[test]
fn resumed_shards_have_the_same_fill_value() {
    let temp = Temp::new();
    let [src, out] = [temp.path("src"), temp.path("out")];
    tiles_with_gaps(&src.join("train"), 24, |_| 5.0);
    tiles_with_gaps(&src.join("test"), 4, |_| 5.0);
    let bad = src.join("test/a/02.tif");
    let good = fs::read(&bad).unwrap();
    fs::write(&bad, &good[..good.len() / 2]).unwrap();
    // The shards of train are finished before the unusable file stops the conversion.
    for _ in 0..2 {
        let error = convert("folder", &src, &out, &options()).unwrap_err();
        assert!(matches!(error, Error::Stopped { .. }), "{error}");
        mentions(error, &["02.tif"]);
    }
    fs::write(&bad, &good).unwrap();
    assert!(temp.path("out.partial").is_dir());
    let made = convert("folder", &src, &out, &options()).unwrap();
    assert_eq!(made.resumed, 3);
    convert("folder", &src, &temp.path("whole"), &options()).unwrap();
    assert_eq!(contents(&out), contents(&temp.path("whole")));

    // One changed image changes the mean, and with it all shards.
    fs::remove_dir_all(&out).unwrap();
    fs::write(&bad, &good[..good.len() / 2]).unwrap();
    convert("folder", &src, &out, &options()).unwrap_err();
    tiles_with_gaps(&src.join("train"), 1, |_| 50_000.0);
    fs::write(&bad, &good).unwrap();
    let made = convert("folder", &src, &out, &options()).unwrap();
    assert_eq!(made.resumed, 0);
    convert("folder", &src, &temp.path("changed"), &options()).unwrap();
    assert_eq!(contents(&out), contents(&temp.path("changed")));

    // An unusable image of train stops the conversion before anything is written.
    let bad = src.join("train/a/00.tif");
    let good = fs::read(&bad).unwrap();
    fs::write(&bad, &good[..good.len() / 2]).unwrap();
    let error = convert("folder", &src, &temp.path("none"), &options()).unwrap_err();
    assert!(!matches!(error, Error::Stopped { .. }), "{error}");
    mentions(error, &["00.tif"]);
    let skip = ConvertOptions { on_bad: OnBad::Skip, ..options() };
    assert_eq!(convert("folder", &src, &temp.path("skipped"), &skip).unwrap().skipped.len(), 1);
}

#[test]
fn the_nodata_value_may_be_in_any_file() {
    let temp = Temp::new();
    let values = |last: f32| floats(&[1.0, 2.0, last]);
    write(&temp.path("src/a/0.tif"), &strip(1, 3, 1, 32, 3, &values(3.0), &[]));
    write(&temp.path("src/a/1.tif"), &strip(1, 3, 1, 32, 3, &values(-1.0), &[(42113, "-1")]));
    let made = convert("folder", &temp.path("src"), &temp.path("out"), &options()).unwrap().manifest;
    assert_eq!((made.bands.nodata, made.mean), (Some(-1.0), vec![9.0 / 5.0]));
    write(&temp.path("src/a/2.tif"), &strip(1, 3, 1, 32, 3, &values(-2.0), &[(42113, "-2")]));
    let error = convert("folder", &temp.path("src"), &temp.path("two"), &options()).unwrap_err();
    mentions(error, &["2.tif: ", "nodata value -2", "1.tif has", "nodata value -1"]);
}

#[test]
fn exported_arrays_are_read_back_whatever_their_shape() {
    let temp = Temp::new();
    // 1 x 5 pixels with 4 bands look like a plane of 5 x 4, and 4 x 5 with 6 bands like 4 planes.
    for (name, height, width, bands) in [("thin", 1, 5, 4), ("deep", 4, 5, 6), ("flat", 7, 2, 5)] {
        let values: Vec<u16> = (0..height * width * bands).map(|i| (i * 37) as u16).collect();
        let file = strip(height, width, bands as u16, 16, 1, &bytes16(&values), &[]);
        write(&temp.path(&format!("{name}/a/0.tif")), &file);
        let [src, out, tars, back] = ["", ".out", ".tars", ".back"].map(|end| temp.path(&format!("{name}{end}")));
        convert("folder", &src, &out, &options()).unwrap();
        let array = temp.path(&format!("{name}.npy"));
        extract(&out, "train", 0, &array).unwrap();
        let read = raw::read(&array, &RawOptions::default(), &Limits::DEFAULT).unwrap();
        assert_eq!((read.height, read.width, read.channels, &read.bytes), (height, width, bands, &bytes16(&values)));
        export_webdataset(&out, &tars, 1, false).unwrap();
        convert("webdataset", &tars, &back, &options()).unwrap();
        assert_eq!(stored(&back), [bytes16(&values)]);
    }
}
