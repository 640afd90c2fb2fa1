//! Versions of the format of model files.

/// Of a network whose images have one label; raised when older programs can no longer read what is written.
pub const VERSION: u64 = 2;

/// Of a network whose images may have several: programs that would take its scores for those of one class refuse it.
pub const SEVERAL_LABELS: u64 = 3;

/// The newest that is read.
pub const NEWEST: u64 = SEVERAL_LABELS;
