//! Colours and their grey.

use super::arithmetic::{blend, grey, whole};
use super::image::ByteImage;

/// Blends with grey: `factor` of the colours, `1 - factor` of their grey. A grey image stays.
pub(in crate::transform) fn saturation(image: &mut ByteImage, factor: f64) {
    let (factor, rest) = (factor as f32, (1.0 - factor) as f32);
    each_colour(image, |[red, green, blue]| {
        let grey = grey(red, green, blue);
        [red, green, blue].map(|value| whole(blend(factor, value, rest, grey)))
    });
}

/// Makes all channels their grey.
pub(in crate::transform) fn grayscale(image: &mut ByteImage) {
    each_colour(image, |[red, green, blue]| [grey(red, green, blue); 3]);
}

fn each_colour(image: &mut ByteImage, of: impl Fn([f32; 3]) -> [f32; 3]) {
    let Some([red, green, blue]) = image.rgb() else { return };
    for ((r, g), b) in red.iter_mut().zip(green).zip(blue) {
        let new = of([f32::from(*r), f32::from(*g), f32::from(*b)]);
        // whole numbers up to 255, so the conversion by way of integers is exact
        [*r, *g, *b] = new.map(|value| value as i32 as u8);
    }
}
