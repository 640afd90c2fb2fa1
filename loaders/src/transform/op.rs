//! The trait of a transform, the image shapes before and after it, and how it is built from its arguments.

use std::fmt;

use crate::error::VARIOUS_SIZES;
use crate::random::Draws;
use crate::spec::ImageSpec;
use crate::transform::call::{self, Arguments};
use crate::transform::canvas::Canvas;
use crate::transform::statistics::Statistics;

/// One step of a pipeline, from image to image.
pub trait Transform: fmt::Debug + Send + Sync {
    /// Returns the shape of the result for images of shape `input`, or why they cannot be used. By default the shape
    /// does not change.
    fn output(&self, input: ImageSpec) -> Result<ImageSpec, String> {
        Ok(input)
    }

    /// Returns the shapes of the results for images of various sizes, or why they cannot be used. By default this is an
    /// error, because most transforms need one size.
    fn output_of_varied(&self, _input: Varied) -> Result<Sizes, Misfit> {
        Err(Misfit::VariousSizes)
    }

    /// Returns true if the transform resizes the image. Only the first transform of a list can do that.
    fn resizes(&self) -> bool {
        false
    }

    /// Returns true if the transform's results have various sizes even for images of the same size.
    fn varies(&self) -> bool {
        false
    }

    /// Returns true if the transform only chooses which part of the image goes where and in which size. At the start of
    /// a list, such transforms are applied before the image is decoded, and need no pass over the pixels of their own.
    /// Every transform that resizes is one of them.
    fn is_geometric(&self) -> bool {
        self.resizes()
    }

    /// Returns true if the transform may mirror top and bottom.
    fn flips_vertically(&self) -> bool {
        false
    }

    /// Returns true if the transform's result may contain pixels from outside the image.
    fn pads(&self) -> bool {
        false
    }

    /// Returns true if the transform reads and writes bytes where images are bytes.
    fn keeps_bytes(&self) -> bool {
        false
    }

    /// Returns true if the transform expects values on the scale 0 to 255 where images are bytes. It must then come
    /// before `normalize` and `standardize`.
    fn needs_byte_scale(&self) -> bool {
        self.keeps_bytes()
    }

    /// Returns true if the transform's results are no longer on the scale 0 to 255.
    fn rescales(&self) -> bool {
        false
    }

    /// Returns a table of results for each of `channels` if each result depends only on the byte and its channel.
    /// Otherwise returns `None`.
    fn tables(&self, _channels: usize) -> Option<Vec<[f32; 256]>> {
        None
    }

    /// If values are not bytes, and each result is (value - mean) / deviation with numbers for its channel, returns mean
    /// and deviation of each of `channels`.
    fn mean_and_deviation(&self, _channels: usize) -> Option<Vec<[f32; 2]>> {
        None
    }

    /// Returns the bands that the transform keeps, in order, if it selects bands. They are selected when an image is
    /// decoded.
    fn selection(&self) -> Option<&[usize]> {
        None
    }

    /// Updates `statistics`, which describe the transform's input, so that they describe its results. By default they do
    /// not change.
    fn restate(&self, _statistics: &mut Statistics) {}

    /// Changes the image. All randomness comes from `draws`.
    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws);

    /// Returns the transform with all arguments, including a mean and deviation from the data set. The text builds the
    /// same transform only with the data set's `bands` (type, ranges, percentiles), which model.h5 also stores.
    fn text(&self) -> String;
}

/// The known properties of images while their sizes vary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Varied {
    /// Number of channels of all images.
    pub channels: u32,
    /// Length of the shorter side, if a transform has made it equal for all images.
    pub short_side: Option<u32>,
}

/// The shapes of images between two transforms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sizes {
    /// All images have this shape.
    Equal(ImageSpec),
    Varied(Varied),
}

/// The information that a transform may need in addition to its arguments.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context<'a> {
    /// Shape of the images that the transform receives, with height and width 0 while sizes vary.
    pub input: ImageSpec,
    /// Statistics for the values that the transform receives.
    pub statistics: &'a Statistics,
}

/// A transform, or the problem with its arguments.
pub(super) type BuildResult = Result<Box<dyn Transform>, String>;

/// The function that builds a transform from its arguments.
#[derive(Clone, Copy)]
pub(super) enum Build {
    /// For transforms that accept only numbers.
    Numbers(fn(&[f64], Context<'_>) -> BuildResult),
    /// For transforms that also accept a size or words.
    Any(fn(&Arguments<'_>, Context<'_>) -> BuildResult),
    /// For transforms that accept any texts as arguments.
    Texts(fn(&[&str], Context<'_>) -> BuildResult),
}

impl Build {
    pub fn run(self, words: &[&str], context: Context<'_>) -> BuildResult {
        match self {
            Self::Numbers(build) => build(call::arguments(words)?.only_numbers()?, context),
            Self::Any(build) => build(&call::arguments(words)?, context),
            Self::Texts(build) => build(words, context),
        }
    }
}

/// The reason why a transform cannot be used in its list.
#[derive(Debug)]
pub enum Misfit {
    /// The transform needs images with the same size.
    VariousSizes,
    Other(String),
}

impl<T: Into<String>> From<T> for Misfit {
    fn from(problem: T) -> Self {
        Self::Other(problem.into())
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::VariousSizes => VARIOUS_SIZES,
            Self::Other(problem) => problem,
        })
    }
}
