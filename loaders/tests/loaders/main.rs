//! The tests of this crate in one binary. Each module tests one part or one kind of input. The test that counts the
//! allocations of a whole process has its own binary, `allocations.rs`.

mod bands;
mod batches;
mod common;
mod entry_points;
mod exif;
mod faults;
mod golden;
mod hostile;
mod images;
mod multi_label;
mod policies;
mod sigbus;
mod storage;
mod varied;
