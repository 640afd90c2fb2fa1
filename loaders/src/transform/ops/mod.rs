//! One transform a file, and the list of them.

mod brightness;
mod center_crop;
mod cifar_distort;
mod color_jitter;
mod contrast;
mod cutout;
mod flip;
mod inception_crop;
mod inception_distort;
mod lighting;
mod normalize;
mod pad_crop;
mod random_crop;
mod random_erasing;
mod random_resized_crop;
mod resize;
mod standardize;

use super::{Context, Transform};

pub(super) type Build = fn(&[f64], Context<'_>) -> Result<Box<dyn Transform>, String>;

/// Name, how it is written, and its maker.
pub(super) const CATALOGUE: &[(&str, &str, Build)] = &[
    ("brightness", "brightness(max_delta)", brightness::build),
    ("center_crop", "center_crop(size)", center_crop::build),
    ("cifar_distort", "cifar_distort", cifar_distort::build),
    ("color_jitter", "color_jitter(brightness, contrast, saturation, hue)", color_jitter::build),
    ("contrast", "contrast(lower, upper)", contrast::build),
    ("cutout", "cutout(size)", cutout::build),
    ("flip", "flip", flip::build),
    ("inception_crop", "inception_crop(size)", inception_crop::build),
    ("inception_distort", "inception_distort", inception_distort::build),
    ("lighting", "lighting(std)", lighting::build),
    (
        "normalize",
        "normalize, normalize(mean, std) or normalize(a mean per channel, then a std per channel)",
        normalize::build,
    ),
    ("pad_crop", "pad_crop(padding)", pad_crop::build),
    ("random_crop", "random_crop(size)", random_crop::build),
    (
        "random_erasing",
        "random_erasing(probability), random_erasing(probability, deviation of noise) or random_erasing(probability, \
         deviation, least area, most area, least height / width, most height / width)",
        random_erasing::build,
    ),
    (
        "random_resized_crop",
        "random_resized_crop(size), (size, min_area), (size, min_area, max_area) or \
         (size, min_area, max_area, min_aspect, max_aspect)",
        random_resized_crop::build,
    ),
    ("resize", "resize(short_side)", resize::build),
    ("standardize", "standardize", standardize::build),
];
