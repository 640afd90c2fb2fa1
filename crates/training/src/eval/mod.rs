//! Using a model: scoring a split, naming pictures, scoring the files of a run as they appear, handing it to other programs, and taking it
//! from them.

pub mod chosen;
mod classes;
pub mod export;
pub mod findings;
pub mod follow;
pub mod import;
pub mod model;
pub mod pictures;
pub mod predict;
pub mod request;
pub mod score;
