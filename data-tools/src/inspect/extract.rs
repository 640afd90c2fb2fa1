//! Writes one image from a data set to a PNG, JPEG or `.npy` file, depending on the extension. Also writes contact
//! sheets.

use std::fmt;
use std::path::{Path, PathBuf};

use flate2::Crc;
use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::PngEncoder;
use image::{DynamicImage, GrayImage, ImageFormat, RgbImage};
use loaders::overwrite::{self, Content};
use loaders::{Dataset, Format, ImageSpec, decode, replace};
use serde_json::json;

use crate::error::Error;
use crate::image::false_colours::{FalseColours, is_photo};
use crate::raw::values::Values;
use crate::{npy, text};

/// What [`extract`] has written.
#[derive(Debug, Clone)]
pub struct ExtractSummary {
    pub path: PathBuf,
    pub split: String,
    /// Index of the image in the split.
    pub sample: u64,
    /// The name of its class, or all names if it has multiple classes.
    pub class: String,
    /// Shape of the image, upright.
    pub spec: ImageSpec,
    /// True if the file contains exactly the bytes of the record.
    pub as_stored: bool,
}

/// Writes image `sample` of a split of the data set in `dir` to `out`. If the record has the format of the file name,
/// its bytes are copied. Otherwise the image is decoded and encoded. A `.npy` file has the exact values (H, W, C).
/// Images that are not grey or RGB get false colours, as [`show`](super::show()) draws them.
///
/// # Errors
///
/// Returns an error if the split or image does not exist, or the record is damaged or cannot be decoded. Also returns an
/// error if the output file exists, cannot be written or does not end in `.png`, `.jpg`, `.jpeg` or `.npy`.
pub fn extract(dir: &Path, split: &str, sample: u64, out: &Path) -> Result<ExtractSummary, Error> {
    let is_npy = out.extension().is_some_and(|ending| ending == "npy");
    let format = if is_npy { None } else { Some(format_of(out)?) };
    if out.exists() {
        return Err(Error::Usage(format!(
            "{}: the file exists already; remove it or choose another name",
            out.display()
        )));
    }
    let dataset = Dataset::open(dir)?;
    let name = split_or_default(&dataset, split);
    let split = dataset.split(&name)?;
    if sample >= split.len() {
        let (dir, last) = (dir.display(), split.len().saturating_sub(1));
        return Err(Error::Usage(format!("{dir}, split `{name}`: no image {sample}; expected 0 to {last}")));
    }
    let mut copy = Vec::new();
    let (example, _) = split.record(sample, &mut copy)?;
    let failed = |fault| Error::Loaders(split.fault(sample, fault));
    let spec = decode::spec(&example).map_err(failed)?;
    let class = split.class_text(&example).map_err(failed)?;
    let as_stored = matches!(
        (example.format, format),
        (Format::Png, Some(ImageFormat::Png)) | (Format::Jpeg, Some(ImageFormat::Jpeg))
    );
    let mut pixels = Vec::new();
    match format {
        _ if as_stored => replace::replace(out, example.encoded)?,
        None => {
            let values = match is_photo(&example) {
                true => decode::decode(&example, spec, &mut pixels).map_err(failed)?,
                false => example.encoded,
            };
            replace::replace(out, &npy::image_file(example.dtype, spec, values))?;
        }
        Some(format) => {
            let picture = match is_photo(&example) {
                true => picture(decode::decode(&example, spec, &mut pixels).map_err(failed)?, spec),
                false => {
                    let colours = FalseColours::new(&dataset.manifest.bands, &[]).map_err(Error::Usage)?;
                    let (bytes, channels) = colours.picture(Values::of(&example), example.encoded);
                    picture(&bytes, ImageSpec { channels: channels as u32, ..spec })
                }
            };
            let why =
                || format!("image {sample} has the shape {spec}; only images with 1 or 3 channels can be written");
            write(out, &picture.ok_or_else(|| Error::input(out, why()))?, format)?;
        }
    }
    Ok(ExtractSummary { path: out.to_path_buf(), split: name, sample, class, spec, as_stored })
}

/// Returns `name`. If it is empty, returns the only split of the data set, or `train`.
pub(super) fn split_or_default(dataset: &Dataset, name: &str) -> String {
    if !name.is_empty() {
        return name.into();
    }
    let splits = &dataset.manifest.splits;
    let only = splits.keys().next().filter(|_| splits.len() == 1);
    only.cloned().unwrap_or_else(|| "train".into())
}

