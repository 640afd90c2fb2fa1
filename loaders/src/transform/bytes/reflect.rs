//! Moving an image over its own reflection.

use super::blur::mirrored;
use super::image::ByteImage;

/// Moves the window by `down` rows and `right` columns over the image, which is mirrored outside without repeating its borders; both
/// must be smaller than the sides of the image.
pub(in crate::transform) fn shift_reflected(image: &mut ByteImage, down: i32, right: i32) {
    let shape = image.shape();
    let (height, width) = (shape.height, shape.width);
    image.remake(|source, target, _| {
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
