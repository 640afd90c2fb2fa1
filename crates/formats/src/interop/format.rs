//! What a format of weights declares.

use std::path::Path;

use super::error::Error;
use super::weights::Weights;

/// Reads the set of weights with a key.
pub type ReadPart = fn(&Path, &str) -> Result<Weights, Error>;

/// A format of files.
#[derive(Clone, Copy)]
pub struct Format {
    /// Its name, for the log.
    pub name: &'static str,
    /// What it is, for messages.
    pub about: &'static str,
    /// Whether a file that begins with these bytes is of it.
    pub recognises: fn(&[u8]) -> bool,
    /// Reads a file.
    pub read: fn(&Path) -> Result<Weights, Error>,
    /// Reads the set of weights with this key. `None` if files of this format have only one set.
    pub read_part: Option<ReadPart>,
}
