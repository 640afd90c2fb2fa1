//! Reads the markers of a JPEG file before libjpeg-turbo sees it, to find the size, the cost of decoding, and whether
//! the file is complete.
//!
//! This reader finds markers in the same way as libjpeg, so both see the same scans. It skips bytes between segments. A
//! scan's data ends at the first marker that is neither a stuffed zero nor a restart.

use crate::decode::region::ExifOrientation;
use crate::memory::Cost;
use crate::spec::ImageSpec;

/// Maximum number of colour components: CMYK has four.
const COMPONENTS: usize = 4;
/// Bytes per coefficient block: 64 coefficients with 2 bytes each.
const BLOCK: u64 = 128;
/// A lower bound on how many blocks per second libjpeg decodes in a scan with almost no data per block. (Other scans
/// have more bytes, and the size of the file limits their time.)
const BLOCKS_PER_SECOND: f64 = 5e7;

const SOI: u8 = 0xd8;
const EOI: u8 = 0xd9;
const SOS: u8 = 0xda;
/// The segment with EXIF data.
const APP1: u8 = 0xe1;
/// The segment with which Adobe's programs say how colours are stored.
const APP14: u8 = 0xee;
/// The start of the EXIF data.
const EXIF: &[u8] = b"Exif\0\0";

/// The information from the markers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct MarkerSummary {
    pub height: u32,
    pub width: u32,
    /// Bits per sample, usually 8.
    pub precision: u8,
    pub lossless: bool,
    pub scans: u32,
    /// Bytes of memory for the coefficients that libjpeg must keep until the last scan has been read. 0 if it decodes
    /// each row as it reads it.
    kept: u64,
    /// Total number of blocks that all scans go through.
    blocks: u64,
    pub components: usize,
    /// Horizontal sampling factor of the finest component.
    pub across: u64,
    pub turn: ExifOrientation,
    /// True if Adobe's marker precedes the first scan.
    pub is_adobe: bool,
}

impl MarkerSummary {
    /// Reads the markers of a file. Stops at the data of the first scan if `is_whole` is set: then the file has entry
    /// points with a valid checksum, so it is complete and has a single scan.
    ///
    /// # Errors
    ///
    /// Returns a message if the file has no image, is truncated, or if its scans leave out a part of a progressive
    /// image.
    pub fn read(file: &[u8], is_whole: bool) -> Result<Self, String> {
        let mut walk = MarkerReader { file, at: 2 };
        let (mut frame, mut survey): (Option<Frame>, Option<Self>) = (None, None);
        let (mut turn, mut is_adobe) = (None, false);
        loop {
            let marker = walk.marker().ok_or_else(|| cut_short(survey.is_some()))?;
            match marker {
                EOI => break,
                SOS => {
                    let body = walk.segment().ok_or_else(|| cut_short(true))?;
                    let frame = frame.as_mut().ok_or("it contains no image (a scan without a frame)")?;
                    let survey = survey.get_or_insert_with(|| frame.survey(body.first() == Some(&(frame.count as u8))));
                    survey.scans += 1;
                    survey.blocks += frame.scan(body)?;
                    if is_whole {
                        break;
                    }
                }
                // SOF: all markers in this range except DHT, JPG and DAC.
                0xc0..=0xcf if !matches!(marker, 0xc4 | 0xc8 | 0xcc) => {
                    let body = walk.segment().ok_or_else(|| cut_short(false))?;
                    frame = Some(Frame::read(marker, body)?);
                }
                APP1 => {
                    let body = walk.segment().ok_or_else(|| cut_short(false))?;
                    turn = turn.or(body.strip_prefix(EXIF).map(ExifOrientation::from_exif));
                }
                APP14 => {
                    let body = walk.segment().ok_or_else(|| cut_short(false))?;
                    is_adobe |= survey.is_none() && body.starts_with(b"Adobe");
                }
                // Markers without a length.
                0x01 | 0xd0..=SOI => {}
                _ => drop(walk.segment().ok_or_else(|| cut_short(false))?),
            }
        }
        match (survey, frame) {
            (Some(_), Some(frame)) if !frame.is_complete() => {
                Err("it is cut short: its scans leave out a part of a progressive image".into())
            }
            (Some(survey), _) => Ok(Self { turn: turn.unwrap_or_default(), is_adobe, ..survey }),
            _ => Err("it contains no image".into()),
        }
    }

