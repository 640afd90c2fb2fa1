//! Tests images with any band count and with 16-bit or float values. Compares results with plain loops and with
//! torchvision's results for float tensors. Also tests that transforms and records that do not fit are refused.

use loaders::example::{self, Example};
use loaders::transform::{Scratch, selected_bands};
use loaders::{
    Bands, Conversion, Draws, Dtype, EvalOrder, Fault, ImageSpec, Images, LabelKind, Loader, Manifest, Options,
    Pipeline, PixelFormat,
};
use serde::Deserialize;

use crate::common::TestData;

const SPEC: ImageSpec = ImageSpec::new(9, 7, 5);

fn stored(dtype: Dtype, value: f32) -> Vec<u8> {
    match dtype {
        Dtype::U8 => vec![value as u8],
        Dtype::U16 => (value as u16).to_le_bytes().to_vec(),
        Dtype::I16 => (value as i16).to_le_bytes().to_vec(),
        Dtype::F32 => value.to_le_bytes().to_vec(),
    }
}

fn bytes(dtype: Dtype, values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| stored(dtype, *value)).collect()
}

/// Returns interleaved values that the type can store.
fn values(dtype: Dtype, sample: u64, spec: ImageSpec) -> Vec<f32> {
    let mut draws = Draws::new(99, sample, 0, 0);
    let value = |draws: &mut Draws| match dtype {
        Dtype::U8 => (draws.next_u32() & 0xff) as f32,
        Dtype::U16 => (draws.next_u32() & 0xffff) as f32,
        Dtype::I16 => (draws.next_u32() & 0xffff) as f32 - 32768.0,
        Dtype::F32 => draws.range(-500.0, 3500.0),
    };
    (0..spec.values()).map(|_| value(&mut draws)).collect()
}

fn manifest(dtype: Dtype, channels: u32) -> Manifest {
    let numbers = |of: fn(u32) -> f64| (0..channels).map(of).collect::<Vec<f64>>();
    let percentiles = [("1", numbers(|c| f64::from(10 * c))), ("99", numbers(|c| f64::from(2000 + c)))];
    let bands = Bands {
        dtype,
        channels: Some(channels),
        names: (0..channels).map(|band| format!("B{band}")).collect(),
        min: numbers(|_| 0.0),
        max: numbers(|c| f64::from(2550 + 255 * c)),
        percentiles: percentiles.map(|(percent, values)| (percent.to_string(), values)).into(),
        ..Bands::default()
    };
    let version = Manifest::version_for(LabelKind::OneClass, &bands);
    let (mean, std) = (numbers(|c| f64::from(100 * c)), numbers(|c| f64::from(1 + c)));
    Manifest { version, classes: vec!["a".into()], bands, mean, std, ..Manifest::default() }
}

fn pipeline(ops: &[&str], dtype: Dtype, spec: ImageSpec) -> Result<Pipeline, String> {
    let ops: Vec<String> = ops.iter().map(|op| op.to_string()).collect();
    Pipeline::new(&ops, spec, &manifest(dtype, spec.channels), 1).map_err(|error| error.to_string())
}

fn record(encoded: &[u8], dtype: Dtype, spec: ImageSpec) -> Example<'_> {
    Example { dtype, ..Example::from_raw(encoded, spec) }
}

/// Returns the planar result for these interleaved values.
fn run(pipeline: &Pipeline, values: &[f32], spec: ImageSpec, id: u64) -> Vec<f32> {
    let mut out = vec![f32::NAN; pipeline.output().values()];
    let encoded = bytes(pipeline.dtype(), values);
    pipeline.run(&record(&encoded, pipeline.dtype(), spec), id, 0, &mut Scratch::default(), &mut out).unwrap();
    out
}

fn planar(values: &[f32], channels: usize) -> Vec<f32> {
    (0..channels).flat_map(|channel| values.iter().skip(channel).step_by(channels).copied()).collect()
}

#[derive(Deserialize)]
struct Golden {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    op: String,
    dtype: Dtype,
    sample: u64,
    values: Vec<f32>,
}

