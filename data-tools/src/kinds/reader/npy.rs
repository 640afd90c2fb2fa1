//! Arrays of NumPy: the members of a `.npz`, a ZIP archive of `.npy` files.

use super::budget::{Budget, read_bounded};
use super::store::Store;
use crate::error::Error;
use loaders::regular;
use loaders::stall::during;
use std::io;
use std::path::Path;
use zip::result::ZipError;
use zip::{CompressionMethod, ZipArchive};

const MAGIC: &[u8] = b"\x93NUMPY";
/// The longest header that is read.
const MOST_HEADER: usize = 1 << 16;

/// An array.
#[derive(Debug)]
pub(crate) struct Array {
    pub name: String,
    /// Lengths of its axes, the last one of neighbours in memory.
    pub shape: Vec<usize>,
    /// Its type as NumPy writes it, such as `|u1`.
    descr: String,
    /// Its `.npy` file; large ones are not moved in memory to cut off the header.
    file: Store,
    /// Where its values start there.
    start: u64,
}

/// All arrays of a `.npz` file, in memory of the budget.
pub(crate) fn read_archive(path: &Path, budget: &mut Budget) -> Result<Vec<Array>, Error> {
    during("reading", path, || read_arrays(path, budget))
}

fn read_arrays(path: &Path, budget: &mut Budget) -> Result<Vec<Array>, Error> {
    let file = regular::open(path).map_err(|e| Error::io("open", path, e))?;
    let length = file.metadata().map_err(|e| Error::io("read", path, e))?.len();
    budget.add_file(length);
    let mut left = length;
    let mut archive = ZipArchive::new(io::BufReader::new(file)).map_err(|e| damaged(path, "the archive", e))?;
    let mut arrays = Vec::new();
    for number in 0..archive.len() {
        let mut member = archive.by_index(number).map_err(|e| damaged(path, &format!("member {number}"), e))?;
        let name = member.name().map_err(|e| damaged(path, &format!("member {number}"), e))?.into_owned();
        let Some(name) = name.strip_suffix(".npy").map(String::from) else { continue };
        let failed = |e| damaged(path, &format!("`{name}`"), ZipError::Io(e));
        let place = member.data_start().filter(|_| member.compression() == CompressionMethod::Stored);
        let store = match place {
            Some(start) => {
                let overlap = || {
                    Error::input(path, "its members take more bytes than the file has: damaged; save or fetch it again")
                };
                left = left.checked_sub(member.size()).ok_or_else(overlap)?;
                // its checksum is compared at its end
                let length = io::copy(&mut member, &mut io::sink()).map_err(failed)?;
                let file = regular::open(path).map_err(|e| Error::io("open", path, e))?;
                Store::part(file, path, start, length)
            }
            None => {
                let bytes = read_bounded(&mut member, budget.left()).map_err(failed)?;
                Store::Memory(bytes.ok_or_else(|| budget.exceeded(&path.join(&name)))?)
            }
        };
        if let Store::Memory(bytes) = &store {
            budget.take(path, bytes.len() as u64)?;
        }
        arrays.push(parse(&name, store).map_err(|what| Error::input(path, format!("`{name}`: {what}")))?);
    }
    Ok(arrays)
}

fn damaged(path: &Path, part: &str, error: ZipError) -> Error {
    Error::input(
        path,
        format!("{part} cannot be read ({error}): not a .npz of NumPy, or damaged; save or fetch it again"),
    )
}

/// Reads a `.npy` file.
fn parse(name: &str, file: Store) -> Result<Array, String> {
    let mut head = vec![0; file.len().min(MOST_HEADER as u64 + 12) as usize];
    file.read_at(0, &mut head).map_err(|e| e.to_string())?;
    let (header, start) = header(&head).ok_or("not an array of NumPy (.npy), or cut short")?;
    let field = |key: &str| header.split_once(&format!("'{key}':")).map(|(_, rest)| rest.trim_start());
    let descr = field("descr").and_then(|rest| rest.strip_prefix('\'')).and_then(|rest| rest.split_once('\''));
    let shape = field("shape").and_then(|rest| rest.strip_prefix('(')).and_then(|rest| rest.split_once(')'));
    let (Some((descr, _)), Some((shape, _)), Some(order)) = (descr, shape, field("fortran_order")) else {
        return Err("its header cannot be read; save it with numpy.savez".into());
    };
    let axes = shape.split(',').map(str::trim).filter(|axis| !axis.is_empty());
    let axes: Option<Vec<usize>> = axes.map(|axis| axis.parse().ok()).collect();
    let axes = axes.ok_or_else(|| format!("its shape ({shape}) cannot be read"))?;
    if order.starts_with("True") && axes.len() > 1 {
        return Err("it is in Fortran's order; save numpy.ascontiguousarray of it".into());
    }
    let Some(width) = width(descr) else {
        return Err(format!("its type is {descr}; expected uint8 images and labels of whole numbers"));
    };
    let expected = axes.iter().try_fold(width, |size, &axis| size.checked_mul(axis));
    let start = start as u64;
    let length = file.len() - start;
    if expected.map(|length| length as u64) != Some(length) {
        return Err(format!("shape {axes:?} of {descr} does not fit its {length} bytes; is it cut short?"));
    }
    let descr = descr.to_string();
    Ok(Array { name: name.to_string(), shape: axes, descr, file, start })
}

