//! `cifar_distort`: what TensorFlow's CIFAR-10 tutorial does to a training image between its crop and its
//! standardisation, as one transform: mirrored with probability 1/2, brightness + U[-63, 63), contrast x U[0.2, 1.8).
//!
//! The same as `flip`, `brightness(63)`, `contrast(0.2, 1.8)`, but for the draws, in two passes over the values.

use std::fmt;

use crate::random::Draws;
use crate::transform::arguments::no_arguments;
use crate::transform::canvas::Canvas;
use crate::transform::moments::mean;
use crate::transform::op::{Context, Transform};

#[derive(Debug)]
struct CifarDistort;

pub(super) fn build(arguments: &[f64], _context: Context<'_>) -> Result<Box<dyn Transform>, String> {
    no_arguments(arguments)?;
    Ok(Box::new(CifarDistort))
}

impl Transform for CifarDistort {
    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        if draws.unit() < 0.5 {
            image.flip();
        }
        let delta = draws.range(-63.0, 63.0);
        let factor = draws.range(0.2, 1.8);
        let pixels = image.spec().pixels().max(1);
        for plane in image.floats().chunks_exact_mut(pixels) {
            // the mean moves by delta, too, so the distances from it do not
            let mean = mean(plane) as f32;
            for value in plane {
                *value = (*value - mean) * factor + (mean + delta);
            }
        }
    }
}

impl fmt::Display for CifarDistort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cifar_distort")
    }
}
