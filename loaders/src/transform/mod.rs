//! Transforms: what a recipe's `[augment]` lists name, one file an op, and the pipeline that runs a
//! list of them. A new op is a file here and a line in `CATALOGUE`.
//!
//! Images enter as bytes and leave as planar floats (C, H, W). Ops work on the scale 0 to 255 until
//! `normalize` or `standardize`; a list without either yields floats 0 to 255. Random ops draw from
//! (seed, sample id, epoch, position in the list) alone.

mod brightness;
mod call;
mod canvas;
mod center_crop;
mod cifar_distort;
mod color_jitter;
mod contrast;
mod cutout;
mod flip;
mod inception_crop;
mod inception_distort;
mod lighting;
mod moments;
mod normalize;
mod pad_crop;
mod paint;
mod pipeline;
mod random_crop;
mod random_erasing;
mod random_resized_crop;
mod rectangle;
mod resize;
mod rgb;
mod sight;
mod standardize;
mod view;

use std::fmt;

pub use canvas::Canvas;
pub use pipeline::{Pipeline, Scratch};
pub use sight::Sight;
pub(crate) use view::{Need, Part};

use crate::nearest::did_you_mean;
use crate::random::Draws;
use crate::spec::ImageSpec;

/// One step from image to image. `Display` writes it in full, as it can be parsed again without a
/// data set.
pub trait Transform: fmt::Debug + fmt::Display + Send + Sync {
    /// The shape that comes of `input`, or why there is none.
    fn output(&self, input: ImageSpec) -> Result<ImageSpec, String>;

    /// What comes of images of various sizes, or why nothing does: most ops want one size.
    fn output_of_varied(&self, _input: Varied) -> Result<Sizes, String> {
        Err(format!("the images are of various sizes; begin the list with {SETTLE}"))
    }

    /// Whether it resizes the image ([`Canvas`] can do that once, and first of all).
    fn resizes(&self) -> bool {
        false
    }

    /// Whether it only moves pixels about, which is free until values are asked for.
    fn is_geometric(&self) -> bool;

    /// Whether it may bring what lies outside of the image into sight.
    fn pads(&self) -> bool {
        false
    }

    /// For an op that takes every byte to one value, whatever lies around it: those values, a table for each of `channels`.
    fn tables(&self, _channels: usize) -> Option<Vec<[f32; 256]>> {
        None
    }

    /// Changes the image; all randomness comes from `draws`.
    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws);
}

/// What is known of images while their sizes vary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Varied {
    /// Channels of all.
    pub channels: u32,
    /// The length of the shorter side, once an op has settled that.
    pub short_side: Option<u32>,
}

/// The shapes of images on their way through a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sizes {
    /// All of one shape.
    Equal(ImageSpec),
    /// Of many.
    Varied(Varied),
}

/// What makes images of one size of images of any.
const SETTLE: &str = "random_resized_crop(size) or inception_crop(size), or with resize(size) and then center_crop(size) or random_crop(size)";

/// What an op may need to know beside its arguments.
#[derive(Debug, Clone, Copy)]
struct Context<'a> {
    /// The shape that the op will get; 0 x 0 while sizes vary.
    input: ImageSpec,
    /// Of pixel / 255 over the training split, per channel.
    mean: &'a [f64],
    std: &'a [f64],
}

type Build = fn(&[f64], Context<'_>) -> Result<Box<dyn Transform>, String>;

/// Name, how it is written, and its maker.
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

/// Makes the op that `text` names.
fn parse(text: &str, context: Context<'_>) -> Result<Box<dyn Transform>, String> {
    let call = call::parse(text)?;
    let Some((_, usage, build)) = CATALOGUE.iter().find(|(name, ..)| *name == call.name) else {
        let names: Vec<_> = CATALOGUE.iter().map(|(name, ..)| *name).collect();
        return Err(format!("unknown transform{}; there are {}", did_you_mean(call.name, &names), names.join(", ")));
    };
    build(&call.arguments, context).map_err(|problem| format!("{problem}; write {usage}"))
}

/// The only argument, a whole number of pixels of at least `least`.
fn one_size(arguments: &[f64], least: u32) -> Result<u32, String> {
    let [size] = arguments else {
        return Err(format!("expected 1 argument, got {}", arguments.len()));
    };
    // Above 2^16 no image is meant, and sums of sizes stay clear of overflow.
    let most = f64::from(u16::MAX);
    if size.fract() != 0.0 || *size < f64::from(least) || *size > most {
        return Err(format!("expected a whole number of pixels from {least} to {most}, got {size}"));
    }
    Ok(*size as u32)
}

fn no_arguments(arguments: &[f64]) -> Result<(), String> {
    match arguments.len() {
        0 => Ok(()),
        n => Err(format!("expected no argument, got {n}")),
    }
}

/// The shape of a square crop, which must fit inside.
fn cropped(size: u32, input: ImageSpec) -> Result<ImageSpec, String> {
    if size > input.height || size > input.width {
        return Err(format!("a crop of {size}x{size} does not fit into an image of {input}"));
    }
    Ok(ImageSpec::new(size, size, input.channels))
}

/// The shape of a square crop from images whose short side alone is known.
fn cropped_of_varied(size: u32, input: Varied) -> Result<Sizes, String> {
    match input.short_side {
        Some(side) if size <= side => Ok(Sizes::Equal(ImageSpec::new(size, size, input.channels))),
        Some(side) => Err(format!("a crop of {size}x{size} does not fit into images whose short side is {side}")),
        None => Err(format!("the images are of various sizes; begin the list with {SETTLE}")),
    }
}

/// The planes of an image of three channels.
fn rgb(values: &mut [f32]) -> [&mut [f32]; 3] {
    let plane = values.len() / 3;
    let (red, rest) = values.split_at_mut(plane);
    let (green, blue) = rest.split_at_mut(plane);
    [red, green, blue]
}

#[cfg(test)]
pub(crate) mod testing {
    //! Runs one op on a small image.

    use super::*;

    /// The op's resulting floats on `bytes` for sample `id`, as the only op of a list (seed 1, epoch 0).
    pub(crate) fn run(text: &str, spec: ImageSpec, bytes: &[u8], id: u64) -> Vec<f32> {
        let manifest: crate::Manifest = serde_json::from_str(
            r#"{"version":1,"classes":["a"],"mean":[0.5,0.25,0.125],"std":[0.5,0.25,2.0],"splits":{}}"#,
        )
        .unwrap();
        let pipeline = Pipeline::new(&[text.to_owned()], spec, &manifest, 1).unwrap();
        let mut out = vec![f32::NAN; pipeline.output().values()];
        pipeline.apply(bytes, spec, id, 0, &mut Scratch::default(), &mut out).unwrap();
        out
    }

    /// The draws that the only op of a list has in `run`.
    pub(crate) fn draws(id: u64) -> Draws {
        Draws::new(1, id, 0, 0)
    }
}