/// The header of a `.npy` file, and where the values start.
fn header(bytes: &[u8]) -> Option<(&str, usize)> {
    let version = bytes.strip_prefix(MAGIC)?.first()?;
    let (length, start) = match version {
        1 => (usize::from(u16::from_le_bytes(*bytes.get(8..)?.first_chunk()?)), 10),
        _ => (u32::from_le_bytes(*bytes.get(8..)?.first_chunk()?) as usize, 12),
    };
    let end = start + Some(length).filter(|&length| length <= MOST_HEADER)?;
    Some((std::str::from_utf8(bytes.get(start..end)?).ok()?, end))
}

/// Bytes of a value of this type.
fn width(descr: &str) -> Option<usize> {
    let width = descr.get(2..)?.parse().ok()?;
    matches!(width, 1 | 2 | 4 | 8).then_some(width)
}

impl Array {
    /// Makes `out` the `length` bytes of its values from `at` on.
    pub(crate) fn read(&self, at: u64, length: usize, out: &mut Vec<u8>) -> io::Result<()> {
        self.file.read_into(self.start + at, length, out)
    }

    /// Refuses values that are not bytes from 0 to 255.
    pub(crate) fn check_bytes(&self, path: &Path) -> Result<(), Error> {
        if self.descr == "|u1" {
            return Ok(());
        }
        let cure = "expected uint8: save (255 * x).round().astype('uint8') if they are from 0 to 1, \
                    (x / 257).round().astype('uint8') if from 0 to 65535, x.clip(0, 255).astype('uint8') if from 0 to 255 \
                    (astype alone keeps the lower 8 bits of larger values)";
        Err(Error::input(path, format!("`{}`: its values are {}; {cure}", self.name, self.descr)))
    }

    /// Its values as numbers of classes.
    pub(crate) fn whole_numbers(&self, path: &Path) -> Result<Vec<i64>, Error> {
        let failed = |what: String| Error::input(path, format!("`{}`: {what}", self.name));
        if !matches!(self.shape[..], [_] | [_, 1]) {
            let cure = "expected (N) or (N, 1); of one-hot labels save labels.argmax(1)";
            return Err(failed(format!("labels of shape {:?}; {cure}", self.shape)));
        }
        fn all<const N: usize>(bytes: &[u8], number: impl Fn([u8; N]) -> i64) -> Vec<i64> {
            bytes.as_chunks::<N>().0.iter().map(|&b| number(b)).collect()
        }
        let (mut bytes, length) = (Vec::new(), usize::try_from(self.file.len() - self.start).unwrap_or(usize::MAX));
        self.read(0, length, &mut bytes).map_err(|e| Error::io("read", path, e))?;
        let bytes = &bytes;
        Ok(match self.descr.as_str() {
            "|u1" | "|b1" => all(bytes, |[b]| i64::from(b)),
            "|i1" => all(bytes, |b| i64::from(i8::from_le_bytes(b))),
            "<u2" => all(bytes, |b| i64::from(u16::from_le_bytes(b))),
            "<i2" => all(bytes, |b| i64::from(i16::from_le_bytes(b))),
            "<u4" => all(bytes, |b| i64::from(u32::from_le_bytes(b))),
            "<i4" => all(bytes, |b| i64::from(i32::from_le_bytes(b))),
            "<i8" => all(bytes, i64::from_le_bytes),
            // those above 2^63 become negative, and are refused as such
            "<u8" => all(bytes, |b| u64::from_le_bytes(b) as i64),
            other => {
                return Err(failed(format!(
                    "labels of type {other}; expected whole numbers: save labels.astype('int64')"
                )));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn npy(header: &str, values: &[u8]) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend([1, 0]);
        out.extend((header.len() as u16).to_le_bytes());
        out.extend(header.as_bytes());
        out.extend(values);
        out
    }

    #[test]
    fn headers_are_read_and_bad_ones_refused() {
        let good = "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 1), }\n";
        let array = parse("y", Store::Memory(npy(good, &[1, 0, 255, 255]))).unwrap();
        assert_eq!((array.shape.as_slice(), array.whole_numbers(Path::new("a")).unwrap()), (&[2, 1][..], vec![1, -1]));
        let error = |header: &str, values: &[u8]| parse("y", Store::Memory(npy(header, values))).unwrap_err();
        assert!(error(good, &[1, 0, 2]).contains("does not fit its 3 bytes"));
        assert!(error(&good.replace("False", "True"), &[1, 0, 2, 0]).contains("ascontiguousarray"));
        assert!(error(&good.replace("<i2", "|O"), &[]).contains("its type is |O"));
        assert!(error(&good.replace("(2, 1)", "(2, -1)"), &[]).contains("cannot be read"));
        assert!(error("{}", &[]).contains("header cannot be read"));
        let whole = npy(good, &[1, 0, 2, 0]);
        assert!((0..whole.len()).all(|cut| parse("y", Store::Memory(whole[..cut].to_vec())).is_err()));
    }
}
