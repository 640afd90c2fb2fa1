//! Why a file could not be read: the disk, or bytes that are not of the layout that trireme writes.

use std::io;

/// A failure of reading, before the file and the object are named.
#[derive(Debug)]
pub(in crate::checkpoint) enum Fault {
    /// The operating system refused.
    Io(io::Error),
    /// Bytes at `at` that trireme does not write.
    Layout {
        /// Offset in the file.
        at: u64,
        /// What is wrong, with expected and got.
        text: String,
    },
}

impl Fault {
    /// Bytes at `at` that trireme does not write.
    pub(super) fn layout(at: u64, text: impl Into<String>) -> Self {
        Self::Layout { at, text: text.into() }
    }
}

/// Refuses what is not as expected.
pub(super) fn expect(holds: bool, at: u64, text: impl FnOnce() -> String) -> Result<(), Fault> {
    if holds { Ok(()) } else { Err(Fault::layout(at, text())) }
}
