//! Codecs: how a bucket of gradients becomes numbers that MPI can add, and back. One codec a file.
//!
//! A new codec is a file here that has an [`Entry`], and its line in [`CATALOGUE`]. Not here: which parameters make up a bucket, and
//! when it leaves (`train::reduce`); the calls themselves ([`World`](super::World)).

mod bf16;
mod bucket;
mod coded;
mod entry;
mod exact;
mod exempt;
mod feedback;
pub mod fixed;
mod float;
mod int8;
mod integers;
mod lanes;
mod packed;
mod philox;
mod ternary;

pub use bucket::{Bucket, Key, Share, Tensor};
pub use entry::{Codec, Entry, Settings, ZeroCodes};

/// All codecs.
pub const CATALOGUE: &[Entry] = &[float::ENTRY, exact::ENTRY, int8::ENTRY, bf16::ENTRY, ternary::ENTRY];

/// The codec that sends f32 as they are.
pub const FLOAT: Entry = float::ENTRY;

/// The codec that sums integers without rounding at random.
pub const EXACT: Entry = exact::ENTRY;

/// Their names.
pub const NAMES: [&str; CATALOGUE.len()] = {
    let mut names = [""; CATALOGUE.len()];
    let mut i = 0;
    while i < names.len() {
        names[i] = CATALOGUE[i].name;
        i += 1;
    }
    names
};

/// The codec of this name.
pub fn find(name: &str) -> Option<&'static Entry> {
    CATALOGUE.iter().find(|entry| entry.name == name)
}

#[cfg(test)]
mod tests;
