//! Tensors of a file: weights and constants.

use super::message::{Field, Message};
use crate::interop::number::Number;

/// A tensor in the form of the file. Its values are decoded on demand.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stored<'a> {
    pub name: &'a str,
    dims: Vec<i64>,
    kind: i64,
    raw: Option<&'a [u8]>,
    /// Values from the fields `float_data` and `double_data`, as bytes.
    fixed: Vec<u8>,
    /// Fields with packed integers, not decoded yet.
    ints: Vec<Field<'a>>,
    /// If the values are in another file, its name.
    external: Option<&'a str>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Constant {
    pub dims: Vec<usize>,
    pub values: Values,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Values {
    Floats(Vec<f32>),
    Ints(Vec<i64>),
    /// A value that is repeated this many times. The elements are not allocated.
    Same(f32, usize),
}

/// Largest number of dimensions.
pub(crate) const DEEPEST: usize = 8;

/// Limit for shapes that contain a 0: the largest product of the other sizes. Operators may list the positions along an
/// axis even if the tensor has no elements.
const MOST_WITHOUT_ELEMENTS: usize = 1 << 24;

/// Returns the number of elements in a tensor with this shape, or `None` if the shape is too large.
pub(crate) fn element_count(dims: &[usize]) -> Option<usize> {
    let sizes = dims.iter().filter(|n| **n > 0).try_fold(1usize, |product, n| product.checked_mul(*n))?;
    match dims.contains(&0) {
        true => (sizes <= MOST_WITHOUT_ELEMENTS).then_some(0),
        false => Some(sizes),
    }
}

/// Largest number of fields with a tensor's integers.
const MOST_PIECES: usize = 64;

impl<'a> Stored<'a> {
    pub fn read(message: Message<'a>) -> Result<Self, String> {
        let mut tensor = Self::default();
        for field in message {
            let field = field?;
            match field.number {
                1 if tensor.dims.len() <= DEEPEST => field.ints(&mut tensor.dims, DEEPEST)?,
                2 => tensor.kind = field.int()?,
                4 | 10 => field.fixed(&mut tensor.fixed)?,
                5 | 7 | 11 if tensor.ints.len() < MOST_PIECES => tensor.ints.push(field),
                5 | 7 | 11 => {
                    return Err("a tensor stores its integers as separate fields. Save the model with onnx.save, which packs them".into());
                }
                6 => return Err("a tensor contains strings, expected numbers".into()),
                8 => tensor.name = field.text()?,
                9 => tensor.raw = Some(field.bytes()?),
                13 => tensor.external = location(field.message()?)?.or(tensor.external),
                14 if field.int()? == 1 => tensor.external = tensor.external.or(Some("")),
                _ => {}
            }
        }
        Ok(tensor)
    }

    /// Decodes the tensor.
    ///
    /// # Errors
    /// Fails if the type is not numeric, if the values are in another file, or if the lengths do not match.
    pub fn constant(&self) -> Result<Constant, String> {
        let wrong = |why: String| Err(format!("tensor {}: {why}", self.name));
        if let Some(file) = self.external {
            return wrong(format!(
                "its values are in another file (\"{file}\"), and external data is not supported. Write one file, with \
                 torch.onnx.export(..., external_data=False), or onnx.save(model, file, save_as_external_data=False)"
            ));
        }
        let dims: Option<Vec<usize>> = self.dims.iter().map(|n| usize::try_from(*n).ok()).collect();
        let fits = dims.filter(|dims| dims.len() <= DEEPEST).and_then(|dims| Some((element_count(&dims)?, dims)));
        let Some((elements, dims)) = fits else {
            return wrong(format!(
                "its shape {:?} has a negative size, more than {DEEPEST} sizes or too many elements",
                self.dims
            ));
        };
        let Some(number) = number(self.kind) else {
            return wrong(format!("values of type {} are not supported. Convert them to float", type_name(self.kind)));
        };
        let values = match (self.raw, self.ints.is_empty()) {
            (Some(raw), _) if raw.len() as u128 != elements as u128 * number.bytes() as u128 => {
                return wrong(format!(
                    "its shape {:?} needs {elements} values, got {} bytes of {number}",
                    dims,
                    raw.len()
                ));
            }
            (Some(raw), _) => number.integers(raw).map_or_else(|| Values::Floats(number.values(raw)), Values::Ints),
            (None, false) => of_integers(number, &self.integers(elements)?),
            (None, true) if [Number::F32, Number::F64].contains(&number) => Values::Floats(number.values(&self.fixed)),
            (None, true) => number.integers(&[]).map_or(Values::Floats(Vec::new()), Values::Ints),
        };
        match values.len() == elements {
            true => Ok(Constant { dims, values }),
            false => wrong(format!("its shape {dims:?} needs {elements} values, got {}", values.len())),
        }
    }
}

