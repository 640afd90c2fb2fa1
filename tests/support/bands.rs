//! Small data sets with two classes, for any band count and value type.

use std::path::Path;

use loaders::{Bands, Draws, Dtype, ImageSpec, LabelKind, Manifest};

use super::images::{Images, Record};

/// The position of a value in an image: row, column and band, and the label of the image.
#[derive(Clone, Copy)]
pub struct At {
    pub y: u32,
    pub x: u32,
    pub band: u32,
    /// 0 or 1.
    pub label: u32,
}

/// Writes images with values from `value`, which may draw from the image's random numbers. `dataset.json` describes the training images.
pub fn images(
    dir: &Path,
    (spec, dtype): (ImageSpec, Dtype),
    [train, test]: [u64; 2],
    value: impl Fn(At, &mut Draws) -> f64,
) -> Images {
    let values = |seed: u64, id: u64| {
        let mut draws = Draws::new(seed, id, 0, 0);
        let label = draws.below(2);
        let places = (0..spec.height).flat_map(|y| (0..spec.width).map(move |x| (y, x)));
        let bands = places.flat_map(|(y, x)| (0..spec.channels).map(move |band| At { y, x, band, label }));
        (label, bands.map(|at| value(at, &mut draws)).collect::<Vec<f64>>())
    };
    let record = |seed: u64, id: u64| {
        let (label, values) = values(seed, id);
        let pixels = values.iter().flat_map(|&value| stored(dtype, value)).collect();
        Record { pixels, spec, dtype, label: label.into(), labels: None, numbers: None }
    };
    let channels = spec.channels as usize;
    let mut bands: Vec<Vec<f64>> = vec![Vec::new(); channels];
    for id in 0..train {
        for pixel in values(1, id).1.chunks_exact(channels) {
            bands.iter_mut().zip(pixel).for_each(|(band, value)| band.push(*value));
        }
    }
    bands.iter_mut().for_each(|band| band.sort_by(f64::total_cmp));
    let means: Vec<f64> = bands.iter().map(|band| band.iter().sum::<f64>() / band.len() as f64).collect();
    let deviation = |(band, mean): (&Vec<f64>, &f64)| {
        (band.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / band.len() as f64).sqrt()
    };
    let percentile = |percent: usize| bands.iter().map(|band| band[(band.len() - 1) * percent / 100]).collect();
    let unit = if dtype == Dtype::U8 { 255.0 } else { 1.0 };
    let described = Bands {
        dtype,
        channels: Some(spec.channels),
        names: (1..=channels).map(|band| format!("B{band}")).collect(),
        min: percentile(0),
        max: percentile(100),
        percentiles: [1, 99].map(|percent| (percent.to_string(), percentile(percent))).into(),
        nodata: None,
        reading: None,
        to_8bit: None,
    };
    let manifest = Manifest {
        version: Manifest::version_for(LabelKind::OneClass, &described),
        classes: vec!["left".into(), "right".into()],
        bands: described,
        mean: means.iter().map(|mean| mean / unit).collect(),
        std: bands.iter().zip(&means).map(deviation).map(|deviation| deviation / unit).collect(),
        ..Manifest::default()
    };
    Images::write(dir, [train, test], manifest, record)
}

/// Returns a value's little-endian bytes.
pub fn stored(dtype: Dtype, value: f64) -> Vec<u8> {
    match dtype {
        Dtype::U8 => vec![value as u8],
        Dtype::U16 => (value as u16).to_le_bytes().to_vec(),
        Dtype::I16 => (value as i16).to_le_bytes().to_vec(),
        Dtype::F32 => (value as f32).to_le_bytes().to_vec(),
    }
}
