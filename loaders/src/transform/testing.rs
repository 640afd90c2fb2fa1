//! Runs a transform on a small image, for tests.

use std::collections::BTreeMap;

use crate::decode::Decoded;
use crate::format::bands::Bands;
use crate::format::manifest::Manifest;
use crate::random::Draws;
use crate::spec::{Dtype, ImageSpec};
use crate::transform::call::{self, Arguments};
use crate::transform::canvas::{Canvas, Work};
use crate::transform::op::{Build, BuildResult, Context, Transform};
use crate::transform::statistics::Statistics;

/// Statistics for a data set without measurements.
pub(super) static UNKNOWN: Statistics = Statistics {
    mean: Vec::new(),
    std: Vec::new(),
    forgotten: None,
    no_range_after: None,
    are_bytes: true,
    bands: Bands {
        dtype: Dtype::U8,
        channels: None,
        names: Vec::new(),
        min: Vec::new(),
        max: Vec::new(),
        percentiles: BTreeMap::new(),
        nodata: None,
        reading: None,
    },
};

/// Runs the transform `text`, which has only numbers as arguments, on `bytes` as sample `id` and returns the floats.
/// The transform is the only one of its list. The seed is 1 and the epoch 0.
pub(super) fn run(
    build: fn(&[f64], Context<'_>) -> BuildResult,
    text: &str,
    spec: ImageSpec,
    bytes: &[u8],
    id: u64,
) -> Vec<f32> {
    apply(&*build_transform(Build::Numbers(build), text, spec).unwrap(), spec, bytes, &mut draws(id))
}

/// Works like [`run`], for a transform with any arguments.
pub(super) fn run_any(
    build: fn(&Arguments<'_>, Context<'_>) -> BuildResult,
    text: &str,
    spec: ImageSpec,
    bytes: &[u8],
    id: u64,
) -> Vec<f32> {
    apply(&*build_transform(Build::Any(build), text, spec).unwrap(), spec, bytes, &mut draws(id))
}

/// Builds the transform `text` for images of shape `spec`.
pub(super) fn build_transform(build: Build, text: &str, spec: ImageSpec) -> BuildResult {
    let manifest = Manifest { mean: vec![0.5, 0.25, 0.125], std: vec![0.5, 0.25, 2.0], ..Manifest::default() };
    let context = Context { input: spec, statistics: &Statistics::new(&manifest, spec.channels, false) };
    build.run(&call::split(text)?.1, context)
}

/// Applies a transform with these draws and returns the floats.
pub(super) fn apply(transform: &dyn Transform, spec: ImageSpec, bytes: &[u8], draws: &mut Draws) -> Vec<f32> {
    let output = transform.output(spec).unwrap().values();
    let mut values = vec![f32::NAN; output.max(spec.values())];
    let mut work = Work::default();
    let mut canvas = Canvas::new(spec, &mut values, &mut work);
    canvas.load(Decoded { bytes, dtype: Dtype::U8, columns: spec.width as usize, origin: (0, 0), reduction: 1 });
    transform.apply(&mut canvas, draws);
    let values = canvas.floats().to_vec();
    assert_eq!(values.len(), output, "{transform}");
    values
}

/// Returns the draws that `run` passes to the transform.
pub(super) fn draws(id: u64) -> Draws {
    Draws::new(1, id, 0, 0)
}
