//! Arithmetic of torchvision's tensors of bytes, without branches, so that the compiler can vectorise it.

/// Weights of red, green and blue in grey (ITU-R 601, to the digits that torchvision has).
const GREY: [f32; 3] = [0.2989, 0.587, 0.114];

/// Clamped to 0 to 255, then truncated: the value of a byte, as a float. From 2^23 on floats are integers, so adding
/// and subtracting it rounds; the compiler vectorises this, but not `as u8`.
#[inline]
pub(in crate::transform) fn whole(value: f32) -> f32 {
    const WHOLE: f32 = (1 << 23) as f32;
    let value = value.clamp(0.0, 255.0);
    let rounded = (value + WHOLE) - WHOLE;
    rounded - one_if(rounded > value)
}

/// The largest integer that is not above a value of at most 2^22 either way.
#[inline]
pub(in crate::transform) fn floor(value: f32) -> f32 {
    const WHOLE: f32 = 1.5 * (1 << 23) as f32;
    let rounded = (value + WHOLE) - WHOLE;
    rounded - one_if(rounded > value)
}

/// The byte nearest to a value, halves to the even one.
#[inline]
pub(in crate::transform) fn nearest(value: f32) -> u8 {
    // the lowest bits of a float from 2^23 on are an integer
    (value.clamp(0.0, 255.0) + (1 << 23) as f32).to_bits() as u8
}

/// 1 or 0, without a branch.
#[inline]
pub(in crate::transform) fn one_if(condition: bool) -> f32 {
    f32::from_bits(u32::from(condition).wrapping_neg() & 1f32.to_bits())
}

/// `a` if `condition`, else `b`, without a branch.
#[inline]
pub(in crate::transform) fn select(condition: bool, a: f32, b: f32) -> f32 {
    let mask = u32::from(condition).wrapping_neg();
    f32::from_bits((a.to_bits() & mask) | (b.to_bits() & !mask))
}

/// a * b + c, rounded once.
#[inline]
pub(in crate::transform) fn fused(a: f32, b: f32, c: f32) -> f32 {
    (f64::from(a) * f64::from(b) + f64::from(c)) as f32
}

/// a * x + b * y with the one rounding of a fused multiply-add after that of a * x.
#[inline]
pub(in crate::transform) fn blend(a: f32, x: f32, b: f32, y: f32) -> f32 {
    fused(b, y, a * x)
}

/// The grey of a colour, a whole number.
#[inline]
pub(in crate::transform) fn grey(red: f32, green: f32, blue: f32) -> f32 {
    whole(fused(GREY[2], blue, blend(GREY[0], red, GREY[1], green)))
}

/// The weight of the other image in a blend with weight `factor`.
pub(in crate::transform) fn rest(factor: f32) -> f32 {
    (1.0 - f64::from(factor)) as f32
}
