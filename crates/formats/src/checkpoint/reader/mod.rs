//! Reads the HDF5 files that trireme writes, and no others. It supports the groups, attributes and contiguous f32
//! arrays that libhdf5 writes with the version bounds set in `h5`.
//!
//! A file may come from an untrusted source, and libhdf5 crashes on many malicious files. Therefore this code checks
//! every offset and length against the file size, limits the total number of bytes read, and allocates memory only for
//! sizes that the file can contain. It rejects everything that trireme does not write: links to other files, external
//! and virtual storage, filters, chunks. It ignores the checksums of HDF5's own structures, because the checksum of the
//! whole file was verified.
//!
//! - [`group`]: groups with their members, attributes and arrays; `source`: bounded reads and their errors
//! - `object`: the root, the messages of an object, shapes and types; `heap`: long lists of members, and strings

pub(super) mod group;
mod heap;
mod object;
mod source;
#[cfg(test)]
mod tests;

pub(super) use group::Group;
