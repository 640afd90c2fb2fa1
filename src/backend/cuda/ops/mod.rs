//! What the backend computes: one operation of `backend::op` a file, the passes over arenas, the codecs of gradients, the network's
//! input.

pub mod bias;
pub mod codec;
pub mod conv;
pub mod copies;
pub mod dropout;
pub mod elementwise;
pub mod input;
pub mod linear;
pub mod loss;
pub mod lrn;
pub mod norm;
pub mod norms;
pub mod pool;
pub mod runs;
pub mod shortcut;
pub mod update;
