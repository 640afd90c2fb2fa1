//! Using a model: scoring a split, naming pictures, scoring the files of a run as they appear, handing it to other programs, and taking it
//! from them.

mod chosen;
mod classes;
pub mod errors_sheet;
pub mod export;
pub mod findings;
pub mod follow;
pub mod foreign;
pub mod import;
mod missing;
mod model;
pub mod npy;
pub mod pictures;
pub mod predict;
pub mod recorded;
pub mod request;
pub mod score;
pub mod table;
