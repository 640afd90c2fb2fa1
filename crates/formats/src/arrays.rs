//! Reads arrays from any HDF5 file, NetCDF-4 included, for `trireme data convert`.
//!
//! libhdf5 crashes on some malicious files, so this code runs in a separate process, `trireme read-arrays`, with
//! limited memory and time. It follows only hard links, and refuses values that are stored in other files.
//!
//! The process first writes a line of JSON that lists the arrays. Then it reads requests. Each line `ARRAY FIRST COUNT`
//! asks for `COUNT` entries of an array along its first axis, beginning with entry `FIRST`. The answer is the byte size
//! of the values as a 64-bit number, followed by the little-endian values. If the values cannot be read, the number is
//! [`FAILED`], followed by the size and text of a message.

use std::io::{self, BufRead, Write};
use std::path::Path;
use std::time::Duration;

use hdf5::types::{FloatSize, IntSize, TypeDescriptor};
use hdf5::{Dataset, Group, H5Type, Hyperslab, SliceOrIndex};
use hdf5_metno as hdf5;
use ndarray::IxDyn;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use crate::checkpoint::foreign::{is_inside, links};

/// The size that marks an answer as an error.
pub const FAILED: u64 = u64::MAX;
/// Maximum nesting of groups. Hard links can form a cycle.
const MAX_DEPTH: usize = 8;
/// Maximum number of arrays.
const MAX_ARRAYS: usize = 10_000;
/// Maximum length of all array names together.
const MAX_NAMES: usize = 1 << 20;
/// CPU time to answer one request.
const REQUEST_SECONDS: u64 = 120;
/// Memory for decompressed chunks in bytes. It lets a chunk be decompressed only once even if its entries are read one
/// by one.
const CHUNK_CACHE: usize = 64 << 20;

/// Answers requests from `input` about the file at `path` until the input ends, as it does when the parent dies.
///
/// # Errors
///
/// Returns an error if `output` or `input` fails. A file that cannot be opened is reported in the first line.
pub fn serve(path: &Path, input: impl BufRead, mut output: impl Write) -> io::Result<()> {
    limit_time()?;
    let opened = hdf5::File::with_options().with_fapl(|access| access.chunk_cache(521, CHUNK_CACHE, 1.0)).open(path);
    let arrays = opened.and_then(|file| {
        let mut found = Found::default();
        found.add(&file, "", 0)?;
        Ok(found.arrays)
    });
    let arrays = match arrays {
        Ok(arrays) => arrays,
        Err(error) => return writeln!(output, "{}", json!({"error": error.to_string()})),
    };
    let described: Vec<Value> = arrays.iter().map(|(name, array)| describe(name, array)).collect();
    writeln!(output, "{}", json!({"arrays": described}))?;
    output.flush()?;
    for line in input.lines() {
        let numbers: Vec<usize> = line?.split(' ').filter_map(|number| number.parse().ok()).collect();
        limit_time()?;
        let bytes = match numbers[..] {
            [array, first, count] => arrays.get(array).map(|(_, array)| read(array, first, count)),
            _ => None,
        };
        match bytes {
            Some(Ok(bytes)) => {
                output.write_all(&(bytes.len() as u64).to_le_bytes())?;
                output.write_all(&bytes)?;
            }
            failed => {
                let what = failed.map_or("an unknown request".into(), |failed| failed.err().unwrap_or_default());
                output.write_all(&FAILED.to_le_bytes())?;
                output.write_all(&(what.len() as u64).to_le_bytes())?;
                output.write_all(what.as_bytes())?;
            }
        }
        output.flush()?;
    }
    Ok(())
}

/// Raises this process's CPU time limit to allow one more request.
fn limit_time() -> io::Result<()> {
    let used = clock_gettime(ClockId::ProcessCPUTime).tv_sec.max(0) as u64;
    let Rlimit { maximum, .. } = getrlimit(Resource::Cpu);
    let current = Duration::from_secs(used + REQUEST_SECONDS).as_secs();
    let current = Some(maximum.map_or(current, |maximum| maximum.min(current)));
    Ok(setrlimit(Resource::Cpu, Rlimit { current, maximum })?)
}

/// A file's arrays with their names.
#[derive(Default)]
struct Found {
    arrays: Vec<(String, Dataset)>,
    /// Length of all names together.
    names: usize,
}

impl Found {
    /// Adds the arrays in a group and in the groups below it.
    fn add(&mut self, group: &Group, path: &str, depth: usize) -> hdf5::Result<()> {
        for name in links(group)? {
            let full = format!("{path}{name}");
            if let Ok(array) = group.dataset(&name) {
                if is_inside(&array).unwrap_or(false) {
                    self.names += full.len();
                    self.arrays.push((full, array));
                }
            } else if let Ok(inner) = group.group(&name)
                && depth < MAX_DEPTH
            {
                self.add(&inner, &format!("{full}/"), depth + 1)?;
            }
            if self.arrays.len() > MAX_ARRAYS || self.names > MAX_NAMES {
                let what = format!(
                    "the file has more than {MAX_ARRAYS} arrays, or their names have more than {MAX_NAMES} bytes in total"
                );
                return Err(what.into());
            }
        }
        Ok(())
    }
}

