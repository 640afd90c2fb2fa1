//! Makes a JPEG file from some of the MCUs of another file, without decoding: the MCUs between entry points, in
//! consecutive rows.
//!
//! The codes of the MCUs are copied bit for bit. Each row starts with additional leading MCUs. Their DC differences
//! change the DC coefficients from those at the end of the previous row to those that the first MCU of this row refers
//! to. AC coefficients fill the leading MCUs, so that the row starts at the same bit within a byte as in the original
//! file. Then its bytes can be copied. The pixels of the leading MCUs are never used.

use super::bits::{BitWriter, Code, Codes, Position};
use super::entry_points::{EntryPoints, Point};
use super::sequential::{COMPONENTS, SequentialJpeg};
use crate::decode::region::Region;

/// Maximum number of leading MCUs per row.
const MAX_LEADING: usize = 8;
/// The AC symbol for the end of a block.
const END_OF_BLOCK: usize = 0;
/// Number of zero bytes to append to an excerpt, per block of an MCU. libjpeg-turbo switches from its fast Huffman
/// decoder to a slow one when fewer bytes are left.
const PADDING: usize = 512;
/// Maximum side length of an image in libjpeg.
const MAX_SIDE: usize = 65_500;

/// The position of an excerpt in the image, in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ExcerptPosition {
    /// Number of image rows before the excerpt.
    pub rows: usize,
    /// Number of image columns before the excerpt.
    pub columns: usize,
    /// Number of leading columns in the excerpt, before columns of the image.
    pub leading: usize,
}

/// Makes excerpts and reuses its memory.
#[derive(Debug, Default)]
pub(super) struct Excerpts {
    points: EntryPoints,
    codes: Vec<ComponentCodes>,
    /// Codes for a row's leading MCUs.
    lead: Vec<Code>,
    /// The most recent excerpt, a JPEG file.
    file: Vec<u8>,
}

/// The codes of a component, and the number of its blocks per MCU.
#[derive(Debug)]
struct ComponentCodes {
    blocks: usize,
    dc: Codes,
    ac: Codes,
}

impl Excerpts {
    /// Returns the most recent excerpt, a JPEG file.
    pub fn file(&self) -> &[u8] {
        &self.file
    }

    /// Makes a file with the pixels in `need` from a file with these `entry_points`, which must belong to it.
    ///
    /// Returns `None` if the excerpt would start at the first row and have all columns, if the image is only one MCU wide,
    /// or if the entry points do not match the file. Also returns `None` if the file's Huffman tables do not have the codes
    /// for the leading MCUs, or if the excerpt would need too many of them or be too wide.
    pub fn make(&mut self, file: &[u8], entry_points: &[u8], need: Region) -> Option<ExcerptPosition> {
        let image = SequentialJpeg::parse(file, &mut self.file)?;
        let (across, down) = image.mcus();
        if across < 2 {
            // libjpeg processes the chroma of a very narrow image differently.
            return None;
        }
        self.points.read(entry_points, &image)?;
        let step = self.points.step;
        let mcus = Region {
            top: need.top / image.mcu.1,
            left: need.left / image.mcu.0 / step * step,
            bottom: need.bottom.div_ceil(image.mcu.1).min(down),
            right: need.right.div_ceil(image.mcu.0).next_multiple_of(step).min(across),
        };
        if (mcus.top, mcus.left, mcus.right) == (0, 0, across) {
            return None;
        }
        self.codes.clear();
        self.codes.extend(image.components().map(|c| ComponentCodes {
            blocks: c.blocks,
            dc: c.dc.codes(),
            ac: c.ac.codes(),
        }));
        let leading = (mcus.top..mcus.bottom).try_fold(1, |most, row| Some(self.leading(mcus, row)?.max(most)))?;
        let side = |first: usize, last: usize, all: usize, unit: usize| (last * unit).min(all) - first * unit;
        let height = side(mcus.top, mcus.bottom, image.height, image.mcu.1);
        let width = leading * image.mcu.0 + side(mcus.left, mcus.right, image.width, image.mcu.0);
        if leading > MAX_LEADING || width > MAX_SIDE {
            return None;
        }
        image.resize(&mut self.file, width, height)?;
        self.write(image.data, mcus, leading)?;
        self.file.extend_from_slice(&[0xff, 0xd9]);
        self.file.resize(self.file.len() + PADDING * image.blocks(), 0);
        let (columns, rows) = (mcus.left * image.mcu.0, mcus.top * image.mcu.1);
        Some(ExcerptPosition { rows, columns, leading: leading * image.mcu.0 })
    }

    /// Returns the positions at which the codes of a row of `mcus` begin and end. The unit of `mcus` is MCUs, not
    /// pixels, here and below.
    fn ends(&self, mcus: Region, row: usize) -> Option<(Point, Point)> {
        let step = self.points.step;
        let begin = *self.points.get(row, mcus.left / step)?;
        Some((begin, *self.points.get(row, mcus.right.div_ceil(step))?))
    }

