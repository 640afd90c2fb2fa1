//! Runs one transform on a small image, for tests.

use crate::decode::Decoded;
use crate::random::Draws;
use crate::spec::ImageSpec;
use crate::transform::call;
use crate::transform::canvas::Canvas;
use crate::transform::op::{Build, Context};
use crate::transform::resample::Resampler;

/// The resulting floats of the transform `text` on `bytes` for sample `id`, as the only one of a list (seed 1, epoch 0).
pub(super) fn run(build: Build, text: &str, spec: ImageSpec, bytes: &[u8], id: u64) -> Vec<f32> {
    let context = Context { input: spec, mean: &[0.5, 0.25, 0.125], std: &[0.5, 0.25, 2.0] };
    let transform = build(&call::parse(text).unwrap().arguments, context).unwrap();
    let output = transform.output(spec).unwrap().values();
    let mut values = vec![f32::NAN; output.max(spec.values())];
    let mut resampler = Resampler::default();
    let mut canvas = Canvas::new(spec, &mut values, &mut resampler);
    canvas.load(Decoded { bytes, columns: spec.width as usize, origin: (0, 0), reduction: 1 });
    transform.apply(&mut canvas, &mut draws(id));
    let values = canvas.floats().to_vec();
    assert_eq!(values.len(), output, "{text}");
    values
}

/// The draws that the transform has in `run`.
pub(super) fn draws(id: u64) -> Draws {
    Draws::new(1, id, 0, 0)
}
