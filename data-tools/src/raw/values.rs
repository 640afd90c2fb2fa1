//! Handles NaN and pixels without data in raw images.

use loaders::{Dtype, Example};

/// Value type and shape. Raw values are little-endian and interleaved.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Values {
    pub dtype: Dtype,
    pub channels: usize,
    /// Pixels in a row, for messages.
    pub width: usize,
}

impl Values {
    /// Describes the image of a RAW record.
    pub fn of(example: &Example<'_>) -> Self {
        Values { dtype: example.dtype, channels: example.channels as usize, width: example.width as usize }
    }

    /// Returns an error if a value is NaN or infinite, or replaces it by zero. The value `nodata` is left alone.
    pub fn check_finite(self, bytes: &mut [u8], nodata: Option<f64>, nan_as_zero: bool) -> Result<(), String> {
        if self.dtype != Dtype::F32 {
            return Ok(());
        }
        let is_nodata = |value: f32| nodata.is_some_and(|nodata| same(value, nodata as f32));
        for (at, bytes) in bytes.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let value = f32::from_le_bytes(*bytes);
            if value.is_finite() || is_nodata(value) {
                continue;
            }
            if !nan_as_zero {
                let (pixel, band) = (at / self.channels, at % self.channels + 1);
                let (y, x) = (pixel / self.width, pixel % self.width);
                return Err(format!(
                    "the value of band {band} at row {y}, column {x} is {value}; expected finite numbers: --nan zero replaces such \
                     values by 0, and --nodata {value} by the mean of the band"
                ));
            }
            *bytes = 0f32.to_le_bytes();
        }
        Ok(())
    }

    pub fn at(self, bytes: &[u8], index: usize) -> f64 {
        match (self.dtype, &bytes[index * self.dtype.bytes()..]) {
            (Dtype::U8, [a, ..]) => f64::from(*a),
            (Dtype::U16, [a, b, ..]) => f64::from(u16::from_le_bytes([*a, *b])),
            (Dtype::I16, [a, b, ..]) => f64::from(i16::from_le_bytes([*a, *b])),
            (Dtype::F32, [a, b, c, d, ..]) => f64::from(f32::from_le_bytes([*a, *b, *c, *d])),
            _ => f64::NAN,
        }
    }

    /// Calls `each` with the band and the value, for all values except `nodata`.
    pub fn for_each(self, bytes: &[u8], nodata: Option<f64>, mut each: impl FnMut(usize, Value)) {
        let nodata = nodata.and_then(|nodata| Value::nodata(self.dtype, nodata));
        let (mut band, channels) = (0, self.channels);
        let mut add = |value: Value| {
            if !nodata.is_some_and(|nodata| nodata.is_same(value)) {
                each(band, value);
            }
            band = if band + 1 == channels { 0 } else { band + 1 };
        };
        match self.dtype {
            Dtype::U8 => bytes.iter().for_each(|&value| add(Value::Integer(value.into()))),
            Dtype::U16 => bytes.as_chunks().0.iter().for_each(|b| add(Value::Integer(u16::from_le_bytes(*b).into()))),
            Dtype::I16 => bytes.as_chunks().0.iter().for_each(|b| add(Value::Integer(i16::from_le_bytes(*b).into()))),
            Dtype::F32 => bytes.as_chunks().0.iter().for_each(|b| add(Value::Float(f32::from_le_bytes(*b)))),
        }
    }

    /// Replaces pixels without data by `fill`, which has a value per band.
    pub fn replace(self, bytes: &mut [u8], nodata: f64, fill: &[f64]) {
        let Some(nodata) = Value::nodata(self.dtype, nodata) else { return };
        let size = self.dtype.bytes();
        let encoded = match nodata {
            Value::Integer(value) => value.to_le_bytes()[..size].to_vec(),
            Value::Float(_) => Vec::new(),
        };
        let fill: Vec<Vec<u8>> = fill.iter().map(|&value| encode(self.dtype, value)).collect();
        for (at, value) in bytes.chunks_exact_mut(size).enumerate() {
            let is_missing = match &*value {
                // Floats have more than one bit pattern for NaN and for 0.
                &[a, b, c, d] => nodata.is_same(Value::Float(f32::from_le_bytes([a, b, c, d]))),
                value => *value == encoded[..],
            };
            if is_missing {
                value.copy_from_slice(&fill[at % self.channels]);
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Value {
    Integer(i32),
    Float(f32),
}

impl Value {
    /// Returns the nodata value as the type stores it. Returns `None` if the type has no such value.
    fn nodata(dtype: Dtype, nodata: f64) -> Option<Self> {
        let (min, max) = match dtype {
            Dtype::U8 => (0.0, 255.0),
            Dtype::U16 => (0.0, 65535.0),
            Dtype::I16 => (-32768.0, 32767.0),
            Dtype::F32 => return Some(Value::Float(nodata as f32)),
        };
        (nodata.fract() == 0.0 && (min..=max).contains(&nodata)).then_some(Value::Integer(nodata as i32))
    }

    fn is_same(self, other: Self) -> bool {
        match (self, other) {
            (Value::Float(nodata), Value::Float(value)) => same(value, nodata),
            _ => self == other,
        }
    }
}

/// Returns true if the values are equal or both are NaN.
fn same(a: f32, b: f32) -> bool {
    a == b || a.is_nan() && b.is_nan()
}

/// Returns a value's bytes, rounded and clamped to the type's range.
pub(super) fn encode(dtype: Dtype, value: f64) -> Vec<u8> {
    match dtype {
        Dtype::U8 => vec![value.round() as u8],
        Dtype::U16 => (value.round() as u16).to_le_bytes().to_vec(),
        Dtype::I16 => (value.round() as i16).to_le_bytes().to_vec(),
        Dtype::F32 => (value as f32).to_le_bytes().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    #[test]
    fn nan_is_named_or_becomes_zero() {
        let values = Values { dtype: Dtype::F32, channels: 2, width: 2 };
        let mut bytes = floats(&[1.0, 2.0, 3.0, 4.0, 5.0, f32::NAN, f32::INFINITY, 8.0]);
        let error = values.check_finite(&mut bytes, None, false).unwrap_err();
        assert!(["band 2", "row 1", "column 0", "NaN"].iter().all(|part| error.contains(part)), "{error}");
        values.check_finite(&mut bytes, None, true).unwrap();
        assert_eq!(bytes, floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 0.0, 0.0, 8.0]));
        let mut bytes = floats(&[f32::NAN, 1.0]);
        values.check_finite(&mut bytes, Some(f64::NAN), true).unwrap();
        assert!(f32::from_le_bytes(bytes[..4].try_into().unwrap()).is_nan());
    }

    #[test]
    fn missing_pixels_become_the_value_of_their_band() {
        let values = Values { dtype: Dtype::I16, channels: 2, width: 1 };
        let mut bytes: Vec<u8> = [-9999i16, -9999, 5, -9999].iter().flat_map(|v| v.to_le_bytes()).collect();
        let mut seen = Vec::new();
        values.for_each(&bytes, Some(-9999.0), |band, value| seen.push((band, value)));
        assert_eq!(seen, [(0, Value::Integer(5))]);
        values.replace(&mut bytes, -9999.0, &[5.4, -3.6]);
        let expected: Vec<u8> = [5i16, -4, 5, -4].iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!(bytes, expected);
        // No value of int16 is 0.5 or 70,000.
        values.replace(&mut bytes, 0.5, &[0.0, 0.0]);
        values.replace(&mut bytes, 70_000.0, &[0.0, 0.0]);
        assert_eq!(bytes, expected);
        let mut bytes = floats(&[f32::NAN, -3.402_823_5e38, 1.0]);
        let values = Values { dtype: Dtype::F32, channels: 1, width: 1 };
        values.replace(&mut bytes, f64::NAN, &[2.0]);
        values.replace(&mut bytes, -3.402_823_466_385_288_6e38, &[3.0]);
        assert_eq!(bytes, floats(&[2.0, 3.0, 1.0]));
        let mut bytes = floats(&[-0.0, 0.0, 1.0]);
        values.replace(&mut bytes, 0.0, &[5.0]);
        assert_eq!(bytes, floats(&[5.0, 5.0, 1.0]));
    }
}
