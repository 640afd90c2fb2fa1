//! From an image file to what its record holds: the unchanged file, a smaller JPEG, or pixels. Files are decoded by `loaders`' decoder,
//! so that what is converted can be trained on, and the other way round; files of formats that it does not have become PNGs or JPEGs.
//!
//! A file that stays keeps its EXIF orientation, and boxes in its image stay, too: whoever reads it turns both. Where pixels are
//! decoded the orientation is applied to them and to the boxes.

use super::encode::{self, JpegEncoder, Target};
use super::foreign::Foreign;
use super::pixels::{Planes, Resizer, Rgb, Size};
use crate::error::Error;
use crate::source::Sample;
use loaders::decode::{Decoder, Stored, Turn, entry_points};
use loaders::example::BoundingBox;
use loaders::{Cost, Fault, Format, ImageSpec, Limits, guarded_with};
use turbojpeg::Subsamp;

/// A scaled decode must leave at least this many times the pixels wanted on each side.
const HEADROOM: usize = 2;
/// Copies of RAW pixels on their way into a shard: the image, its record, and the chunk of records, which grows by doubling.
const COPIES: u64 = 4;

/// One thread's decoder, resizer and encoder with their buffers, which keep their memory from image to image.
pub(crate) struct Recoder {
    target: Target,
    limits: Limits,
    decoder: Decoder,
    encoder: JpegEncoder,
    resizer: Resizer,
    /// The image of the file.
    full: Rgb,
    /// The same, resized.
    small: Rgb,
    planes: Planes,
    /// A PNG that was made.
    png: Vec<u8>,
}

/// An image file whose header has been read.
struct File<'a> {
    bytes: &'a [u8],
    stored: Stored<'a>,
    size: Size,
    is_grey: bool,
}

/// What a record holds in place of the file.
enum Made<'a> {
    /// The file itself.
    Unchanged,
    /// Another file.
    File(&'a [u8]),
    /// The pixels in the recoder's image, resized or not.
    Raw { resized: bool },
}

impl Recoder {
    pub(crate) fn new(target: Target, limits: Limits) -> Result<Self, Error> {
        let failed = |e: turbojpeg::Error| Error::Codec(e.to_string());
        Ok(Recoder {
            target,
            limits,
            decoder: Decoder::new(limits),
            encoder: JpegEncoder::new().map_err(failed)?,
            resizer: Resizer::new(),
            full: Rgb::default(),
            small: Rgb::default(),
            planes: Planes::new(),
            png: Vec::new(),
        })
    }

    /// Turns the file in `sample` into what its record holds and fills in format, size and, if they are wanted, entry points. RAW stays
    /// as it is. Files count as RGB, grey ones too.
    ///
    /// # Errors
    /// A message about what is wrong with the file.
    pub(crate) fn recode(&mut self, sample: &mut Sample) -> Result<(), String> {
        let remade = || {
            sample.entry_points.clear();
            self.remake(sample)?;
            if self.target.entry_points && sample.format == Format::Jpeg {
                sample.entry_points = entry_points(&sample.encoded).unwrap_or_default();
            }
            Ok(())
        };
        guarded_with(remade, |panic| format!("a decoder failed at it ({panic}); save it anew as PNG or JPEG"))
    }

    /// Turns the file in `sample` into what its record holds.
    fn remake(&mut self, sample: &mut Sample) -> Result<(), String> {
        if sample.format == Format::Raw && sample.height > 0 {
            return Ok(());
        }
        let bytes = std::mem::take(&mut sample.encoded);
        let made = self.make(&bytes, sample);
        let (made, file) = match made {
            Ok(Made::Raw { resized }) => {
                let image = if resized { &mut self.small } else { &mut self.full };
                std::mem::swap(&mut sample.encoded, &mut image.pixels);
                return Ok(());
            }
            Ok(Made::File(file)) => (Ok(()), Some(file)),
            Ok(Made::Unchanged) => (Ok(()), None),
            Err(problem) => (Err(problem), None),
        };
        sample.encoded = bytes;
        if let Some(file) = file {
            sample.encoded.clear();
            sample.encoded.extend_from_slice(file);
        }
        made
    }

