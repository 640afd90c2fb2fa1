//! What a transform is, the shapes of images before and after it, and how it is made from its arguments.

use std::fmt;

use crate::error::VARIOUS_SIZES;
use crate::random::Draws;
use crate::spec::ImageSpec;
use crate::transform::call::Arguments;
use crate::transform::canvas::Canvas;

/// One step from image to image. `Display` writes it with all arguments, so that it can be parsed again without the data set.
pub trait Transform: fmt::Debug + fmt::Display + Send + Sync {
    /// The shape of the result for images of shape `input`, or why they cannot be used. By default the shape does not change.
    fn output(&self, input: ImageSpec) -> Result<ImageSpec, String> {
        Ok(input)
    }

    /// The shapes of the results for images of various sizes, or why they cannot be used. Most transforms need one size.
    fn output_of_varied(&self, _input: Varied) -> Result<Sizes, String> {
        Err(various_sizes())
    }

    /// Whether it resizes the image ([`Canvas`] can do that once, and first of all).
    fn resizes(&self) -> bool {
        false
    }

    /// Whether images of one size come out in various sizes.
    fn varies(&self) -> bool {
        false
    }

    /// Whether it only moves pixels, which costs nothing before floats are made.
    fn is_geometric(&self) -> bool {
        false
    }

    /// Whether it may mirror top and bottom.
    fn upends(&self) -> bool {
        false
    }

    /// Whether its result may contain pixels from outside of the image.
    fn pads(&self) -> bool {
        false
    }

    /// Whether it works on bytes and leaves bytes, so that it must not stand behind `normalize` or `standardize`.
    fn keeps_bytes(&self) -> bool {
        false
    }

    /// Whether its results are no longer on the scale 0 to 255.
    fn rescales(&self) -> bool {
        false
    }

    /// If the result of each value depends on its byte and channel alone: those results, a table for each of `channels`.
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
    /// The length of the shorter side, if a transform has made it the same for all.
    pub short_side: Option<u32>,
}

/// The shapes of images between two transforms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sizes {
    /// All have one shape.
    Equal(ImageSpec),
    /// Sizes vary.
    Varied(Varied),
}

/// What a transform may need to know beside its arguments.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context<'a> {
    /// The shape that the transform will get; 0 x 0 while sizes vary.
    pub input: ImageSpec,
    /// Of pixel / 255 over the training split, per channel.
    pub mean: &'a [f64],
    pub std: &'a [f64],
}

/// A transform, or what is wrong with its arguments.
pub(super) type Built = Result<Box<dyn Transform>, String>;

/// Makes a transform from its arguments.
#[derive(Clone, Copy)]
pub(super) enum Build {
    /// From numbers alone.
    Numbers(fn(&[f64], Context<'_>) -> Built),
    /// From a size, numbers and words.
    Any(fn(&Arguments<'_>, Context<'_>) -> Built),
}

impl Build {
    /// Makes the transform.
    pub fn run(self, arguments: &Arguments<'_>, context: Context<'_>) -> Built {
        match self {
            Self::Numbers(build) => build(arguments.only_numbers()?, context),
            Self::Any(build) => build(arguments, context),
        }
    }
}

/// The error of a transform that needs images of one size.
pub(super) fn various_sizes() -> String {
    VARIOUS_SIZES.to_owned()
}
