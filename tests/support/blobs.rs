//! Small data sets with numbers as labels. Each image has a bright blob on a noisy background. The numbers are the
//! blob's centre as a fraction of the image, and its radius in thousandths of a pixel.

use std::path::Path;

use loaders::example::FloatList;
use loaders::{Draws, Dtype, ImageSpec, LabelKind, Manifest, Target};

use super::images::{Images, Record};

/// The target names.
pub const TARGETS: [&str; 3] = ["x", "y", "radius"];

/// Returns the numbers for sample `id`.
pub fn numbers(seed: u64, id: u64) -> [f32; 3] {
    let mut draws = Draws::new(seed, id, 0, 0);
    let [x, y] = [0; 2].map(|_| 0.2 + 0.6 * draws.unit());
    [x, y, 1500.0 + 2500.0 * draws.unit()]
}

/// Returns the pixels for sample `id`. The image must be grey.
pub fn pixels(seed: u64, id: u64, spec: ImageSpec) -> Vec<u8> {
    let ([x, y, radius], mut draws) = (numbers(seed, id), Draws::new(seed, id, 0, 1));
    let (cx, cy, radius) = (x * spec.width as f32, y * spec.height as f32, radius / 1000.0);
    let places = (0..spec.height).flat_map(|y| (0..spec.width).map(move |x| (x as f32 + 0.5, y as f32 + 0.5)));
    let bright = |(px, py): (f32, f32)| {
        let distance = ((px - cx).powi(2) + (py - cy).powi(2)) / (2.0 * radius * radius);
        (30.0 + 180.0 * (-distance).exp() + 40.0 * draws.unit()) as u8
    };
    places.map(bright).collect()
}

/// Writes `train` images in 4 shards and `test` images in 2 shards to `dir`.
pub fn images(dir: &Path, spec: ImageSpec, [train, test]: [u64; 2]) -> Images {
    let record = |seed: u64, id: u64| {
        let (pixels, mut list) = (pixels(seed, id, spec), FloatList::default());
        list.set(numbers(seed, id).into_iter());
        let labels = Some(Default::default());
        Record { pixels, spec, dtype: Dtype::U8, label: 0, labels, numbers: Some(list) }
    };
    let targets = TARGETS.iter().enumerate().map(|(at, name)| {
        let all: Vec<f64> = (0..train).map(|id| f64::from(numbers(1, id)[at])).collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        let std = (all.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / all.len() as f64).sqrt();
        Target { name: name.to_string(), mean, std }
    });
    let manifest = Manifest {
        version: Manifest::version_for(LabelKind::Numbers, &Default::default()),
        targets: targets.collect(),
        mean: vec![0.25],
        std: vec![0.2],
        ..Manifest::default()
    };
    Images::write(dir, [train, test], manifest, record)
}
