//! Reads the HDF5 files that trireme writes, and no others: what libhdf5 makes of groups, attributes and f32 arrays in one piece with the
//! bounds that `h5` sets.
//!
//! A file may come from anywhere, and libhdf5 crashes on many that were made to harm. So here every offset and length is checked
//! against the file's size, all reads together are bounded by it, nothing is taken before its size is known to stand in the file, and
//! whatever trireme does not write is refused: links to other files, external and virtual storage, filters, chunks. Checksums of HDF5's
//! own structures are not looked at, the one over the whole file is.
//!
//! - [`group`]: what the layouts ask for: groups, their members, attributes and arrays; `source`: bounded reads and why they fail;
//! - `object`: the root, the messages of an object, shapes and types; `heap`: lists of many members, and texts.

pub(super) mod group;
mod heap;
mod object;
mod source;
#[cfg(test)]
mod tests;

pub(super) use group::Group;
