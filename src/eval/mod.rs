//! Using a model: scoring a split, naming pictures, scoring the files of a run as they appear.

mod classes;
pub mod follow;
mod model;
pub mod predict;
pub mod request;
pub mod score;
