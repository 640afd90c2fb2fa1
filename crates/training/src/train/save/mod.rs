//! What a run leaves in OUT: checkpoints, the final model, and the way back from a checkpoint.

pub mod best;
pub mod class_names;
pub mod complete;
pub mod digest;
pub mod export;
mod extend;
pub mod folder;
pub mod found;
mod hand_over;
mod holder;
pub mod kind;
pub mod lock;
pub mod marker;
pub mod model;
pub mod output;
pub mod resume;
pub mod saver;
pub mod snapshot;
pub mod spread;
