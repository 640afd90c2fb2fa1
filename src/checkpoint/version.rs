//! Version of the format of model files.

/// Raised when older programs can no longer read what is written.
pub const VERSION: u64 = 2;
