//! Decodes JPEG with libjpeg-turbo: only the needed part of an image, at 1/1, 1/2 or 1/4 of its size. Only this module
//! calls its C API.
//!
//! The pixels are bit-identical to a whole decode, at each of the three sizes. It uses the accurate integer DCT and
//! smooth ("fancy") chroma upsampling, as PIL and torchvision do, with a margin for the neighbours that upsampling
//! reads. CMYK and YCCK are converted to RGB. The EXIF orientation is read here and applied by the decoder.
//!
//! Baseline, progressive and lossless files are supported, with Huffman or arithmetic coding and 8 bits per sample
//! (lossless: up to 8). A file that ends early, or has data that libjpeg-turbo finds to be wrong, is a fault. Warnings
//! that do not affect the pixels (for example about stray bytes between markers) are ignored, as in PIL and TensorFlow.

mod bits;
mod entry_points;
mod excerpt;
mod markers;
mod sequential;
mod warnings;

use std::ffi::CStr;

use turbojpeg::{Subsamp, raw};

use crate::decode::region::{ExifOrientation, Need, Part, Region};
use crate::fault::Fault;
use crate::memory::{Cost, Limits};
use crate::spec::ImageSpec;
#[cfg(fuzzing)]
pub use entry_points::write_checksum as seal_entry_points;
pub use entry_points::{check_entry_points, entry_points};
use excerpt::Excerpts;
use markers::MarkerSummary;

/// A decompressor, reused for all images. Each thread has its own.
#[derive(Debug)]
pub(crate) struct Jpeg {
    handle: raw::tjhandle,
    limits: Limits,
    excerpts: Excerpts,
}

// SAFETY: a handle is not bound to a thread. It must not be used by two threads at the same time, and every use takes
// `&mut self`.
unsafe impl Send for Jpeg {}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    pub width: u32,
    pub height: u32,
    space: i32,
    subsampling: i32,
    lossless: bool,
    /// True if the file has Adobe's marker. Its CMYK values are then inverted, so that 255 means no ink.
    is_adobe: bool,
    /// Number of columns of an iMCU.
    columns: usize,
    pub cost: Cost,
    pub turn: ExifOrientation,
    /// True if the record has entry points that belong to the file.
    has_entry_points: bool,
}

impl Header {
    /// Returns the shape of the decoded image: grey or RGB.
    pub fn spec(&self) -> ImageSpec {
        ImageSpec::new(self.height, self.width, if self.is_grey() { 1 } else { 3 })
    }

    /// Returns the whole image at 1 / `reduction` of its size.
    fn reduced(&self, reduction: u32) -> Region {
        let [height, width] = [self.height, self.width].map(|side| side.div_ceil(reduction) as usize);
        Region::whole(height, width)
    }

    fn is_grey(&self) -> bool {
        self.space == raw::TJCS_TJCS_GRAY as i32
    }

    /// Returns true if the image is stored as four inks.
    pub fn is_cmyk(&self) -> bool {
        self.space == raw::TJCS_TJCS_CMYK as i32 || self.space == raw::TJCS_TJCS_YCCK as i32
    }

    /// Returns the chroma subsampling if the image is stored as luma and chroma with the DCT.
    pub fn planes(&self) -> Option<Subsamp> {
        let is_chroma = self.space == raw::TJCS_TJCS_YCbCr as i32 && !self.lossless;
        self.common_subsampling().filter(|subsampling| is_chroma && *subsampling != Subsamp::Gray)
    }

    /// Returns the number of columns of an iMCU if parts of the image can be decoded, which requires a common chroma
    /// subsampling.
    fn block(&self) -> Option<usize> {
        (!self.lossless && self.common_subsampling().is_some()).then_some(self.columns)
    }

    fn common_subsampling(&self) -> Option<Subsamp> {
        match self.subsampling {
            raw::TJSAMP_TJSAMP_444 => Some(Subsamp::None),
            raw::TJSAMP_TJSAMP_422 => Some(Subsamp::Sub2x1),
            raw::TJSAMP_TJSAMP_420 => Some(Subsamp::Sub2x2),
            raw::TJSAMP_TJSAMP_GRAY => Some(Subsamp::Gray),
            raw::TJSAMP_TJSAMP_440 => Some(Subsamp::Sub1x2),
            raw::TJSAMP_TJSAMP_411 => Some(Subsamp::Sub4x1),
            raw::TJSAMP_TJSAMP_441 => Some(Subsamp::Sub1x4),
            _ => None,
        }
    }
}

