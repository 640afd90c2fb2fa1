//! JPEG by libjpeg-turbo: only the part of an image that is needed, at 1/1, 1/2 or 1/4 of its size. The one place that calls its C API.
//!
//! The pixels equal those of a whole decode bit for bit, at each of the three sizes: the accurate integer DCT and smooth ("fancy")
//! chroma upsampling, as in PIL and torchvision, with a margin for the neighbours that upsampling reads. CMYK and YCCK become RGB.
//! EXIF orientation is not applied.
//!
//! A file that ends early, or with data missing in a scan, is a fault; other warnings of libjpeg-turbo (extra bytes between markers,
//! say) are ignored, as PIL and TensorFlow do.

use std::ffi::CStr;

use turbojpeg::raw;

use crate::decode::cmyk::{has_adobe_marker, to_rgb};
use crate::decode::region::{Decoded, Need};
use crate::fault::Fault;
use crate::spec::ImageSpec;

/// The most scans of a progressive file; with more, a small hostile file could take hours to decode.
const MOST_SCANS: i32 = 500;

/// A decompressor, reused from image to image; one a thread.
#[derive(Debug)]
pub(crate) struct Jpeg {
    handle: raw::tjhandle,
}

// SAFETY: a handle belongs to no thread; it must not be used by two threads at once, and every use takes `&mut self`.
unsafe impl Send for Jpeg {}

/// The header of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    pub width: u32,
    pub height: u32,
    space: i32,
    /// Columns of an iMCU, if the chroma subsampling is a usual one.
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

    /// Decodes what is needed of the file whose header was read last, to `channels` (1 for a grey file, else 3), into `pixels`, which
    /// keeps its memory.
    pub fn decode<'p>(
        &mut self,
        file: &[u8],
        header: Header,
        need: Need,
        channels: u32,
        pixels: &'p mut Vec<u8>,
    ) -> Result<Decoded<'p>, Fault> {
        let reduction = match need.shrink {
            shrink if shrink >= 4.0 => 4,
            shrink if shrink >= 2.0 => 2,
            _ => 1,
        };
        let frame = frame(header, need, reduction);
        self.set_frame(header, &frame, reduction)?;
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
            // YCCK files are always inverted
            let inverted = header.space == raw::TJCS_TJCS_YCCK as i32 || has_adobe_marker(file);
            to_rgb(&mut pixels[..needed], inverted);
        }
        Ok(Decoded { bytes: pixels, columns, origin: (frame.top, frame.left), reduction })
    }

    /// Sets the scale and the region of the next decode.
    fn set_frame(&mut self, header: Header, frame: &Frame, reduction: u32) -> Result<(), Fault> {
        let scale = raw::tjscalingfactor { num: 1, denom: reduction as i32 };
        // SAFETY: the handle is alive.
        let status = unsafe { raw::tj3SetScalingFactor(self.handle, scale) };
        self.check(status)?;
        let region = raw::tjregion {
            x: frame.left as i32,
            y: frame.top as i32,
            w: (frame.right - frame.left) as i32,
            h: (frame.bottom - frame.top) as i32,
        };
        // for other subsamplings the library refuses regions, even that of the whole image
        let region = if header.block.is_some() { region } else { raw::tjregion { x: 0, y: 0, w: 0, h: 0 } };
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

    /// Turns a status into a result; the head of this file says which warnings are faults.
    fn check(&mut self, status: i32) -> Result<(), Fault> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the handle is alive; the text belongs to the handle, ends with 0 and is copied before the handle's next use.
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

/// Rows and columns to decode, in the reduced image, ends excluded.
struct Frame {
    top: usize,
    left: usize,
    bottom: usize,
    right: usize,
}

/// The frame around what is needed: its left edge must be that of an iMCU, and chroma upsampling needs a neighbour on both sides to
/// give the same pixels as within the whole image.
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
