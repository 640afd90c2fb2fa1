//! Reads pixel and label arrays: `.npy`, `.npz` and HDF5 files, and MNIST's IDX files.

use std::io;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use loaders::stall::during;
use loaders::{Limits, regular};
use zip::result::ZipError;
use zip::{CompressionMethod, ZipArchive};

use super::input;
use super::input::{Budget, Store, read_bounded};
use crate::error::Error;
use crate::npy::{Header, MAX_VALUES_START};
use crate::raw::hdf5::Hdf5File;
use crate::raw::layout::Axes;
use crate::raw::npy::{StoredType, transposed};

/// An array, in memory or in its file on disk.
#[derive(Debug)]
pub(crate) struct Array {
    pub name: String,
    /// Lengths of the axes. Values along the last axis are adjacent in memory.
    pub shape: Vec<usize>,
    /// Type in NumPy's notation, such as `|u1`.
    pub descr: String,
    values: ArrayValues,
}

#[derive(Debug)]
enum ArrayValues {
    /// A `.npy` file with its header, because removing the header from a large array would mean copying it. `start` is
    /// the offset of the values.
    Npy { file: Store, start: u64 },
    /// The array with this number in the file.
    Hdf5 { file: Arc<Hdf5File>, number: usize },
}

/// Returns the arrays of an HDF5 file.
pub(crate) fn of_hdf5(file: &Arc<Hdf5File>) -> Vec<Array> {
    let array = |(number, described): (usize, &crate::raw::hdf5::Described)| Array {
        name: described.name.clone(),
        shape: described.shape.clone(),
        descr: described.descr.clone(),
        values: ArrayValues::Hdf5 { file: Arc::clone(file), number },
    };
    file.arrays.iter().enumerate().map(array).collect()
}

/// Opens a `.npy` file.
pub(crate) fn open_npy(path: &Path, budget: &mut Budget) -> Result<Array, Error> {
    let store = Store::open(path).map_err(|e| Error::io("open", path, e))?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    parse(&name, store, budget).map_err(|what| Error::input(path, what))
}

