//! Other labels in a tf.Example; everything else stays, to the byte.

use super::labels::LabelList;
use super::message::{LABEL, TFDS_LABEL};
use crate::fault::{ExampleFault, Malformed};
use crate::format::protobuf::{Fields, Value, nested, put_header};

/// Appends `payload` to `out` with `labels` in place of its label, or of all of them.
///
/// # Errors
/// A payload that is no tf.Example, or has no label.
pub fn relabel(payload: &[u8], labels: &LabelList, out: &mut Vec<u8>) -> Result<(), ExampleFault> {
    let entries = entries(payload)?;
    let key = [LABEL, TFDS_LABEL].into_iter().find(|key| entries.iter().any(|entry| entry.key == key.as_bytes()));
    let key = key.ok_or(ExampleFault::Missing(LABEL))?;
    let own = own_entry(key, labels);
    // the entry stands where the first one stood
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
    /// All of it, with its tag and length.
    bytes: &'a [u8],
}

/// The entries of all maps of a payload, in order.
fn entries(payload: &[u8]) -> Result<Vec<Entry<'_>>, Malformed> {
    let (mut found, mut example) = (Vec::new(), Fields(payload));
    while let Some((number, value)) = example.next()? {
        let (1, Value::Bytes(features)) = (number, value) else { continue };
        let mut features = Fields(features);
        loop {
            let rest = features.0;
            let Some((number, value)) = features.next()? else { break };
            if let (1, Value::Bytes(entry)) = (number, value) {
                found.push(Entry { key: key(entry)?, bytes: &rest[..rest.len() - features.0.len()] });
            }
        }
    }
    Ok(found)
}

/// The key of an entry.
fn key(entry: &[u8]) -> Result<&[u8], Malformed> {
    let (mut key, mut fields): (&[u8], _) = (&[], Fields(entry));
    while let Some((number, value)) = fields.next()? {
        if let (1, Value::Bytes(bytes)) = (number, value) {
            key = bytes;
        }
    }
    Ok(key)
}

/// The entry of labels, with its tag and length.
fn own_entry(key: &str, labels: &LabelList) -> Vec<u8> {
    let (mut out, list) = (Vec::new(), labels.bytes().len());
    put_header(1, nested(key.len()) + nested(nested(list)), &mut out);
    put_header(1, key.len(), &mut out);
    out.extend_from_slice(key.as_bytes());
    put_header(2, nested(list), &mut out);
    put_header(3, list, &mut out);
    out.extend_from_slice(labels.bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::example::{Example, Format, encode_with, parse};

    fn list(labels: &[i64]) -> LabelList {
        let mut list = LabelList::default();
        list.set(labels);
        list
    }

    #[test]
    fn only_the_label_changes() {
        let example = |label| Example {
            encoded: &[9; 300],
            format: Format::Raw,
            height: 10,
            width: 10,
            channels: 3,
            label,
            text: "cat",
            filename: "a",
            boxes: Default::default(),
            entry_points: &[],
            labels: Default::default(),
        };
        let bytes = |label| {
            let mut out = Vec::new();
            encode_with(&example(label), &[("image/class/synset", "n0"), ("zz", "more")], &mut out);
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
        let payload = [&own_entry("label", &list(&[3]))[..], &own_entry("id", &list(&[9]))].concat();
        let mut wrapped = Vec::new();
        put_header(1, payload.len(), &mut wrapped);
        wrapped.extend(payload);
        let mut out = Vec::new();
        relabel(&wrapped, &list(&[4]), &mut out).unwrap();
        let expected = [&own_entry("label", &list(&[4]))[..], &own_entry("id", &list(&[9]))].concat();
        assert!(out.ends_with(&expected) && out.len() == wrapped.len());
    }
}
