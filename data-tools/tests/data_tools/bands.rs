//! Tests images of any number of bands, and of 16-bit or float values.

use std::fs;
use std::io::Write;
use std::path::Path;

use data_tools::raw::{self, Page, RawOptions};
use data_tools::{
    ConvertOptions, ReshapeOptions, ShowOptions, convert, export_webdataset, extract, info, merge, reshard, show,
    stats, verify,
};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use loaders::{Dataset, Dtype, Format, Limits, Manifest};

use crate::common::pictures::*;
use crate::common::tiff::{Page as TiffPage, Tag, strip, tiff};
use crate::common::*;

fn options() -> ConvertOptions {
    ConvertOptions { shards: 3, jobs: 1, progress: false, ..ConvertOptions::default() }
}

fn with(bands: RawOptions) -> ConvertOptions {
    ConvertOptions { bands, ..options() }
}

/// Returns the values of tile `number`: 4 x 5 pixels, 6 bands.
fn tile(number: u16) -> Vec<u16> {
    (0..120).map(|i| (i % 6 * 1000 + i * 7 + number * 311) % 9973).collect()
}

fn bytes16(values: &[u16]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Writes 24 tiles of two classes.
fn tiles(src: &Path) {
    for number in 0..24 {
        let file = strip(4, 5, 6, 16, 1, &bytes16(&tile(number)), &[]);
        write(&src.join(format!("{}/{number:02}.tif", ["a", "b"][usize::from(number) % 2])), &file);
    }
}

/// Converts a folder with only these files and returns the error.
#[track_caller]
fn refused(files: &[(&str, Vec<u8>)], options: &ConvertOptions) -> String {
    let temp = Temp::new();
    files.iter().for_each(|(name, file)| write(&temp.path("src/a").join(name), file));
    convert("folder", &temp.path("src"), &temp.path("out"), options).unwrap_err().to_string()
}

/// Reads one file with the library's function for a single image.
fn one(name: &str, file: &[u8], options: &RawOptions) -> Result<raw::RawImage, String> {
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
    let split = Dataset::open(temp.path("out")).unwrap().split("train").unwrap();
    for id in 0..24 {
        let mut copy = Vec::new();
        let (example, _) = split.record(id, &mut copy).unwrap();
        let number: u16 = example.filename[2..4].parse().unwrap();
        assert_eq!((example.format, example.dtype, example.channels), (Format::Raw, Dtype::U16, 6));
        assert_eq!(example.encoded, bytes16(&tile(number)));
    }
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
    let mut buffer = Vec::new();
    assert_eq!(back.bytes, split.record(5, &mut buffer).unwrap().0.encoded);
    for (name, bands) in [("sheet.png", vec![4, 3, 2]), ("grey.png", vec![6]), ("usual.png", vec![])] {
        let options = ShowOptions { count: 2, bands, ..ShowOptions::default() };
        show(&temp.path("out"), &temp.path(name), &options).unwrap();
    }
    let sheet = |name: &str| image::open(temp.path(name)).unwrap().into_rgb8();
    assert!(sheet("grey.png").pixels().all(|pixel| pixel[0] == pixel[1] && pixel[1] == pixel[2]));
    assert_ne!(sheet("sheet.png"), sheet("usual.png"));
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
        write(&path, &strip(4, 5, 6, 32, 3, &floats(&values), &[(42113, "0")]));
    }
    convert("folder", &src, &temp.path("whole"), &options()).unwrap();
    let data = Dataset::open(temp.path("whole")).unwrap().split("train").unwrap();
    let bad = src.join(data.record(20, &mut Vec::new()).unwrap().0.filename);
    let good = fs::read(&bad).unwrap();
    fs::write(&bad, &good[..good.len() / 2]).unwrap();
    let error = convert("folder", &src, &temp.path("out"), &options()).unwrap_err().to_string();
    assert!(error.contains("cannot decode the TIFF") && error.contains("run the same command again"), "{error}");
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
        let expected = "expected 6 bands of uint16, as in a/0.tif, found ";
        assert!(error.contains(&format!("a/{name}: {expected}{found}")), "{error}");
    }
    let error = refused(&[("0.tif", six.clone())], &ConvertOptions { resize: Some(2), ..options() });
    assert!(error.contains("--resize applies to grey and RGB images of bytes"), "{error}");
    let error = refused(&[("0.tif", six)], &ConvertOptions { band_names: vec!["a".into()], ..options() });
    assert!(error.contains("--band-names has 1 name, but the images have 6 bands"), "{error}");
    let error = refused(&[("0.jpg", jpeg(4, 4, 1))], &with(RawOptions { bands: vec![1], ..RawOptions::default() }));
    assert!(error.contains("--bands does not apply to this file"), "{error}");
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
    let split = Dataset::open(temp.path("out")).unwrap().split("train").unwrap();
    for id in 0..2 {
        assert_eq!(split.record(id, &mut Vec::new()).unwrap().0.encoded, values(false));
    }
    let error = stats(&temp.path("out"), "train", 1).unwrap().write().unwrap_err().to_string();
    assert!(error.contains("-9999") && error.contains("convert the images again"), "{error}");
    // A different value in one file is an error, unless an option says what holds for all.
    write(&temp.path("src/a/2.tif"), &strip(1, 3, 2, 32, 3, &values(false), &[(42113, "0")]));
    let error = convert("folder", &temp.path("src"), &temp.path("two"), &options()).unwrap_err().to_string();
    assert!(error.contains("a/2.tif: found the nodata value 0, but a/0.tif has the nodata value -9999"), "{error}");
    let given = with(RawOptions { nodata: Some(3.0), ..RawOptions::default() });
    let made = convert("folder", &temp.path("src"), &temp.path("three"), &given).unwrap().manifest;
    assert_eq!((made.bands.max[0], made.mean[0]), (2.0, 1.5));
    let everywhere = strip(1, 3, 2, 32, 3, &floats(&[1.0, 5.0, 2.0, 5.0, 3.0, 5.0]), &[(42113, "5")]);
    let error = refused(&[("0.tif", everywhere)], &options());
    assert!(error.contains("band 2 has no pixel with data"), "{error}");
}

