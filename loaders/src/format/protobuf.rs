//! The wire format of protobuf, as far as tf.Example needs it. Reads the fields of a message without copies, and writes
//! fields of known length. The meaning of the fields is defined in `example`.

use crate::fault::Malformed;

/// A field's value by its wire type.
pub(crate) enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// The 4 or 8 bytes of a fixed-width number.
    Fixed(&'a [u8]),
}

/// Iterates over the fields of a protobuf message.
pub(crate) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    #[inline]
    pub fn next(&mut self) -> Result<Option<(u64, Value<'a>)>, Malformed> {
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
            _ => return Err(Malformed("a field has an unknown wire type")),
        };
        Ok(Some((tag >> 3, value)))
    }

    #[inline]
    fn take(&mut self, length: u64) -> Result<&'a [u8], Malformed> {
        let (head, tail) = usize::try_from(length)
            .ok()
            .and_then(|n| self.0.split_at_checked(n))
            .ok_or(Malformed("a field extends beyond the end of its message"))?;
        self.0 = tail;
        Ok(head)
    }
}

/// Reads a base-128 varint of at most ten bytes.
#[inline]
pub(crate) fn varint(bytes: &mut &[u8]) -> Result<u64, Malformed> {
    let mut value = 0u64;
    for (i, &byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            *bytes = &bytes[i + 1..];
            return Ok(value);
        }
    }
    Err(Malformed("a number is truncated or longer than 10 bytes"))
}

/// Returns the length of a length-delimited field including its tag. The field number must be below 16.
#[inline]
pub(crate) fn nested(length: usize) -> usize {
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
}