/// Converts pixels to an image. Grey pixels stay grey. Returns `None` if the image has neither 1 nor 3 channels.
pub(super) fn picture(bytes: &[u8], spec: ImageSpec) -> Option<DynamicImage> {
    let (width, height, bytes) = (spec.width, spec.height, bytes.to_vec());
    match spec.channels {
        1 => GrayImage::from_raw(width, height, bytes).map(DynamicImage::ImageLuma8),
        3 => RgbImage::from_raw(width, height, bytes).map(DynamicImage::ImageRgb8),
        _ => None,
    }
}

impl ExtractSummary {
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

impl fmt::Display for ExtractSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, class) = (text::path(&self.path), base::text::printable(&self.class));
        write!(
            f,
            "{path}: image {} of {}, {class}, {} x {} pixels",
            self.sample, self.split, self.spec.width, self.spec.height
        )?;
        if self.as_stored { write!(f, ", as stored") } else { Ok(()) }
    }
}

/// Text in a contact sheet's metadata that identifies it.
const MARK: &[u8] = b"contact sheet of trireme";
/// Number of bytes from the start of a PNG to the end of its first chunk.
const PNG_HEAD: usize = 33;

/// Recognises a contact sheet. Writing a sheet never overwrites any other picture.
pub const SHEET: Content = Content {
    name: "a contact sheet that trireme wrote",
    begins: |head| head.windows(MARK.len()).any(|part| part == MARK),
};

/// Returns the image format for the ending of a file name. Returns an error if the format is neither PNG nor JPEG.
pub(super) fn format_of(path: &Path) -> Result<ImageFormat, Error> {
    match ImageFormat::from_path(path) {
        Ok(format @ (ImageFormat::Png | ImageFormat::Jpeg)) => Ok(format),
        _ => {
            Err(Error::Usage(format!("{}: pictures are written as PNG or JPEG; name it .png or .jpg", path.display())))
        }
    }
}

pub(super) fn write(path: &Path, picture: &DynamicImage, format: ImageFormat) -> Result<(), Error> {
    Ok(replace::replace(path, &encode(path, picture, format)?)?)
}

/// Returns an error if no file can be written to `path`, or if it holds a file that is not a contact sheet.
pub(super) fn check_sheet(path: &Path) -> Result<(), Error> {
    overwrite::check(path, &SHEET, &[]).map_err(Error::Usage)
}

/// Encodes a contact sheet with its mark and replaces the file atomically.
pub(super) fn write_sheet(path: &Path, picture: &DynamicImage, format: ImageFormat) -> Result<(), Error> {
    Ok(replace::replace(path, &insert_mark(&encode(path, picture, format)?, format))?)
}

/// Encodes a picture as JPEG or PNG. `DynamicImage::write_to` would do the same, but it compiles the encoders of all formats.
fn encode(path: &Path, picture: &DynamicImage, format: ImageFormat) -> Result<Vec<u8>, Error> {
    let mut file = Vec::new();
    let written = match format {
        ImageFormat::Jpeg => picture.write_with_encoder(JpegEncoder::new(&mut file)),
        _ => picture.write_with_encoder(PngEncoder::new(&mut file)),
    };
    let name = format.extensions_str().first().copied().unwrap_or_default();
    written.map_err(|e| Error::input(path, format!("cannot be encoded as {name}: {e}")))?;
    Ok(file)
}

/// Inserts the mark: a text chunk after the first chunk of a PNG, or a comment after the first segment of a JPEG.
fn insert_mark(file: &[u8], format: ImageFormat) -> Vec<u8> {
    let (at, mark) = match (format, file) {
        (ImageFormat::Png, _) => (PNG_HEAD, text_chunk()),
        // SOI is followed by the JFIF segment. Its length includes the length field.
        (_, [_, _, 0xff, 0xe0, high, low, ..]) => (4 + usize::from(u16::from_be_bytes([*high, *low])), comment()),
        _ => (2, comment()),
    };
    let (head, rest) = file.split_at(at.min(file.len()));
    [head, &mark, rest].concat()
}

/// Builds a PNG chunk: length, type, keyword and text, and a CRC of everything after the length.
fn text_chunk() -> Vec<u8> {
    let content = [&b"tEXtSoftware\0"[..], MARK].concat();
    let mut crc = Crc::new();
    crc.update(&content);
    let length = (content.len() - b"tEXt".len()) as u32;
    [&length.to_be_bytes()[..], &content, &crc.sum().to_be_bytes()].concat()
}

/// Builds a JPEG comment: marker, length (including the length field), text.
fn comment() -> Vec<u8> {
    let length = (2 + MARK.len()) as u16;
    [&[0xff, 0xfe][..], &length.to_be_bytes(), MARK].concat()
}
