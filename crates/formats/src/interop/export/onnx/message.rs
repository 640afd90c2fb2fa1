//! Messages of protobuf, written field by field: what ONNX needs of the wire format. `loaders` has the part that tf.Example needs, where
//! lengths are known beforehand and fields have numbers below 16.

/// A message under construction.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Message(Vec<u8>);

/// Types of fields on the wire.
const VARINT: u64 = 0;
const LENGTH: u64 = 2;
const FOUR: u64 = 5;

impl Message {
    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Adds an integer.
    pub fn int(mut self, field: u64, value: i64) -> Self {
        self.varint(field << 3 | VARINT);
        self.varint(value as u64);
        self
    }

    /// Adds integers, one field each.
    pub fn ints(self, field: u64, values: &[i64]) -> Self {
        values.iter().fold(self, |message, &value| message.int(field, value))
    }

    /// Adds a float.
    pub fn float(mut self, field: u64, value: f32) -> Self {
        self.varint(field << 3 | FOUR);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Adds a text.
    pub fn text(self, field: u64, text: &str) -> Self {
        self.raw(field, text.as_bytes())
    }

    /// Adds bytes.
    pub fn raw(self, field: u64, bytes: &[u8]) -> Self {
        let mut message = self.header(field, bytes.len());
        message.0.extend_from_slice(bytes);
        message
    }

    /// Adds a message.
    pub fn message(self, field: u64, inner: &Message) -> Self {
        self.raw(field, inner.bytes())
    }

    /// Begins a field of so many bytes, which somebody else writes.
    pub fn header(mut self, field: u64, bytes: usize) -> Self {
        self.varint(field << 3 | LENGTH);
        self.varint(bytes as u64);
        self
    }

    /// Adds all fields of another.
    pub fn join(mut self, other: &Message) -> Self {
        self.0.extend_from_slice(&other.0);
        self
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// protoc's own bytes of such a message.
    #[test]
    fn fields_are_those_of_protobuf() {
        let inner = Message::default().int(1, 150).text(2, "testing");
        assert_eq!(inner.bytes(), [&[0x08, 0x96, 0x01, 0x12, 0x07][..], b"testing"].concat());
        let outer = Message::default().message(20, &inner).int(1, -1).float(2, 1.0).ints(3, &[1, 300]);
        let after =
            [0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1, 0x15, 0, 0, 0x80, 0x3f, 0x18, 1, 0x18, 0xac, 2];
        assert_eq!(outer.bytes(), [&[0xa2, 0x01, 12][..], inner.bytes(), &after].concat());
    }
}
