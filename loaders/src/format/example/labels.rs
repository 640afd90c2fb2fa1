//! The labels of an image in a record: the values of an Int64List. A single-label data set has exactly one value per
//! record. A multi-label data set has any number.

use crate::fault::ExampleFault;
use crate::format::protobuf::{Damage, Fields, Value, field_length, put_header, put_varint, varint, varint_length};

pub(super) const LABEL: &str = "image/class/label";
/// The key of the label in records of TensorFlow Datasets. If a record has both keys, [`LABEL`] has precedence.
pub(super) const TFDS_LABEL: &str = "label";

/// The labels of an image, if there is not exactly one: the bytes of an Int64List. `None` if there is exactly one
/// label, which is in [`Example::label`](super::Example::label).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Labels<'a>(pub(super) Option<&'a [u8]>);

impl<'a> Labels<'a> {
    /// No labels.
    pub const NONE: Self = Self(Some(&[]));

    /// Returns true if there is not exactly one label.
    pub fn is_list(self) -> bool {
        self.0.is_some()
    }

    /// Iterates over the labels of an image with more than one. The iterator is empty if the image has no label, or a
    /// single one, which is in `Example::label`.
    pub fn iter(self) -> impl Iterator<Item = i64> + use<'a> {
        let mut values = Values::of(self.0.unwrap_or(&[]));
        // The list has already been parsed without an error.
        std::iter::from_fn(move || values.next().ok().flatten())
    }
}

/// The values of an Int64List, packed or not.
pub(super) struct Values<'a> {
    fields: Fields<'a>,
    packed: &'a [u8],
}

impl<'a> Values<'a> {
    pub fn of(list: &'a [u8]) -> Self {
        Self { fields: Fields(list), packed: &[] }
    }

    pub fn next(&mut self) -> Result<Option<i64>, Damage> {
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

/// The class or classes of a record's image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ParsedLabels<'a> {
    /// The first label, or 0 if there is no label.
    pub label: i64,
    pub labels: Labels<'a>,
}

/// Reads all integers in a feature's list.
pub(super) fn read<'a>(feature: &'a [u8], key: &'static str) -> Result<ParsedLabels<'a>, ExampleFault> {
    let mut fields = Fields(feature);
    while let Some((number, value)) = fields.next()? {
        if let (3, Value::Bytes(list)) = (number, value) {
            let mut values = Values::of(list);
            let first = values.next()?;
            let mut one = first.is_some();
            while values.next()?.is_some() {
                one = false;
            }
            return Ok(ParsedLabels { label: first.unwrap_or(0), labels: Labels(Some(list).filter(|_| !one)) });
        }
    }
    Err(ExampleFault::WrongType { key, expected: "64-bit integer" })
}

/// Labels for writing a record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelList {
    /// The labels, encoded as an Int64List.
    bytes: Vec<u8>,
    first: i64,
    count: usize,
}

impl LabelList {
    /// Replaces all labels by `labels`.
    pub fn set(&mut self, labels: &[i64]) {
        self.bytes.clear();
        (self.first, self.count) = (labels.first().copied().unwrap_or(0), labels.len());
        if !labels.is_empty() {
            put_header(1, labels.iter().map(|label| varint_length(*label as u64)).sum(), &mut self.bytes);
            labels.iter().for_each(|label| put_varint(*label as u64, &mut self.bytes));
        }
    }

    /// Returns the first label, or 0 if there is no label.
    pub fn first(&self) -> i64 {
        self.first
    }

    /// Returns the labels in the form of [`Example::labels`](super::Example::labels).
    pub fn labels(&self) -> Labels<'_> {
        Labels(Some(self.bytes.as_slice()).filter(|_| self.count != 1))
    }

    /// Returns the bytes of the Int64List.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The tag of a length-delimited field 1. It precedes the features of an example, and each map entry in the features.
const FIRST_FIELD: u64 = 1 << 3 | 2;

