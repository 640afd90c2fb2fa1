//! All transforms and the list of their names. A new transform needs a `build_NAME` function in one of these files and
//! a line in the list.

mod bands;
mod colors;
mod crops;
mod erasing;
mod filters;
mod flips;
mod intensity;
mod normalize;
mod policies;
mod resize;
mod resized_crops;
mod tensorflow_colors;
mod tones;
mod warps;

pub use bands::selected_bands;
use base::text::{did_you_mean, with_advice};

use crate::spec::Dtype;
use crate::transform::call;
use crate::transform::op::Build::{Any, Numbers, Texts};
use crate::transform::op::{Build, BuildResult, Context};

/// For each transform: its name, its usage in a recipe, and the function that builds it.
const CATALOGUE: &[(&str, &str, Build)] = &[
    (
        "affine",
        "affine(degrees), (degrees, x, y) or (degrees, x, y, low, high), which may be followed by one or two shears; optional last \
         argument: bilinear",
        Any(warps::build_affine),
    ),
    ("alternating_flip", "alternating_flip", Numbers(flips::build_alternating_flip)),
    (
        "augmix",
        "augmix, augmix(severity), (severity, chains), (severity, chains, depth) or (severity, chains, depth, alpha); optional \
         last arguments: partial, nearest",
        Any(policies::build_augmix),
    ),
    (
        "auto_augment",
        "auto_augment, auto_augment(imagenet), (cifar10) or (svhn); optional last argument: bilinear",
        Any(policies::build_auto_augment),
    ),
    ("autocontrast", "autocontrast or autocontrast(probability)", Numbers(tones::build_autocontrast)),
    ("brightness", "brightness(max_delta)", Numbers(tensorflow_colors::build_brightness)),
    ("center_crop", "center_crop(size) or center_crop(HEIGHTxWIDTH)", Any(crops::build_center_crop)),
    ("cifar_distort", "cifar_distort", Numbers(tensorflow_colors::build_cifar_distort)),
    (
        "clip_percentile",
        "clip_percentile(low, high), two percentiles of dataset.json",
        Numbers(bands::build_clip_percentile),
    ),
    ("color_jitter", "color_jitter(brightness, contrast, saturation, hue)", Numbers(colors::build_color_jitter)),
    ("contrast", "contrast(lower, upper)", Numbers(tensorflow_colors::build_contrast)),
    ("corner_crop", "corner_crop(size, corner) or corner_crop(HEIGHTxWIDTH, corner)", Any(crops::build_corner_crop)),
    ("cutout", "cutout(size)", Numbers(erasing::build_cutout)),
    ("equalize", "equalize or equalize(probability)", Numbers(tones::build_equalize)),
    ("flip", "flip or flip(probability)", Numbers(flips::build_flip)),
    ("gamma", "gamma(low, high)", Numbers(intensity::build_gamma)),
    (
        "gaussian_blur",
        "gaussian_blur(side), gaussian_blur(side, sigma) or gaussian_blur(side, low, high)",
        Numbers(filters::build_gaussian_blur),
    ),
    ("grayscale", "grayscale or grayscale(probability)", Numbers(tones::build_grayscale)),
    (
        "inception_crop",
        "inception_crop(size); optional last argument: bicubic or lanczos",
        Any(resized_crops::build_inception_crop),
    ),
    ("inception_distort", "inception_distort", Numbers(tensorflow_colors::build_inception_distort)),
    ("invert", "invert or invert(probability)", Numbers(tones::build_invert)),
    ("lighting", "lighting(std)", Numbers(colors::build_lighting)),
    ("log1p", "log1p", Numbers(bands::build_log1p)),
    ("mirror", "mirror", Numbers(flips::build_mirror)),
    (
        "normalize",
        "normalize, normalize(mean, std) or normalize(one mean per channel, then one std per channel)",
        Numbers(normalize::build_normalize),
    ),
    ("noise", "noise(std)", Numbers(intensity::build_noise)),
    ("pad_crop", "pad_crop(padding) or pad_crop(padding, reflect)", Any(crops::build_pad_crop)),
    (
        "perspective",
        "perspective(distortion) or perspective(distortion, probability); optional last argument: nearest",
        Any(warps::build_perspective),
    ),
    ("posterize", "posterize(bits) or posterize(bits, probability)", Numbers(tones::build_posterize)),
    (
        "rand_augment",
        "rand_augment, rand_augment(operations, magnitude) or (operations, magnitude, magnitudes); optional last argument: \
         bilinear",
        Any(policies::build_rand_augment),
    ),
    ("random_crop", "random_crop(size) or random_crop(HEIGHTxWIDTH)", Any(crops::build_random_crop)),
    (
        "random_erasing",
        "random_erasing(probability), random_erasing(probability, noise_deviation) or random_erasing(probability, \
         noise_deviation, min_area, max_area, min_aspect, max_aspect), aspect = height / width",
        Numbers(erasing::build_random_erasing),
    ),
    (
        "random_resized_crop",
        "random_resized_crop(size), (size, min_area), (size, min_area, max_area) or \
         (size, min_area, max_area, min_aspect, max_aspect), size as 224 or 192x256; optional last argument: bicubic or lanczos",
        Any(resized_crops::build_random_resized_crop),
    ),
    (
        "resize",
        "resize(short_side) or resize(HEIGHTxWIDTH); optional last argument: bicubic or lanczos",
        Any(resize::build_resize),
    ),
    (
        "rotation",
        "rotation(degrees) or rotation(low, high); optional last argument: bilinear",
        Any(warps::build_rotation),
    ),
    ("scale", "scale(min, max)", Numbers(bands::build_scale)),
    ("select_bands", "select_bands(band, ...), bands by name or by number from 1", Texts(bands::build_select_bands)),
    ("shift", "shift(rows, columns)", Any(crops::build_shift)),
    (
        "scale_jitter",
        "scale_jitter(min_side, max_side); optional last argument: bicubic or lanczos",
        Any(resize::build_scale_jitter),
    ),
    ("sharpness", "sharpness(factor) or sharpness(factor, probability)", Numbers(tones::build_sharpness)),
    ("solarize", "solarize(threshold) or solarize(threshold, probability)", Numbers(tones::build_solarize)),
    ("standardize", "standardize", Numbers(normalize::build_standardize)),
    (
        "trivial_augment",
        "trivial_augment or trivial_augment(magnitudes); optional last argument: bilinear",
        Any(policies::build_trivial_augment),
    ),
    ("vertical_flip", "vertical_flip or vertical_flip(probability)", Numbers(flips::build_vertical_flip)),
];

