//! Runs a transform on a small image, for tests.

use crate::decode::Decoded;
use crate::format::manifest::Manifest;
use crate::random::Draws;
use crate::spec::{Dtype, ImageSpec};
use crate::transform::canvas::{Canvas, Work};
use crate::transform::op::{BuildResult, Context, Transform};
use crate::transform::ops;
use crate::transform::statistics::Statistics;

/// Runs the transform `text` on `bytes` as sample `id` and returns the floats. The transform is the only one of its
/// list. The seed is 1 and the epoch 0.
pub(super) fn run(text: &str, spec: ImageSpec, bytes: &[u8], id: u64) -> Vec<f32> {
    apply(&*build(text, spec).unwrap(), spec, bytes, &mut draws(id))
}

/// Builds the transform `text` for images of shape `spec`.
pub(super) fn build(text: &str, spec: ImageSpec) -> BuildResult {
    let manifest = Manifest { mean: vec![0.5, 0.25, 0.125], std: vec![0.5, 0.25, 2.0], ..Manifest::default() };
    ops::parse(text, Context { input: spec, statistics: &Statistics::new(&manifest, spec.channels, false) })
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
    assert_eq!(values.len(), output, "{transform:?}");
    values
}

/// Returns the draws that `run` passes to the transform.
pub(super) fn draws(id: u64) -> Draws {
    Draws::new(1, id, 0, 0)
}
