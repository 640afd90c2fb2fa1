//! Transforms that change the bytes of an image with a probability: each byte by its value, its histogram, its colour or
//! its neighbours.

use crate::random::Draws;
use crate::transform::bytes;
use crate::transform::call::{only_probability, probability_after_one, whole};
use crate::transform::canvas::Canvas;
use crate::transform::op::{BuildResult, Context, Transform};

/// A change of bytes that is made with a probability (default 1/2).
#[derive(Debug)]
struct Tone {
    change: Change,
    probability: f64,
}

#[derive(Debug)]
enum Change {
    /// `invert(p)`: replaces each value x by 255 - x. This is torchvision's `RandomInvert`.
    Invert,
    /// `posterize(bits, p)`: keeps only the highest bits of each value. This is torchvision's `RandomPosterize`.
    Posterize(u32),
    /// `solarize(threshold, p)`: inverts the values that are at least the threshold, which is from 0 to 255. This is
    /// torchvision's `RandomSolarize`.
    Solarize(f64),
    /// `autocontrast(p)`: stretches each channel to the range 0 to 255. A channel with only one value does not change.
    /// This is torchvision's `RandomAutocontrast`.
    AutoContrast,
    /// `equalize(p)`: equalises the histogram of each channel with PIL's rule. This is torchvision's `RandomEqualize`.
    Equalize,
    /// `grayscale(p)`: sets all channels to the grey value, always unless p is given. The number of channels does not
    /// change. This is torchvision's `Grayscale(3)` and `RandomGrayscale`.
    Grayscale,
    /// `sharpness(factor, p)`: blends the image with a version smoothed by (1 1 1; 1 5 1; 1 1 1) / 13. A factor of 0
    /// smooths, 1 changes nothing, 2 sharpens. This is torchvision's `RandomAdjustSharpness`.
    Sharpness(f64),
}

pub(super) fn build_invert(arguments: &[f64], _context: Context<'_>) -> BuildResult {
    Ok(Box::new(Tone { change: Change::Invert, probability: only_probability(arguments, 0.5)? }))
}

pub(super) fn build_autocontrast(arguments: &[f64], _context: Context<'_>) -> BuildResult {
    Ok(Box::new(Tone { change: Change::AutoContrast, probability: only_probability(arguments, 0.5)? }))
}

pub(super) fn build_equalize(arguments: &[f64], _context: Context<'_>) -> BuildResult {
    Ok(Box::new(Tone { change: Change::Equalize, probability: only_probability(arguments, 0.5)? }))
}

pub(super) fn build_grayscale(arguments: &[f64], _context: Context<'_>) -> BuildResult {
    Ok(Box::new(Tone { change: Change::Grayscale, probability: only_probability(arguments, 1.0)? }))
}

pub(super) fn build_posterize(arguments: &[f64], _context: Context<'_>) -> BuildResult {
    let (bits, rest) = number_first(arguments)?;
    let bits = whole(bits, 0, 8).map_err(|_| format!("expected a whole number of bits from 0 to 8, got {bits}"))?;
    Ok(Box::new(Tone { change: Change::Posterize(bits), probability: probability_after_one(rest, 0.5)? }))
}

pub(super) fn build_solarize(arguments: &[f64], _context: Context<'_>) -> BuildResult {
    let (threshold, rest) = number_first(arguments)?;
    if !(0.0..=255.0).contains(&threshold) {
        return Err(format!("expected a threshold from 0 to 255, got {threshold}"));
    }
    Ok(Box::new(Tone { change: Change::Solarize(threshold), probability: probability_after_one(rest, 0.5)? }))
}

pub(super) fn build_sharpness(arguments: &[f64], _context: Context<'_>) -> BuildResult {
    let (factor, rest) = number_first(arguments)?;
    if factor < 0.0 {
        return Err(format!("expected a factor of at least 0, got {factor}"));
    }
    Ok(Box::new(Tone { change: Change::Sharpness(factor), probability: probability_after_one(rest, 0.5)? }))
}

/// Splits the arguments into the number at the start and the numbers after it.
fn number_first(arguments: &[f64]) -> Result<(f64, &[f64]), String> {
    let (first, rest) = arguments.split_first().ok_or("expected 1 or 2 arguments, got 0")?;
    Ok((*first, rest))
}