    /// Returns the cost of decoding the whole image with `bytes` per pixel. `spec` is its shape for messages.
    pub fn cost(&self, spec: ImageSpec, bytes: u64) -> Cost {
        let pixels = u64::from(self.height) * u64::from(self.width) * bytes;
        Cost { spec, memory: pixels + self.kept, scans: self.scans, seconds: self.blocks as f64 / BLOCKS_PER_SECOND }
    }
}

fn cut_short(begun: bool) -> String {
    if begun {
        "it is cut short: it has no end marker".into()
    } else {
        "it is cut short: it ends within its header".into()
    }
}

pub(super) struct MarkerReader<'a> {
    pub file: &'a [u8],
    pub at: usize,
}

impl<'a> MarkerReader<'a> {
    /// Returns the next marker. Skips other bytes, stuffed zeros and fill bytes.
    pub fn marker(&mut self) -> Option<u8> {
        loop {
            self.at += memchr::memchr(0xff, self.file.get(self.at..)?)?;
            while *self.file.get(self.at)? == 0xff {
                self.at += 1;
            }
            let code = self.file[self.at];
            self.at += 1;
            if code != 0 {
                return Some(code);
            }
        }
    }

    /// Returns the body of the segment after a marker.
    pub fn segment(&mut self) -> Option<&'a [u8]> {
        let rest = self.file.get(self.at..)?;
        let length = usize::from(u16::from_be_bytes(*rest.first_chunk()?));
        let body = rest.get(2..length.max(2))?;
        self.at += length.max(2);
        Some(body)
    }
}

/// A colour component of the image.
#[derive(Clone, Copy, Default)]
struct Component {
    id: u8,
    /// Horizontal sampling factor. The components with the highest resolution have the largest factors.
    across: u64,
    down: u64,
    /// For each coefficient, the bits that no scan has sent yet.
    missing: Missing,
}

/// Number of bits that are still missing for each of the 64 coefficients. 255 if no scan has sent any bits of the
/// coefficient.
#[derive(Clone, Copy)]
struct Missing([u8; 64]);

impl Default for Missing {
    fn default() -> Self {
        Self([u8::MAX; 64])
    }
}

struct Frame {
    height: u32,
    width: u32,
    precision: u8,
    progressive: bool,
    lossless: bool,
    count: usize,
    components: [Component; COMPONENTS],
}

impl Frame {
    fn read(marker: u8, body: &[u8]) -> Result<Self, String> {
        let &[precision, h1, h0, w1, w0, count, ref rest @ ..] = body else {
            return Err("its frame header is too short".into());
        };
        let count = usize::from(count);
        if !(1..=COMPONENTS).contains(&count) {
            return Err(format!("its frame header names {count} components; expected 1 to {COMPONENTS}"));
        }
        if rest.len() < 3 * count {
            return Err(format!("its frame header is too short for {count} components"));
        }
        let mut components = [Component::default(); COMPONENTS];
        for (component, bytes) in components.iter_mut().zip(rest.as_chunks::<3>().0).take(count) {
            let [id, sampling, _] = *bytes;
            let (across, down) = (u64::from(sampling >> 4), u64::from(sampling & 15));
            if !(1..=4).contains(&across) || !(1..=4).contains(&down) {
                return Err(format!("its frame header has a sampling of {across} x {down}; expected 1 to 4"));
            }
            *component = Component { id, across, down, ..Component::default() };
        }
        let (height, width) = (u16::from_be_bytes([h1, h0]).into(), u16::from_be_bytes([w1, w0]).into());
        // For arithmetic coding, the markers are 8 higher than for Huffman coding. The low two bits have the same
        // meaning.
        let (progressive, lossless) = (marker & 3 == 2, marker & 3 == 3);
        Ok(Self { height, width, precision, progressive, lossless, count, components })
    }

    fn components(&self) -> &[Component] {
        &self.components[..self.count]
    }

    /// Returns the sampling factors of the finest component.
    fn finest(&self) -> (u64, u64) {
        let most = |of: fn(&Component) -> u64| self.components().iter().map(of).max().unwrap_or(1);
        (most(|c| c.across), most(|c| c.down))
    }

    /// Returns the side length of the squares that are coded together: 8, or 1 if lossless.
    fn unit(&self) -> u64 {
        if self.lossless { 1 } else { 8 }
    }

    /// Returns the number of MCUs that cover the image.
    fn mcus(&self) -> u64 {
        let (across, down) = self.finest();
        let unit = self.unit();
        u64::from(self.width).div_ceil(across * unit) * u64::from(self.height).div_ceil(down * unit)
    }