/// Compares all results with torchvision's. The error is relative to the case's largest value. Values are not rounded to
/// 8 bits and not clamped.
#[test]
fn transforms_of_bands_match_torchvision_on_floats() {
    let golden: Golden = serde_json::from_str(include_str!("../golden/bands.json")).unwrap();
    for Case { op, dtype, sample, values: expected } in golden.cases {
        let out = run(&pipeline(&[&op], dtype, SPEC).unwrap(), &values(dtype, sample, SPEC), SPEC, sample);
        assert_eq!(out.len(), expected.len(), "{op}");
        let largest = expected.iter().fold(0f32, |largest, value| largest.max(value.abs()));
        let far = out.iter().zip(&expected).map(|(a, b)| (a - b).abs() / largest).max_by(f32::total_cmp).unwrap();
        let most = if op.starts_with("normalize") { 0.0 } else { 1e-6 };
        assert!(far <= most, "{op} of {dtype}: {far:e} away");
    }
}

/// Compares crops, padding and mirrors with plain loops, for each type. All values are exact.
#[test]
fn geometry_of_all_types_equals_plain_loops() {
    for (dtype, channels) in [(Dtype::U16, 13), (Dtype::I16, 2), (Dtype::F32, 1), (Dtype::F32, 3), (Dtype::U8, 6)] {
        let spec = ImageSpec::new(9, 7, channels);
        let padded = pipeline(&["pad_crop(2)", "flip", "vertical_flip", "center_crop(5)"], dtype, spec).unwrap();
        assert_eq!(padded.dtype(), dtype);
        for id in 0..40 {
            let values = values(dtype, id, spec);
            let mut draws = Draws::new(1, id, 0, 0);
            let [down, right] = [0; 2].map(|_: i32| draws.below(5) as i32 - 2);
            let [mirrored, upside_down] = [1, 2].map(|op| Draws::new(1, id, 0, op).unit() < 0.5);
            let at = |channel: u32, y: i32, x: i32| {
                // center_crop(5) of 9 x 7 begins at row 2 and column 1.
                let (y, x) = (y + 2, x + 1);
                let y = if upside_down { 8 - y } else { y } + down;
                let x = if mirrored { 6 - x } else { x } + right;
                let inside = (0..9).contains(&y) && (0..7).contains(&x);
                if inside { values[((y * 7 + x) as u32 * channels + channel) as usize] } else { 0.0 }
            };
            let places = (0..channels).flat_map(|c| (0..5).flat_map(move |y| (0..5).map(move |x| (c, y, x))));
            let expected: Vec<f32> = places.map(|(c, y, x)| at(c, y, x)).collect();
            assert_eq!(run(&padded, &values, spec, id), expected, "{dtype} with {channels}, image {id}");
        }
    }
}

#[test]
fn values_keep_their_units_until_normalize() {
    let spec = ImageSpec::new(1, 2, 3);
    let values = [0.0, 700.0, 65535.0, 15.0, 300.0, 1.0];
    let result = |ops: &[&str]| run(&pipeline(ops, Dtype::U16, spec).unwrap(), &values, spec, 0);
    assert_eq!(result(&[]), planar(&values, 3));
    // The means are 0, 100 and 200, the deviations 1, 2 and 3.
    assert_eq!(result(&["normalize"]), [0.0, 15.0, 300.0, 100.0, 65335.0 / 3.0, -199.0 / 3.0]);
    assert_eq!(result(&["clip_percentile(1, 99)"]), [0.0, 15.0, 700.0, 300.0, 2002.0, 20.0]);
    assert_eq!(result(&["scale(0, 100)"])[1..4], [0.15, 7.0, 3.0]);
    assert_eq!(result(&["log1p"])[1], 16f64.ln() as f32);
    // After scale, normalize uses the scaled mean and deviation, so its results are the same.
    let (plain, scaled) = (result(&["normalize"]), result(&["scale(0, 1000)", "normalize"]));
    assert!(plain.iter().zip(&scaled).all(|(a, b)| (a - b).abs() <= 1e-5 * a.abs().max(1.0)), "{plain:?} {scaled:?}");
    assert_eq!(result(&["select_bands(3, 1)"]), [65535.0, 1.0, 0.0, 15.0]);
    assert_eq!(result(&["select_bands(B2, 1)", "select_bands(2)", "normalize"]), [0.0, 15.0]);
    let resized = result(&["select_bands(2)", "resize(1x1)"]);
    assert_eq!(resized, [500.0]);
    let p = pipeline(&["select_bands(B2, B1)", "normalize"], Dtype::U16, spec).unwrap();
    assert_eq!(p.ops(), ["select_bands(3, 2)", "normalize(200, 100, 3, 2)"]);
    assert!(p.tables().is_none());
    assert_eq!(p.conversion(), Some(Conversion::Normalize(vec![[200.0, 3.0], [100.0, 2.0]])));
}

