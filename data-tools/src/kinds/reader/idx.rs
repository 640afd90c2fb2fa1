//! The IDX format of MNIST: big-endian header, then unsigned bytes. Only its two uses: images (3
//! axes) and labels (1 axis).

use crate::error::Error;
use crate::kinds::reader::input;
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
    pub pixels: Vec<u8>,
}

/// Reads an image file, plain or gzip.
pub(crate) fn read_images(path: &Path) -> Result<Images, Error> {
    let mut stream = input::open(path)?;
    let [count, height, width] = read_header::<3>(path, &mut stream, IMAGES, "images")?;
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
    let pixels = input::read_rest(path, &mut stream, bytes, &what)?;
    Ok(Images { count: u64::from(count), height, width, pixels })
}

/// Reads a label file, plain or gzip; every label must be below `classes`.
pub(crate) fn read_labels(path: &Path, classes: usize) -> Result<Vec<u8>, Error> {
    let mut stream = input::open(path)?;
    let [count] = read_header::<1>(path, &mut stream, LABELS, "labels")?;
    let what = format!("{count} labels");
    let labels = input::read_rest(path, &mut stream, u64::from(count), &what)?;
    match labels.iter().position(|&l| usize::from(l) >= classes) {
        None => Ok(labels),
        Some(at) => Err(Error::input(
            path,
            format!("label {} of sample {at} is out of range; expected 0 to {}", labels[at], classes - 1),
        )),
    }
}

/// Reads the magic number and `N` axis lengths.
fn read_header<const N: usize>(path: &Path, stream: &mut dyn Read, magic: u32, holds: &str) -> Result<[u32; N], Error> {
    let mut head = Vec::with_capacity(4 + 4 * N);
    stream.take(4 + 4 * N as u64).read_to_end(&mut head).map_err(|e| input::read_error(path, e))?;
    let word = |i: usize| {
        let bytes = head.get(4 * i..4 * i + 4)?;
        Some(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    };
    match word(0) {
        Some(got) if got != magic => {
            let hint = if got == IMAGES || got == LABELS {
                "images and labels are swapped"
            } else {
                "this is not such a file"
            };
            return Err(Error::input(
                path,
                format!("wrong magic number 0x{got:08x}; expected 0x{magic:08x}, IDX {holds}: {hint}"),
            ));
        }
        _ => {}
    }
    let mut axes = [0; N];
    for (i, axis) in axes.iter_mut().enumerate() {
        *axis = word(i + 1).ok_or_else(|| {
            Error::input(
                path,
                format!(
                    "cut short: an IDX header of {holds} takes {} bytes, {} are there; fetch it again",
                    4 + 4 * N,
                    head.len()
                ),
            )
        })?;
    }
    Ok(axes)
}
