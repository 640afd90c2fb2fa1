//! The classes and functions that a pickle may name: those by which PyTorch describes tensors and dictionaries. None is called; each
//! stands for what is done here in its place.

use crate::interop::number::Number;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Class {
    /// A dictionary.
    Dictionary,
    /// A tensor from storage, offset, sizes and strides.
    Tensor,
    /// The tensor that is its first argument.
    Parameter,
    /// The type of a storage's values.
    Storage(Number),
}

/// Module, name, meaning.
const KNOWN: &[(&str, &str, Class)] = &[
    ("collections", "OrderedDict", Class::Dictionary),
    ("torch._utils", "_rebuild_tensor", Class::Tensor),
    ("torch._utils", "_rebuild_tensor_v2", Class::Tensor),
    ("torch._utils", "_rebuild_parameter", Class::Parameter),
    ("torch", "DoubleStorage", Class::Storage(Number::F64)),
    ("torch", "FloatStorage", Class::Storage(Number::F32)),
    ("torch", "HalfStorage", Class::Storage(Number::F16)),
    ("torch", "BFloat16Storage", Class::Storage(Number::Bf16)),
    ("torch", "LongStorage", Class::Storage(Number::I64)),
    ("torch", "IntStorage", Class::Storage(Number::I32)),
    ("torch", "ShortStorage", Class::Storage(Number::I16)),
    ("torch", "CharStorage", Class::Storage(Number::I8)),
    ("torch", "ByteStorage", Class::Storage(Number::U8)),
    ("torch", "BoolStorage", Class::Storage(Number::Bool)),
];

/// What a name of a module stands for; none for all others.
pub fn find(module: &str, name: &str) -> Option<Class> {
    KNOWN.iter().find(|known| (known.0, known.1) == (module, name)).map(|known| known.2)
}