    /// Makes what the record of a file holds, and fills in its format and size.
    fn make(&mut self, bytes: &[u8], sample: &mut Sample) -> Result<Made<'_>, String> {
        if let Some(foreign) = Foreign::of(bytes) {
            return self.make_foreign(foreign, bytes, sample);
        }
        let stored = self.decoder.open_file(bytes).map_err(text)?;
        let (spec, kept, format) = (stored.spec(), stored.file_spec(), stored.format());
        (sample.format, sample.channels) = (format, 3);
        let size = Size { height: spec.height as usize, width: spec.width as usize };
        let file = File { bytes, stored, size, is_grey: spec.channels == 1 };
        let smaller = self.target.size(size);
        set_size(sample, smaller.unwrap_or(size));
        self.check_raw(sample, bytes.len())?;
        let (has_inks, planes) = (file.stored.has_inks(), file.stored.planes());
        let keeps = match format {
            Format::Png => self.target.keeps_png(),
            _ => self.target.keeps_jpeg() && !has_inks,
        };
        match (smaller, planes) {
            (None, _) if keeps => {
                // as the file has it: its EXIF orientation stays in it
                (sample.height, sample.width) = (kept.height, kept.width);
                self.keep(file).map(|()| Made::Unchanged)
            }
            (Some(size), Some(subsampling)) if self.target.keeps_planes() => {
                sample.format = Format::Jpeg;
                self.shrink_planes(file, subsampling, size).map(Made::File)
            }
            _ => {
                turn_boxes(sample, file.stored.turn());
                let repaired = has_inks || format == Format::Png;
                sample.format = if self.target.raw { Format::Raw } else { Format::Jpeg };
                self.redraw(file, smaller, repaired)
            }
        }
    }

    /// Makes what the record of a WebP, TIFF, BMP or GIF file holds: a PNG of the same pixels, of a photo coded with losses a JPEG of the
    /// highest quality, or what the options ask for.
    fn make_foreign(&mut self, foreign: Foreign, bytes: &[u8], sample: &mut Sample) -> Result<Made<'_>, String> {
        turn_boxes(sample, foreign.decode(bytes, &self.limits, self.target.to_8bit, &mut self.full)?);
        sample.channels = 3;
        let smaller = self.target.size(self.full.size);
        set_size(sample, smaller.unwrap_or(self.full.size));
        self.check_raw(sample, bytes.len())?;
        let as_png = foreign.is_exact && smaller.is_none() && self.target.keeps_png();
        sample.format = match self.target.raw {
            true => Format::Raw,
            false if as_png => Format::Png,
            false => Format::Jpeg,
        };
        if !self.target.raw {
            check_usual(sample)?;
        }
        if as_png {
            encode::png(&self.full, &mut self.png)?;
            return Ok(Made::File(&self.png));
        }
        self.store(smaller, true)
    }

    /// Refuses pixels that would take too much memory on their way into a shard.
    fn check_raw(&self, sample: &Sample, length: usize) -> Result<(), String> {
        let spec = ImageSpec::new(sample.height, sample.width, 3);
        let cost = Cost { spec, memory: COPIES * spec.values() as u64, scans: 1, seconds: 0.0 };
        if self.target.raw { self.limits.check("RAW image", length as u64, &cost).map_err(text) } else { Ok(()) }
    }

    /// Checks a file that stays as it is: all of its data can be read, and training, which has the usual limits, will take it.
    fn keep(&mut self, file: File<'_>) -> Result<(), String> {
        let usual = file.stored.check(&Limits::DEFAULT, file.bytes.len() as u64);
        usual.map_err(|fault| format!("{fault}; --resize makes it smaller"))?;
        let channels = if file.is_grey || file.stored.planes().is_some() { 1 } else { 3 };
        let read = self.decoder.reduced(file.stored, file.bytes, 8, channels, &mut self.full.pixels);
        read.map(drop).map_err(text)
    }

    /// A smaller JPEG of a JPEG, resized in its planes.
    fn shrink_planes(&mut self, file: File<'_>, subsampling: Subsamp, size: Size) -> Result<&[u8], String> {
        let reduction = reduction(file.size, Some(size));
        let planes = self.planes.full(file.size.reduced(reduction), subsampling);
        self.decoder.planes(&file.stored, file.bytes, reduction, planes).map_err(text)?;
        self.encoder.planes(self.planes.resize(size), self.target.quality(false))
    }

    /// Pixels or a JPEG of the file's pixels, resized if a `smaller` size is wanted.
    fn redraw(&mut self, file: File<'_>, smaller: Option<Size>, repaired: bool) -> Result<Made<'_>, String> {
        self.decode(file, smaller)?;
        self.store(smaller, repaired)
    }

    /// Pixels or a JPEG of the image that was decoded, resized if a `smaller` size is wanted.
    fn store(&mut self, smaller: Option<Size>, repaired: bool) -> Result<Made<'_>, String> {
        let image = match smaller {
            None => &self.full,
            Some(size) => {
                self.resizer.run(&self.full, size, &mut self.small)?;
                &self.small
            }
        };
        if self.target.raw {
            return Ok(Made::Raw { resized: smaller.is_some() });
        }
        let repaired = repaired && smaller.is_none();
        self.encoder.rgb(image, self.target.quality(repaired)).map(Made::File)
    }

    /// Decodes a file to RGB, a JPEG at a fraction of its size where the `wanted` one is much smaller.
    fn decode(&mut self, file: File<'_>, wanted: Option<Size>) -> Result<(), String> {
        let reduction = reduction(file.size, wanted);
        let pixels = &mut self.full.pixels;
        let decoded = self.decoder.reduced(file.stored, file.bytes, reduction, 3, pixels).map_err(text)?;
        let (height, width) = decoded;
        pixels.truncate(3 * height * width);
        (self.full.size, self.full.is_grey) = (Size { height, width }, file.is_grey);
        Ok(())
    }

    /// RGB pixels of the image in a finished sample, as they will be trained on.
    ///
    /// # Errors
    /// A message about what is wrong with the file.
    pub(crate) fn pixels<'a>(&'a mut self, sample: &'a Sample) -> Result<&'a [u8], String> {
        if sample.format == Format::Raw {
            return Ok(&sample.encoded);
        }
        let stored = self.decoder.open_file(&sample.encoded).map_err(text)?;
        let size = Size { height: sample.height as usize, width: sample.width as usize };
        self.decode(File { bytes: &sample.encoded, stored, size, is_grey: false }, None)?;
        Ok(&self.full.pixels)
    }
}

