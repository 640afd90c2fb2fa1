//! Checks of arguments and channels that several transforms share.

use crate::spec::ImageSpec;
use crate::transform::call::Arguments;
use crate::transform::size::Size;

/// The only argument, a whole number of pixels of at least `least`.
pub(super) fn one_size(arguments: &[f64], least: u32) -> Result<u32, String> {
    match arguments {
        [size] => pixels(*size, least),
        _ => Err(format!("expected 1 argument, got {}", arguments.len())),
    }
}

/// A whole number of pixels of at least `least`.
pub(super) fn pixels(size: f64, least: u32) -> Result<u32, String> {
    // no image is meant to be larger than 2^16, and sums of sizes cannot overflow
    whole(size, least, u16::MAX.into())
        .map_err(|_| format!("expected a whole number of pixels from {least} to {}, got {size}", u16::MAX))
}

/// A whole number from `least` to `most`.
pub(super) fn whole(number: f64, least: u32, most: u32) -> Result<u32, String> {
    if number.fract() != 0.0 || number < f64::from(least) || number > f64::from(most) {
        return Err(format!("expected a whole number from {least} to {most}, got {number}"));
    }
    Ok(number as u32)
}

/// The size that the arguments begin with, `224` or `192x256`, and the numbers behind it.
pub(super) fn size_first<'a>(arguments: &'a Arguments<'_>) -> Result<(Size, &'a [f64]), String> {
    match (arguments.size, &*arguments.numbers) {
        (Some(Size { height, width }), rest) => {
            pixels(height.into(), 1).and(pixels(width.into(), 1))?;
            Ok((Size { height, width }, rest))
        }
        (None, [side, rest @ ..]) => Ok((Size::square(pixels(*side, 1)?), rest)),
        (None, []) => Err("expected a size as the first argument".into()),
    }
}

/// The only argument, a size.
pub(super) fn only_size(arguments: &Arguments<'_>) -> Result<Size, String> {
    let given = arguments.numbers.len() + arguments.words.len() + usize::from(arguments.size.is_some());
    match given {
        1 => size_first(arguments).map(|(size, _)| size),
        _ => Err(format!("expected 1 argument, got {given}")),
    }
}

/// A probability.
pub(super) fn probability(number: f64) -> Result<f64, String> {
    match (0.0..=1.0).contains(&number) {
        true => Ok(number),
        false => Err(format!("expected a probability from 0 to 1, got {number}")),
    }
}

/// The only argument, a probability; `default` if there is none.
pub(super) fn only_probability(arguments: &[f64], default: f64) -> Result<f64, String> {
    match *arguments {
        [] => Ok(default),
        [p] => probability(p),
        _ => Err(format!("expected 0 or 1 arguments, got {}", arguments.len())),
    }
}

/// Accepts an empty list.
pub(super) fn no_arguments(arguments: &[f64]) -> Result<(), String> {
    match arguments.len() {
        0 => Ok(()),
        n => Err(format!("expected no argument, got {n}")),
    }
}

/// Accepts images of three channels.
pub(super) fn only_rgb(input: ImageSpec) -> Result<(), String> {
    match input.channels {
        3 => Ok(()),
        n => Err(format!("expected images of 3 channels, got {n}")),
    }
}

/// Accepts grey and colour images.
pub(super) fn grey_or_rgb(input: ImageSpec) -> Result<(), String> {
    match input.channels {
        1 | 3 => Ok(()),
        n => Err(format!("expected images of 1 or 3 channels, got {n}")),
    }
}