impl Stored<'_> {
    /// Decodes integer fields. Stops after one value more than expected, so that a wrong number of values is noticed.
    fn integers(&self, elements: usize) -> Result<Vec<i64>, String> {
        let mut ints = Vec::new();
        self.ints.iter().try_for_each(|field| field.ints(&mut ints, elements))?;
        Ok(ints)
    }
}

/// Returns the name of the file with external data, if the entry has it.
fn location(entry: Message<'_>) -> Result<Option<&str>, String> {
    let (mut key, mut value) = ("", "");
    for field in entry {
        let field = field?;
        match field.number {
            1 => key = field.text()?,
            2 => value = field.text()?,
            _ => {}
        }
    }
    Ok((key == "location").then_some(value))
}

/// Converts ONNX's type number. Returns `None` if the type is not numeric.
pub(crate) fn number(kind: i64) -> Option<Number> {
    Some(match kind {
        1 => Number::F32,
        2 => Number::U8,
        3 => Number::I8,
        4 => Number::U16,
        5 => Number::I16,
        6 => Number::I32,
        7 => Number::I64,
        9 => Number::Bool,
        10 => Number::F16,
        11 => Number::F64,
        12 => Number::U32,
        13 => Number::U64,
        16 => Number::Bf16,
        _ => return None,
    })
}

/// Returns the name of an ONNX type for messages.
pub(crate) fn type_name(kind: i64) -> String {
    match (kind, number(kind)) {
        (_, Some(number)) => number.to_string(),
        (8, None) => "text".into(),
        _ => format!("ONNX's type {kind}"),
    }
}

/// Converts values from integer fields. For 16-bit floats, each integer has the bits of a float.
fn of_integers(number: Number, ints: &[i64]) -> Values {
    match number {
        Number::F16 | Number::Bf16 => {
            let bits: Vec<u8> = ints.iter().flat_map(|bits| (*bits as u16).to_le_bytes()).collect();
            Values::Floats(number.values(&bits))
        }
        _ => Values::Ints(ints.to_vec()),
    }
}

impl Values {
    pub fn bytes(&self) -> usize {
        match self {
            Self::Floats(values) => size_of_val(&values[..]),
            Self::Ints(values) => size_of_val(&values[..]),
            Self::Same(..) => 0,
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Floats(values) => values.len(),
            Self::Ints(values) => values.len(),
            Self::Same(_, count) => *count,
        }
    }

    /// Returns an element as a float.
    pub fn float(&self, at: usize) -> f32 {
        match self {
            Self::Floats(values) => values[at],
            Self::Ints(values) => values[at] as f32,
            Self::Same(value, _) => *value,
        }
    }

    /// Returns an element as an integer. Fractions are truncated.
    pub fn int(&self, at: usize) -> i64 {
        match self {
            Self::Floats(values) => values[at] as i64,
            Self::Ints(values) => values[at],
            Self::Same(value, _) => *value as i64,
        }
    }
}

impl Constant {
    /// Returns the shape and values of the constant as a vector.
    pub fn vector(&self) -> (Vec<usize>, Vec<f32>) {
        let values = self.floats();
        (vec![values.len()], values)
    }

    pub fn floats(&self) -> Vec<f32> {
        match &self.values {
            Values::Floats(values) => values.clone(),
            Values::Ints(values) => values.iter().map(|n| *n as f32).collect(),
            Values::Same(value, count) => vec![*value; *count],
        }
    }

    /// Returns the values as integers. Fractions are truncated.
    pub fn ints(&self) -> Vec<i64> {
        (0..self.values.len()).map(|at| self.values.int(at)).collect()
    }

    /// Returns the value of a tensor with one element, or `None` for other tensors.
    pub fn scalar(&self) -> Option<f64> {
        match &self.values {
            Values::Floats(values) if values.len() == 1 => Some(f64::from(values[0])),
            Values::Ints(values) if values.len() == 1 => Some(values[0] as f64),
            Values::Same(value, 1) => Some(f64::from(*value)),
            _ => None,
        }
    }
}
