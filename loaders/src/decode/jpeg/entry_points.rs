//! Entry points of a JPEG file: positions in its data where decoding can begin. They are stored in the record, and the
//! file does not change.
//!
//! Huffman codes have no markers. To find a block, all codes before it must be read, and its DC coefficient is stored
//! as the difference from the previous block's. An entry point contains both: the bit at which the codes of an MCU
//! begin, and the last DC coefficient of each component before it. There is an entry point for every few MCUs of each
//! row. So if only a part of an image is needed, little more is decoded.
//!
//! The format is: CRC-32C (u32) of the file followed by all bytes after the checksum, then the number of MCUs between
//! entry points of a row (u16). Then follow the entry points, row by row, and the end of the data. Each is stored as
//! the difference from the previous one: a varint with the number of bits, and for each component a zigzag varint with
//! the change of its DC coefficient. Integers are little-endian, and varints are protobuf's.

use super::bits::{BitReader, HuffmanDecoder};
use super::sequential::{COMPONENTS, SequentialJpeg};
use crate::crc32c::{crc32c, crc32c_append};
use crate::fault::Fault;
use crate::format::example::Example;
use crate::format::protobuf::{put_varint, varint};

/// Size in bytes of the checksum and of the number of MCUs between entry points.
const HEAD: usize = 6;
/// The entry points, including their key in the record, take less than 1 / `SHARE` of the file's size.
const SHARE: usize = 50;
/// Maximum number of bytes in the record for the key and for the lengths of the entry and its value.
const KEY: usize = 44;
/// Maximum number of blocks per MCU that libjpeg decodes.
const BLOCKS: usize = 10;
/// Maximum size of a DC difference in bits.
const DC_BITS: u8 = 11;

/// The position at which an MCU begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Point {
    /// Number of bits before the MCU in the data, as returned by `Position::bits`.
    pub bits: u64,
    /// The last DC coefficient of each component before the MCU.
    pub dc: [i16; COMPONENTS],
}

/// The entry points of an image, row by row.
#[derive(Debug, Default)]
pub(super) struct EntryPoints {
    /// Number of MCUs from an entry point to the next in the same row.
    pub step: usize,
    /// Number of entry points per row.
    columns: usize,
    /// All entry points, row by row, followed by the position of the end of the data.
    points: Vec<Point>,
}

impl EntryPoints {
    /// Returns the entry point of MCU `step` * `column` of a row. The entry point after the last column is the first
    /// one of the next row.
    pub fn get(&self, row: usize, column: usize) -> Option<&Point> {
        self.points.get(row * self.columns + column)
    }

    /// Replaces the entry points by those in `bytes`, whose checksum must have been verified. Returns `None` if they do
    /// not have the form that this file needs.
    pub fn read(&mut self, bytes: &[u8], file: &SequentialJpeg<'_>) -> Option<()> {
        let (head, mut rest) = bytes.split_first_chunk::<HEAD>()?;
        let (across, down) = file.mcus();
        self.step = usize::from(u16::from_le_bytes([head[4], head[5]]));
        self.columns = across.div_ceil(Some(self.step).filter(|step| *step > 0)?);
        let count = self.columns * down + 1;
        let components = file.components().count();
        self.points.clear();
        // Each number needs at least a byte.
        if rest.len() < count * (1 + components) {
            return None;
        }
        let mut point = Point::default();
        for _ in 0..count {
            point.bits = point.bits.checked_add(varint(&mut rest).ok()?)?;
            for dc in &mut point.dc[..components] {
                let code = varint(&mut rest).ok()?;
                let change = (code >> 1) as i64 ^ -((code & 1) as i64);
                *dc = i16::try_from(i64::from(*dc).checked_add(change)?).ok()?;
            }
            self.points.push(point);
        }
        rest.is_empty().then_some(())
    }
}

/// Returns true if `bytes` were made for this file and are intact.
pub(super) fn match_file(bytes: &[u8], file: &[u8]) -> bool {
    let own = |(sum, rest): (&[u8; 4], &[u8])| u32::from_le_bytes(*sum) == checksum(rest, file);
    bytes.len() <= file.len() / SHARE && bytes.split_first_chunk().is_some_and(own)
}

/// Writes the checksum to the front of `bytes`.
pub fn write_checksum(bytes: &mut [u8], file: &[u8]) {
    if let Some((sum, rest)) = bytes.split_first_chunk_mut() {
        *sum = checksum(rest, file).to_le_bytes();
    }
}

