//! From a request to a planned run. Nothing here speaks to other ranks.

pub mod build;
pub mod census;
pub mod division;
pub mod lists;
pub mod named_file;
pub mod network;
pub mod one_value;
pub mod patterns;
pub mod phases;
pub mod pixel_values;
pub mod request;
pub mod resources;
pub mod run;
pub mod settings;
pub mod several;
pub mod source;
pub mod targets;
