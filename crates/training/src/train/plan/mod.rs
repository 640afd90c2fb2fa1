//! Plans a run from a request. This code does not communicate with other ranks.

pub mod build;
pub mod division;
pub mod network;
pub mod phases;
pub mod request;
pub mod run;
pub mod settings;
pub mod source;
pub mod split_labels;
pub mod targets;