fn checksum(rest: &[u8], file: &[u8]) -> u32 {
    crc32c_append(crc32c(file), rest)
}

/// Computes the entry points of a file, as dense as 1/50 of its size allows. Returns `None` if the file is not of a
/// supported kind (see `SequentialJpeg::parse`), if its data is damaged, or if even one entry point per row would take too
/// much space.
pub fn entry_points(file: &[u8]) -> Option<Vec<u8>> {
    let sequential = SequentialJpeg::parse(file, &mut Vec::new())?;
    let ((across, down), components) = (sequential.mcus(), sequential.components().count());
    let most = (file.len() / SHARE).saturating_sub(KEY);
    // Start with a step that probably leaves enough room. This assumes one byte per number and two more bytes per entry
    // point.
    let first = (across * down * (components + 3)).div_ceil(most.max(1)).min(across);
    let points = walk(&sequential, first)?;
    let mut every = 1;
    loop {
        let step = (first * every).min(across);
        let mut bytes = vec![0; size_of::<u32>()];
        bytes.extend_from_slice(&u16::try_from(step).ok()?.to_le_bytes());
        write(&points, across.div_ceil(first), every, components, &mut bytes);
        if bytes.len() <= most {
            write_checksum(&mut bytes, file);
            return Some(bytes);
        }
        if step == across {
            return None;
        }
        every *= 2;
    }
}

/// Checks that the entry points of an example, if any, belong to its file and are correct.
///
/// # Errors
///
/// Returns what is wrong with them.
pub fn check_entry_points(example: &Example<'_>) -> Result<(), Fault> {
    let wrong = |what: &str| Err(Fault::EntryPoints(what.into()));
    let (bytes, file) = (example.entry_points, example.encoded);
    if bytes.is_empty() {
        return Ok(());
    }
    if !match_file(bytes, file) {
        return wrong("the entry points are damaged, or belong to another file");
    }
    let Some(sequential) = SequentialJpeg::parse(file, &mut Vec::new()) else {
        return wrong("only sequential JPEG files with a single scan can have entry points");
    };
    let ((across, _), components) = (sequential.mcus(), sequential.components().count());
    let step = bytes.get(4..HEAD).map_or(0, |step| usize::from(u16::from_le_bytes([step[0], step[1]])));
    if !(1..=across).contains(&step) {
        return wrong(&format!("the distance of the entry points is {step} MCUs, expected 1 to {across}"));
    }
    let Some(points) = walk(&sequential, step) else {
        return wrong("the JPEG data is damaged, or more data follows the image");
    };
    let mut expected = bytes[..HEAD].to_vec();
    write(&points, across.div_ceil(step), 1, components, &mut expected);
    if expected == bytes { Ok(()) } else { wrong("the entry points do not match the JPEG data") }
}

/// Writes the points 0, `every`, 2 * `every`, ... of each row of `columns` points, and the end of the data.
fn write(points: &[Point], columns: usize, every: usize, components: usize, bytes: &mut Vec<u8>) {
    let (mut last, end) = (Point::default(), points.len() - 1);
    let kept = (0..end).filter(|at| (at % columns).is_multiple_of(every)).chain([end]);
    for point in kept.map(|at| points[at]) {
        put_varint(point.bits - last.bits, bytes);
        for (dc, last) in point.dc.into_iter().zip(last.dc).take(components) {
            let change = i64::from(dc) - i64::from(last);
            put_varint((change << 1 ^ change >> 63) as u64, bytes);
        }
        last = point;
    }
}

/// Reads all data of a file. Returns the positions of the MCUs 0, `step`, 2 * `step`, ... of each row, and the end of
/// the data.
fn walk(file: &SequentialJpeg<'_>, step: usize) -> Option<Vec<Point>> {
    if file.blocks() > BLOCKS {
        return None;
    }
    let tables: Vec<(usize, HuffmanDecoder, HuffmanDecoder)> =
        file.components().map(|c| (c.blocks, HuffmanDecoder::new(&c.dc), HuffmanDecoder::new(&c.ac))).collect();
    let (across, down) = file.mcus();
    let (mut bits, mut dc) = (BitReader::new(file.data), [0; COMPONENTS]);
    let mut points = Vec::new();
    for at in 0..across * down {
        if (at % across).is_multiple_of(step) {
            points.push(Point { bits: bits.position().bits(), dc });
        }
        for ((blocks, dc_table, ac_table), dc) in tables.iter().zip(&mut dc) {
            for _ in 0..*blocks {
                *dc = i16::checked_add(*dc, read_dc_difference(&mut bits, dc_table)?)?;
                skip_ac(&mut bits, ac_table)?;
            }
        }
    }
    points.push(Point { bits: bits.position().bits(), dc });
    // If anything other than the end marker follows the data, the file is not of the supported kind.
    bits.end()?.starts_with(&[0xff, 0xd9]).then_some(points)
}