/// Reads the arrays of a `.npz` file whose names `is_wanted` accepts, within the memory budget. The other arrays may
/// have any type. Also returns their names.
pub(crate) fn read_archive(
    path: &Path,
    budget: &mut Budget,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<(Vec<Array>, Vec<String>), Error> {
    during("reading", path, || read_arrays(path, budget, is_wanted))
}

fn read_arrays(
    path: &Path,
    budget: &mut Budget,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<(Vec<Array>, Vec<String>), Error> {
    let (file, length) = input::open_sized(path)?;
    budget.add_file(length);
    let mut left = length;
    let mut archive = ZipArchive::new(io::BufReader::new(file)).map_err(|e| damaged(path, "the archive", e))?;
    let (mut arrays, mut others) = (Vec::new(), Vec::new());
    for number in 0..archive.len() {
        let mut member = archive.by_index(number).map_err(|e| damaged(path, &format!("member {number}"), e))?;
        let name = member.name().map_err(|e| damaged(path, &format!("member {number}"), e))?.into_owned();
        let Some(name) = name.strip_suffix(".npy").map(String::from) else { continue };
        if !is_wanted(&name) {
            others.push(name);
            continue;
        }
        let failed = |e| damaged(path, &format!("`{name}`"), ZipError::Io(e));
        let place = member.data_start().filter(|_| member.compression() == CompressionMethod::Stored);
        let store = match place {
            Some(start) => {
                let overlap = || {
                    Error::input(
                        path,
                        "the arrays together are larger than the file, so the file is damaged; save or fetch it again",
                    )
                };
                left = left.checked_sub(member.size()).ok_or_else(overlap)?;
                // Reading to the end verifies the checksum.
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
        let array = parse(&name, store, budget).map_err(|what| Error::input(path, format!("`{name}`: {what}")))?;
        arrays.push(array);
    }
    Ok((arrays, others))
}

fn damaged(path: &Path, part: &str, error: ZipError) -> Error {
    Error::input(
        path,
        format!("{part} cannot be read ({error}): not a NumPy .npz file, or damaged; save or fetch it again"),
    )
}

/// Reads a `.npy` header. An array in Fortran order is rearranged in memory.
fn parse(name: &str, mut file: Store, budget: &mut Budget) -> Result<Array, String> {
    let mut head = vec![0; file.len().min(MAX_VALUES_START as u64) as usize];
    file.read_at(0, &mut head).map_err(|e| e.to_string())?;
    let Header { descr, shape, fortran_order, start, .. } = Header::read(&head)?;
    let Some(width) = width(descr) else {
        return Err(format!("the values have the type {descr}; expected images of numbers and integer labels"));
    };
    let expected = shape.iter().try_fold(width, |size, &axis| size.checked_mul(axis));
    let mut start = start as u64;
    let length = file.len() - start;
    if expected.map(|length| length as u64) != Some(length) {
        return Err(format!(
            "the shape {shape:?} of {descr} does not match the size of {length} bytes; is the file cut short?"
        ));
    }
    let descr = descr.to_string();
    if fortran_order && shape.len() > 1 {
        let cure = "the array has Fortran order; convert it with numpy.ascontiguousarray before saving";
        budget.take(Path::new(name), 2 * length).map_err(|e| format!("{cure} ({e})"))?;
        let mut values = Vec::new();
        file.read_into(start, length as usize, &mut values).map_err(|e| e.to_string())?;
        (file, start) = (Store::Memory(transposed(&values, &shape, width)), 0);
    }
    Ok(Array { name: name.to_string(), shape, descr, values: ArrayValues::Npy { file, start } })
}

/// Returns the size of a value of this type in bytes.
fn width(descr: &str) -> Option<usize> {
    let width = descr.get(2..)?.parse().ok()?;
    matches!(width, 1 | 2 | 4 | 8).then_some(width)
}

/// Converts each group of `N` bytes to a number.
pub(super) fn all<const N: usize, T>(bytes: &[u8], number: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks::<N>().0.iter().map(|&b| number(b)).collect()
}

impl Array {
    /// Fills `out` with image `number`: little-endian values, interleaved.
    pub(crate) fn image(
        &self,
        path: &Path,
        number: u64,
        axes: Axes,
        stored: StoredType,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let size = stored.dtype.bytes();
        let length = axes.values() * size;
        match &self.values {
            ArrayValues::Npy { file, start } => {
                let read = file.read_into(start + number * length as u64, length, out);
                read.map_err(|e| Error::io("read", path, e))?;
            }
            ArrayValues::Hdf5 { file, number: array } => *out = file.read(*array, number as usize, 1)?,
        }
        stored.swap(out);
        *out = axes.interleave(std::mem::take(out), size);
        Ok(())
    }

    /// Returns the number of images that are compressed together, and their number of values. Returns `None` if each
    /// image is compressed separately.
    pub(crate) fn group(&self) -> Option<(usize, usize)> {
        match &self.values {
            ArrayValues::Hdf5 { file, number } => {
                let described = &file.arrays[*number];
                (described.chunk_rows > 1).then_some((described.chunk_rows, described.group_values))
            }
            ArrayValues::Npy { .. } => None,
        }
    }

    /// Returns an error if images of this shape exceed the limits.
    pub(crate) fn check_limits(&self, path: &Path, axes: Axes, limits: &Limits) -> Result<(), Error> {
        match &self.values {
            ArrayValues::Hdf5 { file, number } => crate::raw::hdf5::check(path, &file.arrays[*number], axes, 1, limits),
            ArrayValues::Npy { .. } => Ok(()),
        }
    }

    /// Returns all values as bytes.
    fn bytes(&self, path: &Path) -> Result<Vec<u8>, Error> {
        match &self.values {
            ArrayValues::Npy { file, start } => {
                let length = usize::try_from(file.len() - start).unwrap_or(usize::MAX);
                let mut bytes = Vec::new();
                file.read_into(*start, length, &mut bytes).map_err(|e| Error::io("read", path, e))?;
                Ok(bytes)
            }
            ArrayValues::Hdf5 { file, number } => file.read(*number, 0, self.shape[0]),
        }
    }

    /// Returns all values in row-major order. Returns an error unless each row has `columns` values.
    pub(crate) fn numbers(&self, path: &Path, columns: usize) -> Result<Vec<f32>, Error> {
        let failed = |what: String| Error::input(path, format!("`{}`: {what}", self.name));
        let found = match self.shape[..] {
            [_] => 1,
            [_, found] => found,
            _ => 0,
        };
        if found != columns {
            let cure = if columns == 1 { "(N) or (N, 1)".to_string() } else { format!("(N, {columns})") };
            return Err(failed(format!(
                "the numbers have the shape {:?}; expected {cure}, because --targets names {columns}",
                self.shape
            )));
        }
        match self.descr.replace('>', "<").as_str() {
            "<f4" => Ok(all(&self.little_endian(path)?, f32::from_le_bytes)),
            "<f8" => Ok(all(&self.little_endian(path)?, |b| f64::from_le_bytes(b) as f32)),
            // `integers` would make values of 2^63 or more negative.
            "<u8" => Ok(all(&self.little_endian(path)?, |b| u64::from_le_bytes(b) as f32)),
            descr if descr.contains(['u', 'i', 'b']) => {
                Ok(self.integers(path, failed)?.into_iter().map(|number| number as f32).collect())
            }
            other => Err(failed(format!("the numbers have the type {other}; save them with astype('float32')"))),
        }
    }

    /// Returns all values as little-endian bytes.
    fn little_endian(&self, path: &Path) -> Result<Vec<u8>, Error> {
        let mut bytes = self.bytes(path)?;
        if let Some(width) = width(&self.descr).filter(|_| self.descr.starts_with('>')) {
            bytes.chunks_exact_mut(width).for_each(|value| value.reverse());
        }
        Ok(bytes)
    }

    /// Returns the values as class numbers.
    pub(crate) fn whole_numbers(&self, path: &Path) -> Result<Vec<i64>, Error> {
        let failed = |what: String| Error::input(path, format!("`{}`: {what}", self.name));
        if !matches!(self.shape[..], [_] | [_, 1]) {
            let cure = "expected (N) or (N, 1); if the labels are one-hot, save labels.argmax(1)";
            return Err(failed(format!("the labels have the shape {:?}; {cure}", self.shape)));
        }
        self.integers(path, failed)
    }

    /// Returns the values in an array of integers. For other types, `failed` creates the error.
    fn integers(&self, path: &Path, failed: impl Fn(String) -> Error) -> Result<Vec<i64>, Error> {
        let bytes = &self.little_endian(path)?;
        Ok(match self.descr.replace('>', "<").as_str() {
            "|u1" | "|b1" => all(bytes, |[b]| i64::from(b)),
            "|i1" => all(bytes, |b| i64::from(i8::from_le_bytes(b))),
            "<u2" => all(bytes, |b| i64::from(u16::from_le_bytes(b))),
            "<i2" => all(bytes, |b| i64::from(i16::from_le_bytes(b))),
            "<u4" => all(bytes, |b| i64::from(u32::from_le_bytes(b))),
            "<i4" => all(bytes, |b| i64::from(i32::from_le_bytes(b))),
            "<i8" => all(bytes, i64::from_le_bytes),
            // Values of 2^63 or more become negative and are rejected later.
            "<u8" => all(bytes, |b| u64::from_le_bytes(b) as i64),
            _ => {
                let other = &self.descr;
                return Err(failed(format!(
                    "the labels have the type {other}; expected integers: save labels.astype('int64'), or name the numbers with \
                     --targets to predict them"
                )));
            }
        })
    }
}

// The IDX format of MNIST: a big-endian header, followed by unsigned bytes. Only images (3 axes) and labels (1 axis)
// are supported.

/// Magic number of images: unsigned bytes, three axes.
const IMAGES: u32 = 0x0000_0803;
/// Magic number of labels: unsigned bytes, one axis.
const LABELS: u32 = 0x0000_0801;

/// All images of an IDX file, in row order.
#[derive(Debug)]
pub(crate) struct Images {
    pub count: u64,
    pub height: u32,
    pub width: u32,
    /// Grey values, `count * height * width` bytes.
    pub pixels: Store,
}

/// Reads an image file. The pixels of a plain file stay on disk, and those of a gzip file are unpacked to memory.
pub(crate) fn read_images(path: &Path, budget: &mut Budget) -> Result<Images, Error> {
    let mut stream = input::open(path, budget)?;
    let [count, height, width] = read_header::<3>(path, &mut stream, IMAGES, "images", budget)?;
    if height == 0 || width == 0 {
        return Err(Error::input(
            path,
            format!("the header says that images have {height} x {width} pixels; expected at least 1 x 1"),
        ));
    }
    let bytes = u64::from(height)
        .checked_mul(u64::from(width))
        .and_then(|area| area.checked_mul(u64::from(count)))
        .ok_or_else(|| Error::input(path, format!("impossible size {count} x {height} x {width}")))?;
    let what = format!("{count} images of {height} x {width}");
    let pixels = match stream.in_place(path).map_err(|e| Error::io("read", path, e))? {
        Some(rest) => {
            input::check_length(path, rest.len(), bytes, &what)?;
            rest
        }
        None => Store::Memory(input::read_rest(path, &mut stream, bytes, &what, budget)?),
    };
    Ok(Images { count: u64::from(count), height, width, pixels })
}

/// Reads a plain or gzip-compressed label file. Every label must be less than `classes`.
pub(crate) fn read_labels(path: &Path, classes: usize, budget: &mut Budget) -> Result<Vec<u8>, Error> {
    let mut stream = input::open(path, budget)?;
    let [count] = read_header::<1>(path, &mut stream, LABELS, "labels", budget)?;
    let what = format!("{count} labels");
    let labels = input::read_rest(path, &mut stream, u64::from(count), &what, budget)?;
    match labels.iter().position(|&l| usize::from(l) >= classes) {
        None => Ok(labels),
        Some(at) => Err(Error::input(
            path,
            format!("label {} of sample {at} is out of range; expected 0 to {}", labels[at], classes - 1),
        )),
    }
}

/// Reads and checks the magic number, and returns the lengths of the `N` axes.
fn read_header<const N: usize>(
    path: &Path,
    stream: &mut dyn Read,
    magic: u32,
    holds: &str,
    budget: &Budget,
) -> Result<[u32; N], Error> {
    let (expected, mut head) = (4 + 4 * N, Vec::new());
    stream.take(expected as u64).read_to_end(&mut head).map_err(|e| input::read_error(path, budget, e))?;
    let words: Vec<u32> = head.as_chunks::<4>().0.iter().map(|word| u32::from_be_bytes(*word)).collect();
    if let Some(&got) = words.first().filter(|&&got| got != magic) {
        return Err(wrong_magic(path, got, magic, holds));
    }
    let axes = words.get(1..).and_then(|axes| axes.try_into().ok());
    axes.ok_or_else(|| {
        let got = head.len();
        let what =
            format!("cut short: an IDX header of {holds} has {expected} bytes, but only {got} exist; fetch it again");
        Error::input(path, what)
    })
}

fn wrong_magic(path: &Path, got: u32, expected: u32, holds: &str) -> Error {
    let swapped = got == IMAGES || got == LABELS;
    let hint = if swapped { "images and labels are swapped" } else { "this is a different kind of file" };
    Error::input(path, format!("wrong magic number 0x{got:08x}; expected 0x{expected:08x}, IDX {holds}: {hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::npy::testing::file as npy;

    #[test]
    fn headers_are_read_and_bad_ones_refused() {
        let budget = || Budget::new(Limits::DEFAULT);
        let good = "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 1), }\n";
        let array = parse("y", Store::Memory(npy(good, &[1, 0, 255, 255])), &mut budget()).unwrap();
        assert_eq!((array.shape.as_slice(), array.whole_numbers(Path::new("a")).unwrap()), (&[2, 1][..], vec![1, -1]));
        let large = good.replace("<i2", "<u8").replace("(2, 1)", "(1, 1)");
        let array = parse("y", Store::Memory(npy(&large, &(1u64 << 63).to_le_bytes())), &mut budget()).unwrap();
        assert_eq!(array.numbers(Path::new("a"), 1).unwrap(), [2f32.powi(63)]);
        let error =
            |header: &str, values: &[u8]| parse("y", Store::Memory(npy(header, values)), &mut budget()).unwrap_err();
        assert!(error(good, &[1, 0, 2]).contains("3 bytes"));
        let fortran = good.replace("False", "True").replace("(2, 1)", "(2, 2)");
        let array = parse("y", Store::Memory(npy(&fortran, &[1, 0, 2, 0, 3, 0, 4, 0])), &mut budget()).unwrap();
        assert_eq!(array.bytes(Path::new("a")).unwrap(), [1, 0, 3, 0, 2, 0, 4, 0]);
        assert!(error(&good.replace("<i2", "|O"), &[]).contains("type |O"));
        assert!(error(&good.replace("(2, 1)", "(2, -1)"), &[]).contains("cannot be read"));
        assert!(error("{}", &[]).contains("header"));
        let whole = npy(good, &[1, 0, 2, 0]);
        assert!((0..whole.len()).all(|cut| parse("y", Store::Memory(whole[..cut].to_vec()), &mut budget()).is_err()));
    }
}
