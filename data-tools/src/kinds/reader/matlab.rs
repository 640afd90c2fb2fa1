//! MATLAB 5 files, as far as a table of records needs: a struct array whose fields are numbers and texts. Elements may be
//! compressed. (MathWorks, "MAT-File Format", chapter 1.)

use super::budget::read_bounded;
use flate2::read::ZlibDecoder;
use std::rc::Rc;

const HEADER: usize = 128;

/// Data types of elements.
const MATRIX: u32 = 14;
const COMPRESSED: u32 = 15;
/// Classes of arrays.
const STRUCT: u8 = 2;
const CHAR: u8 = 4;

/// A value of a field.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// A numeric array, flat.
    Numbers(Vec<f64>),
    /// A row of characters.
    Text(String),
    /// Anything else.
    Other,
}

/// A record: fields by name, in the file's order.
pub(crate) type Record = Vec<(Rc<str>, Value)>;

/// Why a table cannot be read.
#[derive(Debug, PartialEq)]
pub(crate) enum Problem {
    /// It takes more memory than is allowed.
    Memory,
    /// What does not fit the format, in words.
    Format(String),
}

impl From<&str> for Problem {
    fn from(what: &str) -> Self {
        Self::Format(what.into())
    }
}

/// The records of the struct array `name` in the file `bytes`; unpacked elements and records take at most `memory` bytes.
pub(crate) fn read_structs(bytes: &[u8], name: &str, memory: u64) -> Result<Vec<Record>, Problem> {
    let body = match bytes.get(HEADER - 4..HEADER) {
        Some([_, _, b'I', b'M']) => &bytes[HEADER..],
        Some([_, _, b'M', b'I']) => return Err("a big-endian MATLAB file; save it again on a usual machine".into()),
        _ => return Err("not a MATLAB 5 file".into()),
    };
    let mut left = Left(memory);
    let mut rest = Bytes(body);
    while !rest.0.is_empty() {
        let (kind, data) = rest.element(false)?;
        let unpacked;
        let data = match kind {
            COMPRESSED => {
                unpacked = unpack(data, &left)?;
                left.take(unpacked.len())?;
                Bytes(&unpacked).element(true)?.1
            }
            _ => data,
        };
        let matrix = Matrix::read(data)?;
        if matrix.name == name.as_bytes() && matrix.class == STRUCT {
            return matrix.records(&mut left);
        }
        // an array that is not wanted is dropped
        left = Left(memory);
    }
    Err(Problem::Format(format!("it holds no struct array `{name}`")))
}

/// Bytes of memory that may still be taken.
struct Left(u64);

impl Left {
    fn take(&mut self, bytes: usize) -> Result<(), Problem> {
        self.0 = self.0.checked_sub(bytes as u64).ok_or(Problem::Memory)?;
        Ok(())
    }
}

fn unpack(data: &[u8], left: &Left) -> Result<Vec<u8>, Problem> {
    let unpacked = read_bounded(&mut ZlibDecoder::new(data), left.0);
    unpacked.map_err(|e| Problem::Format(format!("compressed data: {e}")))?.ok_or(Problem::Memory)
}

/// Bytes not read yet.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Problem> {
        let (head, rest) = self.0.split_at_checked(count).ok_or("cut short")?;
        self.0 = rest;
        Ok(head)
    }

    fn word(&mut self) -> Result<u32, Problem> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// Type and data of the next element; `padded` up to 8 bytes, as all are that are not compressed.
    fn element(&mut self, padded: bool) -> Result<(u32, &'a [u8]), Problem> {
        let word = self.word()?;
        if word >> 16 != 0 {
            // The small form: size and type in one word, up to four bytes behind it.
            let data = self.take(4)?;
            let data = data.get(..(word >> 16) as usize).ok_or("a small element of more than 4 bytes")?;
            return Ok((word & 0xffff, data));
        }
        let size = self.word()? as usize;
        let data = self.take(size)?;
        if (padded || word != COMPRESSED) && !size.is_multiple_of(8) {
            self.0 = self.0.get(8 - size % 8..).unwrap_or(&[]);
        }
        Ok((word, data))
    }
}

/// An array: its header, and the bytes behind it.
struct Matrix<'a> {
    class: u8,
    count: usize,
    name: &'a [u8],
    rest: Bytes<'a>,
}

