//! Attributes of version 3: a name, a type, a shape and the bytes of the values.

use super::cursor::Cursor;
use super::dataspace::{self, Shape};
use super::datatype::{self, Datatype};
use super::fault::{Fault, expect};
use super::global_heap::GlobalHeap;
use super::source::Source;

/// An attribute; its texts are read when they are asked for.
pub(super) struct Attribute {
    /// Offset of its beginning in the file.
    pub(super) at: u64,
    datatype: Datatype,
    shape: Shape,
    bytes: Vec<u8>,
}

/// A number that attributes hold.
pub(in crate::checkpoint) trait Number: Sized {
    /// Its type in the file.
    const DATATYPE: Datatype;

    /// Out of its bytes.
    fn of(bytes: &[u8]) -> Option<Self>;
}

macro_rules! numbers {
    ($($number:ty => $datatype:ident),*) => {
        $(impl Number for $number {
            const DATATYPE: Datatype = Datatype::$datatype;

            fn of(bytes: &[u8]) -> Option<Self> {
                bytes.try_into().ok().map(Self::from_le_bytes)
            }
        })*
    };
}

numbers!(f32 => F32, f64 => F64, u32 => U32, u64 => U64);

/// Reads an attribute and its name.
pub(super) fn parse(mut cursor: Cursor<'_>) -> Result<(String, Attribute), Fault> {
    let at = cursor.at();
    cursor.exactly(3, 1, "version of an attribute")?;
    cursor.exactly(0, 1, "flags of an attribute")?;
    let (name, datatype, space) = (cursor.uint(2)?, cursor.uint(2)?, cursor.uint(2)?);
    // the name's character set; all are read as UTF-8
    cursor.u8()?;
    let name = cursor.text(name.saturating_sub(1))?;
    cursor.exactly(0, 1, "end of an attribute's name")?;
    let datatype = datatype::parse(cursor.at(), cursor.take(datatype)?)?;
    let shape = dataspace::parse(Cursor::new(cursor.at(), cursor.take(space)?))?;
    let values = shape.as_ref().map_or(Ok(1), |shape| dataspace::values(shape, at))?;
    let (bytes, have) = (values.checked_mul(datatype.bytes()), cursor.rest().len());
    expect(bytes.is_some_and(|bytes| bytes <= have as u64), at, || {
        format!("attribute {name} of {values} values has {have} bytes")
    })?;
    let bytes = cursor.take(bytes.unwrap_or(0))?.to_vec();
    Ok((name, Attribute { at, datatype, shape, bytes }))
}

impl Attribute {
    /// A single number.
    pub(super) fn number<T: Number>(&self) -> Result<T, Fault> {
        let bytes = self.checked(T::DATATYPE, 0)?;
        T::of(bytes).ok_or_else(|| Fault::layout(self.at, "a number of other bytes"))
    }

    /// A list of numbers.
    pub(super) fn numbers<T: Number>(&self) -> Result<Vec<T>, Fault> {
        let bytes = self.checked(T::DATATYPE, 1)?;
        let list: Option<_> = bytes.chunks_exact(T::DATATYPE.bytes() as usize).map(T::of).collect();
        list.ok_or_else(|| Fault::layout(self.at, "numbers of other bytes"))
    }

    /// A single text.
    pub(super) fn text(&self, source: &Source, heap: &GlobalHeap) -> Result<String, Fault> {
        heap.text(source, &mut Cursor::new(self.at, self.checked(Datatype::Text, 0)?))
    }

    /// A list of texts.
    pub(super) fn texts(&self, source: &Source, heap: &GlobalHeap) -> Result<Vec<String>, Fault> {
        let bytes = self.checked(Datatype::Text, 1)?;
        let each = bytes.chunks_exact(Datatype::Text.bytes() as usize);
        each.map(|reference| heap.text(source, &mut Cursor::new(self.at, reference))).collect()
    }

    /// Its bytes, if it is of this type and has so many dimensions.
    fn checked(&self, datatype: Datatype, dimensions: usize) -> Result<&[u8], Fault> {
        let have = self.shape.as_ref().map_or(0, Vec::len);
        expect((self.datatype, have) == (datatype, dimensions), self.at, || {
            format!("expected {datatype:?} in {dimensions} dimensions, got {:?} in {have}", self.datatype)
        })?;
        Ok(&self.bytes)
    }
}
