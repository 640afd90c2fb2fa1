//! Picture files that we write: PNG or JPEG, as their names say.

use std::io::Cursor;
use std::path::Path;

use image::{DynamicImage, ImageFormat};
use loaders::replace;

use crate::error::Error;

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
    let mut file = Cursor::new(Vec::new());
    let written = picture.write_to(&mut file, format);
    written.map_err(|e| Error::input(path, format!("cannot be made a {format:?}: {e}")))?;
    Ok(replace::replace(path, file.get_ref())?)
}
