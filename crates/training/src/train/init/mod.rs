//! `[init]`: the weights that a run starts from in place of random ones.
//!
//! - [`begin`]: rank 0 reads the file, all ranks learn whether it fits, and its values reach every rank;
//! - [`mod@keras_order`]: values of Keras in the order of the network; `fit`: which tensor of the file is which of the
//!   network, by names and [`mod@shapes`]; `misfit`: what to say where none is; `table`: that, for people;
//! - `origin`: what the file was trained on: its classes, its mean and standard deviation;
//! - [`whiten`]: a first convolution from the training images themselves, by the eigenvectors of [`mod@eigen`];
//! - [`mod@share`]: rank 0's weights to all ranks.
//!
//! Rank 0 alone reads, so the file need not be there for the others, and all ranks start from the same bits. A run that resumes takes
//! nothing from the file.

pub mod begin;
pub mod fit;
pub mod table;
pub mod whiten;
