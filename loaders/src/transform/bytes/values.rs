//! Arithmetic on byte values: torchvision's rounding, lookup tables, histograms, saturation and sums of images.

use super::image::ByteImage;

/// Weights of red, green and blue for grey (ITU-R 601, with the number of digits that torchvision uses).
const GREY: [f32; 3] = [0.2989, 0.587, 0.114];

/// Clamps a value to 0 to 255 and truncates it to an integer, which is returned as a float. All floats above 2^23 are
/// integers, so adding and subtracting 2^23 rounds to the nearest integer. If the value was rounded up, 1 is subtracted.
/// The compiler vectorises this, but not `as u8`.
#[inline]
pub(in crate::transform) fn whole(value: f32) -> f32 {
    const WHOLE: f32 = (1 << 23) as f32;
    let value = value.clamp(0.0, 255.0);
    let rounded = (value + WHOLE) - WHOLE;
    rounded - one_if(rounded > value)
}

/// Rounds down. The absolute value must be at most 2^22.
#[inline]
pub(in crate::transform) fn floor(value: f32) -> f32 {
    const WHOLE: f32 = 1.5 * (1 << 23) as f32;
    let rounded = (value + WHOLE) - WHOLE;
    rounded - one_if(rounded > value)
}

/// Returns 1 or 0, without a branch.
#[inline]
pub(in crate::transform) fn one_if(condition: bool) -> f32 {
    f32::from_bits(u32::from(condition).wrapping_neg() & 1f32.to_bits())
}

/// Computes a * b + c, rounded once. It gives the bits of `f32::mul_add`, which is a slow function call on processors
/// for which the compiler cannot assume the instruction. In `f64` the product is exact, but the sum is not. The sum is
/// therefore rounded to an odd last bit, so that the second rounding, to `f32`, sees on which side of a tie it was
/// (Boldo and Melquiond, 2008).
#[inline]
pub(in crate::transform) fn fused(a: f32, b: f32, c: f32) -> f32 {
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    // The exact rounding error of the sum (Knuth's TwoSum). NaN if the sum is infinite.
    let part = sum - product;
    let error = (product - (sum - part)) + (c - part);
    let bits = sum.to_bits();
    // 1 if the sum is inexact and its last bit is even. Then the exact value is between the sum and a neighbour, which is
    // odd.
    let step = u64::from(error.abs() > 0.0) & !bits;
    let is_larger = (error > 0.0) == (sum > 0.0);
    let odd = if is_larger { bits.wrapping_add(step) } else { bits.wrapping_sub(step) };
    f64::from_bits(odd) as f32
}

/// Computes a * x + b * y: rounds a * x to `f32`, then adds b * y with `fused`.
#[inline]
pub(in crate::transform) fn blend(a: f32, x: f32, b: f32, y: f32) -> f32 {
    fused(b, y, a * x)
}

/// Returns the grey value of a colour, truncated to a whole number, as a float.
#[inline]
pub(in crate::transform) fn grey(red: f32, green: f32, blue: f32) -> f32 {
    whole(fused(GREY[2], blue, blend(GREY[0], red, GREY[1], green)))
}

/// Returns `1 - factor`, the weight of the other image in a blend.
pub(in crate::transform) fn rest(factor: f32) -> f32 {
    (1.0 - f64::from(factor)) as f32
}

/// A lookup table: entry b is the value that replaces byte b.
type ByteTable = [u8; 256];

/// Builds the lookup table of a function that maps 0 to 255 to whole numbers from 0 to 255.
fn table(of: impl Fn(f32) -> f32) -> ByteTable {
    std::array::from_fn(|byte| of(byte as f32) as u8)
}

/// Replaces every byte by its entry in a table.
pub(super) fn look_up(bytes: &mut [u8], table: &ByteTable) {
    bytes.iter_mut().for_each(|byte| *byte = table[usize::from(*byte)]);
}

/// Replaces each value x by 255 - x.
pub(in crate::transform) fn invert(image: &mut ByteImage) {
    image.pixels().iter_mut().for_each(|byte| *byte = !*byte);
}

/// Keeps the highest `bits` (0 to 8) of each value.
pub(in crate::transform) fn posterize(image: &mut ByteImage, bits: u32) {
    let mask = (0xff00u32 >> bits) as u8;
    image.pixels().iter_mut().for_each(|byte| *byte &= mask);
}

/// Inverts the values that are at least `threshold`.
pub(in crate::transform) fn solarize(image: &mut ByteImage, threshold: f32) {
    look_up(image.pixels(), &table(|value| if value >= threshold { 255.0 - value } else { value }));
}

pub(in crate::transform) fn brightness(image: &mut ByteImage, factor: f32) {
    look_up(image.pixels(), &table(|value| whole(factor * value)));
}

/// Blends with the mean grey value: `factor` times the image plus `1 - factor` times the mean.
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

/// Stretches each plane to the range 0 to 255. A plane with only one value does not change.
pub(in crate::transform) fn autocontrast(image: &mut ByteImage) {
    for plane in image.planes() {
        let (least, most) = plane.iter().fold((u8::MAX, 0), |(least, most), &byte| (least.min(byte), most.max(byte)));
        if least < most {
            let scale = f32::from(most - least) * (1.0 / 255.0) as f32;
            look_up(plane, &table(|value| whole((value - f32::from(least)) / scale)));
        }
    }
}

