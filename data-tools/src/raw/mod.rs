//! Reads images with any number of bands in uint8, uint16, int16 or float32: TIFF, PNG with 16 bits, `.npy` and HDF5.
//! Pixels keep the file's values: nothing is scaled, inverted or converted to RGB.

#[cfg(fuzzing)]
pub mod fuzzing;
pub(crate) mod hdf5;
pub(crate) mod layout;
pub(crate) mod npy;
mod png;
mod reading;
mod tiff;
pub(crate) mod values;

use std::io::Read;
use std::path::Path;

use loaders::stall::during;
use loaders::{Dtype, ImageSpec, Limits, guarded_with, regular};

use crate::dir;
use crate::error::Error;
pub use layout::{Layout, layout};
use loaders::MAX_CHANNELS;
pub(crate) use png::is_wide_png;
pub(crate) use tiff::check_first_directory;
use values::Values;

/// Maximum size of an image file in bytes.
pub(crate) const MAX_FILE: u64 = 1 << 29;

/// Decoded pixels, little-endian, in rows of interleaved bands (H, W, C).
#[derive(Debug, Clone, PartialEq)]
pub struct RawImage {
    pub dtype: Dtype,
    pub height: u32,
    pub width: u32,
    pub channels: u32,
    pub bytes: Vec<u8>,
    /// The file's nodata value, as GDAL stores it in a TIFF.
    pub nodata: Option<f64>,
}

/// Which page of a TIFF to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    /// The page with this number, counted from 1.
    Number(u32),
    /// The bands of all pages, except smaller copies and masks.
    All,
}

impl Default for Page {
    fn default() -> Self {
        Self::Number(1)
    }
}

/// Parses `--page`: a number from 1, or `all`.
///
/// # Errors
///
/// Returns an error for any other text.
pub fn page(text: &str) -> Result<Page, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(Page::Number(number)),
        _ if text == "all" => Ok(Page::All),
        _ => Err("expected a page number from 1, or all, which makes the bands of all pages one image".into()),
    }
}

/// Parses `--bands`: numbers from 1, separated by commas.
///
/// # Errors
///
/// Returns an error for any other text.
pub fn bands(text: &str) -> Result<Vec<u32>, String> {
    let numbers: Option<Vec<u32>> =
        text.split(',').map(|number| number.trim().parse().ok().filter(|&number| number > 0)).collect();
    match numbers {
        Some(numbers) if numbers.len() <= MAX_CHANNELS as usize => Ok(numbers),
        _ => Err("expected band numbers from 1, such as --bands 4,3,2 (GDAL counts bands from 1, too)".into()),
    }
}

/// How to read raw images.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RawOptions {
    /// The bands to keep, from 1, in this order. Empty keeps all.
    pub bands: Vec<u32>,
    /// The value that marks pixels without data. Overrides the file's value.
    pub nodata: Option<f64>,
    /// Replaces NaN and infinite values by zero. Otherwise they are an error.
    pub nan_as_zero: bool,
    pub page: Page,
    /// Axis order in arrays. With `None`, it is derived from the lengths of the axes.
    pub layout: Option<Layout>,
    /// Name of the image array in an HDF5 file. `None` selects the only array that can be an image.
    pub images: Option<String>,
}

impl RawOptions {
    /// Returns the options that are set, and the formats that each applies to.
    fn set(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let all = "TIFF, PNG with 16 bits, .npy and HDF5";
        let options = [
            ("bands", !self.bands.is_empty(), all),
            ("nodata", self.nodata.is_some(), all),
            ("nan", self.nan_as_zero, all),
            ("page", self.page != Page::default(), "TIFF"),
            ("layout", self.layout.is_some(), ".npy, .npz and HDF5"),
            ("images", self.images.is_some(), "HDF5"),
        ];
        options.into_iter().filter(|(_, set, _)| *set).map(|(name, _, formats)| (name, formats))
    }

