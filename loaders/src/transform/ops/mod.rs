//! All transforms, one a file, and the list of their names. A new one is a file here, its `mod` line and its line in the list.

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

use crate::nearest::did_you_mean;
use crate::transform::call;
use crate::transform::op::{Build, Context, Transform};

/// Name, how it is written in a recipe, and the function that makes it.
const CATALOGUE: &[(&str, &str, Build)] = &[
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

/// Bare names of all transforms.
pub fn names() -> Vec<&'static str> {
    CATALOGUE.iter().map(|(name, ..)| *name).collect()
}

/// Makes the transform that `text` names.
pub(super) fn parse(text: &str, context: Context<'_>) -> Result<Box<dyn Transform>, String> {
    let call = call::parse(text)?;
    let Some((_, usage, build)) = CATALOGUE.iter().find(|(name, ..)| *name == call.name) else {
        let names = names();
        return Err(format!("unknown transform{}; there are {}", did_you_mean(call.name, &names), names.join(", ")));
    };
    build(&call.arguments, context).map_err(|problem| format!("{problem}; write {usage}"))
}
