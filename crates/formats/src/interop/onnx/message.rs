//! Reads protobuf messages as a sequence of fields with number and value.

use std::fmt;

use loaders::protobuf::{Fields, Value, varint};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Field<'a> {
    pub number: u64,
    pub value: Value<'a>,
}

/// The unread fields of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a>(Fields<'a>);

/// The reason why bytes are not a valid message.
type Damage = String;

impl<'a> Message<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(Fields(bytes))
    }
}

impl<'a> Iterator for Message<'a> {
    type Item = Result<Field<'a>, Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        let field = self.0.next().transpose()?;
        if field.is_err() {
            self.0 = Fields(&[]);
        }
        Some(field.map(|(number, value)| Field { number, value }).map_err(invalid))
    }
}

impl<'a> Field<'a> {
    /// Returns the content of a message, string or bytes field.
    pub fn bytes(&self) -> Result<&'a [u8], Damage> {
        match self.value {
            Value::Bytes(bytes) => Ok(bytes),
            _ => Err(self.odd("bytes")),
        }
    }

    pub fn message(&self) -> Result<Message<'a>, Damage> {
        self.bytes().map(Message::new)
    }

    pub fn text(&self) -> Result<&'a str, Damage> {
        std::str::from_utf8(self.bytes()?).map_err(|_| self.odd("UTF-8"))
    }

    pub fn int(&self) -> Result<i64, Damage> {
        match self.value {
            Value::Varint(value) => Ok(value as i64),
            _ => Err(self.odd("an integer")),
        }
    }

    pub fn float(&self) -> Result<f32, Damage> {
        match self.value {
            Value::Fixed(&[a, b, c, d]) => Ok(f32::from_le_bytes([a, b, c, d])),
            _ => Err(self.odd("a float")),
        }
    }

    /// Appends the integers of a repeated field to `into`. Packed fields have a list of them, others a single one.
    /// Stops as soon as `into` has more than `most`, so a damaged file cannot take much memory.
    pub fn ints(&self, into: &mut Vec<i64>, most: usize) -> Result<(), Damage> {
        let Value::Bytes(mut packed) = self.value else {
            into.push(self.int()?);
            return Ok(());
        };
        while !packed.is_empty() && into.len() <= most {
            into.push(varint(&mut packed).map_err(invalid)? as i64);
        }
        Ok(())
    }

    /// Appends the bytes of a repeated field of fixed-size numbers to `into`, for a packed list or a single number.
    pub fn fixed(&self, into: &mut Vec<u8>) -> Result<(), Damage> {
        match self.value {
            Value::Bytes(bytes) | Value::Fixed(bytes) => into.extend_from_slice(bytes),
            Value::Varint(_) => return Err(self.odd("a number of a fixed size")),
        }
        Ok(())
    }

    fn odd(&self, expected: &str) -> Damage {
        invalid(format_args!("protobuf field {} is not {expected}", self.number))
    }
}

fn invalid(why: impl fmt::Display) -> Damage {
    format!("{why}, so the file is not ONNX, or is damaged. Export or download it again")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(bytes: &[u8]) -> Result<Vec<Field<'_>>, Damage> {
        Message::new(bytes).collect()
    }

    /// The bytes were written by protoc.
    #[test]
    fn fields_match_protobuf() {
        let bytes = [&[0x08, 0x96, 0x01, 0x12, 0x07][..], b"testing", &[0x1d, 0, 0, 0x80, 0x3f]].concat();
        let fields = fields(&bytes).unwrap();
        assert_eq!((fields[0].number, fields[0].int()), (1, Ok(150)));
        assert_eq!((fields[1].number, fields[1].text()), (2, Ok("testing")));
        assert_eq!((fields[2].number, fields[2].float()), (3, Ok(1.0)));
        let mut packed = Vec::new();
        let field = Field { number: 1, value: Value::Bytes(&[1, 0xac, 2]) };
        field.ints(&mut packed, 8).unwrap();
        assert_eq!(packed, [1, 300]);
    }

    #[test]
    fn truncated_messages_are_refused() {
        for bytes in [&[0x08][..], &[0x12, 7, b'a'], &[0x0d, 1, 2], &[0x0b], &[0x08; 1], &[0xff; 12]] {
            assert!(fields(bytes).is_err(), "{bytes:?}");
        }
        assert_eq!(fields(&[0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1]).unwrap()[0].int(), Ok(-1));
    }
}