    /// Returns the option that only raw images accept, if one is set.
    pub(crate) fn given(&self) -> Option<&'static str> {
        self.set().next().map(|(name, _)| name)
    }

    /// Returns true if an option is set that the photo decoder does not support. 8-bit grey and RGB TIFFs are then read
    /// as raw images.
    pub(crate) fn need_values(&self) -> bool {
        self.set().any(|(name, _)| OF_VALUES.contains(&name) || name == "page")
    }

    /// Returns an error if an option is set that is not in `used`.
    pub(crate) fn refuse_except(&self, used: &[&str]) -> Result<(), String> {
        match self.set().find(|(name, _)| !used.contains(name)) {
            None => Ok(()),
            Some((name, formats)) => Err(format!("--{name} does not apply to this file, but to {formats}")),
        }
    }
}

/// The options that apply to raw images of every format.
const OF_VALUES: [&str; 3] = ["bands", "nodata", "nan"];

/// Returns true if the file is a TIFF with more pages than the first, apart from smaller copies and masks.
pub(crate) fn has_more_pages(file: &[u8], limits: &Limits) -> bool {
    is_tiff(file) && tiff::has_more_pages(file, limits)
}

/// Returns true if the file is a TIFF and its first page names a nodata value.
pub(crate) fn has_nodata(file: &[u8]) -> bool {
    is_tiff(file) && tiff::has_nodata(file)
}

fn is_tiff(file: &[u8]) -> bool {
    [b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"].iter().any(|magic| file.starts_with(*magic))
}

/// A file format with raw images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RawFormat {
    Tiff,
    WidePng,
    Npy,
}

impl RawFormat {
    /// Returns the file format if the pixels are stored as values. Returns `None` for 8-bit grey or RGB images, unless
    /// `all` is true.
    pub fn detect(file: &[u8], all: bool) -> Option<Self> {
        if is_tiff(file) {
            return (all || !tiff::is_ordinary(file)).then_some(Self::Tiff);
        }
        if is_wide_png(file) {
            return Some(Self::WidePng);
        }
        file.starts_with(crate::npy::MAGIC).then_some(Self::Npy)
    }

    /// Decodes the pixels.
    ///
    /// # Errors
    ///
    /// Returns a message if the file is damaged, unsupported, or exceeds the limits.
    pub fn decode(self, file: &[u8], options: &RawOptions, limits: &Limits) -> Result<RawImage, String> {
        let own: &[&str] = match self {
            Self::Tiff => &["page"],
            Self::WidePng => &[],
            Self::Npy => &["layout"],
        };
        options.refuse_except(&[&OF_VALUES[..], own].concat())?;
        match self {
            Self::Tiff => tiff::decode(file, options, limits),
            Self::WidePng => png::decode(file, limits),
            Self::Npy => npy::decode(file, options.layout, limits),
        }
    }
}

/// Reads one image from a TIFF, a PNG with 16 bits, a `.npy` or an HDF5 file, selects the bands and checks the values.
/// Pixels without data keep their value.
///
/// # Errors
///
/// Returns an error if the file cannot be read, has another format, or has values that are not finite.
pub fn read(path: &Path, options: &RawOptions, limits: &Limits) -> Result<RawImage, Error> {
    if !is_hdf5(path) {
        return decode(path, &load(path)?, options, limits);
    }
    guarded(path, || {
        let image = hdf5::read_image(path, options, limits)?;
        image.prepared(options).map_err(|what| Error::input(path, what))
    })
}

/// Works like [`read`], for the contents of a file that is not HDF5. `path` is for messages.
///
/// # Errors
///
/// Returns the same errors as [`read`].
pub fn decode(path: &Path, file: &[u8], options: &RawOptions, limits: &Limits) -> Result<RawImage, Error> {
    let failed = |what: String| Error::input(path, what);
    guarded(path, || match RawFormat::detect(file, true) {
        Some(format) => format.decode(file, options, limits).and_then(|image| image.prepared(options)).map_err(failed),
        None => Err(failed("expected a TIFF, a PNG with 16 bits, a .npy or an HDF5 file".into())),
    })
}

