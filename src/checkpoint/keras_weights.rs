//! Weights of Keras as the process that reads its files hands them on: an array each, and the list of their names.

use std::path::Path;

use super::checksum;
use super::error::Error;
use super::keras::Tensor;
use super::reader::group;

/// The group of the arrays, which have numbers for names.
pub(super) const GROUP: &str = "weights";

/// Its attribute with the names of the weights.
pub(super) const NAMES: &str = "names";

/// Names, shapes and values, as they stand in the file of Keras.
///
/// # Errors
/// For a file that is not as [`rewrite_weights`](super::rewrite_weights) leaves it.
pub fn read_weights(path: &Path) -> Result<Vec<Tensor>, Error> {
    let group = group::open(checksum::open(path)?, path)?.open(GROUP)?;
    let named = |(number, name): (usize, String)| {
        let (shape, values) = group.array(&number.to_string())?;
        Ok((name, shape, values))
    };
    group.texts(NAMES)?.into_iter().enumerate().map(named).collect()
}
