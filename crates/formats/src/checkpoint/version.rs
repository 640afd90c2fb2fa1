//! Versions of the model file format.

/// Version for single-label networks. Increased when older programs can no longer read the files.
pub const VERSION: u64 = 2;

/// Version for multi-label networks. Programs that do not know it reject the file, because they would misinterpret its
/// scores.
pub const MULTI_LABEL_VERSION: u64 = 3;

/// Version for images that are not 8-bit grey or RGB, multi-label or not. Programs that do not know it would prepare
/// images wrongly.
pub const BANDS_VERSION: u64 = 4;

/// Version for labels that are numbers, regardless of the image format. Programs that do not know it would mistake the
/// outputs for class scores.
pub const TARGETS_VERSION: u64 = 5;

/// The newest version that this program reads.
pub const NEWEST: u64 = TARGETS_VERSION;
