//! `[init]`: starts a run from weights in a file instead of random ones.
//!
//! - [`initial_weights`]: rank 0 reads the file, all ranks learn whether it fits, and the values are broadcast. Values from Keras
//!   are converted to the network's order.
//! - [`matching`]: matches the tensors of file and network by name and shape, and explains why nothing matches.
//! - [`stem`]: adapts the first convolution if the images have a different channel count.
//! - [`table`]: shows the result to the user, and checks what the file was trained on: classes, mean and standard
//!   deviation.
//! - [`whiten`]: computes a first convolution from the training images, by eigenvectors.
//!
//! Only rank 0 reads the file, so it does not need to exist on other nodes, and all ranks start from bit-identical weights. A resumed run
//! does not read the file.

pub mod initial_weights;
pub mod matching;
pub mod stem;
pub mod table;
pub mod whiten;
