//! Reads an image's WordNet id. TensorFlow's ImageNet scripts use it to distinguish classes with equal names.

use crate::format::protobuf::{Fields, Value};

const SYNSET: &[u8] = b"image/class/synset";

/// Returns the WordNet id in a payload, or `None` if it is missing or not UTF-8.
pub fn synset(payload: &[u8]) -> Option<&str> {
    let entries = of(payload, 1).flat_map(|features| of(features, 1));
    let mut features = entries.filter(|entry| of(entry, 1).next() == Some(SYNSET)).flat_map(|entry| of(entry, 2));
    let value = of(of(features.next()?, 1).next()?, 1).next()?;
    std::str::from_utf8(value).ok().filter(|id| !id.is_empty())
}

/// Iterates over the values for field `number` in a message. Stops at the first damaged field.
fn of(message: &[u8], number: u64) -> impl Iterator<Item = &[u8]> {
    let mut fields = Fields(message);
    std::iter::from_fn(move || {
        while let Some((found, value)) = fields.next().ok()? {
            if let (true, Value::Bytes(bytes)) = (found == number, value) {
                return Some(bytes);
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Example, Format, encode_with};
    use super::*;

    #[test]
    fn the_synset_is_found() {
        let example = Example {
            encoded: &[1, 2, 3],
            format: Format::Raw,
            height: 1,
            width: 1,
            channels: 3,
            label: 134,
            text: "crane",
            filename: "",
            boxes: Default::default(),
            entry_points: &[],
            labels: Default::default(),
        };
        let mut payload = Vec::new();
        encode_with(&example, &[("image/class/synset", "n02012849")], &mut payload);
        assert_eq!(synset(&payload), Some("n02012849"));
        for end in 0..payload.len() {
            let _ = synset(&payload[..end]);
        }
        payload.clear();
        encode_with(&example, &[], &mut payload);
        assert_eq!(synset(&payload), None);
    }
}
