//! A minimal Protocol Buffers writer with the field types that TensorBoard's event files need.

/// A message under construction. Fields are written in the order in which they are added.
#[derive(Clone, Debug, Default)]
pub(super) struct Message(Vec<u8>);

/// Wire types of Protocol Buffers.
const VARINT: u8 = 0;
const EIGHT_BYTES: u8 = 1;
const LENGTH: u8 = 2;
const FOUR_BYTES: u8 = 5;

impl Message {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Appends the fields of another message.
    pub fn append(mut self, other: Message) -> Self {
        self.0.extend(other.0);
        self
    }

    pub fn number(mut self, field: u8, value: u64) -> Self {
        self.key(field, VARINT);
        self.varint(value);
        self
    }

    pub fn double(mut self, field: u8, value: f64) -> Self {
        self.key(field, EIGHT_BYTES);
        self.0.extend(value.to_le_bytes());
        self
    }

    pub fn float(mut self, field: u8, value: f32) -> Self {
        self.key(field, FOUR_BYTES);
        self.0.extend(value.to_le_bytes());
        self
    }

    pub fn text(self, field: u8, value: &str) -> Self {
        self.with_length(field, value.as_bytes())
    }

    pub fn blob(self, field: u8, value: &[u8]) -> Self {
        self.with_length(field, value)
    }

    /// Adds a packed list of `double`.
    pub fn doubles(self, field: u8, values: &[f64]) -> Self {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.with_length(field, &bytes)
    }

    /// Adds an embedded message.
    pub fn message(self, field: u8, value: Message) -> Self {
        self.with_length(field, &value.0)
    }

    fn with_length(mut self, field: u8, bytes: &[u8]) -> Self {
        self.key(field, LENGTH);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    /// Writes the key of a field. Field numbers must be below 16, so that the key is one byte.
    fn key(&mut self, field: u8, wire_type: u8) {
        self.0.push(field << 3 | wire_type);
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

    /// The examples in the documentation of the encoding.
    #[test]
    fn fields_by_hand() {
        assert_eq!(Message::new().number(1, 150).bytes(), [0x08, 0x96, 0x01]);
        assert_eq!(Message::new().text(2, "testing").bytes(), b"\x12\x07testing");
        assert_eq!(Message::new().message(3, Message::new().number(1, 150)).bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        assert_eq!(Message::new().float(1, 1.0).append(Message::new().double(2, 1.0)).bytes().len(), 14);
    }
}
