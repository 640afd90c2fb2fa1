//! Compares transforms with the results of torchvision and TensorFlow for the same image and the same draws. The
//! scripts in `golden/` print the numbers, and `draws.py` there defines the images.

use std::fs;
use std::path::{Path, PathBuf};

use loaders::example::{Example, Format};
use loaders::transform::{Pipeline, Scratch};
use loaders::{Draws, ImageSpec, Images, Manifest};
use serde::Deserialize;

use crate::common::{self, TestData};

#[derive(Deserialize)]
struct Golden {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    op: String,
    sample: u64,
    /// Height, width and channels of the image.
    shape: [u32; 3],
    /// The expected floats (C, H, W).
    #[serde(default)]
    values: Vec<f32>,
    /// The expected bytes (C, H, W) in hexadecimal, instead of `values`.
    #[serde(default)]
    bytes: String,
}

/// The first bytes of each image: greys, full colours, and colours with two equal channels. The rest is noise.
const CORNERS: [u8; 24] =
    [0, 0, 0, 255, 255, 255, 128, 128, 128, 200, 200, 10, 10, 200, 200, 200, 10, 200, 0, 0, 7, 255, 0, 0];

fn image(case: &Case, spec: ImageSpec) -> Vec<u8> {
    let mut draws = Draws::new(99, case.sample, 0, 0);
    let mut bytes: Vec<u8> = (0..spec.values()).map(|_| draws.next_u32() as u8).collect();
    let n = bytes.len().min(CORNERS.len());
    bytes[..n].copy_from_slice(&CORNERS[..n]);
    bytes
}