/// Brightness, noise and gamma act on each band's range: 2550, 2805 and 3060 are like 255 for bytes.
#[test]
fn intensity_acts_on_the_range_of_each_band() {
    let spec = ImageSpec::new(4, 4, 3);
    let values: Vec<f32> = (0..48).map(|i| (i * 50) as f32).collect();
    let change = |op: &str, id| -> Vec<f32> {
        let out = run(&pipeline(&[op], Dtype::I16, spec).unwrap(), &values, spec, id);
        out.iter().zip(planar(&values, 3)).map(|(a, b)| a - b).collect()
    };
    let delta = Draws::new(1, 3, 0, 0).range(-10.0, 10.0);
    for (at, moved) in change("brightness(10)", 3).iter().enumerate() {
        assert!((moved - delta * [10.0, 11.0, 12.0][at / 16]).abs() < 1e-2, "{at}");
    }
    let noise: Vec<f32> = (0..200).flat_map(|id| change("noise(5)", id)[16..32].to_vec()).collect();
    let std = (noise.iter().map(|x| x * x).sum::<f32>() / noise.len() as f32).sqrt();
    assert!((std / 55.0 - 1.0).abs() < 0.05, "{std}");
    let gamma = run(&pipeline(&["gamma(2, 2)"], Dtype::I16, spec).unwrap(), &values, spec, 0);
    assert!((gamma[15] - 2550.0 * (2250.0f32 / 2550.0).powi(2)).abs() < 1e-2, "{}", gamma[15]);
}

#[test]
fn unsupported_transforms_are_refused_with_an_alternative() {
    for (op, parts) in [
        ("equalize", &["equalize", "uint8 with 1 or 3 channels", "uint16 with 5", "clip_percentile"][..]),
        ("color_jitter(1, 1, 1, 0.1)", &["uint16 with 5", "contrast and gamma"]),
        ("rand_augment", &["rand_augment needs images of uint8"]),
        ("clip_percentile(2, 99)", &["dataset.json", "no percentile 2", "has 1, 99"]),
        ("clip_percentile(99, 1)", &["low < high", "got 99 and 1"]),
        ("scale(1, 1)", &["expected min < max"]),
        ("select_bands(6)", &["band: ", "from 1 to 5", "got 6"]),
        ("select_bands(0)", &["band: ", "from 1 to 5", "got 0"]),
        ("select_bands(B7)", &["no band \"B7\"", "the bands are B0, B1"]),
        ("gamma(0, 1)", &["expected 0 < low <= high"]),
    ] {
        let error = pipeline(&[op], Dtype::U16, SPEC).unwrap_err();
        assert!(parts.iter().all(|part| error.contains(part)), "{op}: {error}");
    }
    let refused = |ops: &[&str]| pipeline(ops, Dtype::U16, SPEC).unwrap_err();
    assert!(refused(&["log1p", "normalize"]).contains("hold after log1p"));
    assert!(refused(&["normalize", "select_bands(1)"]).contains("before all transforms"));
    assert!(refused(&["flip", "resize(4x4)"]).contains("it resizes, "));
    for after in ["brightness(3)", "gamma(1, 2)", "noise(3)", "clip_percentile(1, 99)"] {
        assert!(refused(&["standardize", after]).contains("known after standardize"), "{after}");
    }
    assert!(refused(&["standardize", "normalize"]).contains("hold after standardize"));
    assert!(refused(&["rgb"]).contains("select_bands(1, 1, 1)"));
    assert!(pipeline(&["equalize"], Dtype::U8, SPEC).unwrap_err().contains("uint8 with 5"));
    let mut unknown = manifest(Dtype::U16, 5);
    unknown.bands.min.clear();
    let error = Pipeline::new(&["brightness(3)".to_string()], SPEC, &unknown, 1).unwrap_err().to_string();
    assert!(error.contains("`min` and `max`") && error.contains("trireme data stats DIR --write"), "{error}");
    unknown.bands.percentiles.clear();
    let clip = ["clip_percentile(1, 99)".to_string()];
    let error = Pipeline::new(&clip, SPEC, &unknown, 1).unwrap_err().to_string();
    assert!(error.contains("`percentiles`") && error.contains("trireme data stats DIR --write"), "{error}");
    // No command measures percentiles of photos.
    let photos = Manifest { bands: Bands::default(), ..manifest(Dtype::U8, 3) };
    let error = Pipeline::new(&clip, ImageSpec::new(9, 7, 3), &photos, 1).unwrap_err().to_string();
    assert!(error.contains("8-bit grey or RGB") && error.contains("remove clip_percentile"), "{error}");
    assert!(!error.contains("data stats"), "{error}");
    let mut negative = manifest(Dtype::I16, 5);
    negative.bands.min[3] = -7.0;
    let error = Pipeline::new(&["log1p".to_string()], SPEC, &negative, 1).unwrap_err().to_string();
    assert!(error.contains("band 4 is -7"), "{error}");
}

