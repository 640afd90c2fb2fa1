//! Picture files that we write: PNG or JPEG, as their names say. Contact sheets have a mark, by which they are told from photos.

use std::io::Cursor;
use std::path::Path;

use flate2::Crc;
use image::{DynamicImage, ImageFormat};
use loaders::overwrite::{self, Content};
use loaders::replace;

use crate::error::Error;

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
