//! Operations of one byte: a table of 256 bytes for all planes, or one for each.

use super::arithmetic::{blend, grey, whole};
use super::image::ByteImage;

/// What each byte becomes.
type Lookup = [u8; 256];

/// The table of a function of values 0 to 255 that gives whole values 0 to 255.
fn table(of: impl Fn(f32) -> f32) -> Lookup {
    std::array::from_fn(|byte| of(byte as f32) as u8)
}

/// Puts every byte through a table.
pub(super) fn look_up(bytes: &mut [u8], table: &Lookup) {
    bytes.iter_mut().for_each(|byte| *byte = table[usize::from(*byte)]);
}

/// 255 less each value.
pub(in crate::transform) fn invert(image: &mut ByteImage) {
    image.pixels().iter_mut().for_each(|byte| *byte = !*byte);
}

/// Keeps the highest `bits` (0 to 8) of each value.
pub(in crate::transform) fn posterize(image: &mut ByteImage, bits: u32) {
    let mask = (0xff00u32 >> bits) as u8;
    image.pixels().iter_mut().for_each(|byte| *byte &= mask);
}

/// Inverts the values from `threshold` on.
pub(in crate::transform) fn solarize(image: &mut ByteImage, threshold: f32) {
    look_up(image.pixels(), &table(|value| if value >= threshold { 255.0 - value } else { value }));
}

/// Multiplies each value by a factor.
pub(in crate::transform) fn brightness(image: &mut ByteImage, factor: f32) {
    look_up(image.pixels(), &table(|value| whole(factor * value)));
}

/// Blends with the mean of grey: `factor` of the image, `1 - factor` of the mean.
pub(in crate::transform) fn contrast(image: &mut ByteImage, factor: f64) {
    let pixels = image.shape().plane().max(1);
    let sum: u64 = match image.rgb() {
        Some([red, green, blue]) => {
            let colours = red.iter().zip(green.iter()).zip(blue.iter());
            colours.map(|((&r, &g), &b)| grey(r.into(), g.into(), b.into()) as u64).sum()
        }
        None => image.pixels().iter().map(|&byte| u64::from(byte)).sum(),
    };
    let mean = (sum as f64 / pixels as f64) as f32;
    let (factor, rest) = (factor as f32, (1.0 - factor) as f32);
    look_up(image.pixels(), &table(|value| whole(blend(factor, value, rest, mean))));
}

/// Stretches each plane to 0 to 255; a plane of one value stays.
pub(in crate::transform) fn autocontrast(image: &mut ByteImage) {
    for plane in image.planes() {
        let (least, most) = plane.iter().fold((u8::MAX, 0), |(least, most), &byte| (least.min(byte), most.max(byte)));
        if least < most {
            let scale = f32::from(most - least) * (1.0 / 255.0) as f32;
            look_up(plane, &table(|value| whole((value - f32::from(least)) / scale)));
        }
    }
}