/// Sentinel-2's band names: the tenth is 9, and the ninth is 8A.
#[test]
fn bands_are_found_by_names_that_are_numbers() {
    let spec = ImageSpec::new(1, 1, 12);
    let mut manifest = manifest(Dtype::U16, 12);
    let names = ["1", "2", "3", "4", "5", "6", "7", "8", "8A", "9", "11", "12"];
    manifest.bands.names = names.map(String::from).to_vec();
    let values: Vec<f32> = (1..=12).map(|value| value as f32).collect();
    let of = |ops: &[String]| {
        let pipeline = Pipeline::new(ops, spec, &manifest, 1).unwrap();
        (run(&pipeline, &values, spec, 0), pipeline.ops())
    };
    let given = ["select_bands(8A, 9, 10, 12)".to_string(), "select_bands(9, 8A, 3)".to_string()];
    let (found, ops) = of(&given[..1]);
    assert_eq!((&found[..], &ops[0][..]), (&[9.0, 10.0, 10.0, 12.0][..], "select_bands(8A, 10, 10, 12)"));
    assert_eq!(of(&ops), (found, ops.clone()), "the written list selects the same bands");
    assert_eq!(of(&given).0, [10.0, 9.0, 10.0]);
    assert_eq!(selected_bands(&given, &manifest.bands, 12), Ok(vec![9, 8, 9]));
}

