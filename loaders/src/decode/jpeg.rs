//! JPEG by libjpeg-turbo: only the part of an image that is needed, at 1/1, 1/2 or 1/4 of its size. The one place that calls
//! its C API.
//!
//! What comes out equals the same part of a whole decode to the bit, at each of the three sizes: the accurate integer DCT and
//! smooth ("fancy") chroma upsampling, as PIL and torchvision have them, with a margin where upsampling looks at neighbours.
//! CMYK and YCCK become RGB as R = C*K/255 of Adobe's inverted inks. EXIF orientation is not applied.
//!
//! A file that ends early, or with data missing in a scan, is a fault; other oddities that libjpeg-turbo warns of (bytes too
//! many between markers, say) are let pass, as PIL and TensorFlow do.

use std::ffi::CStr;

use turbojpeg::raw;

use crate::error::Fault;
use crate::spec::ImageSpec;
use crate::transform::{Need, Part};

/// Scans of a progressive file; more are a way to make a small file decode for hours.
const MOST_SCANS: i32 = 500;

/// A decompressor, reused from image to image; one a thread.
#[derive(Debug)]
pub(crate) struct Jpeg {
    handle: raw::tjhandle,
}

// SAFETY: a handle is bound to no thread; it must only not be used by two at once, and every use takes `&mut self`.
unsafe impl Send for Jpeg {}

/// What a file's header says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    pub width: u32,
    pub height: u32,
    space: i32,
    /// Columns of an iMCU, if the chroma subsampling is one of the usual.
    block: Option<usize>,
}

impl Header {
    /// The shape of the decoded image: grey or RGB.
    pub fn spec(&self) -> ImageSpec {
        ImageSpec::new(self.height, self.width, if self.space == raw::TJCS_TJCS_GRAY as i32 { 1 } else { 3 })
    }
}

impl Jpeg {
    /// A new decompressor.
    pub fn new() -> Result<Self, Fault> {
        // SAFETY: no precondition; a null pointer means failure.
        let handle = unsafe { raw::tj3Init(raw::TJINIT_TJINIT_DECOMPRESS as i32) };
        if handle.is_null() {
            return Err(fault("libjpeg-turbo gives no decompressor: out of memory".into()));
        }
        let mut jpeg = Self { handle };
        jpeg.set(raw::TJPARAM_TJPARAM_SCANLIMIT, MOST_SCANS)?;
        jpeg.set(raw::TJPARAM_TJPARAM_SAVEMARKERS, 0)?;
        Ok(jpeg)
    }

    /// Reads the header of a file.
    pub fn header(&mut self, file: &[u8]) -> Result<Header, Fault> {
        // SAFETY: the handle is alive; the library reads `len` bytes from the pointer and keeps neither.
        let status = unsafe { raw::tj3DecompressHeader(self.handle, file.as_ptr(), file.len() as _) };
        self.check(status)?;
        let (width, height) = (self.get(raw::TJPARAM_TJPARAM_JPEGWIDTH), self.get(raw::TJPARAM_TJPARAM_JPEGHEIGHT));
        let [Ok(width), Ok(height)] = [width, height].map(u32::try_from) else {
            return Err(fault(format!("a size of {width} x {height}")));
        };
        let block = match self.get(raw::TJPARAM_TJPARAM_SUBSAMP) {
            raw::TJSAMP_TJSAMP_444 | raw::TJSAMP_TJSAMP_GRAY | raw::TJSAMP_TJSAMP_440 | raw::TJSAMP_TJSAMP_441 => {
                Some(8)
            }
            raw::TJSAMP_TJSAMP_422 | raw::TJSAMP_TJSAMP_420 => Some(16),
            raw::TJSAMP_TJSAMP_411 => Some(32),
            _ => None,
        };
        Ok(Header { width, height, space: self.get(raw::TJPARAM_TJPARAM_COLORSPACE), block })
    }

