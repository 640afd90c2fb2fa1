//! The types of values in files, and their conversion to f32.

use std::fmt;

use half::{bf16, f16};

/// A type of little-endian values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    F64,
    F32,
    F16,
    Bf16,
    I64,
    I32,
    I16,
    I8,
    U64,
    U32,
    U16,
    U8,
    Bool,
}

impl Number {
    pub fn bytes(self) -> usize {
        match self {
            Self::F64 | Self::I64 | Self::U64 => 8,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F16 | Self::Bf16 | Self::I16 | Self::U16 => 2,
            Self::I8 | Self::U8 | Self::Bool => 1,
        }
    }

    /// Decodes the first value in these bytes. Returns 0 if there are too few bytes.
    pub fn value(self, bytes: &[u8]) -> f32 {
        self.values(bytes.get(..self.bytes()).unwrap_or_default()).first().copied().unwrap_or(0.0)
    }

    /// Decodes all values and rounds them to f32. Ignores an incomplete value at the end.
    pub fn values(self, bytes: &[u8]) -> Vec<f32> {
        match self {
            Self::F64 => each(bytes, |b| f64::from_le_bytes(b) as f32),
            Self::F32 => each(bytes, f32::from_le_bytes),
            Self::F16 => each(bytes, |b| f16::from_le_bytes(b).to_f32()),
            Self::Bf16 => each(bytes, |b| bf16::from_le_bytes(b).to_f32()),
            Self::I64 => each(bytes, |b| i64::from_le_bytes(b) as f32),
            Self::I32 => each(bytes, |b| i32::from_le_bytes(b) as f32),
            Self::I16 => each(bytes, |b| f32::from(i16::from_le_bytes(b))),
            Self::I8 => each(bytes, |b| f32::from(i8::from_le_bytes(b))),
            Self::U64 => each(bytes, |b| u64::from_le_bytes(b) as f32),
            Self::U32 => each(bytes, |b| u32::from_le_bytes(b) as f32),
            Self::U16 => each(bytes, |b| f32::from(u16::from_le_bytes(b))),
            Self::U8 => each(bytes, |b| f32::from(u8::from_le_bytes(b))),
            Self::Bool => each(bytes, |[b]| f32::from(u8::from(b != 0))),
        }
    }

    /// Decodes all values of an integer type or of bool, or returns `None` for other types. Ignores an incomplete value
    /// at the end.
    pub fn integers(self, bytes: &[u8]) -> Option<Vec<i64>> {
        Some(match self {
            Self::F64 | Self::F32 | Self::F16 | Self::Bf16 => return None,
            Self::I64 => each(bytes, i64::from_le_bytes),
            Self::I32 => each(bytes, |b| i32::from_le_bytes(b).into()),
            Self::I16 => each(bytes, |b| i16::from_le_bytes(b).into()),
            Self::I8 => each(bytes, |b| i8::from_le_bytes(b).into()),
            Self::U64 => each(bytes, |b| u64::from_le_bytes(b) as i64),
            Self::U32 => each(bytes, |b| u32::from_le_bytes(b).into()),
            Self::U16 => each(bytes, |b| u16::from_le_bytes(b).into()),
            Self::U8 => each(bytes, |b| u8::from_le_bytes(b).into()),
            Self::Bool => each(bytes, |[b]| (b != 0).into()),
        })
    }
}

impl fmt::Display for Number {
    /// Writes the name of the type in NumPy.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F64 => "float64",
            Self::F32 => "float32",
            Self::F16 => "float16",
            Self::Bf16 => "bfloat16",
            Self::I64 => "int64",
            Self::I32 => "int32",
            Self::I16 => "int16",
            Self::I8 => "int8",
            Self::U64 => "uint64",
            Self::U32 => "uint32",
            Self::U16 => "uint16",
            Self::U8 => "uint8",
            Self::Bool => "bool",
        })
    }
}

fn each<const N: usize, T>(bytes: &[u8], value: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks::<N>().0.iter().map(|one| value(*one)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_type_is_converted_to_f32() {
        assert_eq!(Number::F64.values(&1.5f64.to_le_bytes()), [1.5]);
        assert_eq!(Number::F64.values(&1e300f64.to_le_bytes()), [f32::INFINITY]);
        assert_eq!(Number::F16.values(&[0, 0x3e, 0, 0xbc]), [1.5, -1.0]);
        assert_eq!(Number::Bf16.values(&[0xc0, 0x3f]), [1.5]);
        assert_eq!(Number::I64.values(&(-3i64).to_le_bytes()), [-3.0]);
        assert_eq!(Number::I16.values(&(-3i16).to_le_bytes()), [-3.0]);
        assert_eq!(Number::U8.values(&[255, 0]), [255.0, 0.0]);
        assert_eq!(Number::I8.values(&[255]), [-1.0]);
        assert_eq!(Number::Bool.values(&[0, 1, 7]), [0.0, 1.0, 1.0]);
    }

    #[test]
    fn integers_keep_all_digits() {
        assert_eq!(Number::I32.integers(&(i32::MIN + 1).to_le_bytes()), Some(vec![-2_147_483_647]));
        assert_eq!(Number::U32.integers(&u32::MAX.to_le_bytes()), Some(vec![4_294_967_295]));
        assert_eq!(Number::I8.integers(&[255, 1]), Some(vec![-1, 1]));
        assert_eq!(Number::Bool.integers(&[0, 7]), Some(vec![0, 1]));
        assert_eq!(Number::F16.integers(&[0, 0x3e]), None);
    }
}