/// Returns the label of a payload that starts with `head`. `head` may end anywhere. Returns `None` unless `head`
/// contains the whole map entry with the key `LABEL`, and the entry has exactly one label.
pub(crate) fn label(mut head: &[u8]) -> Option<i64> {
    // Skip the tag and the length of the features. The length is not checked, because they may extend beyond `head`.
    length(&mut head)?;
    loop {
        let size = usize::try_from(length(&mut head)?).ok()?;
        let (entry, rest) = head.split_at_checked(size)?;
        if let Some(label) = label_of_entry(entry) {
            return Some(label);
        }
        head = rest;
    }
}

fn length(bytes: &mut &[u8]) -> Option<u64> {
    (varint(bytes).ok()? == FIRST_FIELD).then(|| varint(bytes).ok())?
}

/// Returns the label if this map entry has the key [`LABEL`] and exactly one label.
fn label_of_entry(entry: &[u8]) -> Option<i64> {
    let (key, feature) = key_and_feature(entry).ok()?;
    let found = if key == LABEL.as_bytes() { read(feature, LABEL).ok()? } else { return None };
    // For records with zero or multiple labels, the caller must read the whole record.
    (!found.labels.is_list()).then_some(found.label)
}

/// Returns the two fields of a map entry: the key (1) and the Feature (2).
pub(super) fn key_and_feature(entry: &[u8]) -> Result<(&[u8], &[u8]), Damage> {
    let (mut key, mut feature): (&[u8], &[u8]) = (&[], &[]);
    let mut fields = Fields(entry);
    while let Some((number, value)) = fields.next()? {
        match (number, value) {
            (1, Value::Bytes(bytes)) => key = bytes,
            (2, Value::Bytes(bytes)) => feature = bytes,
            _ => {}
        }
    }
    Ok((key, feature))
}

/// Appends `payload` to `out` and replaces its label, or all of its labels, by `labels`.
///
/// # Errors
///
/// Returns an error if the payload is not a tf.Example or has no label.
pub fn relabel(payload: &[u8], labels: &LabelList, out: &mut Vec<u8>) -> Result<(), ExampleFault> {
    let entries = entries(payload)?;
    let key = [LABEL, TFDS_LABEL].into_iter().find(|key| entries.iter().any(|entry| entry.key == key.as_bytes()));
    let key = key.ok_or(ExampleFault::Missing(LABEL))?;
    let own = encode_label_entry(key, labels);
    // The new entry replaces the first of the old ones.
    let first = entries.iter().position(|entry| entry.key == key.as_bytes());
    let kept = entries.iter().enumerate().filter_map(|(at, entry)| match entry.key == key.as_bytes() {
        true => (Some(at) == first).then_some(own.as_slice()),
        false => Some(entry.bytes),
    });
    let kept: Vec<&[u8]> = kept.collect();
    put_header(1, kept.iter().map(|bytes| bytes.len()).sum(), out);
    kept.iter().for_each(|bytes| out.extend_from_slice(bytes));
    Ok(())
}

/// An entry of the map of features.
struct Entry<'a> {
    key: &'a [u8],
    /// The whole entry, with its tag and length.
    bytes: &'a [u8],
}

/// Returns a payload's map entries in order.
fn entries(payload: &[u8]) -> Result<Vec<Entry<'_>>, Damage> {
    let (mut found, mut example) = (Vec::new(), Fields(payload));
    while let Some((number, value)) = example.next()? {
        let (1, Value::Bytes(features)) = (number, value) else { continue };
        let mut features = Fields(features);
        loop {
            let rest = features.0;
            let Some((number, value)) = features.next()? else { break };
            if let (1, Value::Bytes(entry)) = (number, value) {
                let (key, _) = key_and_feature(entry)?;
                found.push(Entry { key, bytes: &rest[..rest.len() - features.0.len()] });
            }
        }
    }
    Ok(found)
}

