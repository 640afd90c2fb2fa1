//! The label of a tf.Example of which only the first bytes are there.

use super::labels;
use super::message::LABEL;
use crate::format::protobuf::{Fields, Value, varint};

/// The tag of a field 1 of known length: the features of an example, and each entry of them.
const FIRST_FIELD: u64 = 1 << 3 | 2;

/// The label, if its entry stands whole in `head`, which may end anywhere.
pub(crate) fn label(mut head: &[u8]) -> Option<i64> {
    // the features end beyond
    length(&mut head)?;
    loop {
        let size = usize::try_from(length(&mut head)?).ok()?;
        let (entry, rest) = head.split_at_checked(size)?;
        if let Some(label) = of_entry(entry) {
            return Some(label);
        }
        head = rest;
    }
}

fn length(bytes: &mut &[u8]) -> Option<u64> {
    (varint(bytes).ok()? == FIRST_FIELD).then(|| varint(bytes).ok())?
}

/// One entry of the map: key = 1, value = 2.
fn of_entry(entry: &[u8]) -> Option<i64> {
    let (mut key, mut feature): (&[u8], &[u8]) = (&[], &[]);
    let mut fields = Fields(entry);
    while let Some((number, value)) = fields.next().ok()? {
        match (number, value) {
            (1, Value::Bytes(bytes)) => key = bytes,
            (2, Value::Bytes(bytes)) => feature = bytes,
            _ => {}
        }
    }
    let found = if key == LABEL.as_bytes() { labels::read(feature, LABEL).ok()? } else { return None };
    // none or several labels are for a reader of the whole record
    (!found.labels.is_list()).then_some(found.label)
}

#[cfg(test)]
mod tests {
    use super::super::{Example, Format, encode};
    use super::*;

    #[test]
    fn the_label_is_found_before_the_image_ends() {
        let (encoded, text) = (vec![7; 5000], "a class");
        let (format, height, width, channels) = (Format::Jpeg, 10, 20, 3);
        let mut payload = Vec::new();
        encode(
            &Example {
                encoded: &encoded,
                format,
                height,
                width,
                channels,
                label: 811,
                text,
                filename: "f",
                boxes: Default::default(),
                entry_points: &[],
                labels: Default::default(),
            },
            &mut payload,
        );
        assert_eq!(label(&payload), Some(811));
        let found = (0..payload.len()).find(|&n| label(&payload[..n]) == Some(811)).unwrap();
        assert!(found < 1024, "{found}");
        // whatever is cut off or damaged: the label or none
        for n in 0..found {
            assert_eq!(label(&payload[..n]), None, "{n}");
        }
        for at in 0..200 {
            let mut damaged = payload.clone();
            damaged[at] ^= 0xff;
            let _ = label(&damaged);
        }
    }
}
