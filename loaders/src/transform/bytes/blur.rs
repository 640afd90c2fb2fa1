//! Gaussian blur over a square of odd side, the image mirrored at its borders; torchvision's weights.

use super::arithmetic::nearest;
use super::image::ByteImage;
use crate::transform::moves::PlanarShape;

/// Computes the weights of one axis: exp(-d^2 / (2 sigma^2)), made to sum to one.
fn weigh(weights: &mut [f32], sigma: f64) {
    let middle = (weights.len() - 1) as f64 / 2.0;
    let exact = |i: usize| (-0.5 * ((i as f64 - middle) / sigma).powi(2)).exp();
    let sum: f64 = (0..weights.len()).map(exact).sum();
    weights.iter_mut().enumerate().for_each(|(i, weight)| *weight = (exact(i) / sum) as f32);
}

/// Where `position`, which may lie outside, is mirrored to without repeating the first or last of `length`.
pub(super) fn mirrored(position: isize, length: usize) -> usize {
    let last = length as isize - 1;
    let inner = position.abs();
    (if inner > last { 2 * last - inner } else { inner }) as usize
}

/// Blurs with a square of `side` x `side` (odd); half of it must be shorter than both sides of the image.
pub(in crate::transform) fn blur(image: &mut ByteImage, side: usize, sigma: f64) {
    let shape = image.shape();
    let plane = shape.plane().max(1);
    image.remake(|source, target, lines| {
        let (weights, line) = lines.rows(side + shape.width + side, 0).floats.split_at_mut(side);
        weigh(weights, sigma);
        for (source, target) in source.chunks_exact(plane).zip(target.chunks_exact_mut(plane)) {
            for (y, out) in target.chunks_exact_mut(shape.width).enumerate() {
                sum_rows(source, shape, y, weights, line);
                for (x, out) in out.iter_mut().enumerate() {
                    *out = nearest(line[x..].iter().zip(&*weights).map(|(value, weight)| value * weight).sum());
                }
            }
        }
    });
}

/// The weighted sum of the rows about row `y`, mirrored at both ends.
fn sum_rows(source: &[u8], shape: PlanarShape, y: usize, weights: &[f32], line: &mut [f32]) {
    let (width, reach) = (shape.width, weights.len() / 2);
    let middle = &mut line[reach..reach + width];
    middle.fill(0.0);
    for (i, weight) in weights.iter().enumerate() {
        let row = mirrored((y + i) as isize - reach as isize, shape.height);
        add(middle, &source[row * width..][..width], *weight);
    }
    for i in 1..=reach {
        line[reach - i] = line[reach + i];
        line[reach + width - 1 + i] = line[reach + width - 1 - i];
    }
}

fn add(sums: &mut [f32], row: &[u8], weight: f32) {
    sums.iter_mut().zip(row).for_each(|(sum, &byte)| *sum += f32::from(byte) * weight);
}
