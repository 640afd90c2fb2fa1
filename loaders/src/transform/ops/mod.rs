//! All transforms, one a file, and the list of their names. A new one is a file here, its `mod` line and its line in the list.

mod affine;
mod alternating_flip;
mod augmix;
mod auto_augment;
mod autocontrast;
mod brightness;
mod center_crop;
mod cifar_distort;
mod color_jitter;
mod contrast;
mod corner_crop;
mod cutout;
mod equalize;
mod flip;
mod gaussian_blur;
mod grayscale;
mod inception_crop;
mod inception_distort;
mod invert;
mod lighting;
mod mirror;
mod normalize;
mod pad_crop;
mod perspective;
mod posterize;
mod rand_augment;
mod random_crop;
mod random_erasing;
mod random_resized_crop;
mod resize;
mod rotation;
mod scale_jitter;
mod sharpness;
mod solarize;
mod standardize;
mod trivial_augment;
mod vertical_flip;

use crate::nearest::did_you_mean;
use crate::transform::call;
use crate::transform::op::Build::{Any, Numbers};
use crate::transform::op::{Build, Built, Context};

/// Name, how it is written in a recipe, and the function that makes it.
const CATALOGUE: &[(&str, &str, Build)] = &[
    (
        "affine",
        "affine(degrees), (degrees, x, y), (degrees, x, y, low, high) or those and one or two shears, with bilinear behind it",
        Any(affine::build),
    ),
    ("alternating_flip", "alternating_flip", Numbers(alternating_flip::build)),
    (
        "augmix",
        "augmix, augmix(severity), (severity, chains), (severity, chains, depth) or (severity, chains, depth, alpha), with partial, \
         then nearest, behind it",
        Any(augmix::build),
    ),
    (
        "auto_augment",
        "auto_augment, auto_augment(imagenet), (cifar10) or (svhn), with bilinear behind it",
        Any(auto_augment::build),
    ),
    ("autocontrast", "autocontrast or autocontrast(probability)", Numbers(autocontrast::build)),
    ("brightness", "brightness(max_delta)", Numbers(brightness::build)),
    ("center_crop", "center_crop(size) or center_crop(HEIGHTxWIDTH)", Any(center_crop::build)),
    ("cifar_distort", "cifar_distort", Numbers(cifar_distort::build)),
    ("color_jitter", "color_jitter(brightness, contrast, saturation, hue)", Numbers(color_jitter::build)),
    ("contrast", "contrast(lower, upper)", Numbers(contrast::build)),
    ("corner_crop", "corner_crop(size, corner) or corner_crop(HEIGHTxWIDTH, corner)", Any(corner_crop::build)),
    ("cutout", "cutout(size)", Numbers(cutout::build)),
    ("equalize", "equalize or equalize(probability)", Numbers(equalize::build)),
    ("flip", "flip or flip(probability)", Numbers(flip::build)),
    (
        "gaussian_blur",
        "gaussian_blur(side), gaussian_blur(side, sigma) or gaussian_blur(side, low, high)",
        Numbers(gaussian_blur::build),
    ),
    ("grayscale", "grayscale or grayscale(probability)", Numbers(grayscale::build)),
    ("inception_crop", "inception_crop(size) or inception_crop(size, filter)", Any(inception_crop::build)),
    ("inception_distort", "inception_distort", Numbers(inception_distort::build)),
    ("invert", "invert or invert(probability)", Numbers(invert::build)),
    ("lighting", "lighting(std)", Numbers(lighting::build)),
    ("mirror", "mirror", Numbers(mirror::build)),
    (
        "normalize",
        "normalize, normalize(mean, std) or normalize(a mean per channel, then a std per channel)",
        Numbers(normalize::build),
    ),
    ("pad_crop", "pad_crop(padding) or pad_crop(padding, reflect)", Any(pad_crop::build)),
    (
        "perspective",
        "perspective(distortion) or perspective(distortion, probability), with nearest behind it",
        Any(perspective::build),
    ),
    ("posterize", "posterize(bits) or posterize(bits, probability)", Numbers(posterize::build)),
    (
        "rand_augment",
        "rand_augment, rand_augment(operations, magnitude) or (operations, magnitude, magnitudes), with bilinear behind it",
        Any(rand_augment::build),
    ),
    ("random_crop", "random_crop(size) or random_crop(HEIGHTxWIDTH)", Any(random_crop::build)),
    (
        "random_erasing",
        "random_erasing(probability), random_erasing(probability, deviation of noise) or random_erasing(probability, \
         deviation, least area, most area, least height / width, most height / width)",
        Numbers(random_erasing::build),
    ),
    (
        "random_resized_crop",
        "random_resized_crop(size), (size, min_area), (size, min_area, max_area) or \
         (size, min_area, max_area, min_aspect, max_aspect), size as 224 or 192x256, with bicubic or lanczos behind it",
        Any(random_resized_crop::build),
    ),
    ("resize", "resize(short_side) or resize(HEIGHTxWIDTH), with bicubic or lanczos behind it", Any(resize::build)),
    ("rotation", "rotation(degrees) or rotation(low, high), with bilinear behind it", Any(rotation::build)),
    ("scale_jitter", "scale_jitter(least, most), with bicubic or lanczos behind it", Any(scale_jitter::build)),
    ("sharpness", "sharpness(factor) or sharpness(factor, probability)", Numbers(sharpness::build)),
    ("solarize", "solarize(threshold) or solarize(threshold, probability)", Numbers(solarize::build)),
    ("standardize", "standardize", Numbers(standardize::build)),
    (
        "trivial_augment",
        "trivial_augment or trivial_augment(magnitudes), with bilinear behind it",
        Any(trivial_augment::build),
    ),
    ("vertical_flip", "vertical_flip or vertical_flip(probability)", Numbers(vertical_flip::build)),
];

/// Bare names of all transforms.
pub fn names() -> Vec<&'static str> {
    CATALOGUE.iter().map(|(name, ..)| *name).collect()
}

/// Makes the transform that `text` names.
pub(super) fn parse(text: &str, context: Context<'_>) -> Built {
    let call = call::parse(text)?;
    let Some((_, usage, build)) = CATALOGUE.iter().find(|(name, ..)| *name == call.name) else {
        let names = names();
        return Err(format!("unknown transform{}; there are {}", did_you_mean(call.name, &names), names.join(", ")));
    };
    build.run(&call.arguments, context).map_err(|problem| format!("{problem}; write {usage}"))
}
