//! One image of a data set as a picture file. Picture files are PNG or JPEG, as their names say.

use std::fmt;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use flate2::Crc;
use image::{DynamicImage, GrayImage, ImageFormat, RgbImage};
use loaders::overwrite::{self, Content};
use loaders::{Dataset, Example, Format, ImageSpec, decode, replace};
use serde_json::json;

use crate::error::Error;
use crate::{progress, text};

/// A picture that was written.
#[derive(Debug, Clone)]
pub struct Extracted {
    /// The file.
    pub path: PathBuf,
    /// The split, and the number of the image in it.
    pub split: String,
    /// See `split`.
    pub sample: u64,
    /// The name of its class; of several their names.
    pub class: String,
    /// Its size as stored.
    pub spec: ImageSpec,
    /// Whether the file has the very bytes of the record.
    pub as_stored: bool,
}

/// Writes image `sample` of a split of the data set in `dir` to `out`: the record's own bytes where they are of the format that the
/// file's name says, else the decoded pixels.
///
/// # Errors
/// No such split or image; a record that is damaged or cannot be decoded; an image of neither 1 nor 3 channels; a file that is
/// there already, cannot be written or is named neither .png nor .jpg.
pub fn extract(dir: &Path, split: &str, sample: u64, out: &Path) -> Result<Extracted, Error> {
    let _watch = progress::watch()?;
    let format = format_of(out)?;
    if out.exists() {
        return Err(Error::Usage(format!("{}: is there already; remove it, or choose another name", out.display())));
    }
    let dataset = Dataset::open(dir)?;
    let name = split_or_default(&dataset, split);
    let split = dataset.split(&name)?;
    if sample >= split.len() {
        let (dir, last) = (dir.display(), split.len().saturating_sub(1));
        return Err(Error::Usage(format!("{dir}, split `{name}`: no image {sample}; they are 0 to {last}")));
    }
    let mut copy = Vec::new();
    let (example, _) = split.record(sample, &mut copy)?;
    let failed = |fault| Error::Loaders(split.fault(sample, fault));
    let spec = decode::spec(&example).map_err(failed)?;
    let as_stored = same_format(&example, format);
    if as_stored {
        replace::replace(out, example.encoded)?;
    } else {
        let mut pixels = Vec::new();
        let bytes = decode::decode(&example, spec, &mut pixels).map_err(failed)?;
        let picture = picture(bytes, spec);
        let why = || Error::input(out, format!("image {sample} is of {spec}; only 1 or 3 channels make a picture"));
        write(out, &picture.ok_or_else(why)?, format)?;
    }
    let class = split.class_text(&example).map_err(failed)?;
    Ok(Extracted { path: out.to_path_buf(), split: name, sample, class, spec, as_stored })
}

/// The split of this name; without a name `train`, or the only one.
pub(super) fn split_or_default(dataset: &Dataset, name: &str) -> String {
    if !name.is_empty() {
        return name.into();
    }
    let splits = &dataset.manifest.splits;
    let only = splits.keys().next().filter(|_| splits.len() == 1);
    only.cloned().unwrap_or_else(|| "train".into())
}

fn same_format(example: &Example<'_>, format: ImageFormat) -> bool {
    matches!((example.format, format), (Format::Png, ImageFormat::Png) | (Format::Jpeg, ImageFormat::Jpeg))
}

/// Grey pixels stay grey.
fn picture(bytes: &[u8], spec: ImageSpec) -> Option<DynamicImage> {
    let (width, height, bytes) = (spec.width, spec.height, bytes.to_vec());
    match spec.channels {
        1 => GrayImage::from_raw(width, height, bytes).map(DynamicImage::ImageLuma8),
        3 => RgbImage::from_raw(width, height, bytes).map(DynamicImage::ImageRgb8),
        _ => None,
    }
}