impl Jpeg {
    pub fn new(limits: Limits) -> Result<Self, Fault> {
        // SAFETY: there are no preconditions. A null pointer means failure.
        let handle = unsafe { raw::tj3Init(raw::TJINIT_TJINIT_TRANSFORM as i32) };
        if handle.is_null() {
            return Err(fault("libjpeg-turbo cannot create a decompressor: out of memory".into()));
        }
        let mut jpeg = Self { handle, limits, excerpts: Excerpts::default() };
        // SAFETY: the handle is new, and belongs to the library that the `turbojpeg` crate bundles.
        if !unsafe { warnings::listen(handle) } {
            return Err(fault(
                "this libjpeg-turbo has a different memory layout than the one bundled with trireme".into(),
            ));
        }
        jpeg.set(raw::TJPARAM_TJPARAM_SCANLIMIT, limits.scans.try_into().unwrap_or(i32::MAX))?;
        jpeg.set(raw::TJPARAM_TJPARAM_SAVEMARKERS, 0)?;
        Ok(jpeg)
    }

    /// Reads the header of a file. It reads all markers to check that the file is complete and to compute the cost.
    /// This is not necessary if `entry_points` belong to the file, because they are made only for complete files.
    pub fn header(&mut self, file: &[u8], entry_points: &[u8]) -> Result<Header, Fault> {
        let has_entry_points = entry_points::match_file(entry_points, file);
        let survey = MarkerSummary::read(file, has_entry_points).map_err(fault)?;
        let MarkerSummary { height, width, precision, lossless, components, across, turn, is_adobe, .. } = survey;
        if precision > 8 {
            return Err(fault(format!("its samples have {precision} bits; expected 8")));
        }
        let channels = if components == 1 { 1 } else { 3 };
        let bytes = if components == 4 { 4 } else { 3 };
        // Turning an image needs a second copy of its pixels, as RGB.
        let bytes = if turn.is_none() { bytes } else { bytes + 3 };
        let cost = survey.cost(ImageSpec::new(height, width, channels), bytes);
        self.limits.check("JPEG", file.len() as u64, &cost)?;
        // SAFETY: the handle is alive. The library reads `len` bytes from the pointer and does not keep it.
        let status = unsafe { raw::tj3DecompressHeader(self.handle, file.as_ptr(), file.len() as _) };
        self.check(status)?;
        let (w, h) = (self.get(raw::TJPARAM_TJPARAM_JPEGWIDTH), self.get(raw::TJPARAM_TJPARAM_JPEGHEIGHT));
        if (u32::try_from(w), u32::try_from(h)) != (Ok(width), Ok(height)) {
            return Err(fault(format!(
                "its frame header has the size {height} x {width}, but libjpeg-turbo found {h} x {w}"
            )));
        }
        let (space, subsampling) = (self.get(raw::TJPARAM_TJPARAM_COLORSPACE), self.get(raw::TJPARAM_TJPARAM_SUBSAMP));
        // The factors are not implied by `subsampling`: libjpeg-turbo also reports 4:4:4 if all are 2x1. Those of a
        // single component are ignored.
        let columns = if components == 1 { 8 } else { 8 * across as usize };
        Ok(Header { width, height, space, subsampling, lossless, is_adobe, columns, cost, turn, has_entry_points })
    }

    /// Decodes the part `need` of the file with the most recently read header into `pixels`, which can be reused.
    /// `channels` is 1 for a grey file and 3 otherwise. With the `entry_points` that were passed to `header`, most of
    /// the other data need not be read.
    pub fn decode(
        &mut self,
        file: &[u8],
        entry_points: &[u8],
        header: Header,
        need: Need,
        channels: u32,
        pixels: &mut Vec<u8>,
    ) -> Result<Part, Fault> {
        let reduction = match need.shrink {
            _ if header.lossless => 1,
            shrink if shrink >= 4.0 => 4,
            shrink if shrink >= 2.0 => 2,
            _ => 1,
        };
        let whole = header.reduced(reduction);
        let frame = match header.block() {
            Some(block) => around(need.region, whole, reduction as usize, block),
            None => whole,
        };
        let part = Part { rows: frame.rows(), columns: frame.columns(), origin: (frame.top, frame.left), reduction };
        if header.block().is_some() && header.has_entry_points {
            let mut excerpts = std::mem::take(&mut self.excerpts);
            let done = self.decode_excerpt(&mut excerpts, (file, entry_points), header, part, channels, pixels);
            self.excerpts = excerpts;
            if done? {
                return Ok(part);
            }
        }
        self.set_frame(header, Some(frame), reduction)?;
        self.frame_to(file, header, frame, channels, pixels)?;
        Ok(part)
    }

