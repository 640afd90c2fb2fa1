//! Checks of arguments and channels that several transforms share.

use crate::spec::ImageSpec;

/// The only argument, a whole number of pixels of at least `least`.
pub(super) fn one_size(arguments: &[f64], least: u32) -> Result<u32, String> {
    let [size] = arguments else {
        return Err(format!("expected 1 argument, got {}", arguments.len()));
    };
    // no image is meant to be larger than 2^16, and sums of sizes cannot overflow
    let most = f64::from(u16::MAX);
    if size.fract() != 0.0 || *size < f64::from(least) || *size > most {
        return Err(format!("expected a whole number of pixels from {least} to {most}, got {size}"));
    }
    Ok(*size as u32)
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