/// Reads the difference of a DC coefficient from the previous one.
fn read_dc_difference(bits: &mut BitReader<'_>, table: &HuffmanDecoder) -> Option<i16> {
    bits.load();
    let length = table.read(bits)?;
    match length {
        0 => Some(0),
        1..=DC_BITS => {
            let value = bits.peek(length.into()) as i16;
            bits.skip(length.into())?;
            let negative = value >> (length - 1) == 0;
            Some(if negative { value + 1 - (1 << length) } else { value })
        }
        _ => None,
    }
}

/// Skips the AC coefficients of a block.
fn skip_ac(bits: &mut BitReader<'_>, table: &HuffmanDecoder) -> Option<()> {
    let mut at = 1;
    while at < 64 {
        bits.load();
        let symbol = table.read(bits)?;
        let (run, length) = (symbol >> 4, symbol & 15);
        match (run, length) {
            (0, 0) => return Some(()),
            (15, 0) => at += 16,
            (_, 0) => return None,
            _ => {
                bits.skip(length.into())?;
                at += usize::from(run) + 1;
            }
        }
    }
    (at == 64).then_some(())
}

// Decoding with entry points must give exactly the same pixels as without them.
#[cfg(test)]
mod tests {
    use turbojpeg::{Compressor, Image, PixelFormat, Subsamp};

    use super::super::*;
    use crate::decode::region::Region;
    use crate::random::Draws;

    /// The subsamplings for which parts of an image can be decoded.
    const SUBSAMPLINGS: [Subsamp; 7] = [
        Subsamp::None,
        Subsamp::Sub2x1,
        Subsamp::Sub2x2,
        Subsamp::Sub1x2,
        Subsamp::Sub4x1,
        Subsamp::Sub1x4,
        Subsamp::Gray,
    ];

    /// Returns an image similar to a photo: slopes, noise, and squares with edges that cause large DC differences.
    fn picture(height: usize, width: usize, noise: u32, seed: u64) -> Vec<u8> {
        let mut draws = Draws::new(seed, 7, 0, 0);
        let mut pixels = Vec::new();
        for y in 0..height {
            for x in 0..width {
                let square = if (y / 24 + x / 40) % 2 == 0 { 0 } else { 140 };
                for channel in 0..3 {
                    let value = square + (y * (channel + 1) + x) % 64 + draws.below(noise + 1) as usize;
                    pixels.push(value.min(255) as u8);
                }
            }
        }
        pixels
    }

    fn encoded(height: usize, width: usize, noise: u32, subsampling: Subsamp, optimize: bool) -> Vec<u8> {
        let pixels = picture(height, width, noise, 1);
        let mut compressor = Compressor::new().unwrap();
        compressor.set_quality(93).unwrap();
        compressor.set_subsamp(subsampling).unwrap();
        compressor.set_optimize(optimize).unwrap();
        let image = Image { pixels: pixels.as_slice(), width, pitch: 3 * width, height, format: PixelFormat::RGB };
        compressor.compress_to_vec(image).unwrap()
    }

    fn decoded(jpeg: &mut Jpeg, file: &[u8], points: &[u8], need: Need) -> (Part, Vec<u8>) {
        let header = jpeg.header(file, points).unwrap();
        let (channels, mut pixels) = (header.spec().channels, Vec::new());
        let part = jpeg.decode(file, points, header, need, channels, &mut pixels).unwrap();
        (part, pixels)
    }

    /// Decodes `crops` random crops at three scales, with and without entry points, and asserts that the pixels are
    /// equal. Returns the number of decodings, and the number of decodings from an excerpt.
    fn compare(file: &[u8], points: &[u8], crops: u32) -> (u32, u32) {
        let mut jpeg = Jpeg::new(Limits::DEFAULT).unwrap();
        let (mut draws, mut excerpts) = (Draws::new(3, 5, 0, 0), 0);
        let header = jpeg.header(file, &[]).unwrap();
        for crop in 0..crops {
            let mut span = |side: u32| {
                let length = 1 + draws.below(side);
                let first = draws.below(side - length + 1);
                (first as usize, (first + length) as usize)
            };
            let ((top, bottom), (left, right)) = (span(header.height), span(header.width));
            let region = Region { top, left, bottom, right };
            for shrink in [1.0, 2.0, 4.0] {
                let need = Need { region, shrink };
                let (part, expected) = decoded(&mut jpeg, file, &[], need);
                jpeg.excerpts = Excerpts::default();
                let (same, got) = decoded(&mut jpeg, file, points, need);
                assert_eq!((same.rows, same.columns, same.origin), (part.rows, part.columns, part.origin));
                assert!(expected == got, "crop {crop}, {region:?} at 1/{}", part.reduction);
                // A finished excerpt ends with zero padding. Without an excerpt, there is no padding.
                excerpts += u32::from(jpeg.excerpts.file().ends_with(&[0; 512]));
            }
        }
        (3 * crops, excerpts)
    }

