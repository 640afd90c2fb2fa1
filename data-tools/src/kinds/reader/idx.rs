//! The IDX format of MNIST: big-endian header, then unsigned bytes. Only its two uses are read: images (3 axes) and labels
//! (1 axis).

use super::budget::Budget;
use super::input;
use super::store::Store;
use crate::error::Error;
use std::io::Read;
use std::path::Path;

/// Magic number of unsigned bytes in three axes: images.
const IMAGES: u32 = 0x0000_0803;
/// Magic number of unsigned bytes in one axis: labels.
const LABELS: u32 = 0x0000_0801;

/// All images of one IDX file, one after another, row by row.
#[derive(Debug)]
pub(crate) struct Images {
    /// Number of images.
    pub count: u64,
    /// Rows of each.
    pub height: u32,
    /// Columns of each.
    pub width: u32,
    /// `count * height * width` grey values.
    pub pixels: Store,
}

/// Reads an image file; the pixels of a plain one stay in it, those of a gzip are unpacked.
pub(crate) fn read_images(path: &Path, budget: &mut Budget) -> Result<Images, Error> {
    let mut stream = input::open(path, budget)?;
    let [count, height, width] = read_header::<3>(path, &mut stream, IMAGES, "images", budget)?;
    if height == 0 || width == 0 {
        return Err(Error::input(
            path,
            format!("its header says images of {height} x {width} pixels; expected at least 1 x 1"),
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

/// Reads a label file, plain or gzip; every label must be below `classes`.
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

/// Reads the magic number and `N` axis lengths.
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
            format!("cut short: an IDX header of {holds} takes {expected} bytes, {got} are there; fetch it again");
        Error::input(path, what)
    })
}

fn wrong_magic(path: &Path, got: u32, expected: u32, holds: &str) -> Error {
    let swapped = got == IMAGES || got == LABELS;
    let hint = if swapped { "images and labels are swapped" } else { "this is not such a file" };
    Error::input(path, format!("wrong magic number 0x{got:08x}; expected 0x{expected:08x}, IDX {holds}: {hint}"))
}
