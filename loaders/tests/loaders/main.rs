//! The tests of the package in one program: each module is about one part or one kind of input. What counts the allocations of a whole
//! process is a program of its own beside it.

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
