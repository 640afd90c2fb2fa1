//! From an image file to what its record holds: the unchanged file, a smaller JPEG, or pixels.
//!
//! An EXIF orientation is not applied: pixels stay as they are stored.

use super::encode::JpegEncoder;
use super::jpeg::JpegDecoder;
use super::planes::{self, Planes};
use super::png::PngFile;
use super::resize::Resizer;
use super::rgb::{Rgb, Size};
use super::target::Target;
use super::{cmyk, file};
use crate::error::Error;
use crate::source::Sample;
use loaders::Format;
use turbojpeg::DecompressHeader;

/// One thread's decoder, resizer and encoder with their buffers, which keep their memory from image to image.
pub(crate) struct Recoder {
    target: Target,
    decoder: JpegDecoder,
    encoder: JpegEncoder,
    resizer: Resizer,
    /// The image of the file.
    full: Rgb,
    /// The same, resized.
    small: Rgb,
    planes: Planes,
}

impl Recoder {
    pub(crate) fn new(target: Target) -> Result<Self, Error> {
        let failed = |e: turbojpeg::Error| Error::Codec(e.to_string());
        Ok(Recoder {
            target,
            decoder: JpegDecoder::new().map_err(failed)?,
            encoder: JpegEncoder::new().map_err(failed)?,
            resizer: Resizer::new(),
            full: Rgb::default(),
            small: Rgb::default(),
            planes: Planes::new(),
        })
    }

    /// Turns the file in `sample` into what its record holds and fills in format and size. RAW stays as it is.
    /// Files count as RGB, grey ones too.
    ///
    /// # Errors
    /// A message about what is wrong with the file.
    pub(crate) fn recode(&mut self, sample: &mut Sample) -> Result<(), String> {
        if sample.format == Format::Raw && sample.height > 0 {
            return Ok(());
        }
        sample.format = file::format(&sample.encoded)?;
        sample.channels = 3;
        match sample.format {
            Format::Png => self.recode_png(sample),
            _ => self.recode_jpeg(sample),
        }
    }

    fn recode_jpeg(&mut self, sample: &mut Sample) -> Result<(), String> {
        let header = self.decoder.header(&sample.encoded)?;
        let stored = Size { height: header.height, width: header.width };
        let smaller = self.target.size(stored);
        let is_cmyk = cmyk::is_cmyk(&header);
        match smaller {
            None if self.target.keeps_jpeg() && !is_cmyk => {
                set_size(sample, stored);
                Ok(())
            }
            Some(size) if self.target.keeps_planes() && planes::suits(&header) => {
                self.shrink_planes(&header, size, sample)
            }
            _ => {
                self.decoder.decode(&sample.encoded, &header, smaller, &mut self.full)?;
                self.store(smaller, smaller.is_none() && is_cmyk, sample)
            }
        }
    }

    /// A smaller JPEG of a JPEG, resized in its planes.
    fn shrink_planes(&mut self, header: &DecompressHeader, size: Size, sample: &mut Sample) -> Result<(), String> {
        self.decoder.decode_planes(&sample.encoded, header, size, &mut self.planes)?;
        set_size(sample, size);
        let file = self.encoder.planes(self.planes.resize(size), self.target.quality(false))?;
        set_jpeg(sample, file);
        Ok(())
    }

    fn recode_png(&mut self, sample: &mut Sample) -> Result<(), String> {
        let file = PngFile::open(&sample.encoded)?;
        let smaller = self.target.size(file.size());
        if smaller.is_none() && self.target.keeps_png() {
            let stored = file.size();
            set_size(sample, stored);
            return Ok(());
        }
        file.decode(&mut self.full)?;
        self.store(smaller, smaller.is_none(), sample)
    }

    /// Puts the image in `full` into the sample, resized if a `smaller` size is wanted.
    fn store(&mut self, smaller: Option<Size>, repaired: bool, sample: &mut Sample) -> Result<(), String> {
        let image = match smaller {
            None => &mut self.full,
            Some(size) => {
                self.resizer.run(&self.full, size, &mut self.small)?;
                &mut self.small
            }
        };
        set_size(sample, image.size);
        if self.target.raw {
            sample.format = Format::Raw;
            std::mem::swap(&mut sample.encoded, &mut image.pixels);
            return Ok(());
        }
        let file = self.encoder.rgb(image, self.target.quality(repaired))?;
        set_jpeg(sample, file);
        Ok(())
    }

    /// RGB pixels of the image in a finished sample, as they will be trained on.
    ///
    /// # Errors
    /// A message about what is wrong with the file.
    pub(crate) fn pixels<'a>(&'a mut self, sample: &'a Sample) -> Result<&'a [u8], String> {
        match sample.format {
            Format::Raw => return Ok(&sample.encoded),
            Format::Png => PngFile::open(&sample.encoded)?.decode(&mut self.full)?,
            Format::Jpeg => {
                let header = self.decoder.header(&sample.encoded)?;
                self.decoder.decode(&sample.encoded, &header, None, &mut self.full)?;
            }
        }
        Ok(&self.full.pixels)
    }
}

/// Both sides are below `loaders`' limit of pixels, so they fit.
fn set_size(sample: &mut Sample, size: Size) {
    (sample.height, sample.width) = (size.height as u32, size.width as u32);
}

fn set_jpeg(sample: &mut Sample, file: &[u8]) {
    sample.format = Format::Jpeg;
    sample.encoded.clear();
    sample.encoded.extend_from_slice(file);
}
