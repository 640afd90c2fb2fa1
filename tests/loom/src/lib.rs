//! The sources of the protocols by which threads wait for each other, compiled against loom's locks, atomics and threads in place of
//! std's and crossbeam's. The tests run each protocol in every order in which its threads can be interleaved.
//!
//! The ring of the loader, whole: consumer, slots, tokens, jobs and threads; [`stand_ins`] has what it fills batches with. The tickets of
//! the thread that owns MPI. The hand-over between training and the thread that writes checkpoints.

#![allow(dead_code, unused_imports)] // a part of the loader, without its bench and its other formats

// what the protocols of `comm` and `training` import from `base::sync` is in this crate
extern crate self as base;

mod channel;
mod stand_ins;
pub mod sync;

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

/// The ring, as it is, but for the files of the stand-ins.
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
