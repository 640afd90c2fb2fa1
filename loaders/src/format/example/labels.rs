//! The labels of an image in a record: the values of an Int64List. Where images have one label there is one; where they may have several,
//! any number.

use crate::fault::{ExampleFault, Malformed};
use crate::format::protobuf::{Fields, Value, put_header, put_varint, varint, varint_length};

/// The labels of an image: the bytes of an Int64List that holds none or several; nothing where there is just the one of
/// [`Example::label`](super::Example::label).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Labels<'a>(pub(super) Option<&'a [u8]>);

impl<'a> Labels<'a> {
    /// Whether there are none or several.
    pub fn is_list(self) -> bool {
        self.0.is_some()
    }

    /// The labels as stored, where there are none or several; else nothing.
    pub fn iter(self) -> impl Iterator<Item = i64> + use<'a> {
        let mut values = Values::of(self.0.unwrap_or(&[]));
        // a list that was parsed is sound
        std::iter::from_fn(move || values.next().ok().flatten())
    }
}

/// The values of an Int64List, packed or not.
struct Values<'a> {
    fields: Fields<'a>,
    packed: &'a [u8],
}

impl<'a> Values<'a> {
    fn of(list: &'a [u8]) -> Self {
        Self { fields: Fields(list), packed: &[] }
    }

    fn next(&mut self) -> Result<Option<i64>, Malformed> {
        loop {
            if !self.packed.is_empty() {
                return Ok(Some(varint(&mut self.packed)? as i64));
            }
            match self.fields.next()? {
                None => return Ok(None),
                Some((1, Value::Varint(value))) => return Ok(Some(value as i64)),
                Some((1, Value::Bytes(packed))) => self.packed = packed,
                Some(_) => {}
            }
        }
    }
}

/// What a record says of its image's class or classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found<'a> {
    /// The first label; 0 if there is none.
    pub label: i64,
    pub labels: Labels<'a>,
}

/// Reads the list of integers of a feature, all of it.
pub(super) fn read<'a>(feature: &'a [u8], key: &'static str) -> Result<Found<'a>, ExampleFault> {
    let mut fields = Fields(feature);
    while let Some((number, value)) = fields.next()? {
        if let (3, Value::Bytes(list)) = (number, value) {
            let mut values = Values::of(list);
            let first = values.next()?;
            let mut one = first.is_some();
            while values.next()?.is_some() {
                one = false;
            }
            return Ok(Found { label: first.unwrap_or(0), labels: Labels(Some(list).filter(|_| !one)) });
        }
    }
    Err(ExampleFault::WrongType { key, expected: "64-bit integer" })
}

/// Labels on their way into a record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelList {
    /// Of an Int64List.
    bytes: Vec<u8>,
    first: i64,
    count: usize,
}

impl LabelList {
    /// Puts these labels in place of those that are there.
    pub fn set(&mut self, labels: &[i64]) {
        self.bytes.clear();
        (self.first, self.count) = (labels.first().copied().unwrap_or(0), labels.len());
        if !labels.is_empty() {
            put_header(1, labels.iter().map(|label| varint_length(*label as u64)).sum(), &mut self.bytes);
            labels.iter().for_each(|label| put_varint(*label as u64, &mut self.bytes));
        }
    }

    /// The first label; 0 if there is none.
    pub fn first(&self) -> i64 {
        self.first
    }

    /// The labels, as an example has them.
    pub fn labels(&self) -> Labels<'_> {
        Labels(Some(self.bytes.as_slice()).filter(|_| self.count != 1))
    }

    /// The bytes of the Int64List.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feature(list: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        put_header(3, list.len(), &mut out);
        out.extend_from_slice(list);
        out
    }

    #[test]
    fn lists_of_any_length_come_back() {
        let mut list = LabelList::default();
        for labels in [&[][..], &[7], &[0, 3, 300], &[-1, i64::MAX]] {
            list.set(labels);
            let bytes = feature(list.bytes());
            let found = read(&bytes, "k").unwrap();
            assert_eq!((found.label, found.labels), (list.first(), list.labels()));
            assert_eq!(found.labels.is_list(), labels.len() != 1);
            if found.labels.is_list() {
                assert_eq!(found.labels.iter().collect::<Vec<_>>(), labels);
            }
        }
    }

    #[test]
    fn lists_that_are_not_packed_are_read_and_damaged_ones_refused() {
        let bytes = feature(&[0x08, 5, 0x08, 6, 0x0a, 2, 7, 8]);
        let found = read(&bytes, "k").unwrap();
        assert_eq!((found.label, found.labels.iter().collect::<Vec<_>>()), (5, vec![5, 6, 7, 8]));
        assert!(read(&feature(&[0x0a, 2, 7, 0x80]), "k").is_err(), "the last number does not end");
        assert!(read(&feature(&[0x08]), "k").is_err());
        assert_eq!(read(&[], "k"), Err(ExampleFault::WrongType { key: "k", expected: "64-bit integer" }));
    }
}