/// Equalises the histogram of each plane. A plane does not change if fewer than 255 of its pixels are below its largest
/// value.
pub(in crate::transform) fn equalize(image: &mut ByteImage) {
    for plane in image.planes() {
        let counts = histogram(plane);
        let largest = counts.iter().rev().find(|count| **count > 0).copied().unwrap_or(0);
        let step = (plane.len() as u64 - largest) / 255;
        if step == 0 {
            continue;
        }
        let mut below = 0;
        let table = counts.map(|count| {
            let level = (below + step / 2) / step;
            below += count;
            level.min(255) as u8
        });
        look_up(plane, &table);
    }
}

/// Counts how often each value occurs. There are four arrays of counts, because increments of the same count must wait
/// for each other when neighbouring bytes are equal.
fn histogram(plane: &[u8]) -> [u64; 256] {
    let mut counts = [[0u32; 256]; 4];
    let (fours, rest) = plane.as_chunks::<4>();
    for four in fours {
        for (counts, &byte) in counts.iter_mut().zip(four) {
            counts[usize::from(byte)] += 1;
        }
    }
    rest.iter().for_each(|&byte| counts[0][usize::from(byte)] += 1);
    std::array::from_fn(|byte| counts.iter().map(|counts| u64::from(counts[byte])).sum())
}

/// Blends each pixel with its grey value: `factor` times the colour plus `1 - factor` times the grey value. A grey
/// image does not change.
pub(in crate::transform) fn saturation(image: &mut ByteImage, factor: f64) {
    let (factor, rest) = (factor as f32, (1.0 - factor) as f32);
    each_colour(image, |[red, green, blue]| {
        let grey = grey(red, green, blue);
        [red, green, blue].map(|value| whole(blend(factor, value, rest, grey)))
    });
}

/// Sets all channels to the grey value.
pub(in crate::transform) fn grayscale(image: &mut ByteImage) {
    each_colour(image, |[red, green, blue]| [grey(red, green, blue); 3]);
}

fn each_colour(image: &mut ByteImage, of: impl Fn([f32; 3]) -> [f32; 3]) {
    let Some([red, green, blue]) = image.rgb() else { return };
    for ((r, g), b) in red.iter_mut().zip(green).zip(blue) {
        let new = of([f32::from(*r), f32::from(*g), f32::from(*b)]);
        // These are integers up to 255, so the conversion through `i32` is exact.
        [*r, *g, *b] = new.map(|value| value as i32 as u8);
    }
}

/// Sets `sums` to the image times `weight`.
pub(in crate::transform) fn start_sum(image: &mut ByteImage, sums: &mut [f32], weight: f32) {
    sums.iter_mut().zip(image.pixels()).for_each(|(sum, byte)| *sum = weight * f32::from(*byte));
}

/// Adds the image times `weight` to `sums`.
pub(in crate::transform) fn add_to_sum(image: &mut ByteImage, sums: &mut [f32], weight: f32) {
    sums.iter_mut().zip(image.pixels()).for_each(|(sum, byte)| *sum += weight * f32::from(*byte));
}

/// Sets the image to the truncated sums.
pub(in crate::transform) fn take_sum(image: &mut ByteImage, sums: &[f32]) {
    sums.iter().zip(image.pixels()).for_each(|(sum, byte)| *byte = whole(*sum) as i32 as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Draws;

    /// Compares with the standard library's `mul_add`, including cases in which rounding to `f64` first changes the
    /// result.
    #[test]
    fn fused_multiply_add_rounds_once() {
        let small = 2f32.powi(-20);
        // The exact sum is slightly below the middle between two floats. Rounding to f64 moves it to the middle.
        let (a, b, c) = (1.0 + small, 2f32.powi(-24) * (1.0 - small), 1f32.next_up());
        assert_eq!((f64::from(a) * f64::from(b) + f64::from(c)) as f32, c.next_up());
        assert_eq!(fused(a, b, c), c);
        let mut cases = vec![(a, b, c), (-a, b, -c), (a, -b, c.next_up()), (-a, -b, c), (a, b, -c)];
        let special = [0.0, -0.0, 1.0, f32::MIN_POSITIVE, 1e-45, f32::MAX, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
        special.iter().for_each(|&a| special.iter().for_each(|&c| cases.extend([(a, 0.5, c), (a, -3.0, c)])));
        let mut draws = Draws::new(3, 0, 0, 0);
        for _ in 0..200_000 {
            let mut float = || f32::from_bits(draws.next_u32());
            cases.push((float(), float(), float()));
            let mut near = || 2f32.powi(draws.below(50) as i32 - 25) * (1.0 + 2f32.powi(-(draws.below(24) as i32)));
            cases.extend([(near(), near(), near()), (near(), -near(), near())]);
        }
        for (a, b, c) in cases {
            let (got, want) = (fused(a, b, c), a.mul_add(b, c));
            assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{a} {b} {c}: {got}, {want}");
        }
    }
}
