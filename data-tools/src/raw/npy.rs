//! One image in a `.npy` file, and the NumPy types that images may have.

use loaders::{Cost, Dtype, Limits};

use super::RawImage;
use super::layout::{Axes, Layout};
use crate::npy::Header;

/// How an array of this type is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoredType {
    pub dtype: Dtype,
    pub is_big_endian: bool,
}

impl StoredType {
    /// Parses a type in NumPy notation, such as `<u2`. Returns a message for a type that images cannot have.
    pub fn parse(descr: &str) -> Result<Self, String> {
        let dtype = match descr.trim_start_matches(['<', '>', '|', '=']) {
            "u1" | "b1" => Dtype::U8,
            "u2" => Dtype::U16,
            "i2" => Dtype::I16,
            "f4" => Dtype::F32,
            other => {
                let cure = match other {
                    "f8" | "f2" => "save x.astype('float32')",
                    "i1" => "save x.astype('int16')",
                    _ => "save x.astype('uint16') if all values are from 0 to 65535, and x.astype('float32') otherwise",
                };
                return Err(format!(
                    "the values have the type {descr}; expected uint8, uint16, int16 or float32: {cure}"
                ));
            }
        };
        Ok(StoredType { dtype, is_big_endian: descr.starts_with('>') })
    }

    /// Makes values little-endian.
    pub fn swap(self, bytes: &mut [u8]) {
        if self.is_big_endian {
            bytes.chunks_exact_mut(self.dtype.bytes()).for_each(|value| value.reverse());
        }
    }
}

pub(super) fn decode(file: &[u8], layout: Option<Layout>, limits: &Limits) -> Result<RawImage, String> {
    let Header { descr, shape, fortran_order, start, is_own_image } = Header::read(file)?;
    let stored = StoredType::parse(descr)?;
    let layout = layout.or(is_own_image.then_some(Layout::Interleaved));
    // A first axis of length 1 is the number of images.
    let image = if shape.len() == 4 && shape[0] == 1 { &shape[1..] } else { &shape[..] };
    let axes = Axes::find(image, layout)?;
    let size = stored.dtype.bytes();
    let spec = axes.spec();
    let memory = (spec.values() as u64).saturating_mul(2 * size as u64);
    let cost = Cost { spec, memory, scans: 1, seconds: 0.0 };
    limits.check("NumPy array", file.len() as u64, &cost).map_err(|fault| fault.to_string())?;
    let (values, expected) = (&file[start..], axes.values().saturating_mul(size));
    if values.len() != expected {
        return Err(format!(
            "the shape {shape:?} of {descr} needs {expected} bytes, but the array has {}; is the file cut short?",
            values.len()
        ));
    }
    let mut bytes = if fortran_order { transposed(values, &shape, size) } else { values.to_vec() };
    stored.swap(&mut bytes);
    Ok(RawImage::new(stored.dtype, spec, axes.interleave(bytes, size)))
}

/// Converts an array from Fortran order, where the first axis is contiguous, to C order.
pub(crate) fn transposed(values: &[u8], shape: &[usize], size: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(values.len());
    let (mut index, mut at) = (vec![0; shape.len()], 0);
    let steps: Vec<usize> = shape
        .iter()
        .scan(size, |step, &axis| {
            let own = *step;
            *step *= axis;
            Some(own)
        })
        .collect();
    while out.len() < values.len() {
        out.extend_from_slice(&values[at..at + size]);
        for axis in (0..shape.len()).rev() {
            (index[axis], at) = (index[axis] + 1, at + steps[axis]);
            if index[axis] < shape[axis] {
                break;
            }
            at -= steps[axis] * shape[axis];
            index[axis] = 0;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::npy::testing;

    #[test]
    fn types_orders_and_layouts() {
        let decode = |header: &str, values: &[u8]| decode(&testing::file(header, values), None, &Limits::DEFAULT);
        let big = decode("{'descr': '>u2', 'fortran_order': False, 'shape': (1, 2), }", &[1, 2, 3, 4]).unwrap();
        assert_eq!((big.dtype, big.bytes), (Dtype::U16, vec![2, 1, 4, 3]));
        // The array is [[1, 2, 3], [4, 5, 6]].
        let fortran =
            decode("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }", &[1, 4, 2, 5, 3, 6]).unwrap();
        assert_eq!((fortran.height, fortran.width, fortran.bytes), (2, 3, vec![1, 2, 3, 4, 5, 6]));
        let planes =
            decode("{'descr': '|u1', 'fortran_order': False, 'shape': (1, 3, 1, 2), }", &[1, 2, 3, 4, 5, 6]).unwrap();
        assert_eq!((planes.channels, planes.bytes), (3, vec![1, 3, 5, 2, 4, 6]));
        let error = |header: &str, values: &[u8]| decode(header, values).unwrap_err();
        let float = error("{'descr': '<f8', 'fortran_order': False, 'shape': (1, 1), }", &[0; 8]);
        assert!(float.contains("astype('float32')"), "{float}");
        let short = error("{'descr': '<u2', 'fortran_order': False, 'shape': (1, 2), }", &[0; 3]);
        assert!(short.contains("4 bytes") && short.contains("array has 3"), "{short}");
        let bomb = error("{'descr': '<u2', 'fortran_order': False, 'shape': (4000000000, 4000000000), }", &[]);
        assert!(bomb.contains("limit"), "{bomb}");
    }
}
