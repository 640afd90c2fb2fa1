//! What a run leaves in OUT: checkpoints, the final model, and the way back from a checkpoint.

pub mod folder;
mod hand_over;
pub mod lock;
pub mod model;
pub mod output;
pub mod resume;
pub mod saver;
pub mod snapshot;
