//! The files of a run in OUT: checkpoints and the final model. Also resuming from a checkpoint.

pub mod folder;
mod hand_over;
pub mod lock;
pub mod model;
pub mod output;
pub mod resume;
pub mod saver;
pub mod snapshot;
