//! Skips structures in Thrift's compact protocol and collects some integers. It is used to check sizes before the `parquet` crate allocates
//! memory for them. See Apache Thrift, "Thrift Compact protocol encoding".

use std::io::{self, Read};

/// Maximum nesting depth. Parquet uses fewer than ten levels.
const DEEPEST: u32 = 32;

/// Integers in a structure, each with its path of field ids.
pub(super) type Numbers = Vec<(Vec<i16>, i64)>;

/// A stream of Thrift structures.
pub(super) struct Thrift<R> {
    from: R,
    /// Bytes read.
    pub read: u64,
    /// Maximum bytes to read.
    most: u64,
}

impl<R: Read> Thrift<R> {
    /// Reads structures from the next `most` bytes in a stream.
    pub fn new(from: R, most: u64) -> Self {
        Thrift { from, read: 0, most }
    }

    /// Skips a structure. Returns its integers, except for those in lists or more than three levels deep.
    ///
    /// # Errors
    /// Returns an error if a structure has no end or a list is longer than the remaining bytes.
    pub fn structure(&mut self) -> io::Result<Numbers> {
        let mut numbers = Vec::new();
        self.fields(&mut Vec::new(), Some(&mut numbers))?;
        Ok(numbers)
    }

    fn bytes<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.take(N as u64)?;
        self.from.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Reserves bytes before reading them.
    fn take(&mut self, count: u64) -> io::Result<()> {
        if count > self.most - self.read {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.read += count;
        Ok(())
    }

    fn varint(&mut self) -> io::Result<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.bytes()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(bad("a number of more than 64 bits"))
    }

    fn zigzag(&mut self) -> io::Result<i64> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn fields(&mut self, path: &mut Vec<i16>, mut numbers: Option<&mut Numbers>) -> io::Result<()> {
        let mut field = 0i16;
        loop {
            let [head] = self.bytes()?;
            if head == 0 {
                return Ok(());
            }
            field = match head >> 4 {
                0 => self.zigzag()? as i16,
                step => field.wrapping_add(step.into()),
            };
            path.push(field);
            self.value(head & 15, path, numbers.as_deref_mut())?;
            path.pop();
        }
    }

    fn value(&mut self, kind: u8, path: &mut Vec<i16>, numbers: Option<&mut Numbers>) -> io::Result<()> {
        match kind {
            1 | 2 => Ok(()),
            3 => self.bytes::<1>().map(drop),
            4..=6 => {
                let number = self.zigzag()?;
                if let Some(numbers) = numbers.filter(|_| path.len() <= 3) {
                    numbers.push((path.clone(), number));
                }
                Ok(())
            }
            7 => self.bytes::<8>().map(drop),
            8 => {
                let length = self.varint()?;
                self.take(length)?;
                let passed = io::copy(&mut (&mut self.from).take(length), &mut io::sink())?;
                if passed == length { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
            }
            9 | 10 => {
                let [head] = self.bytes()?;
                let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
                self.elements(count, &[head & 15], path)
            }
            11 => match self.varint()? {
                0 => Ok(()),
                count => {
                    let [kinds] = self.bytes()?;
                    self.elements(count, &[kinds >> 4, kinds & 15], path)
                }
            },
            12 if path.len() as u32 <= DEEPEST => self.fields(path, numbers),
            12 => Err(bad("structures within structures without end")),
            other => Err(bad(&format!("a value of the unknown type {other}"))),
        }
    }

    fn elements(&mut self, count: u64, kinds: &[u8], path: &mut Vec<i16>) -> io::Result<()> {
        // each element needs at least one byte
        if count > self.most - self.read {
            return Err(bad(&format!("a list of {count} elements in {} bytes", self.most - self.read)));
        }
        path.push(0);
        for _ in 0..count {
            for kind in kinds {
                match kind {
                    // in a list, a boolean has one byte
                    1 | 2 => self.bytes::<1>().map(drop)?,
                    _ => self.value(*kind, path, None)?,
                }
            }
        }
        path.pop();
        Ok(())
    }
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> io::Result<(Numbers, u64)> {
        let mut thrift = Thrift::new(bytes, bytes.len() as u64);
        thrift.structure().map(|numbers| (numbers, thrift.read))
    }

    #[test]
    fn numbers_are_noted_and_all_else_is_passed() {
        // i32 3, a text, a list with two i32, long-form field 20 holding a structure with i64 -2 and true, a map from byte to double
        let whole = [
            0x15, 6, 0x18, 2, b'a', b'b', 0x19, 0x25, 2, 4, 0x0c, 40, 0x16, 3, 0x11, 0, 0x1b, 1, 0x37, 9, 0, 0, 0, 0,
            0, 0, 0, 0, 0,
        ];
        let expected = vec![(vec![1], 3), (vec![20, 1], -2)];
        assert_eq!(read(&whole).unwrap(), (expected, whole.len() as u64));
        assert!((0..whole.len()).all(|cut| read(&whole[..cut]).is_err()));
    }

    #[test]
    fn long_lists_and_deep_structures_are_refused() {
        // a list with 2^31 structures
        let error = read(&[0x19, 0xfc, 0x80, 0x80, 0x80, 0x80, 8, 0, 0]).unwrap_err().to_string();
        assert!(error.contains("a list of 2147483648 elements in 2 bytes"), "{error}");
        assert!(read(&[0x1c; 5000]).unwrap_err().to_string().contains("without end"));
        assert!(read(&[0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]).is_err());
    }
}