    /// Creates the summary at the first scan. `whole` is true if this scan has all components.
    fn survey(&self, whole: bool) -> MarkerSummary {
        let Self { height, width, precision, lossless, .. } = *self;
        let squares: u64 = self.components().iter().map(|c| self.mcus() * c.across * c.down).sum();
        let kept = match (self.progressive || !whole, lossless) {
            (false, _) => 0,
            (true, false) => squares * BLOCK,
            (true, true) => squares,
        };
        let (scans, blocks, turn) = (0, 0, ExifOrientation::default());
        let (components, across, is_adobe) = (self.count, self.finest().0, false);
        MarkerSummary { height, width, precision, lossless, scans, kept, blocks, components, across, turn, is_adobe }
    }

    /// Records the bits that a scan sends. Returns the number of blocks that it goes through.
    fn scan(&mut self, body: &[u8]) -> Result<u64, String> {
        let wrong = || String::from("a scan header does not match the frame header");
        let (&count, rest) = body.split_first().ok_or_else(wrong)?;
        let (selectors, rest) = rest.split_at_checked(2 * usize::from(count)).ok_or_else(wrong)?;
        let &[first, last, bits, ..] = rest else { return Err(wrong()) };
        let mut squares = 0;
        for &[id, _] in selectors.as_chunks::<2>().0 {
            let mcus = self.mcus();
            let known = self.components[..self.count].iter_mut().find(|component| component.id == id);
            let component = known.ok_or_else(wrong)?;
            squares += mcus * component.across * component.down;
            let sent = component.missing.0.get_mut(usize::from(first)..=usize::from(last.min(63)));
            sent.unwrap_or(&mut []).fill(bits & 15);
        }
        // In lossless files, a unit is a single sample, so it counts less than a block.
        Ok(if self.lossless { squares / 8 } else { squares })
    }

    /// Returns true if the scans have sent all bits of all coefficients. A sequential scan always does.
    fn is_complete(&self) -> bool {
        !self.progressive || self.components().iter().all(|component| component.missing.0 == [0; 64])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRESSIVE: &[u8] = include_bytes!("../../../tests/golden/pictures/progressive.jpg");
    const BASELINE: &[u8] = include_bytes!("../../../tests/golden/pictures/420.jpg");

    #[test]
    fn summary_has_scans_components_and_memory() {
        let baseline = MarkerSummary::read(BASELINE, false).unwrap();
        assert_eq!(MarkerSummary::read(BASELINE, true).unwrap(), baseline);
        assert_eq!((baseline.scans, baseline.kept, baseline.lossless, baseline.components), (1, 0, false, 3));
        let progressive = MarkerSummary::read(PROGRESSIVE, false).unwrap();
        assert!(progressive.scans > 3 && progressive.kept > 0, "{progressive:?}");
        let blocks = u64::from(progressive.height.div_ceil(16) * progressive.width.div_ceil(16)) * 6;
        assert_eq!(progressive.kept, blocks * 128);
        let spec = ImageSpec::new(progressive.height, progressive.width, 3);
        assert_eq!(progressive.cost(spec, 3).memory, progressive.kept + spec.values() as u64);
    }

    /// This also tests files that have an end marker but lack whole scans.
    #[test]
    fn truncated_files_are_refused_at_every_length() {
        for file in [BASELINE, PROGRESSIVE] {
            for length in 2..file.len() {
                assert!(MarkerSummary::read(&file[..length], false).is_err(), "{length} of {} bytes", file.len());
            }
        }
        let scans = memchr::memmem::find_iter(PROGRESSIVE, &[0xff, SOS]).collect::<Vec<_>>();
        for &start in &scans[1..] {
            let cut = [&PROGRESSIVE[..start], &[0xff, EOI]].concat();
            assert!(MarkerSummary::read(&cut, false).unwrap_err().contains("progressive"), "{start}");
        }
    }

    #[test]
    fn stray_bytes_between_markers_are_skipped() {
        let whole = MarkerSummary::read(BASELINE, false).unwrap();
        let frame = memchr::memmem::find(BASELINE, &[0xff, 0xc0]).unwrap();
        for odd in [&[0, 1, 2][..], &[0xff, 0xff], &[0xff, 0, 7], &[0xff, 0xd3], &[0xff, 0x01]] {
            let file = [&BASELINE[..frame], odd, &BASELINE[frame..], &[1, 2, 3]].concat();
            assert_eq!(MarkerSummary::read(&file, false), Ok(whole), "{odd:?}");
        }
        assert!(MarkerSummary::read(&[0xff, SOI, 0xff, EOI], false).unwrap_err().contains("no image"));
    }
}