    #[test]
    fn crops_with_entry_points_are_bit_identical() {
        for subsampling in SUBSAMPLINGS {
            for (height, width, noise) in
                [(150, 203, 60), (203, 150, 100), (161, 333, 40), (16, 640, 90), (640, 70, 90)]
            {
                for optimize in [false, true] {
                    let file = encoded(height, width, noise, subsampling, optimize);
                    let case = format!("{subsampling:?} {height} x {width}, optimized {optimize}");
                    let points = entry_points(&file).unwrap_or_else(|| panic!("{case}: no entry points"));
                    assert!(points.len() <= file.len() / 50);
                    let (all, excerpts) = compare(&file, &points, 60);
                    if width > 64 && height > 64 {
                        assert!(excerpts > all / 2, "{case}: {excerpts} excerpts of {all}");
                    }
                }
            }
        }
    }

    /// Tests images with one row, one column or one MCU. The pixels are the same with and without entry points.
    #[test]
    fn thin_images_with_entry_points_are_bit_identical() {
        let mut with_points = 0;
        for subsampling in SUBSAMPLINGS {
            for (height, width) in [(1, 3000), (2, 2000), (17, 900), (3000, 1), (900, 17), (600, 33), (9, 9), (1, 1)] {
                let file = encoded(height, width, 120, subsampling, true);
                let points = entry_points(&file).unwrap_or_default();
                with_points += usize::from(!points.is_empty());
                compare(&file, &points, 40);
            }
        }
        assert!(with_points > 3 * SUBSAMPLINGS.len(), "{with_points}");
    }

    /// A file with optimised Huffman tables has codes only for the DC differences that occur in it. So an excerpt may need
    /// several differences to reach the DC coefficients at the start of a row.
    #[test]
    fn entry_points_work_with_few_dc_huffman_codes() {
        // A single slope without edges. The difference between its end and its beginning is large.
        let (height, width) = (96, 512);
        let mut draws = Draws::new(1, 2, 0, 0);
        let pixels: Vec<u8> =
            (0..height * width).map(|at| ((at % width) / 3 + draws.below(60) as usize).min(255) as u8).collect();
        let mut compressor = Compressor::new().unwrap();
        compressor.set_quality(95).unwrap();
        compressor.set_subsamp(Subsamp::Gray).unwrap();
        compressor.set_optimize(true).unwrap();
        let image = Image { pixels: pixels.as_slice(), width, pitch: width, height, format: PixelFormat::GRAY };
        let file = compressor.compress_to_vec(image).unwrap();
        let points = entry_points(&file).unwrap();
        let (all, excerpts) = compare(&file, &points, 100);
        assert!(excerpts > all / 2, "{excerpts} of {all}");
    }

    /// Files with unusual sampling factors, which libjpeg-turbo reports as 4:4:4 or 4:4:0. Made by
    /// `cjpeg -quality 60 -optimize -sample 2x1,2x1,2x1` and so on.
    #[test]
    fn crops_are_parts_of_images_with_any_sampling_factors() {
        for name in ["2x1-2x1-2x1", "3x1-3x1-3x1", "2x2-2x1-2x1"] {
            let path = format!("{}/tests/golden/sampling/{name}.jpg", env!("CARGO_MANIFEST_DIR"));
            let file = std::fs::read(path).unwrap();
            compare(&file, &entry_points(&file).unwrap_or_default(), 100);
            let mut jpeg = Jpeg::new(Limits::DEFAULT).unwrap();
            let need = |top, left, bottom, right| Need { region: Region { top, left, bottom, right }, shrink: 1.0 };
            let (whole, expected) = decoded(&mut jpeg, &file, &[], need(0, 0, 61, 90));
            assert_eq!((whole.rows, whole.columns), (61, 90));
            for left in 0..80 {
                let (part, pixels) = decoded(&mut jpeg, &file, &[], need(7, left, 50, left + 10));
                for y in 7..50 {
                    let row = |part: &Part| 3 * ((y - part.origin.0) * part.columns + left - part.origin.1);
                    assert_eq!(
                        pixels[row(&part)..][..30],
                        expected[row(&whole)..][..30],
                        "{name}: row {y} from {left}"
                    );
                }
            }
        }
    }