fn from_hex(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// Returns the largest distance between the values of `case` and the result of the op.
fn distance(case: &Case) -> f32 {
    let [height, width, channels] = case.shape;
    let spec = ImageSpec::new(height, width, channels);
    let manifest: Manifest = serde_json::from_str(r#"{"version":1,"classes":["a"],"splits":{}}"#).unwrap();
    let pipeline = Pipeline::new(std::slice::from_ref(&case.op), spec, &manifest, 1).unwrap();
    let mut out = vec![f32::NAN; spec.values()];
    let expected: Vec<f32> = match case.values.is_empty() {
        true => from_hex(&case.bytes).into_iter().map(f32::from).collect(),
        false => case.values.clone(),
    };
    assert_eq!(out.len(), expected.len());
    pipeline.apply(&image(case, spec), spec, case.sample, 0, &mut Scratch::default(), &mut out).unwrap();
    // `total_cmp` treats NaN as the largest value, so a NaN cannot hide.
    out.iter().zip(&expected).map(|(a, b)| (a - b).abs()).max_by(f32::total_cmp).unwrap()
}

/// Checks that every op of `tolerances` occurs and no other op, and that no result exceeds the op's tolerance.
fn check(text: &str, tolerances: &[(&str, f32)]) {
    let golden: Golden = serde_json::from_str(text).unwrap();
    let mut seen = vec![0; tolerances.len()];
    for case in &golden.cases {
        let name = case.op.split('(').next().unwrap();
        let known = tolerances.iter().position(|(op, _)| *op == name).unwrap_or_else(|| panic!("{name}: no tolerance"));
        let (distance, most) = (distance(case), tolerances[known].1);
        assert!(distance <= most, "{} of sample {}: {distance} away, at most {most}", case.op, case.sample);
        seen[known] += 1;
    }
    assert!(seen.iter().all(|n| *n > 0), "{seen:?}");
}

/// Distances are on the scale 0 to 255, so 2.5e-5 is a relative error of 1e-7. The bytes of `color_jitter` and the
/// rectangles are exact.
#[test]
fn transforms_match_torchvision() {
    let tolerances = [("color_jitter", 0.0), ("lighting", 2e-5), ("random_erasing", 0.0)];
    check(include_str!("../golden/torchvision.json"), &tolerances);
}

/// The results are bytes, and all of them are exact.
#[test]
fn policies_match_torchvision_exactly() {
    let exact = [
        "affine",
        "augmix",
        "auto_augment",
        "autocontrast",
        "equalize",
        "gaussian_blur",
        "grayscale",
        "invert",
        "perspective",
        "posterize",
        "rand_augment",
        "rotation",
        "sharpness",
        "solarize",
        "trivial_augment",
    ];
    check(include_str!("../golden/policies.json"), &exact.map(|op| (op, 0.0)));
}

#[test]
fn transforms_match_tensorflow() {
    let tolerances = [
        ("inception_distort", 2e-4),
        ("cifar_distort", 5e-5),
        ("brightness", 0.0),
        ("contrast", 3e-5),
        ("standardize", 5e-7),
    ];
    check(include_str!("../golden/tensorflow.json"), &tolerances);
}

// Compares picture files of each kind with the results of PIL and torchvision for the same draws, recorded by
// `golden/crops.py`.

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// Returns the name of the file, transforms, sample, and the resulting RGB bytes.
fn cases() -> Vec<(String, String, u64, Vec<u8>)> {
    let rows: Vec<(String, String, u64, String)> =
        serde_json::from_str(&fs::read_to_string(golden("pictures.json")).unwrap()).unwrap();
    rows.into_iter().map(|(name, ops, sample, hex)| (name, ops, sample, from_hex(&hex))).collect()
}

/// Builds a pipeline with seed 1. `head` holds the words that precede the transforms.
fn pipeline(head: &[&str], ops: &str) -> Pipeline {
    let data = TestData::noise(1, 1, ImageSpec::new(1, 1, 3));
    let head = head.iter().map(|word| (*word).to_owned());
    let ops: Vec<_> = head.chain(ops.split_inclusive(')').map(|op| op.trim().to_owned())).collect();
    Pipeline::new(&ops, Images::Varied { channels: 3 }, &data.manifest, 1).unwrap()
}

/// Returns the largest and the mean difference between planar floats and interleaved bytes.
fn differences(out: &[f32], expected: &[u8]) -> (f32, f32) {
    let plane = out.len() / 3;
    let differences: Vec<f32> =
        (0..out.len()).map(|i| (out[i] - f32::from(expected[3 * (i % plane) + i / plane])).abs()).collect();
    (differences.iter().copied().fold(0.0, f32::max), differences.iter().sum::<f32>() / out.len() as f32)
}

/// Decoding, the crop and resizing together stay within 1.1 of 255 of PIL, which rounds to integers twice.
///
/// With `fast_decode`, a JPEG that shrinks to half or less is decoded at 1/2 or 1/4 scale, which keeps slightly more
/// detail. On these noisy pictures the mean difference stays below 3.5. On photos it is about 1.
#[test]
fn pixels_match_pil() {
    let mut scratch = Scratch::default();
    let cases = cases();
    assert_eq!(cases.len(), 67);
    let mut reduced = 0;
    for (name, ops, sample, expected) in cases {
        let file = fs::read(golden("pictures").join(&name)).unwrap();
        let example = Example::from_file(&file, Format::Jpeg);
        let (pipeline, fast) = (pipeline(&[], &ops), pipeline(&["fast_decode"], &ops));
        let mut out = vec![f32::NAN; pipeline.output().values()];
        assert_eq!(out.len(), expected.len());
        let case = format!("{name}, {ops}, sample {sample}");

        let (shape, whole) = common::decoded(&example);
        pipeline.apply(&whole, shape, sample, 0, &mut scratch, &mut out).unwrap();
        let (most, mean) = differences(&out, &expected);
        // PIL clamps values that overshoot after each of its passes.
        let limit = if ops.contains("bicubic") || ops.contains("lanczos") { 6.0 } else { 1.1 };
        assert!(most < limit && mean < 0.6, "{case}, decoded whole: {most}, {mean} on the average");

        pipeline.run(&example, sample, 0, &mut scratch, &mut out).unwrap();
        let (most, mean) = differences(&out, &expected);
        assert!(most < limit && mean < 0.6, "{case}: {most}, {mean} on the average");

        fast.run(&example, sample, 0, &mut scratch, &mut out).unwrap();
        let (most, mean) = differences(&out, &expected);
        reduced += u32::from(most >= limit);
        let allowed = most < limit || name.ends_with(".jpg") && mean < 3.5;
        assert!(allowed, "{case}, fast_decode: {most}, {mean} on the average");
    }
    assert_eq!(reduced, 28);
}