/// `normalize` and `scale` also scale ranges and percentiles.
#[test]
fn normalize_and_scale_also_change_the_statistics() {
    let spec = ImageSpec::new(1, 2, 3);
    let values = [0.0, 51.0, 255.0, 204.0, 102.0, 153.0];
    let result = |ops: &[&str], id| run(&pipeline(ops, Dtype::U8, spec).unwrap(), &values, spec, id);
    // With mean 0.5 and deviation 0.5, bytes become -1 to 1.
    let scaled = result(&["normalize(0.5, 0.5)", "gamma(2, 2)"], 0);
    let expected = planar(&values, 3).into_iter().map(|value| 2.0 * (value / 255.0).powi(2) - 1.0);
    assert!(scaled.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{scaled:?}");
    let normalized = result(&["scale(0, 255)", "normalize(0.5, 0.5)"], 0);
    let moved = result(&["scale(0, 255)", "brightness(51)", "normalize(0.5, 0.5)"], 7);
    let delta = Draws::new(1, 7, 0, 1).range(-51.0, 51.0) / 255.0 / 0.5;
    assert!(moved.iter().zip(&normalized).all(|(a, b)| (a - b - delta).abs() < 1e-6), "{moved:?}");
    // Band 1 has the percentiles 0 and 2000, and band 2 has 10 and 2001.
    let u16s =
        |ops: &[&str]| run(&pipeline(ops, Dtype::U16, spec).unwrap(), &[0.0, 5.0, 0.0, 3000.0, 3000.0, 0.0], spec, 0);
    assert_eq!(u16s(&["scale(0, 1000)", "clip_percentile(1, 99)"])[..4], [0.0, 2.0, 0.01, 2.001]);
}

/// A grey data set that is read as RGB has three equal channels, and its statistics are repeated three times.
#[test]
fn statistics_of_grey_images_are_repeated_for_rgb() {
    let spec = ImageSpec::new(1, 2, 1);
    let mut manifest = manifest(Dtype::U8, 1);
    manifest.bands.percentiles =
        [("1", 10.0), ("99", 200.0)].map(|(percent, value)| (percent.into(), vec![value])).into();
    let ops = ["rgb", "clip_percentile(1, 99)"].map(String::from);
    let pipeline = Pipeline::new(&ops, spec, &manifest, 1).unwrap();
    assert_eq!(run(&pipeline, &[3.0, 255.0], spec, 0), [10.0, 200.0, 10.0, 200.0, 10.0, 200.0]);
    // A list with a wrong length is ignored.
    manifest.bands.channels = None;
    manifest.bands.percentiles.insert("50".into(), vec![1.0; 3]);
    assert!(Pipeline::new(&ops[1..], spec, &manifest, 1).is_ok());
}

#[test]
fn nan_stays_nan() {
    let spec = ImageSpec::new(2, 2, 1);
    for ops in
        [&["resize(1x1)"][..], &["log1p"], &["clip_percentile(1, 99)"], &["gamma(1, 2)"], &["flip", "scale(0, 2)"]]
    {
        let out = run(&pipeline(ops, Dtype::F32, spec).unwrap(), &[f32::NAN; 4], spec, 0);
        assert!(out.iter().all(|value| value.is_nan()), "{ops:?}: {out:?}");
    }
}

/// Bytes with any number of bands keep the transforms that change each value by itself.
#[test]
fn bytes_of_other_band_counts_can_be_inverted() {
    let values = values(Dtype::U8, 3, SPEC);
    let inverted = run(&pipeline(&["invert(1)"], Dtype::U8, SPEC).unwrap(), &values, SPEC, 0);
    assert_eq!(inverted, planar(&values, 5).iter().map(|value| 255.0 - value).collect::<Vec<f32>>());
    for op in ["cifar_distort", "posterize(4)", "solarize(128)"] {
        assert!(pipeline(&[op], Dtype::U8, SPEC).is_ok(), "{op}");
        let error = pipeline(&[op], Dtype::U16, SPEC).unwrap_err();
        assert!(error.contains("images of uint8, ") && error.contains("uint16 with 5 channels"), "{error}");
    }
}

/// Resized bytes are rounded before a rotation, whether it moves pixels or not.
#[test]
fn rotation_by_zero_rounds_resized_bytes() {
    let spec = ImageSpec::new(5, 5, 3);
    let values = values(Dtype::U8, 4, spec);
    for angle in ["0, 0", "360, 360", "-360, -360"] {
        let ops = ["resize(3x3)", &format!("rotation({angle})")];
        let out = run(&pipeline(&ops, Dtype::U8, spec).unwrap(), &values, spec, 0);
        assert!(out.iter().all(|value| value.fract() == 0.0), "{angle}: {out:?}");
    }
}

/// A grey RAW image among RGB images of one size becomes RGB, as a grey PNG or JPEG does.
#[test]
fn grey_images_of_one_size_become_rgb() {
    let (grey, rgb) = (ImageSpec::new(4, 4, 1), ImageSpec::new(4, 4, 3));
    let values = values(Dtype::U8, 0, grey);
    let [one, three] =
        [grey, rgb].map(|spec| run(&pipeline(&["center_crop(4)"], Dtype::U8, spec).unwrap(), &values, grey, 0));
    assert_eq!((one.len(), three.len()), (16, 48));
    assert!(three.chunks(16).all(|plane| plane == one));
}

/// Only 8-bit grey images become RGB. A 16-bit grey image is refused.
#[test]
fn only_bytes_become_rgb() {
    let (grey, rgb) = (ImageSpec::new(4, 4, 1), ImageSpec::new(4, 4, 3));
    let accepted = |dtype: Dtype| {
        let pipeline = pipeline(&["resize(2x2)"], dtype, rgb).unwrap();
        let (encoded, mut out) = (bytes(dtype, &values(dtype, 0, grey)), vec![0.0; 12]);
        pipeline.run(&record(&encoded, dtype, grey), 0, 0, &mut Scratch::default(), &mut out)
    };
    assert!(accepted(Dtype::U8).is_ok());
    for dtype in [Dtype::U16, Dtype::I16, Dtype::F32] {
        let fault = accepted(dtype).unwrap_err();
        assert!(matches!(fault, Fault::Channels { expected: 3, got } if got == grey), "{fault}");
    }
    let pipeline = pipeline(&["resize(2x2)"], Dtype::U8, grey).unwrap();
    let (encoded, mut out) = (bytes(Dtype::U8, &values(Dtype::U8, 0, rgb)), vec![0.0; 4]);
    let fault = pipeline.run(&record(&encoded, Dtype::U8, rgb), 0, 0, &mut Scratch::default(), &mut out).unwrap_err();
    assert!(fault.to_string().contains("begin augment.train and augment.eval with \"rgb\""), "{fault}");
}

fn data(dtype: Dtype, spec: ImageSpec, record_dtype: impl Fn(u64) -> Dtype) -> TestData {
    let payload = |id| {
        let dtype = record_dtype(id);
        let (encoded, mut out) = (bytes(dtype, &values(dtype, id, spec)), Vec::new());
        example::encode(&record(&encoded, dtype, spec), &mut out);
        out
    };
    let mut data = TestData::of(&(0..20).map(payload).collect::<Vec<_>>(), 2, spec.channels as usize);
    let splits = std::mem::take(&mut data.manifest.splits);
    data.manifest = Manifest { splits, ..manifest(dtype, spec.channels) };
    data.manifest.write(&data.dir).unwrap();
    data
}

#[test]
fn batches_have_the_values_of_the_records() {
    for dtype in Dtype::ALL {
        let data = data(dtype, SPEC, |_| dtype);
        let split = data.shared();
        assert_eq!(split.images().unwrap(), Images::Fixed(SPEC));
        let pipeline = pipeline(&["flip", "normalize"], dtype, SPEC).unwrap();
        let order = Box::new(EvalOrder::new(split.len(), 8, 0, 1));
        let mut loader = Loader::start(split, pipeline.clone(), order, Options::default()).unwrap();
        let mut seen = 0;
        while let Some(batch) = loader.next().unwrap() {
            for (&id, image) in batch.ids().iter().zip(batch.images().chunks_exact(SPEC.values())) {
                assert_eq!(image, run(&pipeline, &values(dtype, id, SPEC), SPEC, id), "{dtype}, image {id}");
                seen += 1;
            }
        }
        assert_eq!(seen, 20);
    }
}

/// Converts stored values as a device does, and returns them as planes.
fn converted(dtype: Dtype, pixels: &[u8], pairs: &[[f32; 2]]) -> Vec<f32> {
    let values = pixels.chunks_exact(dtype.bytes()).map(|bytes| match *bytes {
        [a, b] if dtype == Dtype::U16 => f32::from(u16::from_le_bytes([a, b])),
        [a, b] => f32::from(i16::from_le_bytes([a, b])),
        [a, b, c, d] => f32::from_le_bytes([a, b, c, d]),
        _ => panic!("{dtype}"),
    });
    let normalized: Vec<f32> = values.zip(pairs.iter().cycle()).map(|(x, [mean, std])| (x - mean) / std).collect();
    planar(&normalized, pairs.len())
}

/// A device that gets stored values computes the same bits as a loader thread.
#[test]
fn stored_values_become_the_same_floats() {
    let lists: [&[&str]; 4] = [
        &["pad_crop(2)", "flip", "vertical_flip", "normalize"],
        &["select_bands(3, 1, 3)", "center_crop(4)", "normalize(1000, 37)"],
        &["select_bands(2)", "pad_crop(1)", "flip"],
        &[],
    ];
    for dtype in [Dtype::U16, Dtype::I16, Dtype::F32] {
        let data = data(dtype, SPEC, |_| dtype);
        for ops in lists {
            let pipeline = pipeline(ops, dtype, SPEC).unwrap();
            let Some(Conversion::Normalize(pairs)) = pipeline.conversion() else { panic!("{ops:?} of {dtype}") };
            pipeline.check_bytes().unwrap();
            let order = || Box::new(EvalOrder::new(20, 8, 0, 1));
            let start = |format| Loader::start_as(format, data.shared(), pipeline.clone(), order(), Options::default());
            let (mut floats, mut stored) =
                (start(PixelFormat::Values).unwrap(), start(PixelFormat::Bytes(dtype)).unwrap());
            let (mut images, output) = (0, pipeline.output());
            while let (Some(floats), Some(stored)) = (floats.next().unwrap(), stored.next().unwrap()) {
                assert_eq!(stored.pixels().len(), floats.len() * output.values() * dtype.bytes());
                let each = floats.images().chunks_exact(output.values());
                for (image, pixels) in each.zip(stored.pixels().chunks_exact(output.values() * dtype.bytes())) {
                    let found = converted(dtype, pixels, &pairs);
                    assert!(found.iter().zip(image).all(|(a, b)| a.to_bits() == b.to_bits()), "{ops:?} of {dtype}");
                    images += 1;
                }
            }
            assert_eq!(images, 20);
        }
    }
    for (ops, index, problem) in [
        (&["resize(4x4)", "normalize"][..], 0, "makes floats"),
        (&["flip", "log1p"], 1, "makes floats"),
        (&["flip", "normalize", "pad_crop(1)"], 2, "follows normalize"),
    ] {
        let pipeline = pipeline(ops, Dtype::F32, SPEC).unwrap();
        assert_eq!(pipeline.conversion(), None);
        let error = pipeline.check_bytes().unwrap_err().to_string();
        assert!(error.contains(problem) && error.contains(ops[index]), "{error}");
    }
}

/// Images with eight bands or more are converted in blocks of pixels and bands. Compares all sizes with plain loops.
#[test]
fn blocks_of_bands_equal_plain_loops() {
    for dtype in [Dtype::U16, Dtype::F32] {
        for (channels, width) in [(7, 9), (8, 8), (8, 7), (9, 17), (13, 64), (16, 33), (21, 1), (40, 50), (1024, 12)] {
            let spec = ImageSpec::new(3, width, channels);
            let values = values(dtype, u64::from(channels), spec);
            for ops in [&["pad_crop(2)", "flip"][..], &["normalize"]] {
                let out = run(&pipeline(ops, dtype, spec).unwrap(), &values, spec, 5);
                let (mut draws, crops) = (Draws::new(1, 5, 0, 0), ops.len() == 2);
                let [down, right] = [0; 2].map(|_: i32| if crops { draws.below(5) as i32 - 2 } else { 0 });
                let mirrored = crops && Draws::new(1, 5, 0, 1).unit() < 0.5;
                for (at, found) in out.iter().enumerate() {
                    let (c, y, x) = (at / (3 * width as usize), at / width as usize % 3, at % width as usize);
                    let x = if mirrored { width as i32 - 1 - x as i32 } else { x as i32 } + right;
                    let y = y as i32 + down;
                    let inside = (0..3).contains(&y) && (0..width as i32).contains(&x);
                    let place = || (y * width as i32 + x) as usize * channels as usize + c;
                    let value = if inside { values[place()] } else { 0.0 };
                    let expected = if crops { value } else { (value - 100.0 * c as f32) / (1 + c) as f32 };
                    assert_eq!(found.to_bits(), expected.to_bits(), "{spec} of {dtype}, {ops:?}, value {at}");
                }
            }
        }
    }
}

#[test]
fn a_record_of_another_type_or_length_is_named() {
    let data = data(Dtype::U16, SPEC, |id| if id == 13 { Dtype::I16 } else { Dtype::U16 });
    let split = data.shared();
    let pipeline = pipeline(&["normalize"], Dtype::U16, SPEC).unwrap();
    let order = Box::new(EvalOrder::new(split.len(), 20, 0, 1));
    let mut loader = Loader::start(split, pipeline.clone(), order, Options::default()).unwrap();
    let error = loader.next().unwrap_err().to_string();
    let parts = ["train-00001-of-00002.tfrecord, record 3", "of int16 values", "expected uint16"];
    assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    let (encoded, mut out) = (vec![0; 629], vec![0.0; SPEC.values()]);
    let short = record(&encoded, Dtype::U16, SPEC);
    let fault = pipeline.run(&short, 0, 0, &mut Scratch::default(), &mut out).unwrap_err().to_string();
    let parts = ["9x7x5", "uint16", "630 bytes", "got 629"];
    assert!(parts.iter().all(|part| fault.contains(part)), "{fault}");
}
