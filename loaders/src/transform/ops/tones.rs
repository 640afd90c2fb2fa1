//! Transforms that replace each byte of an image by a function of its value, its histogram or its colour.

use std::fmt;

use crate::random::Draws;
use crate::transform::bytes;
use crate::transform::call::{only_probability, probability_after_one, whole};
use crate::transform::canvas::Canvas;
use crate::transform::op::{BuildResult, Context, Transform};

/// `invert(p)`: with probability p (default 1/2), replaces each value x by 255 - x. This is torchvision's
/// `RandomInvert`.
#[derive(Debug)]
struct Invert {
    probability: f64,
}

pub(super) fn build_invert(arguments: &[f64], _context: Context<'_>) -> BuildResult {
    Ok(Box::new(Invert { probability: only_probability(arguments, 0.5)? }))
}

impl Transform for Invert {
    fn keeps_bytes(&self) -> bool {
        true
    }

    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        if draws.happens(self.probability) {
            bytes::invert(image.byte_image());
        }
    }
}

impl fmt::Display for Invert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invert({})", self.probability)
    }
}

/// `posterize(bits, p)`: with probability p (default 1/2), keeps only the highest bits of each value. This is
/// torchvision's `RandomPosterize`.
#[derive(Debug)]
struct Posterize {
    bits: u32,
    probability: f64,
}

pub(super) fn build_posterize(arguments: &[f64], _context: Context<'_>) -> BuildResult {
    let [bits, ref rest @ ..] = *arguments else {
        return Err("expected 1 or 2 arguments, got 0".into());
    };
    let bits = whole(bits, 0, 8).map_err(|_| format!("expected a whole number of bits from 0 to 8, got {bits}"))?;
    Ok(Box::new(Posterize { bits, probability: probability_after_one(rest, 0.5)? }))
}

impl Transform for Posterize {
    fn keeps_bytes(&self) -> bool {
        true
    }

    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        if draws.happens(self.probability) {
            bytes::posterize(image.byte_image(), self.bits);
        }
    }
}

impl fmt::Display for Posterize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "posterize({}, {})", self.bits, self.probability)
    }
}

/// `solarize(threshold, p)`: with probability p (default 1/2), inverts the values that are at least the threshold,
/// which is from 0 to 255. This is torchvision's `RandomSolarize`.
#[derive(Debug)]
struct Solarize {
    threshold: f64,
    probability: f64,
}

pub(super) fn build_solarize(arguments: &[f64], _context: Context<'_>) -> BuildResult {
    let [threshold, ref rest @ ..] = *arguments else {
        return Err("expected 1 or 2 arguments, got 0".into());
    };
    if !(0.0..=255.0).contains(&threshold) {
        return Err(format!("expected a threshold from 0 to 255, got {threshold}"));
    }
    Ok(Box::new(Solarize { threshold, probability: probability_after_one(rest, 0.5)? }))
}

impl Transform for Solarize {
    fn keeps_bytes(&self) -> bool {
        true
    }

    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        if draws.happens(self.probability) {
            bytes::solarize(image.byte_image(), self.threshold as f32);
        }
    }
}

impl fmt::Display for Solarize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "solarize({}, {})", self.threshold, self.probability)
    }
}

/// `autocontrast(p)`: with probability p (default 1/2), stretches each channel to the range 0 to 255. A channel with
/// only one value does not change. This is torchvision's `RandomAutocontrast`.
#[derive(Debug)]
struct AutoContrast {
    probability: f64,
}

pub(super) fn build_autocontrast(arguments: &[f64], _context: Context<'_>) -> BuildResult {
    Ok(Box::new(AutoContrast { probability: only_probability(arguments, 0.5)? }))
}

impl Transform for AutoContrast {
    fn keeps_bytes(&self) -> bool {
        true
    }

    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        if draws.happens(self.probability) {
            bytes::autocontrast(image.byte_image());
        }
    }
}

impl fmt::Display for AutoContrast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "autocontrast({})", self.probability)
    }
}

/// `equalize(p)`: with probability p (default 1/2), equalises the histogram of each channel with PIL's rule. This is
/// torchvision's `RandomEqualize`.
#[derive(Debug)]
struct Equalize {
    probability: f64,
}

pub(super) fn build_equalize(arguments: &[f64], _context: Context<'_>) -> BuildResult {
    Ok(Box::new(Equalize { probability: only_probability(arguments, 0.5)? }))
}

impl Transform for Equalize {
    fn keeps_bytes(&self) -> bool {
        true
    }

    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        if draws.happens(self.probability) {
            bytes::equalize(image.byte_image());
        }
    }
}

impl fmt::Display for Equalize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "equalize({})", self.probability)
    }
}

/// `grayscale(p)`: with probability p (default 1), sets all channels to the grey value. The number of channels does not
/// change. This is torchvision's `Grayscale(3)` and `RandomGrayscale`.
#[derive(Debug)]
struct Grayscale {
    probability: f64,
}

