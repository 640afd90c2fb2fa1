//! The wire format of protobuf. Reads the fields of a message without copies, and writes messages. The meaning of the fields is defined
//! by the code for tf.Example, ONNX and TensorBoard's event files.

use std::borrow::Borrow;

/// The reason why bytes are not a protobuf message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    #[error("a protobuf field has the unknown wire type {0}")]
    WireType(u8),
    #[error("a protobuf field extends beyond the end of its message")]
    PastEnd,
    #[error("a protobuf integer has more than 10 bytes")]
    LongInteger,
}

/// A field's value by its wire type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    Varint(u64),
    /// Text, bytes, a message or packed numbers.
    Bytes(&'a [u8]),
    /// The 4 or 8 bytes of a fixed-width number.
    Fixed(&'a [u8]),
}

/// Iterates over the fields of a protobuf message.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// Reads the next field and returns its number and its value, or `None` after the last field.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "`?` takes the error out before a field is looked at")]
    pub fn next(&mut self) -> Result<Option<(u64, Value<'a>)>, Damage> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = varint(&mut self.0)?;
        let value = match tag & 7 {
            0 => Value::Varint(varint(&mut self.0)?),
            1 => Value::Fixed(self.take(8)?),
            2 => {
                let length = varint(&mut self.0)?;
                Value::Bytes(self.take(length)?)
            }
            5 => Value::Fixed(self.take(4)?),
            other => return Err(Damage::WireType(other as u8)),
        };
        Ok(Some((tag >> 3, value)))
    }

    #[inline]
    fn take(&mut self, length: u64) -> Result<&'a [u8], Damage> {
        let (head, tail) =
            usize::try_from(length).ok().and_then(|n| self.0.split_at_checked(n)).ok_or(Damage::PastEnd)?;
        self.0 = tail;
        Ok(head)
    }
}

/// Reads a base-128 varint of at most ten bytes.
#[inline]
pub fn varint(bytes: &mut &[u8]) -> Result<u64, Damage> {
    let mut value = 0u64;
    for (i, &byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            *bytes = &bytes[i + 1..];
            return Ok(value);
        }
    }
    Err(if bytes.len() < 10 { Damage::PastEnd } else { Damage::LongInteger })
}

/// Returns the length of a length-delimited field including its tag. The field number must be below 16.
#[inline]
pub(crate) fn field_length(length: usize) -> usize {
    1 + varint_length(length as u64) + length
}

#[inline]
pub(crate) fn varint_length(value: u64) -> usize {
    (64 - (value | 1).leading_zeros()).div_ceil(7) as usize
}

#[inline]
pub(crate) fn put_header(field: u8, length: usize, out: &mut Vec<u8>) {
    out.push(field << 3 | 2);
    put_varint(length as u64, out);
}

#[inline]
pub(crate) fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A message under construction. Fields are written in the order in which they are added.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message(Vec<u8>);

impl Message {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn int(mut self, field: u64, value: i64) -> Self {
        put_varint(field << 3, &mut self.0);
        put_varint(value as u64, &mut self.0);
        self
    }

    /// Adds integers, one field each.
    pub fn ints(self, field: u64, values: &[i64]) -> Self {
        values.iter().fold(self, |message, &value| message.int(field, value))
    }

    pub fn float(mut self, field: u64, value: f32) -> Self {
        put_varint(field << 3 | 5, &mut self.0);
        self.0.extend(value.to_le_bytes());
        self
    }

    pub fn double(mut self, field: u64, value: f64) -> Self {
        put_varint(field << 3 | 1, &mut self.0);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Adds a packed list of `double`.
    pub fn doubles(self, field: u64, values: &[f64]) -> Self {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.raw(field, &bytes)
    }

    pub fn text(self, field: u64, text: &str) -> Self {
        self.raw(field, text.as_bytes())
    }

    pub fn raw(self, field: u64, bytes: &[u8]) -> Self {
        let mut message = self.header(field, bytes.len());
        message.0.extend_from_slice(bytes);
        message
    }

    pub fn message(self, field: u64, inner: impl Borrow<Message>) -> Self {
        self.raw(field, inner.borrow().bytes())
    }

    /// Begins a field of `bytes` bytes, which the caller writes after this message.
    pub fn header(mut self, field: u64, bytes: usize) -> Self {
        put_varint(field << 3 | 2, &mut self.0);
        put_varint(bytes as u64, &mut self.0);
        self
    }

    /// Appends the fields of another message.
    pub fn join(mut self, other: impl Borrow<Message>) -> Self {
        self.0.extend_from_slice(other.borrow().bytes());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_at_every_length() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1 << shift) - 1, u64::MAX >> shift] {
                let mut bytes = Vec::new();
                put_varint(value, &mut bytes);
                assert_eq!(bytes.len(), varint_length(value));
                let mut rest = &bytes[..];
                assert_eq!(varint(&mut rest), Ok(value));
                assert!(rest.is_empty());
            }
        }
        assert_eq!(varint(&mut &[0xac, 0x02, 9][..]), Ok(300));
        assert!(varint(&mut &[0x80; 11][..]).is_err());
        assert!(varint(&mut &[][..]).is_err());
    }

    #[test]
    fn fields_of_every_wire_type_are_walked() {
        let bytes = [
            0x08, 0x05, // 1: varint
            0x11, 1, 2, 3, 4, 5, 6, 7, 8, // 2: fixed64
            0x1a, 0x02, b'h', b'i', // 3: bytes
            0x25, 1, 2, 3, 4, // 4: fixed32
        ];
        let mut fields = Fields(&bytes);
        assert!(matches!(fields.next(), Ok(Some((1, Value::Varint(5))))));
        assert!(matches!(fields.next(), Ok(Some((2, Value::Fixed([1, .., 8]))))));
        assert!(matches!(fields.next(), Ok(Some((3, Value::Bytes(b"hi"))))));
        assert!(matches!(fields.next(), Ok(Some((4, Value::Fixed([1, 2, 3, 4]))))));
        assert!(matches!(fields.next(), Ok(None)));
        assert!(Fields(&[0x0b]).next().is_err(), "groups are not read");
        assert!(Fields(&[0x0a, 3, 1]).next().is_err(), "too short");
    }

    /// The bytes are the examples in the encoding's documentation.
    #[test]
    fn written_fields_match_the_documented_examples() {
        assert_eq!(Message::new().int(1, 150).bytes(), [0x08, 0x96, 0x01]);
        assert_eq!(Message::new().text(2, "testing").bytes(), b"\x12\x07testing");
        assert_eq!(Message::new().message(3, Message::new().int(1, 150)).bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        assert_eq!(Message::new().float(1, 1.0).join(Message::new().double(2, 1.0)).bytes().len(), 14);
    }

    /// protoc wrote the expected bytes.
    #[test]
    fn written_fields_match_protobuf() {
        let inner = Message::new().int(1, 150).text(2, "testing");
        assert_eq!(inner.bytes(), [&[0x08, 0x96, 0x01, 0x12, 0x07][..], b"testing"].concat());
        let outer = Message::new().message(20, &inner).int(1, -1).float(2, 1.0).ints(3, &[1, 300]);
        let after =
            [0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1, 0x15, 0, 0, 0x80, 0x3f, 0x18, 1, 0x18, 0xac, 2];
        assert_eq!(outer.bytes(), [&[0xa2, 0x01, 12][..], inner.bytes(), &after].concat());
    }
}
