//! Writing a tf.Example: equal examples give equal bytes.

use super::boxes::KEYS;
use super::message::{CHANNELS, ENCODED, Example, FILENAME, FORMAT, HEIGHT, LABEL, TEXT, WIDTH};
use crate::format::protobuf::{nested, put_header, put_varint, varint_length};

/// Appends the message to `out`: keys in sorted order, integer lists packed, every key always
/// present, so equal examples give equal bytes.
pub fn encode(e: &Example<'_>, out: &mut Vec<u8>) {
    encode_with(e, &[], out);
}

/// Like [`encode`], with further keys that hold byte strings, such as `image/class/synset`.
pub fn encode_with(e: &Example<'_>, more: &[(&str, &str)], out: &mut Vec<u8>) {
    let own = [
        (CHANNELS, Item::Int(i64::from(e.channels))),
        (LABEL, e.labels.0.map_or(Item::Int(e.label), Item::Ints)),
        (TEXT, Item::Bytes(e.text.as_bytes())),
        (ENCODED, Item::Bytes(e.encoded)),
        (FILENAME, Item::Bytes(e.filename.as_bytes())),
        (FORMAT, Item::Bytes(e.format.name().as_bytes())),
        (HEIGHT, Item::Int(i64::from(e.height))),
        (WIDTH, Item::Int(i64::from(e.width))),
    ];
    let more = more.iter().map(|&(key, value)| (key, Item::Bytes(value.as_bytes())));
    let boxes = KEYS.into_iter().zip(e.boxes.0).filter(|_| !e.boxes.is_empty());
    let boxes = boxes.map(|(key, list)| (key, Item::Floats(list.0)));
    let mut entries: Vec<(&str, Item<'_>)> = own.into_iter().chain(more).chain(boxes).collect();
    entries.sort_unstable_by_key(|(key, _)| *key);
    write_entries(&entries, out);
}

/// Appends the message with these entries, which must be sorted by key.
fn write_entries(entries: &[(&str, Item<'_>)], out: &mut Vec<u8>) {
    let features = entries.iter().map(|(key, item)| nested(entry_length(key, item))).sum();
    put_header(1, features, out);
    for (key, item) in entries {
        put_header(1, entry_length(key, item), out);
        put_header(1, key.len(), out);
        out.extend_from_slice(key.as_bytes());
        let list = item.list_length();
        put_header(2, nested(list), out);
        put_header(item.feature_field(), list, out);
        match item {
            Item::Bytes(bytes) => {
                put_header(1, bytes.len(), out);
                out.extend_from_slice(bytes);
            }
            Item::Int(value) => {
                put_header(1, varint_length(*value as u64), out);
                put_varint(*value as u64, out);
            }
            Item::Ints(list) | Item::Floats(list) => out.extend_from_slice(list),
        }
    }
}

/// The value of a key.
enum Item<'a> {
    Bytes(&'a [u8]),
    Int(i64),
    /// The bytes of an Int64List.
    Ints(&'a [u8]),
    /// The bytes of a FloatList.
    Floats(&'a [u8]),
}

impl Item<'_> {
    /// Length of its list in bytes.
    fn list_length(&self) -> usize {
        match self {
            Self::Bytes(bytes) => nested(bytes.len()),
            Self::Int(value) => nested(varint_length(*value as u64)),
            Self::Ints(list) | Self::Floats(list) => list.len(),
        }
    }

    /// The field of `Feature` that holds such a list.
    fn feature_field(&self) -> u8 {
        match self {
            Self::Bytes(_) => 1,
            Self::Floats(_) => 2,
            Self::Int(_) | Self::Ints(_) => 3,
        }
    }
}

/// Length of a map entry: the key, then a Feature with a list.
fn entry_length(key: &str, item: &Item<'_>) -> usize {
    nested(key.len()) + nested(nested(item.list_length()))
}
