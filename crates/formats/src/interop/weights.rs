//! What a file of weights holds, whatever its format.

use std::path::PathBuf;

use crate::checkpoint::Tensor;

/// The tensors of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Weights {
    /// The file.
    pub path: PathBuf,
    /// Name of its format.
    pub format: &'static str,
    /// Names, shapes and values in C order, all as f32; each name once.
    pub tensors: Vec<Tensor>,
    /// What a file of trireme says beside; none for other programs'.
    pub model: Option<Model>,
    /// What another program did to a file of trireme, a line for people; none for a file as it was written.
    pub warning: Option<String>,
    /// Whether shapes and values are in Keras's order, which only the layers of a network can turn into PyTorch's.
    pub keras: bool,
}

/// What a file of trireme says of its model.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Name of the network.
    pub network: String,
    /// Class names, in order of their labels.
    pub classes: Vec<String>,
    /// Transforms from a decoded image to the input.
    pub preprocess: Vec<String>,
}
