//! Transforms against what torchvision and TensorFlow answer on the same image and the same draws. The scripts in
//! `golden/` print the numbers; `draws.py` there says what the images are.

use loaders::transform::{Pipeline, Scratch};
use loaders::{Draws, ImageSpec, Manifest};
use serde::Deserialize;

#[derive(Deserialize)]
struct Golden {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    op: String,
    sample: u64,
    /// Height, width, channels.
    shape: [u32; 3],
    /// Planar.
    #[serde(default)]
    values: Vec<f32>,
    /// Planar bytes in hex, in place of `values`.
    #[serde(default)]
    bytes: String,
}

/// Greys, full colours and ties, ahead of noise.
const CORNERS: [u8; 24] =
    [0, 0, 0, 255, 255, 255, 128, 128, 128, 200, 200, 10, 10, 200, 200, 200, 10, 200, 0, 0, 7, 255, 0, 0];

fn image(case: &Case, spec: ImageSpec) -> Vec<u8> {
    let mut draws = Draws::new(99, case.sample, 0, 0);
    let mut bytes: Vec<u8> = (0..spec.values()).map(|_| draws.next_u32() as u8).collect();
    let n = bytes.len().min(CORNERS.len());
    bytes[..n].copy_from_slice(&CORNERS[..n]);
    bytes
}

/// The largest distance of `case`'s values from the op's.
fn distance(case: &Case) -> f32 {
    let [height, width, channels] = case.shape;
    let spec = ImageSpec::new(height, width, channels);
    let manifest: Manifest = serde_json::from_str(r#"{"version":1,"classes":["a"],"splits":{}}"#).unwrap();
    let pipeline = Pipeline::new(std::slice::from_ref(&case.op), spec, &manifest, 1).unwrap();
    let mut out = vec![f32::NAN; spec.values()];
    let of_hex = |at: usize| f32::from(u8::from_str_radix(&case.bytes[at..at + 2], 16).unwrap());
    let expected = match case.values.is_empty() {
        true => (0..case.bytes.len()).step_by(2).map(of_hex).collect(),
        false => case.values.clone(),
    };
    assert_eq!(out.len(), expected.len());
    pipeline.apply(&image(case, spec), spec, case.sample, 0, &mut Scratch::default(), &mut out).unwrap();
    // In this order NaN is the greatest.
    out.iter().zip(&expected).map(|(a, b)| (a - b).abs()).max_by(f32::total_cmp).unwrap()
}

/// Every op of `tolerances` occurs, and none strays further than its number; nothing else occurs.
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

/// Distances are on the scale 0 to 255: 2.5e-5 is 1e-7 of it. The bytes of `color_jitter` and the rectangles are exact.
#[test]
fn torchvision() {
    let tolerances = [("color_jitter", 0.0), ("lighting", 2e-5), ("random_erasing", 0.0)];
    check(include_str!("../golden/torchvision.json"), &tolerances);
}

/// Bytes: all are exact.
#[test]
fn torchvisions_policies() {
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
fn tensorflow() {
    let tolerances = [
        ("inception_distort", 2e-4),
        ("cifar_distort", 5e-5),
        ("brightness", 0.0),
        ("contrast", 3e-5),
        ("standardize", 5e-7),
    ];
    check(include_str!("../golden/tensorflow.json"), &tolerances);
}
