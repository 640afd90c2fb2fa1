//! Images added up with weights, as floats.

use super::arithmetic::whole;
use super::image::ByteImage;

/// Starts the sum with an image times its weight.
pub(in crate::transform) fn start_sum(image: &mut ByteImage, sums: &mut [f32], weight: f32) {
    sums.iter_mut().zip(image.pixels()).for_each(|(sum, byte)| *sum = weight * f32::from(*byte));
}

/// Adds an image times its weight.
pub(in crate::transform) fn add_to_sum(image: &mut ByteImage, sums: &mut [f32], weight: f32) {
    sums.iter_mut().zip(image.pixels()).for_each(|(sum, byte)| *sum += weight * f32::from(*byte));
}

/// Makes the sum, truncated, the image.
pub(in crate::transform) fn take_sum(image: &mut ByteImage, sums: &[f32]) {
    sums.iter().zip(image.pixels()).for_each(|(sum, byte)| *byte = whole(*sum) as i32 as u8);
}