impl Extracted {
    /// The result for scripts.
    pub fn to_json(&self) -> serde_json::Value {
        json!({
            "path": self.path.display().to_string(),
            "split": self.split,
            "sample": self.sample,
            "class": self.class,
            "width": self.spec.width,
            "height": self.spec.height,
            "as_stored": self.as_stored,
        })
    }
}

impl fmt::Display for Extracted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, class) = (text::path(&self.path), loaders::printable(&self.class));
        write!(
            f,
            "{path}: image {} of {}, {class}, {} x {} pixels",
            self.sample, self.split, self.spec.width, self.spec.height
        )?;
        if self.as_stored { write!(f, ", as stored") } else { Ok(()) }
    }
}

/// What a sheet says beside its pixels.
const MARK: &[u8] = b"contact sheet of trireme";
/// Bytes of a PNG up to the end of its first chunk.
const PNG_HEAD: usize = 33;

/// A contact sheet: no other picture is written over by one.
pub const SHEET: Content =
    Content { name: "a sheet that trireme drew", begins: |head| head.windows(MARK.len()).any(|part| part == MARK) };

/// What the ending of a file's name stands for.
///
/// # Errors
/// An ending of neither a PNG nor a JPEG.
pub(super) fn format_of(path: &Path) -> Result<ImageFormat, Error> {
    match ImageFormat::from_path(path) {
        Ok(format @ (ImageFormat::Png | ImageFormat::Jpeg)) => Ok(format),
        _ => {
            Err(Error::Usage(format!("{}: pictures are written as PNG or JPEG; name it .png or .jpg", path.display())))
        }
    }
}

/// Writes the picture, whole or not at all.
pub(super) fn write(path: &Path, picture: &DynamicImage, format: ImageFormat) -> Result<(), Error> {
    Ok(replace::replace(path, &encoded(path, picture, format)?)?)
}

/// Refuses a name that a sheet cannot have: where nothing can be written, and where a file that is no sheet would be lost.
pub(super) fn check_sheet(path: &Path) -> Result<(), Error> {
    overwrite::check(path, &SHEET, &[]).map_err(Error::Usage)
}

/// Writes a contact sheet with its mark, whole or not at all.
pub(super) fn write_sheet(path: &Path, picture: &DynamicImage, format: ImageFormat) -> Result<(), Error> {
    Ok(replace::replace(path, &marked(&encoded(path, picture, format)?, format))?)
}

fn encoded(path: &Path, picture: &DynamicImage, format: ImageFormat) -> Result<Vec<u8>, Error> {
    let mut file = Cursor::new(Vec::new());
    let written = picture.write_to(&mut file, format);
    written.map_err(|e| Error::input(path, format!("cannot be made a {format:?}: {e}")))?;
    Ok(file.into_inner())
}

/// The file with the mark behind its head: in PNG a text chunk after the first chunk, in JPEG a comment after the first segment.
fn marked(file: &[u8], format: ImageFormat) -> Vec<u8> {
    let (at, mark) = match (format, file) {
        (ImageFormat::Png, _) => (PNG_HEAD, text_chunk()),
        // SOI, and the segment of JFIF, whose length counts itself
        (_, [_, _, 0xff, 0xe0, high, low, ..]) => (4 + usize::from(u16::from_be_bytes([*high, *low])), comment()),
        _ => (2, comment()),
    };
    let (head, rest) = file.split_at(at.min(file.len()));
    [head, &mark, rest].concat()
}

/// Length, type, keyword and text, CRC of all but the length.
fn text_chunk() -> Vec<u8> {
    let content = [&b"tEXtSoftware\0"[..], MARK].concat();
    let mut crc = Crc::new();
    crc.update(&content);
    let length = (content.len() - b"tEXt".len()) as u32;
    [&length.to_be_bytes()[..], &content, &crc.sum().to_be_bytes()].concat()
}

/// Marker, length of all that follows it, text.
fn comment() -> Vec<u8> {
    let length = (2 + MARK.len()) as u16;
    [&[0xff, 0xfe][..], &length.to_be_bytes(), MARK].concat()
}
