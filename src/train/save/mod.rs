//! What a run leaves in OUT: checkpoints, the final model, and the way back from a checkpoint.

pub mod class_names;
pub mod digest;
pub mod export;
pub mod folder;
pub mod found;
mod hand_over;
mod holder;
pub mod lock;
mod marker;
pub mod model;
pub mod output;
pub mod resume;
pub mod saver;
pub mod snapshot;
pub mod spread;
