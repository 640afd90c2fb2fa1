//! The header of NumPy's `.npy` files.

use loaders::{Dtype, ImageSpec};

/// The first bytes of every `.npy` file.
pub const MAGIC: &[u8] = b"\x93NUMPY";

/// The limit for the length of a header.
const MAX_HEADER: usize = 1 << 16;

/// How many bytes to read from a file so that they include any header up to [`MAX_HEADER`] bytes.
pub(crate) const MAX_VALUES_START: usize = MAX_HEADER + 12;

/// The start of an image header that trireme writes. NumPy writes the key `shape` last, and readers must accept any
/// order. So this start identifies trireme's own files, whose axes are (H, W, C) whatever their lengths are.
const OWN_IMAGE: &str = "{'shape'";

/// Header length in bytes of a written file, including padding. The format requires a multiple of 64.
pub const HEADER_BYTES: usize = 128;

/// The properties of the values, from the header.
pub(crate) struct Header<'a> {
    /// The NumPy type, such as `|u1`.
    pub descr: &'a str,
    /// Lengths of the axes, outermost first.
    pub shape: Vec<usize>,
    /// True if the first axis is contiguous.
    pub fortran_order: bool,
    /// Offset of the values in the file.
    pub start: usize,
    /// True if [`image_file`] wrote the file, so the shape is (H, W, C).
    pub is_own_image: bool,
}

impl<'a> Header<'a> {
    /// Reads the header at the start of a file.
    pub fn read(bytes: &'a [u8]) -> Result<Self, String> {
        let (header, start) = text(bytes).ok_or("not a NumPy array (.npy), or cut short")?;
        let field = |key: &str| header.split_once(&format!("'{key}':")).map(|(_, rest)| rest.trim_start());
        let descr = field("descr").and_then(|rest| rest.strip_prefix('\'')).and_then(|rest| rest.split_once('\''));
        let shape = field("shape").and_then(|rest| rest.strip_prefix('(')).and_then(|rest| rest.split_once(')'));
        let (Some((descr, _)), Some((shape, _)), Some(order)) = (descr, shape, field("fortran_order")) else {
            return Err(
                "the header of the .npy data cannot be read; save the array again with numpy.save or numpy.savez"
                    .into(),
            );
        };
        let axes = shape.split(',').map(str::trim).filter(|axis| !axis.is_empty());
        let axes: Option<Vec<usize>> = axes.map(|axis| axis.parse().ok()).collect();
        let shape = axes.ok_or_else(|| format!("the shape ({shape}) cannot be read"))?;
        let is_own_image = header.starts_with(OWN_IMAGE);
        Ok(Self { descr, shape, fortran_order: order.starts_with("True"), start, is_own_image })
    }
}

/// Returns the header as text and the offset of the values.
fn text(bytes: &[u8]) -> Option<(&str, usize)> {
    let version = bytes.strip_prefix(MAGIC)?.first()?;
    let (length, start) = match version {
        1 => (usize::from(u16::from_le_bytes(*bytes.get(8..)?.first_chunk()?)), 10),
        _ => (u32::from_le_bytes(*bytes.get(8..)?.first_chunk()?) as usize, 12),
    };
    let end = start + Some(length).filter(|&length| length <= MAX_HEADER)?;
    Some((std::str::from_utf8(bytes.get(start..end)?).ok()?, end))
}

/// Returns the [`HEADER_BYTES`] bytes before the values of a table of f32.
pub fn f32_header(rows: usize, columns: usize) -> Vec<u8> {
    padded(&format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {columns}), }}"))
}

/// Returns a `.npy` file that contains an image (H, W, C) with these little-endian values.
pub(crate) fn image_file(dtype: Dtype, spec: ImageSpec, values: &[u8]) -> Vec<u8> {
    let descr = match dtype {
        Dtype::U8 => "|u1",
        Dtype::U16 => "<u2",
        Dtype::I16 => "<i2",
        Dtype::F32 => "<f4",
    };
    let ImageSpec { height, width, channels, .. } = spec;
    let text = format!("{OWN_IMAGE}: ({height}, {width}, {channels}), 'descr': '{descr}', 'fortran_order': False, }}");
    [&padded(&text), values].concat()
}

/// Returns the [`HEADER_BYTES`] bytes before an array's values. `text` is the header's dictionary.
fn padded(text: &str) -> Vec<u8> {
    let mut head = [MAGIC, &[1, 0]].concat();
    head.extend(((HEADER_BYTES - 10) as u16).to_le_bytes());
    head.extend(text.as_bytes());
    head.resize(HEADER_BYTES - 1, b' ');
    head.push(b'\n');
    head
}

#[cfg(test)]
pub(crate) mod testing {
    /// Returns a `.npy` file with this header and these values.
    pub(crate) fn file(header: &str, values: &[u8]) -> Vec<u8> {
        let length = (header.len() as u16).to_le_bytes();
        [super::MAGIC, &[1, 0], &length, header.as_bytes(), values].concat()
    }
}