impl<'a> Matrix<'a> {
    fn read(data: &'a [u8]) -> Result<Self, Problem> {
        let mut rest = Bytes(data);
        let class = *rest.element(true)?.1.first().ok_or("an array without flags")?;
        let axes = rest.element(true)?.1;
        let sizes = axes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize);
        let count = sizes.fold(1usize, usize::saturating_mul);
        let name = rest.element(true)?.1;
        Ok(Matrix { class, count, name, rest })
    }

    fn records(mut self, left: &mut Left) -> Result<Vec<Record>, Problem> {
        let width = self.rest.element(true)?.1;
        let width = width.first_chunk().map_or(0, |w| u32::from_le_bytes(*w)) as usize;
        let names = self.rest.element(true)?.1;
        if width == 0 || names.is_empty() || !names.len().is_multiple_of(width) {
            return Err("a struct array whose fields have no names, or names of no length".into());
        }
        left.take(names.len() / width * FIELD + names.len())?;
        let text = |name: &[u8]| String::from_utf8_lossy(name.split(|&b| b == 0).next().unwrap_or(&[])).into();
        let names: Vec<Rc<str>> = names.chunks(width).map(text).collect();
        let mut records = Vec::new();
        // a hostile count ends with the data, of which each field takes some
        for _ in 0..self.count {
            left.take(2 * size_of::<Record>() + names.len() * FIELD)?;
            let mut record = Vec::with_capacity(names.len());
            for name in &names {
                record.push((name.clone(), value(self.rest.element(true)?, left)?));
            }
            records.push(record);
        }
        Ok(records)
    }
}

/// Memory of a field of a record.
const FIELD: usize = size_of::<(Rc<str>, Value)>();

fn value((kind, data): (u32, &[u8]), left: &mut Left) -> Result<Value, Problem> {
    if kind != MATRIX || data.is_empty() {
        return Ok(Value::Other);
    }
    // a byte becomes a number of eight
    left.take(8 * data.len())?;
    let mut matrix = Matrix::read(data)?;
    match matrix.class {
        CHAR => {
            let (kind, data) = if matrix.count == 0 { (1, &[][..]) } else { matrix.rest.element(true)? };
            let codes: Vec<u16> = match kind {
                4 | 17 => data.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect(),
                16 => return Ok(Value::Text(String::from_utf8_lossy(data).into_owned())),
                _ => data.iter().map(|&b| u16::from(b)).collect(),
            };
            Ok(Value::Text(String::from_utf16_lossy(&codes)))
        }
        6..=15 if matrix.count == 0 => Ok(Value::Numbers(Vec::new())),
        6..=15 => numbers(matrix.rest.element(true)?).map(Value::Numbers),
        _ => Ok(Value::Other),
    }
}

/// Numbers are stored in the narrowest type that holds them, whatever the array's class.
fn numbers((kind, data): (u32, &[u8])) -> Result<Vec<f64>, Problem> {
    fn all<const N: usize>(data: &[u8], number: impl Fn([u8; N]) -> f64) -> Vec<f64> {
        data.as_chunks::<N>().0.iter().map(|&b| number(b)).collect()
    }
    Ok(match kind {
        1 => all(data, |b| f64::from(i8::from_le_bytes(b))),
        2 => all(data, |b| f64::from(u8::from_le_bytes(b))),
        3 => all(data, |b| f64::from(i16::from_le_bytes(b))),
        4 => all(data, |b| f64::from(u16::from_le_bytes(b))),
        5 => all(data, |b| f64::from(i32::from_le_bytes(b))),
        6 => all(data, |b| f64::from(u32::from_le_bytes(b))),
        7 => all(data, |b| f64::from(f32::from_le_bytes(b))),
        9 => all(data, f64::from_le_bytes),
        12 => all(data, |b| i64::from_le_bytes(b) as f64),
        13 => all(data, |b| u64::from_le_bytes(b) as f64),
        other => return Err(Problem::Format(format!("numbers of the unknown type {other}"))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLENTY: u64 = 1 << 20;
    /// Written by SciPy, see `tests/data/meta.py`.
    const FILE: &[u8] = include_bytes!("../../../tests/data/meta.mat");

    #[test]
    fn a_file_of_another_program() {
        let records = read_structs(FILE, "synsets", PLENTY).unwrap();
        let get = |i: usize, name: &str| records[i].iter().find(|(field, _)| **field == *name).unwrap().1.clone();
        let text = |text: &str| Value::Text(text.to_string());
        assert_eq!(records.len(), 3);
        assert_eq!((get(0, "WNID"), get(1, "words")), (text("n02119789"), text("tench, Tinca tinca")));
        assert_eq!(
            (get(2, "ILSVRC2012_ID"), get(1, "num_children")),
            (Value::Numbers(vec![1234.0]), Value::Numbers(vec![0.0]))
        );
        assert_eq!((get(0, "gloss"), get(2, "children")), (text("glöss"), Value::Numbers(vec![0.0; 3])));
        let missing = Problem::Format("it holds no struct array `synset`".into());
        assert_eq!(read_structs(FILE, "synset", PLENTY), Err(missing));
        for cut in 0..FILE.len() {
            assert!(read_structs(&FILE[..cut], "synsets", PLENTY).is_err(), "cut at {cut}");
        }
        // the same table in too little memory
        assert_eq!(read_structs(FILE, "synsets", 3000), Err(Problem::Memory));
    }
}
