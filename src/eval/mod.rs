//! Using a model: scoring a split, naming pictures, scoring the files of a run as they appear, handing it to other programs.

mod classes;
pub mod export;
pub mod follow;
pub mod foreign;
mod model;
pub mod npy;
pub mod pictures;
pub mod predict;
pub mod recorded;
pub mod request;
pub mod score;
