//! Helpers that the integration tests of several crates share. They contain no expected results.

#![allow(clippy::new_without_default)] // each `new` creates a folder or starts a thread

use std::fmt::Display;
use std::path::{Path, PathBuf};

pub mod bands;
pub mod blobs;
pub mod disk;
#[cfg(feature = "backend")]
pub mod emulator;
pub mod formula;
#[cfg(feature = "backend")]
pub mod gpu;
pub mod images;
#[cfg(feature = "backend")]
pub mod numerics;
pub mod program;
#[cfg(feature = "backend")]
pub mod remote;
pub mod setting;
mod skip;
pub mod small_run;
pub mod terminal;
#[cfg(feature = "backend")]
pub mod weights;

pub use skip::skip;

/// Returns a path in the repository. Tests may run on a machine that has only some of its folders.
pub fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("this crate is in tests/support").join(path)
}

/// Returns the folder of the profile in which cargo built this test, such as `target/debug`.
pub fn built() -> PathBuf {
    let test = std::env::current_exe().expect("a running program has a path");
    test.ancestors().nth(2).expect("tests are in target/PROFILE/deps").to_path_buf()
}

/// Panics unless the text contains all `parts`, such as a path, a key or a number. Tests use it so that they do not
/// depend on the wording of a message. The panic shows the whole text.
#[track_caller]
pub fn mentions(text: impl Display, parts: &[&str]) {
    let text = text.to_string();
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}
