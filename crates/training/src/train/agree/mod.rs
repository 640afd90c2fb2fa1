//! What makes all ranks the same before the first step: who they are, what they run, compute on and read.

pub mod algorithms;
pub mod gpus;
pub mod preflight;
pub mod session;
