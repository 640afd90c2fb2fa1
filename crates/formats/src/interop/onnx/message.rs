//! protobuf's messages as they stand in a file: fields with their numbers.

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Content<'a> {
    /// An integer.
    Varint(u64),
    /// Four bytes.
    Four([u8; 4]),
    /// Eight bytes.
    Eight([u8; 8]),
    /// Text, bytes, a message or packed numbers.
    Bytes(&'a [u8]),
}

/// A field of a message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Field<'a> {
    pub number: u64,
    pub content: Content<'a>,
}

/// What is left of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a>(pub &'a [u8]);

/// What bytes that are no message are called.
type Damage = String;

impl<'a> Iterator for Message<'a> {
    type Item = Result<Field<'a>, Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> Message<'a> {
    fn field(&mut self) -> Result<Field<'a>, Damage> {
        let key = self.varint()?;
        let content = match key & 7 {
            0 => Content::Varint(self.varint()?),
            1 => Content::Eight(self.array()?),
            2 => {
                let length = self.varint()?;
                Content::Bytes(self.take(length)?)
            }
            5 => Content::Four(self.array()?),
            other => return Err(format!("a field of the wire type {other}")),
        };
        Ok(Field { number: key >> 3, content })
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], Damage> {
        let length = usize::try_from(length).ok().filter(|length| *length <= self.0.len());
        let length = length.ok_or_else(|| "a field that is longer than what is left of the file".to_string())?;
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Damage> {
        self.take(N as u64)?.try_into().map_err(|_| "a number that is cut short".to_string())
    }

    fn varint(&mut self) -> Result<u64, Damage> {
        let mut value = 0;
        for shift in (0..70).step_by(7) {
            let [byte] = self.array()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("an integer of more than ten bytes".into())
    }
}

impl<'a> Field<'a> {
    /// A message, text or bytes.
    pub fn bytes(&self) -> Result<&'a [u8], Damage> {
        match self.content {
            Content::Bytes(bytes) => Ok(bytes),
            _ => Err(self.odd("bytes")),
        }
    }

    pub fn message(&self) -> Result<Message<'a>, Damage> {
        self.bytes().map(Message)
    }

    pub fn text(&self) -> Result<&'a str, Damage> {
        std::str::from_utf8(self.bytes()?).map_err(|_| format!("field {} is not UTF-8", self.number))
    }

    pub fn int(&self) -> Result<i64, Damage> {
        match self.content {
            Content::Varint(value) => Ok(value as i64),
            _ => Err(self.odd("an integer")),
        }
    }

    pub fn float(&self) -> Result<f32, Damage> {
        match self.content {
            Content::Four(bytes) => Ok(f32::from_le_bytes(bytes)),
            _ => Err(self.odd("a float")),
        }
    }

    /// One integer, or several in a row, until there are more than `most`.
    pub fn ints(&self, into: &mut Vec<i64>, most: usize) -> Result<(), Damage> {
        let Content::Bytes(bytes) = self.content else {
            into.push(self.int()?);
            return Ok(());
        };
        let mut packed = Message(bytes);
        while !packed.0.is_empty() && into.len() <= most {
            into.push(packed.varint()? as i64);
        }
        Ok(())
    }

    /// The bytes of one number, or of several in a row.
    pub fn fixed(&self, into: &mut Vec<u8>) -> Result<(), Damage> {
        match &self.content {
            Content::Bytes(bytes) => into.extend_from_slice(bytes),
            Content::Four(bytes) => into.extend_from_slice(bytes),
            Content::Eight(bytes) => into.extend_from_slice(bytes),
            Content::Varint(_) => return Err(self.odd("a number of a fixed size")),
        }
        Ok(())
    }

    fn odd(&self, expected: &str) -> Damage {
        format!("field {} is not {expected}", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(bytes: &[u8]) -> Result<Vec<Field<'_>>, Damage> {
        Message(bytes).collect()
    }

    /// protoc's own bytes.
    #[test]
    fn fields_are_those_of_protobuf() {
        let bytes = [&[0x08, 0x96, 0x01, 0x12, 0x07][..], b"testing", &[0x1d, 0, 0, 0x80, 0x3f]].concat();
        let fields = fields(&bytes).unwrap();
        assert_eq!((fields[0].number, fields[0].int()), (1, Ok(150)));
        assert_eq!((fields[1].number, fields[1].text()), (2, Ok("testing")));
        assert_eq!((fields[2].number, fields[2].float()), (3, Ok(1.0)));
        let mut packed = Vec::new();
        let field = Field { number: 1, content: Content::Bytes(&[1, 0xac, 2]) };
        field.ints(&mut packed, 8).unwrap();
        assert_eq!(packed, [1, 300]);
    }

    #[test]
    fn what_is_cut_short_is_refused() {
        for bytes in [&[0x08][..], &[0x12, 7, b'a'], &[0x0d, 1, 2], &[0x0b], &[0x08; 1], &[0xff; 12]] {
            assert!(fields(bytes).is_err(), "{bytes:?}");
        }
        assert_eq!(fields(&[0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1]).unwrap()[0].int(), Ok(-1));
    }
}
