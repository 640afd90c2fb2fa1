//! `[init]`: the weights that a run starts from in place of random ones.
//!
//! - [`begin`]: rank 0 reads the file, all ranks learn whether it fits, and its values reach every rank, those of Keras in the order of the
//!   network;
//! - [`fit`]: which tensor of the file is which of the network, by names and shapes, and what to say if nothing fits;
//! - [`table`]: that, for people; what the file was trained on: its classes, its mean and standard deviation;
//! - [`whiten`]: a first convolution from the training images themselves, by eigenvectors.
//!
//! Rank 0 alone reads, so the file need not be there for the others, and all ranks start from the same bits. A run that resumes takes
//! nothing from the file.

pub mod begin;
pub mod fit;
pub mod table;
pub mod whiten;