pub(super) fn build_grayscale(arguments: &[f64], _context: Context<'_>) -> BuildResult {
    Ok(Box::new(Grayscale { probability: only_probability(arguments, 1.0)? }))
}

impl Transform for Grayscale {
    fn keeps_bytes(&self) -> bool {
        true
    }

    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        if draws.happens(self.probability) {
            bytes::grayscale(image.byte_image());
        }
    }
}

impl fmt::Display for Grayscale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "grayscale({})", self.probability)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ImageSpec;
    use crate::transform::testing::run;

    #[test]
    fn as_often_as_requested() {
        let spec = ImageSpec::new(1, 2, 1);
        assert_eq!(run(build_invert, "invert(1)", spec, &[0, 200], 3), [255.0, 55.0]);
        assert_eq!(run(build_invert, "invert(0)", spec, &[0, 200], 3), [0.0, 200.0]);
        let inverted = (0..1000).filter(|id| run(build_invert, "invert(0.2)", spec, &[0, 200], *id)[0] > 0.0).count();
        // The count is expected to be 200, with a standard deviation of 13.
        assert!((150..250).contains(&inverted), "{inverted}");
    }
}

#[cfg(test)]
mod posterize_tests {
    use super::*;
    use crate::spec::ImageSpec;
    use crate::transform::testing::run;

    #[test]
    fn the_highest_bits_stay() {
        let spec = ImageSpec::new(1, 3, 1);
        for bits in 0..=8 {
            let out = run(build_posterize, &format!("posterize({bits}, 1)"), spec, &[0, 0b1011_0111, 255], 0);
            let kept = |byte: u32| (byte >> (8 - bits) << (8 - bits)) as f32;
            assert_eq!(out, [0.0, kept(0b1011_0111), kept(255)]);
        }
    }
}

#[cfg(test)]
mod solarize_tests {
    use super::*;
    use crate::spec::ImageSpec;
    use crate::transform::testing::run;

    #[test]
    fn values_from_the_threshold_on_are_inverted() {
        let spec = ImageSpec::new(1, 4, 1);
        assert_eq!(run(build_solarize, "solarize(128, 1)", spec, &[0, 127, 128, 255], 0), [0.0, 127.0, 127.0, 0.0]);
        assert_eq!(run(build_solarize, "solarize(127.5, 1)", spec, &[0, 127, 128, 255], 0), [0.0, 127.0, 127.0, 0.0]);
        assert_eq!(run(build_solarize, "solarize(0, 1)", spec, &[0, 127, 128, 255], 0), [255.0, 128.0, 127.0, 0.0]);
    }
}

#[cfg(test)]
mod autocontrast_tests {
    use super::*;
    use crate::spec::ImageSpec;
    use crate::transform::testing::run;

    #[test]
    fn each_channel_is_stretched() {
        let spec = ImageSpec::new(1, 3, 3);
        let bytes = [50, 7, 0, 100, 7, 255, 150, 7, 9];
        let out = run(build_autocontrast, "autocontrast(1)", spec, &bytes, 0);
        // In f32, 100 / (100 * (1 / 255)) is slightly below 255, as in torchvision.
        assert_eq!(out, [0.0, 127.0, 254.0, 7.0, 7.0, 7.0, 0.0, 255.0, 9.0]);
    }
}

#[cfg(test)]
mod equalize_tests {
    use super::*;
    use crate::spec::ImageSpec;
    use crate::transform::testing::run;

    #[test]
    fn all_levels_become_equally_frequent() {
        // 16 levels, 64 pixels each, become spread over the whole range.
        let spec = ImageSpec::new(32, 32, 1);
        let bytes: Vec<u8> = (0..1024u32).map(|i| 100 + (i % 16) as u8).collect();
        let out = run(build_equalize, "equalize(1)", spec, &bytes, 0);
        // The step is (1024 - 64) / 255 = 3 pixels.
        for (value, byte) in out.iter().zip(&bytes) {
            let below = 64 * (u32::from(*byte) - 100);
            assert_eq!(*value, ((below + 1) / 3).min(255) as f32);
        }
        // Fewer than 255 pixels are below the largest value, so nothing changes.
        assert_eq!(run(build_equalize, "equalize(1)", ImageSpec::new(1, 3, 1), &[5, 6, 7], 0), [5.0, 6.0, 7.0]);
    }
}

#[cfg(test)]
mod grayscale_tests {
    use super::*;
    use crate::spec::ImageSpec;
    use crate::transform::testing::run;

    #[test]
    fn channels_become_equal() {
        let out = run(build_grayscale, "grayscale", ImageSpec::new(1, 2, 3), &[255, 0, 0, 0, 255, 100], 0);
        // 0.2989 * 255 = 76.2; 0.587 * 255 + 0.114 * 100 = 161.1
        assert_eq!(out, [76.0, 161.0, 76.0, 161.0, 76.0, 161.0]);
        assert_eq!(run(build_grayscale, "grayscale", ImageSpec::new(1, 2, 1), &[9, 8], 0), [9.0, 8.0]);
    }
}