    /// Decodes what is needed of the file whose header was read last, to `channels` (1 for a grey file, else 3), into
    /// `pixels`, which keeps its memory.
    pub fn decode<'p>(
        &mut self,
        file: &[u8],
        header: Header,
        need: Need,
        channels: u32,
        pixels: &'p mut Vec<u8>,
    ) -> Result<Part<'p>, Fault> {
        let reduction = match need.shrink {
            shrink if shrink >= 4.0 => 4,
            shrink if shrink >= 2.0 => 2,
            _ => 1,
        };
        let scale = raw::tjscalingfactor { num: 1, denom: reduction as i32 };
        // SAFETY: the handle is alive.
        let status = unsafe { raw::tj3SetScalingFactor(self.handle, scale) };
        self.check(status)?;
        let frame = frame(header, need, reduction);
        let region = raw::tjregion {
            x: frame.left as i32,
            y: frame.top as i32,
            w: (frame.right - frame.left) as i32,
            h: (frame.bottom - frame.top) as i32,
        };
        // Without the block's width the library refuses regions, even that of the whole image.
        let region = if header.block.is_some() { region } else { raw::tjregion { x: 0, y: 0, w: 0, h: 0 } };
        // SAFETY: the handle is alive.
        let status = unsafe { raw::tj3SetCroppingRegion(self.handle, region) };
        self.check(status)?;

        let inks = header.space == raw::TJCS_TJCS_CMYK as i32 || header.space == raw::TJCS_TJCS_YCCK as i32;
        let (format, bytes) = match channels {
            _ if inks => (raw::TJPF_TJPF_CMYK, 4),
            1 => (raw::TJPF_TJPF_GRAY, 1),
            _ => (raw::TJPF_TJPF_RGB, 3),
        };
        let (rows, columns) = (frame.bottom - frame.top, frame.right - frame.left);
        let needed = rows * columns * bytes;
        if pixels.len() < needed {
            pixels.resize(needed, 0);
        }
        let (source, length) = (file.as_ptr(), file.len() as _);
        let pitch = (columns * bytes) as i32;
        // SAFETY: the handle is alive; `pixels` holds `rows` rows of `pitch` bytes, and the region and scale that were set
        // make the library write just these.
        let status = unsafe { raw::tj3Decompress8(self.handle, source, length, pixels.as_mut_ptr(), pitch, format) };
        self.check(status)?;
        if inks {
            to_rgb(&mut pixels[..needed], is_inverted(file, header));
        }
        Ok(Part { bytes: pixels, columns, origin: (frame.top, frame.left), reduction })
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

    /// A status as a result; see the head of this file for which warnings are faults.
    fn check(&mut self, status: i32) -> Result<(), Fault> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the handle is alive; the text is the handle's, ends with 0 and is copied before its next use.
        let (code, text) =
            unsafe { (raw::tj3GetErrorCode(self.handle), CStr::from_ptr(raw::tj3GetErrorStr(self.handle))) };
        let text = text.to_string_lossy();
        if code == raw::TJERR_TJERR_WARNING as i32 && !text.to_ascii_lowercase().contains("premature end") {
            return Ok(());
        }
        Err(fault(text.into_owned()))
    }
}

impl Drop for Jpeg {
    fn drop(&mut self) {
        // SAFETY: the handle is alive and never used again.
        unsafe { raw::tj3Destroy(self.handle) }
    }
}

fn fault(problem: String) -> Fault {
    Fault::Decode { format: "JPEG", problem }
}

/// Rows and columns to decode, in the reduced image.
struct Frame {
    top: usize,
    left: usize,
    bottom: usize,
    right: usize,
}

/// The frame around what is needed: its left edge must be an iMCU's, and chroma upsampling wants a neighbour on both sides to
/// do as it does within the whole image.
fn frame(header: Header, need: Need, reduction: u32) -> Frame {
    let reduction = reduction as usize;
    let (width, height) = ((header.width as usize).div_ceil(reduction), (header.height as usize).div_ceil(reduction));
    let Some(block) = header.block else {
        return Frame { top: 0, left: 0, bottom: height, right: width };
    };
    let block = block / reduction;
    let region = need.region;
    Frame {
        top: region.top / reduction,
        left: (region.left / reduction).saturating_sub(1) / block * block,
        bottom: region.bottom.div_ceil(reduction).min(height),
        right: (region.right.div_ceil(reduction) + 1).min(width),
    }
}

/// Whether CMYK values are inks upside down, 255 for none, as Adobe writes them: by its marker, which YCCK always has.
fn is_inverted(file: &[u8], header: Header) -> bool {
    if header.space == raw::TJCS_TJCS_YCCK as i32 {
        return true;
    }
    // Segments from behind SOI to the start of the scan: marker, length with its own two bytes.
    let mut rest = file.get(2..).unwrap_or(&[]);
    while let [0xff, marker, high, low, ..] = *rest {
        let length = 2 + usize::from(u16::from_be_bytes([high, low]));
        match marker {
            0xff => rest = &rest[1..],
            0xda => return false,
            0xee if rest.get(4..9) == Some(b"Adobe") => return true,
            _ => rest = rest.get(length..).unwrap_or(&[]),
        }
    }
    false
}

/// CMYK to RGB in place, three bytes for four, from the front on.
fn to_rgb(pixels: &mut [u8], inverted: bool) {
    let flip = if inverted { 0 } else { 255 };
    for i in 0..pixels.len() / 4 {
        let [c, m, y, k] = std::array::from_fn(|ink| u32::from(pixels[4 * i + ink] ^ flip));
        for (channel, ink) in [c, m, y].into_iter().enumerate() {
            pixels[3 * i + channel] = ((ink * k + 127) / 255) as u8;
        }
    }
}