    /// Decodes a part of a file with entry points by way of an excerpt. Returns false if [`Excerpts::make`] makes none.
    fn decode_excerpt(
        &mut self,
        excerpts: &mut Excerpts,
        (file, entry_points): (&[u8], &[u8]),
        header: Header,
        part: Part,
        channels: u32,
        pixels: &mut Vec<u8>,
    ) -> Result<bool, Fault> {
        let (top, left) = part.origin;
        let reduction = part.reduction as usize;
        // Chroma upsampling reads a row of chroma on both sides.
        let need = Region {
            top: reduction * top.saturating_sub(1),
            left: reduction * left,
            bottom: reduction * (top + part.rows + 1),
            right: reduction * (left + part.columns),
        };
        let Some(shift) = excerpts.make(file, entry_points, need) else { return Ok(false) };
        let (top, left) = (top - shift.rows / reduction, left - shift.columns / reduction + shift.leading / reduction);
        let frame = Region { top, left, bottom: top + part.rows, right: left + part.columns };
        let excerpt = excerpts.file();
        // SAFETY: the handle is alive. The library reads `len` bytes from the pointer and does not keep it.
        let status = unsafe { raw::tj3DecompressHeader(self.handle, excerpt.as_ptr(), excerpt.len() as _) };
        let decoded = self
            .check(status)
            .and_then(|()| self.set_frame(header, Some(frame), part.reduction))
            .and_then(|()| self.frame_to(excerpt, header, frame, channels, pixels));
        decoded
            .map(|()| true)
            .map_err(|fault| Fault::EntryPoints(format!("cannot decode the data between them: {fault}")))
    }

    /// Decodes the whole file with the most recently read header to `channels`, at 1 / `reduction` of its size (1, 2, 4
    /// or 8). A lossless file is not reduced. The returned part is the whole reduced image.
    pub fn whole(
        &mut self,
        file: &[u8],
        header: Header,
        channels: u32,
        reduction: u32,
        pixels: &mut Vec<u8>,
    ) -> Result<Part, Fault> {
        let reduction = if header.lossless { 1 } else { reduction };
        let frame = header.reduced(reduction);
        self.set_frame(header, None, reduction)?;
        self.frame_to(file, header, frame, channels, pixels)?;
        Ok(Part { rows: frame.rows(), columns: frame.columns(), origin: (0, 0), reduction: 1 })
    }

    /// Decodes the planes of a file for which [`Header::planes`] returns a subsampling, at 1 / `reduction` of its size.
    /// The planes are stored consecutively without padding.
    pub fn planes(&mut self, file: &[u8], header: Header, reduction: u32, planes: &mut [u8]) -> Result<(), Fault> {
        self.set_frame(header, None, reduction)?;
        let Region { bottom, right, .. } = header.reduced(reduction);
        // SAFETY: a function of numbers only.
        let needed = unsafe { raw::tj3YUVBufSize(right as i32, 1, bottom as i32, header.subsampling) };
        if header.planes().is_none() || needed as usize > planes.len() {
            return Err(fault(format!(
                "its color planes have {needed} bytes, but at most {} are allowed",
                planes.len()
            )));
        }
        let (source, length) = (file.as_ptr(), file.len() as _);
        // SAFETY: the handle is alive, and `planes` has at least the size that the library returned for this image size
        // and subsampling.
        let status = unsafe { raw::tj3DecompressToYUV8(self.handle, source, length, planes.as_mut_ptr(), 1) };
        self.check(status)
    }

    /// Decodes the frame that was set to `rows` x `columns` x `channels`.
    fn frame_to(
        &mut self,
        file: &[u8],
        header: Header,
        frame: Region,
        channels: u32,
        pixels: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        // libjpeg does not convert the colours of lossless files.
        let repeats = header.lossless && header.is_grey() && channels == 3;
        let (format, bytes) = match channels {
            _ if header.is_cmyk() => (raw::TJPF_TJPF_CMYK, 4),
            1 => (raw::TJPF_TJPF_GRAY, 1),
            _ if repeats => (raw::TJPF_TJPF_GRAY, 1),
            _ => (raw::TJPF_TJPF_RGB, 3),
        };
        let (rows, columns) = (frame.rows(), frame.columns());
        let needed = rows * columns * bytes;
        let room = if repeats { 3 * needed } else { needed };
        if pixels.len() < room {
            pixels.resize(room, 0);
        }
        let (source, length) = (file.as_ptr(), file.len() as _);
        let pitch = (columns * bytes) as i32;
        // SAFETY: the handle is alive. `pixels` has `rows` rows of `pitch` bytes, and with the region and scale that
        // were set, the library writes exactly these. Nothing changes the bytes of `file`, so the image size in its
        // header is still the size that was read before.
        let status = unsafe { raw::tj3Decompress8(self.handle, source, length, pixels.as_mut_ptr(), pitch, format) };
        self.check(status)?;
        if header.is_cmyk() {
            // YCCK files are always inverted.
            let inverted = header.space == raw::TJCS_TJCS_YCCK as i32 || header.is_adobe;
            to_rgb(&mut pixels[..needed], inverted);
        }
        if repeats {
            (0..needed).rev().for_each(|i| pixels.copy_within(i..=i, 3 * i));
            pixels[..room].as_chunks_mut::<3>().0.iter_mut().for_each(|pixel| *pixel = [pixel[0]; 3]);
        }
        Ok(())
    }