/// Encodes the entry of the labels, with its tag and length.
fn encode_label_entry(key: &str, labels: &LabelList) -> Vec<u8> {
    let (mut out, list) = (Vec::new(), labels.bytes().len());
    put_header(1, field_length(key.len()) + field_length(field_length(list)), &mut out);
    put_header(1, key.len(), &mut out);
    out.extend_from_slice(key.as_bytes());
    put_header(2, field_length(list), &mut out);
    put_header(3, list, &mut out);
    out.extend_from_slice(labels.bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::example::{Example, Format, encode, encode_with, parse};
    use crate::spec::ImageSpec;

    fn feature(list: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        put_header(3, list.len(), &mut out);
        out.extend_from_slice(list);
        out
    }

    #[test]
    fn label_lists_of_any_length_round_trip() {
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
    fn unpacked_lists_are_read_and_damaged_ones_refused() {
        let bytes = feature(&[0x08, 5, 0x08, 6, 0x0a, 2, 7, 8]);
        let found = read(&bytes, "k").unwrap();
        assert_eq!((found.label, found.labels.iter().collect::<Vec<_>>()), (5, vec![5, 6, 7, 8]));
        assert!(read(&feature(&[0x0a, 2, 7, 0x80]), "k").is_err(), "the last number does not end");
        assert!(read(&feature(&[0x08]), "k").is_err());
        assert_eq!(read(&[], "k"), Err(ExampleFault::WrongType { key: "k", expected: "64-bit integer" }));
    }

    #[test]
    fn the_label_is_found_before_the_image_ends() {
        let encoded = vec![7; 5000];
        let file = Example::from_file(&encoded, Format::Jpeg);
        let mut payload = Vec::new();
        encode(&Example { label: 811, text: "a class", filename: "f", ..file }, &mut payload);
        assert_eq!(label(&payload), Some(811));
        let found = (0..payload.len()).find(|&n| label(&payload[..n]) == Some(811)).unwrap();
        assert!(found < 1024, "{found}");
        // Truncated data must give `None`. Damaged data may give a wrong label, but must not panic.
        for n in 0..found {
            assert_eq!(label(&payload[..n]), None, "{n}");
        }
        for at in 0..200 {
            let mut damaged = payload.clone();
            damaged[at] ^= 0xff;
            let _ = label(&damaged);
        }
    }

    fn list(labels: &[i64]) -> LabelList {
        let mut list = LabelList::default();
        list.set(labels);
        list
    }

    #[test]
    fn replacing_the_label_changes_nothing_else() {
        let raw = Example::from_raw(&[9; 300], ImageSpec::new(10, 10, 3));
        let bytes = |label| {
            let mut out = Vec::new();
            let example = Example { label, text: "cat", filename: "a", ..raw };
            encode_with(&example, &[("image/class/synset", "n0"), ("zz", "more")], &mut out);
            out
        };
        for (from, to) in [(0, 1), (5, 300), (300, 2), (1, -1), (7, 7)] {
            let mut out = Vec::new();
            relabel(&bytes(from), &list(&[to]), &mut out).unwrap();
            assert_eq!(out, bytes(to), "{from} {to}");
            assert_eq!(parse(&out).unwrap().label, to);
        }
        let (few, many) = (list(&[2]), list(&[0, 5, 9]));
        let mut out = Vec::new();
        relabel(&bytes(1), &many, &mut out).unwrap();
        assert_eq!(parse(&out).unwrap().labels.iter().collect::<Vec<_>>(), [0, 5, 9]);
        let mut back = Vec::new();
        relabel(&out, &few, &mut back).unwrap();
        assert_eq!(back, bytes(2));
        assert_eq!(relabel(&[], &list(&[1]), &mut Vec::new()), Err(ExampleFault::Missing(LABEL)));
        let whole = bytes(3);
        assert!((1..whole.len()).all(|cut| relabel(&whole[..cut], &list(&[1]), &mut Vec::new()).is_err()));
    }

    #[test]
    fn the_key_of_tensorflow_datasets_stays() {
        let payload = [&encode_label_entry("label", &list(&[3]))[..], &encode_label_entry("id", &list(&[9]))].concat();
        let mut wrapped = Vec::new();
        put_header(1, payload.len(), &mut wrapped);
        wrapped.extend(payload);
        let mut out = Vec::new();
        relabel(&wrapped, &list(&[4]), &mut out).unwrap();
        let expected = [&encode_label_entry("label", &list(&[4]))[..], &encode_label_entry("id", &list(&[9]))].concat();
        assert!(out.ends_with(&expected) && out.len() == wrapped.len());
    }
}
