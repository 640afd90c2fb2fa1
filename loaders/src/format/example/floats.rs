//! Lists of floats in a record: the regression targets of an image, and the bounding boxes of objects. A record stores boxes
//! as four lists, as fractions of the image's height and width.

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

pub(super) const YMIN: &str = "image/object/bbox/ymin";
pub(super) const XMIN: &str = "image/object/bbox/xmin";
pub(super) const YMAX: &str = "image/object/bbox/ymax";
pub(super) const XMAX: &str = "image/object/bbox/xmax";
/// The keys of the four lists, in the order of [`BoundingBox`].
pub(super) const BOX_KEYS: [&str; 4] = [YMIN, XMIN, YMAX, XMAX];

/// A box around an object. The edges are fractions of the image's height and width, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BoundingBox {
    pub ymin: f32,
    pub xmin: f32,
    pub ymax: f32,
    pub xmax: f32,
}

/// The boxes of the objects in an image. Empty if the record has no `image/object/bbox/...` keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Boxes<'a>(pub(super) [Floats<'a>; 4]);

impl<'a> Boxes<'a> {
    pub fn is_empty(self) -> bool {
        self.0[0].values().next().is_none()
    }

    /// Iterates over the boxes in order. Edges outside the image are moved to its border.
    pub fn iter(self) -> impl Iterator<Item = BoundingBox> + use<'a> {
        let [ymin, xmin, ymax, xmax] = self.0.map(Floats::values);
        let each = ymin.zip(xmin).zip(ymax.zip(xmax));
        // NaN counts as 0.
        let edge = |value: f32| if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) };
        each.map(move |((ymin, xmin), (ymax, xmax))| BoundingBox {
            ymin: edge(ymin),
            xmin: edge(xmin),
            ymax: edge(ymax),
            xmax: edge(xmax),
        })
    }

    /// Returns the lengths of the four lists if they differ.
    pub(super) fn uneven(self) -> Option<[usize; 4]> {
        let counts = self.0.map(|list| list.values().count());
        counts.iter().any(|&count| count != counts[0]).then_some(counts)
    }
}

/// Lists of boxes for writing a record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BoxLists([FloatList; 4]);

impl BoxLists {
    pub fn clear(&mut self) {
        self.0.iter_mut().for_each(FloatList::clear);
    }

    /// Replaces all boxes by `boxes`.
    pub fn set(&mut self, boxes: &[BoundingBox]) {
        let edges: [fn(&BoundingBox) -> f32; 4] = [|b| b.ymin, |b| b.xmin, |b| b.ymax, |b| b.xmax];
        self.0.iter_mut().zip(edges).for_each(|(list, edge)| list.set(boxes.iter().map(edge)));
    }

    pub fn boxes(&self) -> Boxes<'_> {
        Boxes(std::array::from_fn(|axis| self.0[axis].floats()))
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

    #[test]
    fn boxes_are_read_packed_or_not() {
        let boxes = [
            BoundingBox { ymin: 0.1, xmin: 0.2, ymax: 0.5, xmax: 0.75 },
            BoundingBox { ymin: 0.0, xmin: 0.5, ymax: 1.0, xmax: 1.0 },
        ];
        let mut lists = BoxLists::default();
        assert!(lists.boxes().is_empty());
        lists.set(&boxes);
        assert_eq!(lists.boxes().iter().collect::<Vec<_>>(), boxes);
        assert_eq!(lists.boxes().uneven(), None);
        let unpacked: [Vec<u8>; 4] = std::array::from_fn(|axis| {
            let values = lists.0[axis].floats().values();
            values.flat_map(|value| [&[0x0d][..], &value.to_le_bytes()].concat()).collect()
        });
        let read = Boxes(std::array::from_fn(|axis| Floats(&unpacked[axis])));
        assert_eq!(read.iter().collect::<Vec<_>>(), boxes);
        let mut short = lists.boxes();
        short.0[2] = Floats(&unpacked[2][..5]);
        assert_eq!(short.uneven(), Some([2, 2, 1, 2]));
    }

    #[test]
    fn box_edges_are_clamped_to_the_image() {
        let mut lists = BoxLists::default();
        lists.set(&[BoundingBox { ymin: -0.1, xmin: f32::NAN, ymax: 1.2, xmax: f32::INFINITY }]);
        let expected = BoundingBox { ymin: 0.0, xmin: 0.0, ymax: 1.0, xmax: 1.0 };
        assert_eq!(lists.boxes().iter().collect::<Vec<_>>(), [expected]);
    }
}