/// Returns the numbers of a TIFF's pages, from 1, without smaller copies and masks. Returns `None` if the file is not a
/// TIFF. `path` is for messages.
///
/// # Errors
///
/// Returns an error if the list of pages is damaged, or if reading it would exceed the limits.
pub fn pages(path: &Path, file: &[u8], limits: &Limits) -> Result<Option<Vec<u32>>, Error> {
    let read = || tiff::pages(file, limits).map(Some).map_err(|what| Error::input(path, what));
    if is_tiff(file) { guarded(path, read) } else { Ok(None) }
}

/// Runs a decoder, and converts its panics to errors.
fn guarded<T>(path: &Path, run: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    guarded_with(run, |panic| Error::input(path, format!("the decoder failed on this file ({panic}); save it again")))
}

/// Reads an image file into memory.
///
/// # Errors
///
/// Returns an error if the file cannot be read or exceeds the limit for image files.
pub fn load(path: &Path) -> Result<Vec<u8>, Error> {
    let read = || {
        let mut bytes = Vec::new();
        regular::open(path)?.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let file = during("reading", path, read).map_err(|e| Error::io("read", path, e))?;
    match file.len() as u64 > MAX_FILE {
        true => Err(too_large(path)),
        false => Ok(file),
    }
}

/// Returns the error for an image file of more than [`MAX_FILE`] bytes.
pub(crate) fn too_large(path: &Path) -> Error {
    Error::input(path, format!("the file exceeds {MAX_FILE} bytes, the limit for image files"))
}

/// Returns true if the name has an HDF5 or NetCDF-4 extension.
pub(crate) fn is_hdf5(path: &Path) -> bool {
    dir::has_ending(path, &HDF5_ENDINGS)
}

const HDF5_ENDINGS: [&str; 5] = ["h5", "hdf5", "hdf", "nc", "nc4"];

impl RawImage {
    /// Creates an image without a nodata value.
    fn new(dtype: Dtype, spec: ImageSpec, bytes: Vec<u8>) -> Self {
        let ImageSpec { height, width, channels, .. } = spec;
        RawImage { dtype, height, width, channels, bytes, nodata: None }
    }

    /// Replaces pixels without data by their band's fill value.
    pub fn fill_nodata(&mut self, fill: &[f64]) {
        let Some(nodata) = self.nodata.filter(|_| fill.len() == self.channels as usize) else { return };
        self.values().replace(&mut self.bytes, nodata, fill);
    }

    fn values(&self) -> Values {
        Values { dtype: self.dtype, channels: self.channels as usize, width: self.width as usize }
    }

    /// Selects the bands and checks that all values are finite, except in pixels without data.
    pub(crate) fn prepared(mut self, options: &RawOptions) -> Result<Self, String> {
        self.nodata = options.nodata.or(self.nodata);
        if !options.bands.is_empty() {
            let (channels, size) = (self.channels, self.dtype.bytes());
            if let Some(band) = options.bands.iter().find(|&&band| band > channels) {
                return Err(format!(
                    "band {band} was requested, but the image has {} (--bands counts from 1)",
                    base::text::plural(channels, "band")
                ));
            }
            let mut bytes = Vec::with_capacity(self.bytes.len() / channels as usize * options.bands.len());
            for pixel in self.bytes.chunks_exact(channels as usize * size) {
                for &band in &options.bands {
                    bytes.extend_from_slice(&pixel[(band as usize - 1) * size..][..size]);
                }
            }
            (self.bytes, self.channels) = (bytes, options.bands.len() as u32);
        }
        self.values().check_finite(&mut self.bytes, self.nodata, options.nan_as_zero)?;
        Ok(self)
    }
}

/// Returns an error if an image has no bands or too many.
fn check_bands(bands: usize) -> Result<(), String> {
    match bands > 0 && bands <= MAX_CHANNELS as usize {
        true => Ok(()),
        false => Err(format!("an image has {bands} bands; expected 1 to {MAX_CHANNELS}")),
    }
}