/// Turns the boxes of a sample with its pixels.
fn turn_boxes(sample: &mut Sample, turn: Turn) {
    if !turn.is_none() {
        let turned: Vec<BoundingBox> = sample.boxes.boxes().iter().map(|stored| turn.turned(stored)).collect();
        sample.boxes.set(&turned);
    }
}

/// Refuses a new file that training, which has the usual limits, would not take.
fn check_usual(sample: &Sample) -> Result<(), String> {
    let spec = ImageSpec::new(sample.height, sample.width, 3);
    let cost = Cost { spec, memory: 3 * spec.pixels() as u64, scans: 1, seconds: 0.0 };
    Limits::DEFAULT.check("image", 0, &cost).map_err(|fault| format!("{fault}; --resize makes it smaller"))
}

/// The greatest of 1, 2, 4 and 8 that a JPEG's size can be divided by and leave [`HEADROOM`] times the wanted pixels on each side.
fn reduction(stored: Size, wanted: Option<Size>) -> u32 {
    let Some(wanted) = wanted else { return 1 };
    let enough = |reduction: &u32| {
        let left = stored.reduced(*reduction);
        left.height >= HEADROOM * wanted.height && left.width >= HEADROOM * wanted.width
    };
    [8, 4, 2].into_iter().find(enough).unwrap_or(1)
}

/// Both sides are below `loaders`' limit of pixels, so they fit.
fn set_size(sample: &mut Sample, size: Size) {
    (sample.height, sample.width) = (size.height as u32, size.width as u32);
}

fn text(fault: Fault) -> String {
    fault.to_string()
}
