//! An entry of the catalogue: a format of source data sets.

use crate::error::Error;
use crate::options::ConvertOptions;
use crate::source::Source;
use std::path::Path;

/// A source, or why it cannot be read.
pub(super) type Opened = Result<Box<dyn Source>, Error>;

/// How a source is opened; everything that can be checked before the first sample is checked here.
pub(super) enum Open {
    /// A source whose images, classes and splits are as published.
    Fixed(fn(&Path, &ConvertOptions) -> Opened),
    /// A source of pixels, whose classes may be named; images and splits are as they are.
    Pixels(fn(&Path, &ConvertOptions) -> Opened),
    /// Records that are copied as they are, shard by shard.
    Records,
    /// A source of image files, converted as the options say.
    Files(fn(&Path, &ConvertOptions) -> Opened),
}

/// A format of source data sets.
pub(super) struct Kind {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line for `--help`.
    pub about: &'static str,
    pub open: Open,
}
