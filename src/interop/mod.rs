//! Weights and networks of other programs, in and out.
//!
//! - [`export`]: a trained network as a file of another program.

pub mod export;
