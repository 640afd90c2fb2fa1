//! Sharpness: a blend with the image smoothed by (1 1 1; 1 5 1; 1 1 1) / 13. The outermost pixels stay.

use super::arithmetic::{fused, whole};
use super::image::ByteImage;
use crate::transform::moves::PlanarShape;

/// Blends with the smoothed image: `factor` of the image, `1 - factor` of the other. An image of two rows or columns stays.
pub(in crate::transform) fn sharpness(image: &mut ByteImage, factor: f64) {
    let shape = image.shape();
    if shape.height <= 2 || shape.width <= 2 {
        return;
    }
    let rest = (1.0 - factor) as f32;
    image.remake(|source, target, _| {
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
        // of each of the three rows the left, middle and right neighbours
        let [[a0, a1, a2], [b0, b1, b2], [c0, c1, c2]] =
            [above, here, below].map(|row| [&row[..inner], &row[1..=inner], &row[2..]]);
        for (x, out) in out[1..=inner].iter_mut().enumerate() {
            let corners = [a0[x], a2[x], c0[x], c2[x]].map(u16::from);
            let sides = [a1[x], b0[x], b2[x], c1[x]].map(u16::from);
            let all = corners.iter().sum::<u16>() + sides.iter().sum::<u16>() + 5 * u16::from(b1[x]);
            // to the nearest: all / 13 is never half-way
            let smooth = (2 * all + 13) / 26;
            let value = f32::from(b1[x]);
            *out = whole(fused(rest, f32::from(smooth) - value, value)) as i32 as u8;
        }
    }
    let last = (shape.height - 1) * width;
    target[last..].copy_from_slice(row(shape.height - 1));
}
