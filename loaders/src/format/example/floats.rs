//! Lists of floats in a record, such as the regression targets of an image.

use crate::format::protobuf::{Fields, Value, put_header};

/// Key of an image's regression targets: one number for each target of the data set.
pub(super) const TARGETS: &str = "image/targets";

/// A list of floats in a record, as the encoded FloatList message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Floats<'a>(pub(super) &'a [u8]);

impl<'a> Floats<'a> {
    /// Iterates over the values, packed or not. Stops at malformed data.
    pub fn values(self) -> impl Iterator<Item = f32> + use<'a> {
        let (mut fields, mut packed): (_, &[u8]) = (Fields(self.0), &[]);
        std::iter::from_fn(move || {
            loop {
                if let Some((value, rest)) = packed.split_first_chunk::<4>() {
                    packed = rest;
                    return Some(f32::from_le_bytes(*value));
                }
                match fields.next().ok()?? {
                    (1, Value::Bytes(bytes)) => packed = bytes,
                    (1, Value::Fixed(bytes)) => return bytes.first_chunk().map(|value| f32::from_le_bytes(*value)),
                    _ => {}
                }
            }
        })
    }

    pub fn is_empty(self) -> bool {
        self.values().next().is_none()
    }
}

/// A list of floats to write to a record, encoded as a FloatList message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FloatList(Vec<u8>);

impl FloatList {
    /// Replaces all values by `values`.
    pub fn set(&mut self, values: impl ExactSizeIterator<Item = f32>) {
        self.0.clear();
        if values.len() > 0 {
            put_header(1, 4 * values.len(), &mut self.0);
            values.for_each(|value| self.0.extend(value.to_le_bytes()));
        }
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn floats(&self) -> Floats<'_> {
        Floats(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_packed_or_not() {
        let mut list = FloatList::default();
        assert!(list.floats().is_empty());
        for values in [&[][..], &[1.5], &[-0.25, f32::MAX, 3.0]] {
            list.set(values.iter().copied());
            assert_eq!(list.floats().values().collect::<Vec<_>>(), values);
            let unpacked = values.iter().flat_map(|value| [&[0x0d][..], &value.to_le_bytes()].concat());
            assert_eq!(Floats(&unpacked.collect::<Vec<u8>>()).values().collect::<Vec<_>>(), values);
        }
        assert_eq!(Floats(&list.floats().0[..9]).values().count(), 0, "a list that is cut short has no values");
    }
}