/// Transforms that need bytes, and alternatives for other types.
const BYTES_ONLY: &[(&str, &str)] = &[
    ("augmix", "rotation, brightness, contrast and gamma"),
    ("auto_augment", "rotation, brightness, contrast and gamma"),
    ("autocontrast", "clip_percentile(1, 99)"),
    ("cifar_distort", "flip, brightness and contrast"),
    ("color_jitter", "brightness, contrast and gamma"),
    ("equalize", "clip_percentile(1, 99) or log1p"),
    ("grayscale", "select_bands"),
    ("inception_distort", "brightness, contrast and gamma"),
    ("invert", "brightness, contrast and gamma"),
    ("lighting", "brightness and noise"),
    ("posterize", "noise"),
    ("rand_augment", "rotation, brightness, contrast and gamma"),
    ("sharpness", "gaussian_blur"),
    ("solarize", "gamma"),
    ("trivial_augment", "rotation, brightness, contrast and gamma"),
];

/// Transforms in `BYTES_ONLY` that accept any channel count. The rest need 1 or 3 channels.
const ANY_CHANNELS: [&str; 4] = ["cifar_distort", "invert", "posterize", "solarize"];

pub fn names() -> Vec<&'static str> {
    CATALOGUE.iter().map(|(name, ..)| *name).collect()
}

/// Builds the transform that `text` names.
pub(super) fn parse(text: &str, context: Context<'_>) -> BuildResult {
    let (called, words) = call::split(text)?;
    let Some((_, usage, build)) = CATALOGUE.iter().find(|(name, ..)| *name == called) else {
        let names = names();
        let problem = format!("unknown transform{}", did_you_mean(called, &names));
        return Err(with_advice(&problem, &format!("known transforms are {}", names.join(", "))));
    };
    let (dtype, channels) = (context.statistics.bands.dtype, context.input.channels);
    let any = ANY_CHANNELS.contains(&called);
    let other = dtype != Dtype::U8 || !any && ![1, 3].contains(&channels);
    if let Some((name, instead)) = BYTES_ONLY.iter().find(|(name, _)| other && *name == called) {
        let needed = if any { "" } else { " with 1 or 3 channels" };
        return Err(format!(
            "{name} needs images of uint8{needed}, but these are {dtype} with {}; write {instead} instead",
            base::text::plural(channels, "channel")
        ));
    }
    build.run(&words, context).map_err(|problem| with_advice(&problem, &format!("write {usage}")))
}
