//! Reads `.safetensors` files with Hugging Face's crate. The crate checks that offsets match shapes and that the
//! tensors cover the file without gaps or overlaps. This module also rejects duplicate names in the header, of which
//! the crate would keep the last, and types that cannot be weights.

use std::collections::BTreeMap;
use std::path::Path;

use ::safetensors::{Dtype, SafeTensors};
use loaders::regular;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::number::Number;
use super::weights::{Error, ExportedModel, Fault, Format, Weights, damaged};
use crate::checkpoint::Tensor;

/// Largest header length in bytes. The crate has the same limit.
const LONGEST: u64 = 100_000_000;

pub(super) const FORMAT: Format =
    Format { name: "safetensors", about: "safetensors", recognises: is_header, read, has_keys: false };

/// Returns true if a file begins with a possible header length followed by a brace.
fn is_header(head: &[u8]) -> bool {
    let length = head.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    length.is_some_and(|length| length <= LONGEST) && head.get(8) == Some(&b'{')
}

fn read(path: &Path, _: Option<&str>) -> Result<Weights, Error> {
    let bytes = regular::read(path).map_err(|source| Error::Io { path: path.to_path_buf(), source })?;
    let tensors = parse(&bytes).map_err(|fault| fault.of(path))?;
    let about = SafeTensors::read_metadata(&bytes).ok().and_then(|(_, header)| header.metadata().clone());
    let exported = ExportedModel::from_metadata(|name| about.as_ref()?.get(name).map(String::as_str));
    Ok(Weights { exported, ..Weights::new(path, FORMAT.name, tensors) })
}

/// Returns all tensors in the order of their data.
fn parse(bytes: &[u8]) -> Result<Vec<Tensor>, Fault> {
    let file = SafeTensors::deserialize(bytes).map_err(|e| Fault::Damaged(format!("its header is not valid: {e}")))?;
    let header = bytes.get(8..).and_then(|rest| rest.get(..header_length(bytes)));
    if let Some(name) = header.and_then(doubled) {
        return damaged(format!("its header has two entries for {name}"));
    }
    let mut views: Vec<_> = file.iter().collect();
    views.sort_by_key(|(name, view)| (view.data().as_ptr(), *name));
    views
        .into_iter()
        .map(|(name, view)| {
            let number = number(view.dtype()).ok_or_else(|| {
                Fault::Unsupported(format!(
                    "tensor {name} has the type {:?}, which is not supported. Convert it to F32",
                    view.dtype()
                ))
            })?;
            Ok((name.to_string(), view.shape().to_vec(), number.values(view.data())))
        })
        .collect()
}

fn header_length(bytes: &[u8]) -> usize {
    bytes.first_chunk().map_or(0, |length| u64::from_le_bytes(*length) as usize)
}

fn number(dtype: Dtype) -> Option<Number> {
    Some(match dtype {
        Dtype::F64 => Number::F64,
        Dtype::F32 => Number::F32,
        Dtype::F16 => Number::F16,
        Dtype::BF16 => Number::Bf16,
        Dtype::I64 => Number::I64,
        Dtype::I32 => Number::I32,
        Dtype::I16 => Number::I16,
        Dtype::I8 => Number::I8,
        Dtype::U64 => Number::U64,
        Dtype::U32 => Number::U32,
        Dtype::U16 => Number::U16,
        Dtype::U8 => Number::U8,
        Dtype::BOOL => Number::Bool,
        _ => return None,
    })
}

/// Returns the first name that occurs twice in the header.
fn doubled(header: &[u8]) -> Option<String> {
    serde_json::from_slice::<Doubled>(header).ok()?.0
}

/// The first key that occurs twice in a JSON object.
struct Doubled(Option<String>);

impl<'de> Deserialize<'de> for Doubled {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_map(Keys)
    }
}

struct Keys;

impl<'de> Visitor<'de> for Keys {
    type Value = Doubled;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Doubled, A::Error> {
        let (mut seen, mut doubled) = (BTreeMap::new(), None);
        while let Some(key) = map.next_key::<String>()? {
            map.next_value::<IgnoredAny>()?;
            if seen.insert(key.clone(), ()).is_some() {
                doubled = doubled.or(Some(key));
            }
        }
        Ok(Doubled(doubled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
    }

    fn refused(header: &str, data: &[u8]) -> String {
        match parse(&file(header, data)) {
            Err(Fault::Damaged(text) | Fault::Unsupported(text)) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn tensors_are_returned_in_file_order() {
        let header = r#"{"a":{"dtype":"F16","shape":[2],"data_offsets":[4,8]},"b":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}"#;
        let data = [2.5f32.to_le_bytes(), [0, 0x3e, 0, 0xbc]].concat();
        let tensors = parse(&file(header, &data)).unwrap();
        assert_eq!(tensors, [("b".into(), vec![], vec![2.5]), ("a".into(), vec![2], vec![1.5, -1.0])]);
        assert!(is_header(&file(header, &[])) && !is_header(b"PK\x03\x04") && !is_header(&[0; 9]));
    }

    /// Returns the error message for a file with two f32 tensors `a` and `b`, which have these offsets in eight bytes
    /// of data.
    fn two(a: &str, b: &str) -> String {
        let header = format!(
            r#"{{"a":{{"dtype":"F32","shape":[1],"data_offsets":{a}}},"b":{{"dtype":"F32","shape":[1],"data_offsets":{b}}}}}"#
        );
        refused(&header, &[0; 8])
    }

    #[test]
    fn headers_with_wrong_sizes_are_refused() {
        for (a, b) in
            [("[0,4]", "[0,4]"), ("[0,4]", "[2,6]"), ("[0,4]", "[4,12]"), ("[0,4]", "[8,12]"), ("[4,0]", "[4,8]")]
        {
            assert!(two(a, b).contains("header"), "{a} {b}");
        }
        let one = |shape: &str, data: &[u8]| {
            refused(&format!(r#"{{"a":{{"dtype":"F32","shape":{shape},"data_offsets":[0,4]}}}}"#), data)
        };
        for shape in ["[2]", "[18446744073709551615,2]", "[0]"] {
            assert!(one(shape, &[0; 4]).contains("header"), "{shape}");
        }
        assert!(one("[1]", &[0; 3]).contains("header"));
        assert!(one("[1]", &[0; 5]).contains("header"));
        let doubled = r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
        assert!(refused(doubled, &[0; 4]).ends_with("two entries for a"));
        // a header that is longer than the file
        assert!(matches!(parse(&[&100u64.to_le_bytes()[..], b"{}"].concat()), Err(Fault::Damaged(_))));
        assert!(matches!(parse(&[&u64::MAX.to_le_bytes()[..], b"{}"].concat()), Err(Fault::Damaged(_))));
    }

    #[test]
    fn types_that_weights_cannot_have_are_named() {
        let text = refused(r#"{"a":{"dtype":"C64","shape":[1],"data_offsets":[0,8]}}"#, &[0; 8]);
        assert!(text.contains("tensor a") && text.contains("C64"), "{text}");
    }
}
