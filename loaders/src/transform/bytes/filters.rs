//! Blurring, sharpening, and shifting an image with reflected borders.

use super::image::{ByteImage, Pixel, Planes};
use super::values::{fused, whole};
use crate::transform::geometry::PlanarShape;

/// Computes the weights of one axis: exp(-d^2 / (2 sigma^2)), where d is the distance from the middle, normalised to a
/// sum of 1.
fn weigh(weights: &mut [f32], sigma: f64) {
    let middle = (weights.len() - 1) as f64 / 2.0;
    let exact = |i: usize| (-0.5 * ((i as f64 - middle) / sigma).powi(2)).exp();
    let sum: f64 = (0..weights.len()).map(exact).sum();
    weights.iter_mut().enumerate().for_each(|(i, weight)| *weight = (exact(i) / sum) as f32);
}

/// Maps a position outside `0..length` to its mirror image inside. The first and last elements are not repeated.
pub(super) fn mirrored(position: isize, length: usize) -> usize {
    let last = length as isize - 1;
    let inner = position.abs();
    (if inner > last { 2 * last - inner } else { inner }) as usize
}

/// Blurs with a kernel of `side` x `side`. `side` must be odd, and half of it must be smaller than both sides of the
/// image.
pub(in crate::transform) fn blur<T: Pixel>(image: &mut Planes<T>, side: usize, sigma: f64) {
    let shape = image.shape();
    let plane = shape.plane().max(1);
    image.replace_with(|source, target, lines| {
        let (weights, line) = lines.rows(side + shape.width + side, 0).floats.split_at_mut(side);
        weigh(weights, sigma);
        for (source, target) in source.chunks_exact(plane).zip(target.chunks_exact_mut(plane)) {
            for (y, out) in target.chunks_exact_mut(shape.width).enumerate() {
                sum_rows(source, shape, y, weights, line);
                for (x, out) in out.iter_mut().enumerate() {
                    *out = T::nearest(line[x..].iter().zip(&*weights).map(|(value, weight)| value * weight).sum());
                }
            }
        }
    });
}

/// Computes the weighted sum of the rows around row `y`, and extends it at both ends by mirroring.
fn sum_rows<T: Pixel>(source: &[T], shape: PlanarShape, y: usize, weights: &[f32], line: &mut [f32]) {
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

fn add<T: Pixel>(sums: &mut [f32], row: &[T], weight: f32) {
    sums.iter_mut().zip(row).for_each(|(sum, pixel)| *sum += pixel.value() * weight);
}

/// Blends the image with its smoothed version: `factor` times the image plus `1 - factor` times the smoothed image. An
/// image with at most two rows or columns does not change.
pub(in crate::transform) fn sharpness(image: &mut ByteImage, factor: f64) {
    let shape = image.shape();
    if shape.height <= 2 || shape.width <= 2 {
        return;
    }
    let rest = (1.0 - factor) as f32;
    image.replace_with(|source, target, _| {
        let planes = source.chunks_exact(shape.plane()).zip(target.chunks_exact_mut(shape.plane()));
        planes.for_each(|(source, target)| sharpen(source, target, shape, rest));
    });
}

fn sharpen(source: &[u8], target: &mut [u8], shape: PlanarShape, rest: f32) {
    let width = shape.width;
    let row = |y: usize| &source[y * width..][..width];
    target[..width].copy_from_slice(row(0));
    for (y, out) in target.chunks_exact_mut(width).enumerate().take(shape.height - 1).skip(1) {
        let (above, here, below) = (row(y - 1), row(y), row(y + 1));
        out[0] = here[0];
        out[width - 1] = here[width - 1];
        let inner = width - 2;
        // The left, middle and right neighbours in each of the three rows.
        let [[a0, a1, a2], [b0, b1, b2], [c0, c1, c2]] =
            [above, here, below].map(|row| [&row[..inner], &row[1..=inner], &row[2..]]);
        for (x, out) in out[1..=inner].iter_mut().enumerate() {
            let corners = [a0[x], a2[x], c0[x], c2[x]].map(u16::from);
            let sides = [a1[x], b0[x], b2[x], c1[x]].map(u16::from);
            let all = corners.iter().sum::<u16>() + sides.iter().sum::<u16>() + 5 * u16::from(b1[x]);
            // Rounds to the nearest integer. `all / 13` is never half-way between two integers.
            let smooth = (2 * all + 13) / 26;
            let value = f32::from(b1[x]);
            *out = whole(fused(rest, f32::from(smooth) - value, value)) as i32 as u8;
        }
    }
    let last = (shape.height - 1) * width;
    target[last..].copy_from_slice(row(shape.height - 1));
}

/// Replaces the image by a window of the same size that starts `down` rows and `right` columns after the image's top
/// left corner. Beyond its borders, the image is mirrored without repeating the border pixels. Both offsets must be
/// smaller than the sides of the image.
pub(in crate::transform) fn shift_reflected<T: Pixel>(image: &mut Planes<T>, down: i32, right: i32) {
    let shape = image.shape();
    let (height, width) = (shape.height, shape.width);
    image.replace_with(|source, target, _| {
        let planes = source.chunks_exact(shape.plane().max(1)).zip(target.chunks_exact_mut(shape.plane().max(1)));
        for (source, target) in planes {
            for (y, out) in target.chunks_exact_mut(width).enumerate() {
                let row = &source[mirrored(y as isize + down as isize, height) * width..][..width];
                for (x, out) in out.iter_mut().enumerate() {
                    *out = row[mirrored(x as isize + right as isize, width)];
                }
            }
        }
    });
}