#[test]
fn values_that_are_not_finite_are_named() {
    let file = strip(1, 3, 1, 32, 3, &floats(&[1.0, f32::NAN, 3.0]), &[]);
    let error = refused(&[("0.tif", file.clone())], &options());
    assert!(error.contains("a/0.tif: the value of band 1 at row 0, column 1 is NaN"), "{error}");
    assert!(error.contains("--nan zero") && error.contains("--nodata NaN"), "{error}");
    let zero = RawOptions { nan_as_zero: true, ..RawOptions::default() };
    assert_eq!(one("0.tif", &file, &zero).unwrap().bytes, floats(&[1.0, 0.0, 3.0]));
    let temp = Temp::new();
    write(&temp.path("src/a/0.tif"), &file);
    let masked = with(RawOptions { nodata: Some(f64::NAN), ..RawOptions::default() });
    let made = convert("folder", &temp.path("src"), &temp.path("out"), &masked).unwrap().manifest;
    assert_eq!((made.mean, made.bands.nodata), (vec![2.0], None));
    assert!(verify(&temp.path("out"), 1).unwrap().is_ok());
}

#[test]
fn strips_tiles_planes_and_pages() {
    let zlib = |bytes: &[u8]| {
        let mut stream = ZlibEncoder::new(Vec::new(), Compression::default());
        stream.write_all(bytes).unwrap();
        stream.finish().unwrap()
    };
    // 3 x 4 pixels of two bands: band 0 has 0 to 11, band 1 has 100 to 111. Tiles have 2 x 2 pixels.
    let value = |y: u16, x: u16, band: u16| if y < 3 && x < 4 { y * 4 + x + 100 * band } else { 7 };
    let expected = bytes16(&(0..24).map(|i| value(i / 8, i / 2 % 4, i % 2)).collect::<Vec<_>>());
    let plane = |band: u16, top: u16, left: u16| {
        zlib(&bytes16(&(0..4).map(|i| value(top + i / 2, left + i % 2, band)).collect::<Vec<_>>()))
    };
    let tiles: Vec<Vec<u8>> = (0..8).map(|i: u16| plane(i / 4, i / 2 % 2 * 2, i % 2 * 2)).collect();
    let tags = |more: Vec<(u16, Tag<'static>)>| -> Vec<(u16, Tag<'static>)> {
        let shape: Vec<(u16, Tag<'static>)> = vec![
            (256, Tag::Long(&[4])),
            (257, Tag::Long(&[3])),
            (258, Tag::Short(&[16, 16])),
            (262, Tag::Short(&[1])),
            (277, Tag::Short(&[2])),
        ];
        shape.into_iter().chain(more).collect()
    };
    let tiled =
        tags(vec![(259, Tag::Short(&[8])), (284, Tag::Short(&[2])), (322, Tag::Short(&[2])), (323, Tag::Short(&[2]))]);
    let file = tiff(&[TiffPage { tags: &tiled, chunks: &tiles, is_tiled: true }], None);
    assert_eq!(one("t.tif", &file, &RawOptions::default()).unwrap().bytes, expected);
    // An empty tile of a sparse GeoTIFF has no bytes.
    let mut sparse = tiles.clone();
    sparse[7].clear();
    let file = tiff(&[TiffPage { tags: &tiled, chunks: &sparse, is_tiled: true }], None);
    let image = one("s.tif", &file, &RawOptions::default()).unwrap();
    assert_eq!((image.bytes[..40] == expected[..40], &image.bytes[42..44]), (true, &[0, 0][..]));

    // Predictor 2 in two strips of two rows.
    let predicted = |rows: std::ops::Range<u16>| {
        let value =
            |y: u16, x: u16, band: u16| value(y, x, band).wrapping_sub(if x > 0 { value(y, x - 1, band) } else { 0 });
        zlib(&bytes16(&rows.flat_map(|y| (0..8).map(move |i| value(y, i / 2, i % 2))).collect::<Vec<_>>()))
    };
    let striped = tags(vec![(259, Tag::Short(&[8])), (278, Tag::Short(&[2])), (317, Tag::Short(&[2]))]);
    let chunks = [predicted(0..2), predicted(2..3)];
    let page = || TiffPage { tags: &striped, chunks: &chunks, is_tiled: false };
    assert_eq!(one("p.tif", &tiff(&[page()], None), &RawOptions::default()).unwrap().bytes, expected);

    let pages = tiff(&[page(), TiffPage { tags: &tiled, chunks: &sparse, is_tiled: true }], None);
    let of = |page| one("pages.tif", &pages, &RawOptions { page, ..RawOptions::default() });
    assert_eq!(of(Page::Number(2)).unwrap().bytes, image.bytes);
    let all = of(Page::All).unwrap();
    assert_eq!((all.channels, &all.bytes[..8]), (4, &[0, 0, 100, 0, 0, 0, 100, 0][..]));
    let error = of(Page::Number(3)).unwrap_err();
    assert!(error.contains("page 3 does not exist: the TIFF has 2"), "{error}");
    let last = RawOptions { bands: vec![2, 1, 2], ..RawOptions::default() };
    assert_eq!(one("p.tif", &tiff(&[page()], None), &last).unwrap().bytes[..6], [100, 0, 0, 0, 100, 0]);
    let error =
        one("p.tif", &tiff(&[page()], None), &RawOptions { bands: vec![3], ..RawOptions::default() }).unwrap_err();
    assert!(error.contains("band 3 was requested, but the image has 2"), "{error}");
}