impl Transform for Tone {
    fn keeps_bytes(&self) -> bool {
        true
    }

    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        if !draws.happens(self.probability) {
            return;
        }
        let image = image.byte_image();
        match self.change {
            Change::Invert => bytes::invert(image),
            Change::Posterize(bits) => bytes::posterize(image, bits),
            Change::Solarize(threshold) => bytes::solarize(image, threshold as f32),
            Change::AutoContrast => bytes::autocontrast(image),
            Change::Equalize => bytes::equalize(image),
            Change::Grayscale => bytes::grayscale(image),
            Change::Sharpness(factor) => bytes::sharpness(image, factor),
        }
    }

    fn text(&self) -> String {
        let p = self.probability;
        match self.change {
            Change::Invert => format!("invert({p})"),
            Change::Posterize(bits) => format!("posterize({bits}, {p})"),
            Change::Solarize(threshold) => format!("solarize({threshold}, {p})"),
            Change::AutoContrast => format!("autocontrast({p})"),
            Change::Equalize => format!("equalize({p})"),
            Change::Grayscale => format!("grayscale({p})"),
            Change::Sharpness(factor) => format!("sharpness({factor}, {p})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::spec::ImageSpec;
    use crate::transform::testing::run;

    #[test]
    fn invert_has_the_requested_frequency() {
        let spec = ImageSpec::new(1, 2, 1);
        assert_eq!(run("invert(1)", spec, &[0, 200], 3), [255.0, 55.0]);
        assert_eq!(run("invert(0)", spec, &[0, 200], 3), [0.0, 200.0]);
        let inverted = (0..1000).filter(|id| run("invert(0.2)", spec, &[0, 200], *id)[0] > 0.0).count();
        // The count is expected to be 200, with a standard deviation of 13.
        assert!((150..250).contains(&inverted), "{inverted}");
    }

    #[test]
    fn posterize_keeps_the_highest_bits() {
        let spec = ImageSpec::new(1, 3, 1);
        for bits in 0..=8 {
            let out = run(&format!("posterize({bits}, 1)"), spec, &[0, 0b1011_0111, 255], 0);
            let kept = |byte: u32| (byte >> (8 - bits) << (8 - bits)) as f32;
            assert_eq!(out, [0.0, kept(0b1011_0111), kept(255)]);
        }
    }

    #[test]
    fn solarize_inverts_values_from_the_threshold() {
        let spec = ImageSpec::new(1, 4, 1);
        assert_eq!(run("solarize(128, 1)", spec, &[0, 127, 128, 255], 0), [0.0, 127.0, 127.0, 0.0]);
        assert_eq!(run("solarize(127.5, 1)", spec, &[0, 127, 128, 255], 0), [0.0, 127.0, 127.0, 0.0]);
        assert_eq!(run("solarize(0, 1)", spec, &[0, 127, 128, 255], 0), [255.0, 128.0, 127.0, 0.0]);
    }

    #[test]
    fn autocontrast_stretches_each_channel() {
        let spec = ImageSpec::new(1, 3, 3);
        let bytes = [50, 7, 0, 100, 7, 255, 150, 7, 9];
        let out = run("autocontrast(1)", spec, &bytes, 0);
        // In f32, 100 / (100 * (1 / 255)) is slightly below 255, as in torchvision.
        assert_eq!(out, [0.0, 127.0, 254.0, 7.0, 7.0, 7.0, 0.0, 255.0, 9.0]);
    }

    #[test]
    fn equalize_spreads_levels_evenly() {
        // 16 levels, 64 pixels each, become spread over the whole range.
        let spec = ImageSpec::new(32, 32, 1);
        let bytes: Vec<u8> = (0..1024u32).map(|i| 100 + (i % 16) as u8).collect();
        let out = run("equalize(1)", spec, &bytes, 0);
        // The step is (1024 - 64) / 255 = 3 pixels.
        for (value, byte) in out.iter().zip(&bytes) {
            let below = 64 * (u32::from(*byte) - 100);
            assert_eq!(*value, ((below + 1) / 3).min(255) as f32);
        }
        // Fewer than 255 pixels are below the largest value, so nothing changes.
        assert_eq!(run("equalize(1)", ImageSpec::new(1, 3, 1), &[5, 6, 7], 0), [5.0, 6.0, 7.0]);
    }

    #[test]
    fn grayscale_makes_all_channels_equal() {
        let out = run("grayscale", ImageSpec::new(1, 2, 3), &[255, 0, 0, 0, 255, 100], 0);
        // 0.2989 * 255 = 76.2; 0.587 * 255 + 0.114 * 100 = 161.1
        assert_eq!(out, [76.0, 161.0, 76.0, 161.0, 76.0, 161.0]);
        assert_eq!(run("grayscale", ImageSpec::new(1, 2, 1), &[9, 8], 0), [9.0, 8.0]);
    }

    #[test]
    fn sharpness_changes_a_dot_and_keeps_the_border() {
        let spec = ImageSpec::new(3, 3, 1);
        let dot = [10, 10, 10, 10, 140, 10, 10, 10, 10];
        // (8 * 10 + 5 * 140) / 13 = 60
        let with = |factor: &str, middle: f32| {
            let out = run(&format!("sharpness({factor}, 1)"), spec, &dot, 0);
            assert_eq!(out[4], middle, "{factor}");
            assert!(out.iter().enumerate().all(|(i, value)| i == 4 || *value == 10.0));
        };
        with("0", 60.0);
        with("1", 140.0);
        with("2", 220.0);
        with("3", 255.0);
    }
}