    /// Sets the scale, the region and the memory limit of the next decode. Without a frame, the region is the whole
    /// image.
    fn set_frame(&mut self, header: Header, frame: Option<Region>, reduction: u32) -> Result<(), Fault> {
        // The limit affects images with more than one scan, because libjpeg keeps their coefficients in memory.
        let mib = header.cost.memory.div_ceil(1 << 20) + 64;
        self.set(raw::TJPARAM_TJPARAM_MAXMEMORY, mib.try_into().unwrap_or(i32::MAX))?;
        let scale = raw::tjscalingfactor { num: 1, denom: reduction as i32 };
        // SAFETY: the handle is alive.
        let status = unsafe { raw::tj3SetScalingFactor(self.handle, scale) };
        self.check(status)?;
        let region = match frame.filter(|_| header.block().is_some()) {
            Some(frame) => raw::tjregion {
                x: frame.left as i32,
                y: frame.top as i32,
                w: frame.columns() as i32,
                h: frame.rows() as i32,
            },
            // For other subsamplings the library rejects every region, even the whole image.
            None => raw::tjregion { x: 0, y: 0, w: 0, h: 0 },
        };
        // SAFETY: the handle is alive.
        let status = unsafe { raw::tj3SetCroppingRegion(self.handle, region) };
        self.check(status)
    }

    fn set(&mut self, parameter: raw::TJPARAM, value: i32) -> Result<(), Fault> {
        // SAFETY: the handle is alive.
        let status = unsafe { raw::tj3Set(self.handle, parameter as i32, value) };
        self.check(status)
    }

    fn get(&mut self, parameter: raw::TJPARAM) -> i32 {
        // SAFETY: the handle is alive.
        unsafe { raw::tj3Get(self.handle, parameter as i32) }
    }

    /// Converts a status and the warnings since the last call to a result. The comment at the top of this file says
    /// which warnings are faults.
    fn check(&mut self, status: i32) -> Result<(), Fault> {
        let warnings = warnings::take();
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the handle is alive. The text belongs to the handle, ends with 0, and is copied before the next use
        // of the handle.
        let text = unsafe { CStr::from_ptr(raw::tj3GetErrorStr(self.handle)) }.to_string_lossy();
        if warnings.explain(&text) {
            return warnings.verdict().map_err(fault);
        }
        Err(fault(text.into_owned()))
    }
}

impl Drop for Jpeg {
    fn drop(&mut self) {
        // SAFETY: the handle is alive and is never used again.
        unsafe { raw::tj3Destroy(self.handle) }
    }
}

/// Returns the smallest part of a `whole` image at 1 / `reduction` of its size that contains the part `need` of the
/// full-size image. It has one more column on each side for chroma upsampling, and starts at the edge of an iMCU of
/// `block` columns, as libjpeg-turbo requires.
fn around(need: Region, whole: Region, reduction: usize, block: usize) -> Region {
    let block = block / reduction;
    Region {
        top: need.top / reduction,
        left: (need.left / reduction).saturating_sub(1) / block * block,
        bottom: need.bottom.div_ceil(reduction).min(whole.bottom),
        right: (need.right.div_ceil(reduction) + 1).min(whole.right),
    }
}

/// Converts CMYK to RGB in place. Each four bytes become three. For inverted inks, R = C * K / 255, and so on.
fn to_rgb(pixels: &mut [u8], inverted: bool) {
    let flip = if inverted { 0 } else { 255 };
    for i in 0..pixels.len() / 4 {
        let [c, m, y, k] = std::array::from_fn(|ink| u32::from(pixels[4 * i + ink] ^ flip));
        for (channel, ink) in [c, m, y].into_iter().enumerate() {
            pixels[3 * i + channel] = ((ink * k + 127) / 255) as u8;
        }
    }
}

fn fault(problem: String) -> Fault {
    Fault::Decode { format: "JPEG", problem }
}
