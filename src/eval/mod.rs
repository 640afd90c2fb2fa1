//! Using a model: scoring a split, naming pictures, following a run.

pub mod follow;
pub mod scoring;