    /// Returns the change of each component's DC coefficient that the leading MCUs of a row must make. It leads from
    /// the value at the end of the excerpt's previous row to the value that the first MCU of this row refers to.
    fn changes(&self, mcus: Region, row: usize) -> Option<[i32; COMPONENTS]> {
        let before = if row == mcus.top { Point::default() } else { self.ends(mcus, row - 1)?.1 };
        let (begin, _) = self.ends(mcus, row)?;
        Some(std::array::from_fn(|i| i32::from(begin.dc[i]) - i32::from(before.dc[i])))
    }

    /// Returns the number of leading MCUs that a row needs.
    fn leading(&self, mcus: Region, row: usize) -> Option<usize> {
        let mut most = 1;
        for (component, mut left) in self.codes.iter().zip(self.changes(mcus, row)?) {
            let mut differences = 0usize;
            while left != 0 {
                left -= component.difference(left)?;
                differences += 1;
            }
            most = most.max(differences.div_ceil(component.blocks));
        }
        Some(most)
    }

    /// Appends the codes of `mcus`, with `leading` MCUs before each row.
    fn write(&mut self, data: &[u8], mcus: Region, leading: usize) -> Option<()> {
        let mut file = std::mem::take(&mut self.file);
        let mut bits = BitWriter::new(&mut file);
        let (fillers, mut lead) = (self.codes.first()?.fillers(), std::mem::take(&mut self.lead));
        for row in mcus.top..mcus.bottom {
            let ((begin, end), changes) = (self.ends(mcus, row)?, self.changes(mcus, row)?);
            let (begin, end) = (Position::from_bits(begin.bits), Position::from_bits(end.bits));
            lead.clear();
            let first = self.lead(changes, leading, &mut lead)?;
            let length: u32 = lead.iter().map(|code| u32::from(code.length)).sum();
            let missing = begin.bit.wrapping_sub(bits.phase() + length) % 8;
            let filler = fillers[missing as usize]?;
            let (front, back) = lead.split_at(first);
            front.iter().for_each(|code| bits.put(code.bits.into(), code.length.into()));
            for _ in 0..filler.count {
                bits.put(filler.code.bits.into(), filler.code.length.into());
                bits.put(u32::MAX, filler.extra.into());
            }
            back.iter().for_each(|code| bits.put(code.bits.into(), code.length.into()));
            bits.copy(data, begin, end)?;
        }
        bits.finish();
        (self.file, self.lead) = (file, lead);
        Some(())
    }

    /// Appends the codes of a row's leading MCUs without AC coefficients. Returns the index at which AC coefficients of
    /// the first block can be inserted.
    fn lead(&self, mut changes: [i32; COMPONENTS], leading: usize, lead: &mut Vec<Code>) -> Option<usize> {
        let mut first = None;
        for _ in 0..leading {
            for (component, left) in self.codes.iter().zip(&mut changes) {
                for _ in 0..component.blocks {
                    let difference = if *left == 0 { 0 } else { component.difference(*left)? };
                    *left -= difference;
                    lead.extend(component.dc_codes(difference)?);
                    first = first.or(Some(lead.len()));
                    lead.push(Some(component.ac[END_OF_BLOCK]).filter(|code| code.length > 0)?);
                }
            }
        }
        first
    }
}

/// A sequence of equal AC coefficients that fills a certain number of bits.
#[derive(Debug, Clone, Copy)]
struct Filler {
    /// The code for the run of zeros and the number of extra bits.
    code: Code,
    /// Number of extra bits that follow each coefficient's code.
    extra: u8,
    count: u8,
}

impl ComponentCodes {
    /// Returns the largest DC difference in the direction of `left`, which must not be 0, that has a code.
    fn difference(&self, left: i32) -> Option<i32> {
        let size = left.unsigned_abs();
        let length = (1..=size.ilog2() + 1)
            .rev()
            .find(|&length| self.dc.get(length as usize).is_some_and(|code| code.length > 0))?;
        let value = size.min((1 << length) - 1) as i32;
        Some(value * left.signum())
    }

    /// Returns the codes of a DC difference: the code of its length, and its bits.
    fn dc_codes(&self, difference: i32) -> Option<[Code; 2]> {
        let length = difference.checked_abs()?.checked_ilog2().map_or(0, |log| log + 1);
        let code = Some(self.dc[length as usize]).filter(|code| code.length > 0)?;
        let bits = if difference < 0 { difference - 1 } else { difference };
        let bits = bits as u16 & ((1u32 << length) - 1) as u16;
        Some([code, Code { bits, length: length as u8 }])
    }

    /// For each number of bits modulo 8, finds AC coefficients of a block that take this number of bits.
    fn fillers(&self) -> [Option<Filler>; 8] {
        let mut fillers = [None; 8];
        fillers[0] = Some(Filler { code: Code::default(), extra: 0, count: 0 });
        for (symbol, &code) in self.ac.iter().enumerate() {
            let (run, extra) = (symbol >> 4, (symbol & 15) as u8);
            if code.length == 0 || extra == 0 {
                continue;
            }
            // A block has 63 AC coefficients.
            for count in 1..=(63 / (run + 1)).min(7) as u8 {
                let place = &mut fillers[usize::from(count * (code.length + extra) % 8)];
                let is_fewer = place.is_none_or(|old: Filler| count < old.count);
                if is_fewer {
                    *place = Some(Filler { code, extra, count });
                }
            }
        }
        fillers
    }
}