#[test]
fn hostile_files_are_refused() {
    let page = |tags: &[(u16, Tag<'static>)], chunk: usize| {
        tiff(&[TiffPage { tags, chunks: &[vec![0; chunk]], is_tiled: false }], None)
    };
    let short = |value: &'static [u16]| Tag::Short(value);
    let base = || vec![(258, short(&[16])), (262, short(&[1])), (277, short(&[1])), (278, Tag::Long(&[4_000_000_000]))];
    // A small file that claims 10^15 pixels.
    let mut bomb = base();
    bomb.extend([(256, Tag::Long(&[4_000_000])), (257, Tag::Long(&[300_000_000])), (259, short(&[8]))]);
    let error = one("bomb.tif", &page(&bomb, 10), &RawOptions::default()).unwrap_err();
    assert!(error.contains("limit"), "{error}");
    // One pixel in a tile of 10^15.
    let tile: Vec<(u16, Tag<'static>)> = vec![
        (256, Tag::Long(&[1])),
        (257, Tag::Long(&[1])),
        (258, short(&[16])),
        (259, short(&[8])),
        (262, short(&[1])),
        (322, Tag::Long(&[40_000_000])),
        (323, Tag::Long(&[40_000_000])),
    ];
    let file = tiff(&[TiffPage { tags: &tile, chunks: &[vec![0; 10]], is_tiled: true }], None);
    let error = one("tile.tif", &file, &RawOptions::default()).unwrap_err();
    assert!(error.contains("limit"), "{error}");
    let mut small = base();
    small.extend([(256, Tag::Long(&[3])), (257, Tag::Long(&[2])), (259, short(&[1]))]);
    // The list of pages is a circle.
    let circle = tiff(&[TiffPage { tags: &small, chunks: &[vec![0; 12]], is_tiled: false }], Some(0));
    for page in [Page::All, Page::Number(9)] {
        let error = one("c.tif", &circle, &RawOptions { page, ..RawOptions::default() }).unwrap_err();
        assert!(error.contains("TIFF"), "{error}");
    }
    let whole = page(&small, 12);
    assert!(one("w.tif", &whole, &RawOptions::default()).is_ok());
    for cut in 0..whole.len() {
        assert!(one("cut.tif", &whole[..cut], &RawOptions::default()).is_err(), "{cut}");
    }
    // Any wrong byte gives an image or an error.
    for at in 0..whole.len() {
        for value in [0, 1, 127, 255] {
            let mut wrong = whole.clone();
            wrong[at] = value;
            drop(one("wrong.tif", &wrong, &RawOptions::default()));
        }
    }
    for (tags, what) in [
        (vec![(258, short(&[64])), (339, short(&[3]))], "floats of 64 bits"),
        (vec![(258, short(&[32])), (339, short(&[1]))], "unsigned integers of 32 bits"),
        (vec![(258, short(&[16])), (262, short(&[3]))], "palette"),
        (vec![(258, short(&[16])), (259, short(&[34925]))], "LZMA compression"),
    ] {
        let has = |tag: u16| tags.iter().any(|(own, _)| *own == tag);
        let usual = [(256, Tag::Long(&[1])), (257, Tag::Long(&[1])), (259, short(&[1])), (262, short(&[1]))];
        let all: Vec<(u16, Tag<'static>)> = usual.into_iter().filter(|(tag, _)| !has(*tag)).collect();
        let all: Vec<(u16, Tag<'static>)> = all.into_iter().chain(tags).collect();
        let error = refused(&[("x.tif", page(&all, 8))], &options());
        assert!(error.contains(what), "{error}");
    }
}

/// Returns a `.npy` file.
fn npy(descr: &str, shape: &str, values: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    [b"\x93NUMPY\x01\0", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), values].concat()
}

#[test]
fn arrays_of_any_type_are_taken() {
    let temp = Temp::new();
    // Four images (C, H, W) of two bands, 3 x 4 pixels, big-endian.
    let values: Vec<u16> = (0..96).map(|i| i * 501).collect();
    let big: Vec<u8> = values.iter().flat_map(|v| v.to_be_bytes()).collect();
    write(&temp.path("src/x_train.npy"), &npy(">u2", "4, 2, 3, 4", &big));
    write(
        &temp.path("src/y_train.npy"),
        &npy("<i8", "4", &[0u64, 1, 0, 1].iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>()),
    );
    let one_shard = ConvertOptions { shards: 1, ..options() };
    let made = convert("npz", &temp.path("src"), &temp.path("out"), &one_shard).unwrap().manifest;
    assert_eq!((made.bands.dtype, made.bands.channels, made.bands.max[1]), (Dtype::U16, Some(2), 95.0 * 501.0));
    let split = Dataset::open(temp.path("out")).unwrap().split("train").unwrap();
    let mut copy = Vec::new();
    for id in 0..4 {
        let example = split.record(id, &mut copy).unwrap().0;
        let number: usize = example.filename.rsplit('#').next().unwrap().parse().unwrap();
        let image = &values[number * 24..][..24];
        let expected: Vec<u16> = (0..24).map(|i| image[i % 2 * 12 + i / 2]).collect();
        assert_eq!(example.encoded, bytes16(&expected));
    }
    write(&temp.path("src/x_train.npy"), &npy("<f8", "4, 3, 4", &[0; 384]));
    let error = convert("npz", &temp.path("src"), &temp.path("two"), &one_shard).unwrap_err().to_string();
    assert!(error.contains("x_train") && error.contains("<f8") && error.contains("astype('float32')"), "{error}");
    write(&temp.path("src/x_train.npy"), &npy("<f4", "4, 3, 4", &[0; 192]));
    write(&temp.path("src/y_train.npy"), &npy("<f4", "4", &[0; 16]));
    let error = convert("npz", &temp.path("src"), &temp.path("two"), &one_shard).unwrap_err().to_string();
    assert!(error.contains("y_train") && error.contains("expected integers"), "{error}");
    // Single images in a table.
    write(&temp.path("list/one.npy"), &npy("<i2", "2, 3", &[1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0]));
    write(&temp.path("list/labels.csv"), b"path,label\none.npy,a\n");
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
    assert!(!text.contains("dtype") && !text.contains("percentiles"), "{text}");
}
