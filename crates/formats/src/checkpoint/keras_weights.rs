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

/// Its attributes with what the model says of its weights: [`KerasWeights`].
pub(super) const EPSILONS: &str = "epsilons";
pub(super) const TURNED: &str = "turned";

/// What is in a file of Keras.
#[derive(Debug)]
pub struct KerasWeights {
    /// Names, shapes and values, as they stand in the file.
    pub tensors: Vec<Tensor>,
    /// Epsilons of batch norms, each once; none of a file of weights alone.
    pub epsilons: Vec<String>,
    /// Names of layers that flatten images in another order than (H, W, C).
    pub turned: Vec<String>,
}

/// What the process has read.
///
/// # Errors
/// For a file that is not as [`rewrite_weights`](super::rewrite_weights) leaves it.
pub fn read_weights(path: &Path) -> Result<KerasWeights, Error> {
    let group = group::open(checksum::open(path)?, path)?.open(GROUP)?;
    let named = |(number, name): (usize, String)| {
        let (shape, values) = group.array(&number.to_string())?;
        Ok((name, shape, values))
    };
    let tensors = group.texts(NAMES)?.into_iter().enumerate().map(named).collect::<Result<_, Error>>()?;
    Ok(KerasWeights { tensors, epsilons: group.texts(EPSILONS)?, turned: group.texts(TURNED)? })
}