    #[test]
    fn progressive_and_cmyk_files_have_no_entry_points() {
        for name in ["progressive", "cmyk"] {
            let path = format!("{}/tests/golden/pictures/{name}.jpg", env!("CARGO_MANIFEST_DIR"));
            assert_eq!(entry_points(&std::fs::read(path).unwrap()), None, "{name}");
        }
        let pixels = picture(120, 160, 80, 1);
        let image = Image { pixels: pixels.as_slice(), width: 160, pitch: 480, height: 120, format: PixelFormat::RGB };
        let mut compressor = Compressor::new().unwrap();
        compressor.set_arithmetic(true).unwrap();
        assert_eq!(entry_points(&compressor.compress_to_vec(image).unwrap()), None, "arithmetic");
        let file = encoded(120, 160, 80, Subsamp::Sub2x2, false);
        assert!(entry_points(&file).is_some());
        // A file has no entry points if it is cut off anywhere or empty, or if a restart marker is inserted into its
        // data.
        let cuts = (0..file.len()).step_by(97).chain([file.len() - 1, file.len() - 2]);
        assert!(cuts.into_iter().all(|length| entry_points(&file[..length]).is_none()));
        let scan = memchr::memmem::find(&file, &[0xff, 0xda]).unwrap();
        let marked = [&file[..scan + 400], &[0xff, 0xd0], &file[scan + 400..]].concat();
        assert_eq!(entry_points(&marked), None);
        // A file with restart intervals also gets no entry points.
        let restarts = [&file[..scan], &[0xff, 0xdd, 0, 4, 0, 10], &file[scan..]].concat();
        assert_eq!(entry_points(&restarts), None);
    }

    /// Entry points of another file and damaged entry points are not used.
    #[test]
    fn entry_points_of_another_file_are_not_used() {
        let file = encoded(150, 203, 60, Subsamp::Sub2x2, false);
        let other = encoded(150, 203, 61, Subsamp::Sub2x2, false);
        let points = entry_points(&file).unwrap();
        assert!(entry_points::match_file(&points, &file));
        assert_eq!(compare(&other, &points, 20).1, 0);
        for at in 0..points.len() {
            let mut damaged = points.clone();
            damaged[at] ^= 1 << (at % 8);
            assert!(!entry_points::match_file(&damaged, &file));
        }
        assert!((0..points.len()).all(|length| !entry_points::match_file(&points[..length], &file)));
    }

    /// For arbitrary entry points with a valid checksum, the result is an image or a fault, and the decoder still works
    /// for the next image.
    #[test]
    fn wrong_entry_points_with_a_valid_checksum_are_harmless() {
        let file = encoded(150, 203, 60, Subsamp::Sub2x2, false);
        let points = entry_points(&file).unwrap();
        let need = Need { region: Region { top: 50, left: 70, bottom: 110, right: 150 }, shrink: 1.0 };
        let mut jpeg = Jpeg::new(Limits::DEFAULT).unwrap();
        let expected = decoded(&mut jpeg, &file, &[], need).1;
        let mut draws = Draws::new(1, 1, 0, 0);
        let mut faults = 0;
        for round in 0..2000 {
            let mut wrong = points.clone();
            for _ in 0..1 + draws.below(3) {
                let at = 4 + draws.below(wrong.len() as u32 - 4) as usize;
                wrong[at] = draws.next_u32() as u8;
            }
            if round % 3 == 0 {
                wrong.truncate(4 + draws.below(wrong.len() as u32 - 4) as usize);
            }
            entry_points::write_checksum(&mut wrong, &file);
            let header = jpeg.header(&file, &wrong).unwrap();
            let mut pixels = Vec::new();
            if let Err(fault) = jpeg.decode(&file, &wrong, header, need, 3, &mut pixels) {
                assert!(matches!(fault, Fault::EntryPoints(_)), "{fault}");
                faults += 1;
                jpeg = Jpeg::new(Limits::DEFAULT).unwrap();
            }
        }
        assert!(faults > 0);
        assert!(decoded(&mut jpeg, &file, &points, need).1 == expected);
    }
}
