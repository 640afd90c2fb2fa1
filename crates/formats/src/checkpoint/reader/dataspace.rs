//! Shapes of arrays and attributes.

use super::cursor::Cursor;
use super::fault::{Fault, expect};

/// Dimensions that HDF5 allows.
const MOST_DIMENSIONS: u8 = 32;

/// A shape; none for a single value.
pub(super) type Shape = Option<Vec<usize>>;

/// Reads a dataspace of version 2.
pub(super) fn parse(mut cursor: Cursor<'_>) -> Result<Shape, Fault> {
    let at = cursor.at();
    cursor.exactly(2, 1, "version of a dataspace")?;
    let (rank, flags, kind) = (cursor.u8()?, cursor.u8()?, cursor.u8()?);
    if kind == 0 && rank == 0 {
        return Ok(None);
    }
    let sound = kind == 1 && (1..=MOST_DIMENSIONS).contains(&rank) && flags <= 1;
    expect(sound, at, || format!("a dataspace of kind {kind} with {rank} dimensions and flags {flags}"))?;
    let size = |_| {
        let (at, size) = (cursor.at(), cursor.uint(8)?);
        usize::try_from(size).map_err(|_| Fault::layout(at, format!("a dimension of {size}")))
    };
    (0..rank).map(size).collect::<Result<_, _>>().map(Some)
}

/// Values of a shape.
pub(super) fn values(shape: &[usize], at: u64) -> Result<u64, Fault> {
    let product = shape.iter().try_fold(1u64, |product, &size| product.checked_mul(size as u64));
    product.ok_or_else(|| Fault::layout(at, format!("a shape of {shape:?}, too large for any file")))
}
