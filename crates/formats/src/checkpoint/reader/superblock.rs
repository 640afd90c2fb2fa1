//! The first 48 bytes of an HDF5 file: where the root group is.

use super::fault::{Fault, expect};
use super::source::Source;

/// Bytes of version 2.
const LENGTH: u64 = 48;

/// The one version that trireme writes; 0 and 1 are of older libraries, 3 is of HDF5 1.10 and later.
const VERSION: u64 = 2;

/// Address of the root group's object header.
pub(super) fn root(source: &Source) -> Result<u64, Fault> {
    let block = source.block(0, LENGTH, "the superblock")?;
    let mut cursor = block.cursor();
    // the signature has been looked at, it begins every HDF5 file
    cursor.take(8)?;
    cursor.exactly(VERSION, 1, "version of the superblock")?;
    cursor.exactly(8, 1, "bytes of an offset")?;
    cursor.exactly(8, 1, "bytes of a length")?;
    cursor.exactly(0, 1, "flags of the superblock")?;
    cursor.exactly(0, 8, "base address")?;
    let (at, extension) = (cursor.at(), cursor.address()?);
    expect(extension.is_none(), at, || "expected no extension of the superblock".into())?;
    cursor.exactly(source.length(), 8, "bytes of the file")?;
    cursor.present("the root group")
}
