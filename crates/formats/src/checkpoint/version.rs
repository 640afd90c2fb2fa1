//! Versions of the model file format.

/// Version for networks whose images have one label. Increased when older programs can no longer read the files.
pub const VERSION: u64 = 2;

/// Version for multi-label networks. Programs that do not know it reject the file, because they would interpret its
/// scores as those of a single label.
pub const SEVERAL_LABELS: u64 = 3;

/// The newest version that this program reads.
pub const NEWEST: u64 = SEVERAL_LABELS;
