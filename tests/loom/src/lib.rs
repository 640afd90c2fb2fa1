//! Compiles the protocols by which threads wait for each other with loom's locks, atomics and threads instead of those
//! of std and crossbeam. The tests run each protocol with every interleaving of its threads.
//!
//! The protocols are the whole ring of the loader, where [`stand_ins`] replaces the code that fills batches, the
//! tickets of the thread that owns MPI, and the hand-over between training and the thread that writes checkpoints.

#![allow(dead_code, unused_imports)] // only part of the loader is compiled, without its bench and its other formats

// the protocols of `comm` and `training` import `base::sync`, which this crate provides as `sync`
extern crate self as base;

mod channel;
mod stand_ins;
pub mod sync;

/// Replaces `base::text`, which needs a library.
pub mod text {
    pub fn plural(number: impl std::fmt::Display, noun: &str) -> String {
        format!("{number} {noun}")
    }
}

pub use stand_ins::{FAULTY, LOST, buffers, error, mix, storage, transform};

#[path = "../../../loaders/src/label_sets.rs"]
pub mod label_sets;

#[path = "../../../loaders/src/spec.rs"]
pub mod spec;

#[path = "../../../loaders/src/guarded.rs"]
pub mod guarded;

#[path = "../../../crates/comm/src/turns.rs"]
pub mod turns;

#[path = "../../../crates/training/src/train/save/hand_over.rs"]
pub mod hand_over;

#[path = "../../../loaders/src/order"]
pub mod order {
    mod job;

    pub use job::{Job, Order};
}

/// The loader's own sources of the ring, without the modules that [`stand_ins`] replaces.
#[path = "../../../loaders/src/ring"]
pub mod ring {
    pub mod batch;
    pub mod loader;
    pub(crate) mod piece;
    pub(crate) mod shared;
    pub(crate) mod slot;
    pub mod stats;
    pub(crate) mod worker;

    pub use crate::stand_ins::options;
    pub(crate) use crate::stand_ins::{fill, nice, reader};
}