/// Describes an array, including its compressed chunks: how many entries a chunk spans, and how many values must be
/// decompressed to read them. Chunks without filters are described like no chunks, because they can be read in part.
fn describe(name: &str, array: &Dataset) -> Value {
    let shape = array.shape();
    let chunk = array.chunk().filter(|chunk| !array.filters().is_empty() && chunk.len() == shape.len());
    let (rows, values, group) = chunk.filter(|chunk| !chunk.is_empty()).map_or((1, 0, 0), |chunk| {
        // An entry along the first axis needs all chunks across the other axes. These sizes are rounded up to whole
        // chunks.
        let needed = |(&length, &side): (&usize, &usize)| length.div_ceil(side.max(1)).saturating_mul(side);
        let across = shape.iter().zip(&chunk).skip(1).map(needed);
        (chunk[0], product(chunk.iter().copied()), product(across).saturating_mul(chunk[0]))
    });
    let descr = numpy_type(array);
    json!({"name": name, "shape": shape, "descr": descr, "chunk_rows": rows, "chunk_values": values, "group_values": group})
}

fn product(numbers: impl Iterator<Item = usize>) -> usize {
    numbers.fold(1, usize::saturating_mul)
}

/// Returns NumPy's name of the values' type in little-endian order, such as `<f4`. For a type without such a name,
/// returns HDF5's description.
fn numpy_type(array: &Dataset) -> String {
    let descriptor = array.dtype().and_then(|dtype| dtype.to_descriptor());
    match descriptor {
        Ok(TypeDescriptor::Unsigned(IntSize::U1)) => "|u1".into(),
        Ok(TypeDescriptor::Integer(IntSize::U1)) => "|i1".into(),
        Ok(TypeDescriptor::Boolean) => "|b1".into(),
        Ok(TypeDescriptor::Unsigned(size)) => format!("<u{}", size as usize),
        Ok(TypeDescriptor::Integer(size)) => format!("<i{}", size as usize),
        Ok(TypeDescriptor::Float(size)) => format!("<f{}", size as usize),
        Ok(other) => other.to_string(),
        Err(error) => format!("of an unknown kind ({error})"),
    }
}

/// Returns `count` entries along the first axis as little-endian bytes.
fn read(array: &Dataset, first: usize, count: usize) -> Result<Vec<u8>, String> {
    let descriptor = array.dtype().and_then(|dtype| dtype.to_descriptor()).map_err(|e| e.to_string())?;
    match descriptor {
        TypeDescriptor::Unsigned(IntSize::U1) => entries(array, first, count, u8::to_le_bytes),
        TypeDescriptor::Unsigned(IntSize::U2) => entries(array, first, count, u16::to_le_bytes),
        TypeDescriptor::Unsigned(IntSize::U4) => entries(array, first, count, u32::to_le_bytes),
        TypeDescriptor::Unsigned(IntSize::U8) => entries(array, first, count, u64::to_le_bytes),
        TypeDescriptor::Integer(IntSize::U1) => entries(array, first, count, i8::to_le_bytes),
        TypeDescriptor::Integer(IntSize::U2) => entries(array, first, count, i16::to_le_bytes),
        TypeDescriptor::Integer(IntSize::U4) => entries(array, first, count, i32::to_le_bytes),
        TypeDescriptor::Integer(IntSize::U8) => entries(array, first, count, i64::to_le_bytes),
        TypeDescriptor::Float(FloatSize::U4) => entries(array, first, count, f32::to_le_bytes),
        TypeDescriptor::Float(FloatSize::U8) => entries(array, first, count, f64::to_le_bytes),
        // Read as bytes, because the file may have other values than 0 and 1, which are not valid for `bool`.
        TypeDescriptor::Boolean => entries(array, first, count, u8::to_le_bytes),
        other => Err(format!("values of the type {other} are not supported")),
    }
}

fn entries<T: H5Type + Copy, const N: usize>(
    array: &Dataset,
    first: usize,
    count: usize,
    bytes: impl Fn(T) -> [u8; N],
) -> Result<Vec<u8>, String> {
    let slices = array.shape().into_iter().enumerate().map(|(axis, length)| match axis {
        0 => SliceOrIndex::SliceCount { start: first, step: 1, count, block: 1 },
        _ => SliceOrIndex::SliceCount { start: 0, step: 1, count: length, block: 1 },
    });
    let slab = Hyperslab::from(slices.collect::<Vec<_>>());
    let values = array.read_slice::<T, _, IxDyn>(slab).map_err(|e| e.to_string())?;
    Ok(values.into_iter().flat_map(bytes).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::temporary::Temporary;

    /// h5py stores Python's floats as float64.
    #[test]
    fn floats_of_both_sizes_are_read() {
        let Temporary(path) = &Temporary::new("arrays.h5");
        let numbers = [0.5f64, -1.25, 3.0, 1e-3];
        let file = hdf5::File::create(path).unwrap();
        file.new_dataset::<f64>().shape(4).create("wide").unwrap().write_raw(&numbers).unwrap();
        file.new_dataset::<f32>().shape(4).create("narrow").unwrap().write_raw(&numbers.map(|n| n as f32)).unwrap();
        let [wide, narrow] = ["wide", "narrow"].map(|name| file.dataset(name).unwrap());
        assert_eq!([&wide, &narrow].map(numpy_type), ["<f8", "<f4"]);
        let expected: Vec<u8> = numbers[1..3].iter().flat_map(|number| number.to_le_bytes()).collect();
        assert_eq!(read(&wide, 1, 2), Ok(expected));
        let expected: Vec<u8> = numbers[1..3].iter().flat_map(|&number| (number as f32).to_le_bytes()).collect();
        assert_eq!(read(&narrow, 1, 2), Ok(expected));
    }
}
