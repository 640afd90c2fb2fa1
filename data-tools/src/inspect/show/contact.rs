//! A contact sheet of picture files or of records, with words of the caller below them.

use super::picture;
use super::sheet::{self, Cell};
use super::viewer::{MOST, Viewer, WISHED};
use super::{MOST_CELLS, columns};
use crate::error::Error;
use crate::inspect::picture_file;
use image::{DynamicImage, ImageFormat};
use loaders::decode::Decoder;
use loaders::{ImageSpec, Limits, Split, regular};
use std::path::{Path, PathBuf};

/// A contact sheet under construction.
pub struct ContactSheet {
    out: PathBuf,
    format: ImageFormat,
    cells: Vec<Cell>,
    limits: Limits,
}

impl ContactSheet {
    /// A sheet of so many pictures, each of which may cost what `limits` allow, to be written to `out`, a PNG or, by its ending, a JPEG
    /// file.
    ///
    /// # Errors
    /// For another ending, and for more pictures than a sheet takes.
    pub fn new(out: &Path, pictures: usize, limits: Limits) -> Result<Self, Error> {
        let format = picture_file::format_of(out)?;
        match pictures as u64 > MOST_CELLS {
            true => Err(Error::Usage(format!("a sheet takes up to {MOST_CELLS} pictures, got {pictures}; give fewer"))),
            false => Ok(Self { out: out.to_path_buf(), format, cells: Vec::new(), limits }),
        }
    }

    /// Whether it has no picture.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// Adds a PNG or JPEG file with words below it.
    ///
    /// # Errors
    /// For a file that cannot be read or decoded.
    pub fn add(&mut self, path: &Path, words: &str) -> Result<(), Error> {
        let refuse = |what: String| Error::input(path, what);
        let file = regular::read(path).map_err(|error| refuse(error.to_string()))?;
        let mut decoder = Decoder::new(self.limits);
        let stored = decoder.open_file(&file).map_err(|fault| refuse(fault.to_string()))?;
        let spec = stored.spec();
        let mut pixels = Vec::new();
        decoder.reduced(stored, &file, 1, spec.channels, &mut pixels).map_err(|fault| refuse(fault.to_string()))?;
        let ImageSpec { height, width, channels } = spec;
        pixels.truncate(ImageSpec::new(height, width, channels).values());
        let picture = picture::of_bytes(&pixels, spec).ok_or_else(|| refuse(format!("fewer pixels than {spec}")))?;
        self.cells.push(Cell { picture: picture::fit(picture, WISHED, MOST), words: words.into() });
        Ok(())
    }

    /// Adds the image of a record as it is stored, with two lines below it.
    ///
    /// # Errors
    /// For a record that cannot be read or decoded, and images of neither 1 nor 3 channels.
    pub fn add_record(&mut self, split: &Split, id: u64, lines: &[String; 2]) -> Result<(), Error> {
        let picture = Viewer::stored(split).picture_of(id, 0)?;
        self.cells.push(Cell { picture: picture::fit(picture, WISHED, MOST), words: lines.join("\n") });
        Ok(())
    }

    /// Writes it, whole or not at all.
    ///
    /// # Errors
    /// For a file that cannot be written.
    pub fn write(&self) -> Result<(), Error> {
        let sheet = sheet::lay_out(&self.cells, columns(self.cells.len().max(1), 1));
        picture_file::write_sheet(&self.out, &DynamicImage::ImageRgb8(sheet), self.format)
    }
}
