//! The five types of values that trireme writes, told by their exact encoding.

use super::fault::Fault;

/// A type of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::checkpoint) enum Datatype {
    /// Little-endian f32.
    F32,
    /// Little-endian f64.
    F64,
    /// Little-endian u32.
    U32,
    /// Little-endian u64.
    U64,
    /// UTF-8 of variable length, in a global heap.
    Text,
}

/// Encodings without the version, the upper half of the first byte, which differs between versions of HDF5.
const ENCODINGS: [(Datatype, &[u8]); 5] = [
    (Datatype::F32, &[1, 0x20, 31, 0, 4, 0, 0, 0, 0, 0, 32, 0, 23, 8, 0, 23, 127, 0, 0, 0]),
    (Datatype::F64, &[1, 0x20, 63, 0, 8, 0, 0, 0, 0, 0, 64, 0, 52, 11, 0, 52, 255, 3, 0, 0]),
    (Datatype::U32, &[0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 32, 0]),
    (Datatype::U64, &[0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 64, 0]),
    (Datatype::Text, &[9, 1, 1, 0, 16, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 8, 0]),
];

/// Where in an encoding a version stands: in the type, and in the characters of a text.
const VERSIONS: [usize; 2] = [0, 8];

/// The type of an encoding that stands at `at`.
pub(super) fn parse(at: u64, bytes: &[u8]) -> Result<Datatype, Fault> {
    let same = |(datatype, encoding): &(Datatype, &[u8])| {
        let places = if *datatype == Datatype::Text { &VERSIONS[..] } else { &VERSIONS[..1] };
        let plain = |(i, &byte): (usize, &u8)| if places.contains(&i) { byte & 0x0f } else { byte };
        bytes.len() == encoding.len() && bytes.iter().enumerate().map(plain).eq(encoding.iter().copied())
    };
    let found = ENCODINGS.iter().find(|encoding| same(encoding));
    let refusal = || Fault::layout(at, format!("a type of values that trireme does not write: {bytes:02x?}"));
    found.map(|(datatype, _)| *datatype).ok_or_else(refusal)
}

impl Datatype {
    /// Bytes of a value in its place; of a text, those of the reference.
    pub(super) fn bytes(self) -> u64 {
        match self {
            Self::F32 | Self::U32 => 4,
            Self::F64 | Self::U64 => 8,
            Self::Text => super::global_heap::REFERENCE,
        }
    }
}
