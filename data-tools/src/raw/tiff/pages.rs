//! Decodes the chosen TIFF page, or all pages as bands in one image.

use std::io::Cursor;

use loaders::{Cost, ImageSpec, Limits};
use tiff::decoder::Decoder;
use tiff::tags::Tag;

use super::{Layout, fault};
use crate::raw::{Page, RawImage, RawOptions, check_bands};

/// Upper bound for the time to read a directory entry, or the offset of a strip or tile.
const SECONDS_PER_ENTRY: f64 = 1e-7;
/// NewSubfileType bits for a page that is a smaller copy or a mask.
const COPY_OR_MASK: u32 = 0b101;

/// Returns true if there are more pages than the first, apart from smaller copies and masks. Only examines the next
/// `COPIES` pages.
pub fn has_more_pages(file: &[u8], limits: &Limits) -> bool {
    /// More copies than any program writes: each copy is half as large as the copy before it.
    const COPIES: usize = 32;
    let Ok(mut pages) = Pages::open(file, limits) else { return false };
    let is_page = |_| Some(pages.next().ok()? && !pages.is_copy().ok()?);
    (0..COPIES).map_while(is_page).any(|is_page| is_page)
}

/// Returns the numbers of all pages, from 1, apart from smaller copies and masks.
pub fn pages(file: &[u8], limits: &Limits) -> Result<Vec<u32>, String> {
    let (mut pages, mut numbers) = (Pages::open(file, limits)?, Vec::new());
    loop {
        if !pages.is_copy()? {
            numbers.push(pages.number);
        }
        if !pages.next()? {
            return Ok(numbers);
        }
    }
}

/// Decodes one page, or all pages as bands in one image.
pub fn decode(file: &[u8], options: &RawOptions, limits: &Limits) -> Result<RawImage, String> {
    let mut pages = Pages::open(file, limits)?;
    match options.page {
        Page::Number(number) => {
            while pages.number < number {
                if !pages.next()? {
                    let last = pages.number;
                    return Err(format!("page {number} does not exist: the TIFF has {last}; choose one with --page"));
                }
            }
            let layout = pages.layout(options)?;
            let seconds = pages.seconds + layout.seconds(file);
            layout.decode(file, limits, 1, seconds)
        }
        Page::All => {
            let (mut layouts, mut bands) = (Vec::new(), 0);
            loop {
                if !pages.is_copy()? {
                    let layout = pages.layout(options)?;
                    bands += layout.bands;
                    check_bands(bands)?;
                    layouts.push((pages.number, layout));
                }
                if !pages.next()? {
                    break;
                }
            }
            stack(file, &mut layouts, limits, pages.seconds)
        }
    }
}

/// The `tiff` crate may use this much memory for a tag.
const MEMORY_PER_TAG: usize = 256 << 20;

/// Reads a file's directories one by one. A small file can have millions, because directories may share bytes.
struct Pages<'a> {
    file: &'a [u8],
    limits: &'a Limits,
    decoder: Decoder<Cursor<&'a [u8]>>,
    /// Number of the current page, from 1.
    number: u32,
    /// Estimated time for reading the directories.
    seconds: f64,
    /// Memory that the returned layouts use.
    memory: u64,
}

impl<'a> Pages<'a> {
    fn open(file: &'a [u8], limits: &'a Limits) -> Result<Self, String> {
        check_first_directory(file)?;
        let mut tag_limits = tiff::decoder::Limits::default();
        tag_limits.decoding_buffer_size = MEMORY_PER_TAG.min(64 * file.len());
        let decoder = Decoder::new(Cursor::new(file)).map_err(fault)?.with_limits(tag_limits);
        let mut pages = Pages { file, limits, decoder, number: 1, seconds: 0.0, memory: 0 };
        pages.charge()?;
        Ok(pages)
    }

    /// Goes to the next page. Returns false after the last page.
    fn next(&mut self) -> Result<bool, String> {
        if !self.decoder.more_images() {
            return Ok(false);
        }
        self.decoder.next_image().map_err(fault)?;
        self.number += 1;
        self.charge()?;
        Ok(true)
    }

    /// Returns true if the page is a smaller copy or a mask of another page.
    fn is_copy(&mut self) -> Result<bool, String> {
        let kind = self.decoder.find_tag_unsigned::<u32>(Tag::NewSubfileType).map_err(fault)?;
        Ok(kind.unwrap_or(0) & COPY_OR_MASK != 0)
    }

    fn layout(&mut self, options: &RawOptions) -> Result<Layout, String> {
        let layout = Layout::read(&mut self.decoder, self.file, options.nodata)?;
        self.memory += (layout.places.len() * size_of::<(u64, u64)>()) as u64;
        self.check()?;
        Ok(layout)
    }

    /// Adds the time for reading the current page's directory.
    fn charge(&mut self) -> Result<(), String> {
        let chunks = [Tag::StripOffsets, Tag::TileOffsets].map(|tag| {
            let offsets = self.decoder.find_tag_unsigned_vec::<u64>(tag);
            offsets.ok().flatten().map_or(0, |offsets| offsets.len())
        });
        let entries = self.decoder.ifd_pointer().and_then(|start| entries(self.file, start.0)).unwrap_or(0);
        self.seconds += SECONDS_PER_ENTRY * (entries as f64 + (chunks[0] + chunks[1]) as f64);
        self.check()
    }

    fn check(&self) -> Result<(), String> {
        let cost = Cost { spec: ImageSpec::new(1, 1, 1), memory: self.memory, scans: 1, seconds: self.seconds };
        self.limits.check("TIFF", self.file.len() as u64, &cost).map_err(|fault| fault.to_string())
    }
}

/// Decodes pages with equal sizes as bands in one image. Each page comes with its number. `seconds` is the time spent
/// so far.
fn stack(file: &[u8], pages: &mut [(u32, Layout)], limits: &Limits, seconds: f64) -> Result<RawImage, String> {
    let [(_, first), others @ ..] = &*pages else { return Err("a TIFF without a page at full resolution".into()) };
    let shape = |page: &Layout| (page.height, page.width, page.samples.dtype());
    let mut named = first.nodata;
    for (number, page) in others {
        if let (Some(known), Some(nodata)) = (named, page.nodata)
            && known.to_bits() != nodata.to_bits()
        {
            return Err(format!(
                "page {number} has the nodata value {nodata}, but an earlier page has {known}; set the value for all pages with --nodata"
            ));
        }
        named = named.or(page.nodata);
        if shape(page) != shape(first) {
            let [(h, w, t), (height, width, dtype)] = [shape(page), shape(first)];
            return Err(format!(
                "page {number} has {h}x{w} pixels of {t}, but the first one has {height}x{width} of {dtype}; choose one page with \
                 --page N"
            ));
        }
    }
    // missing tiles of a page without the tag also have no data
    pages.iter_mut().for_each(|(_, page)| page.nodata = named);
    let first = &pages[0].1;
    let bands: usize = pages.iter().map(|(_, page)| page.bands).sum();
    let seconds = seconds + pages.iter().map(|(_, page)| page.seconds(file)).sum::<f64>();
    let size = first.samples.dtype().bytes();
    let mut whole = RawImage { bytes: Vec::new(), nodata: named, ..first.image(bands) };
    let mut start = 0;
    for (_, page) in &*pages {
        let part = page.decode(file, limits, bands.div_ceil(page.bands), seconds)?;
        whole.bytes.resize(first.height * first.width * bands * size, 0);
        let (from, to) = (page.bands * size, bands * size);
        for (pixel, out) in part.bytes.chunks_exact(from).zip(whole.bytes.chunks_exact_mut(to)) {
            out[start..start + from].copy_from_slice(pixel);
        }
        start += from;
    }
    Ok(whole)
}

/// Returns an error if a tag of the first directory declares more values than the file has bytes. The `tiff` crate
/// reserves memory for all of them when it opens a file, whatever the size of the file. For later directories, `Pages`
/// sets limits.
pub(crate) fn check_first_directory(file: &[u8]) -> Result<(), String> {
    let Some((tag, count)) = oversized_tag(file) else { return Ok(()) };
    Err(format!(
        "a damaged TIFF: tag {tag} declares {count} values, but the file has only {} bytes; save it or fetch it again",
        file.len()
    ))
}

/// Returns the first tag of the first directory that declares more values than the file has bytes, and their number.
fn oversized_tag(file: &[u8]) -> Option<(u64, u64)> {
    let (long, size) = if is_big_tiff(file) { (8, 20) } else { (4, 12) };
    let start = number(file, long, long)?;
    let first = usize::try_from(start).ok()?.checked_add(if is_big_tiff(file) { 8 } else { 2 })?;
    let present = (file.len().saturating_sub(first) / size) as u64;
    (0..entries(file, start)?.min(present)).find_map(|entry| {
        let at = first + size * entry as usize;
        let (tag, count) = (number(file, at, 2)?, number(file, at + 4, long)?);
        (count > file.len() as u64).then_some((tag, count))
    })
}

/// Returns the number of entries in the directory at this offset.
fn entries(file: &[u8], start: u64) -> Option<u64> {
    number(file, usize::try_from(start).ok()?, if is_big_tiff(file) { 8 } else { 2 })
}

fn is_big_tiff(file: &[u8]) -> bool {
    matches!(file, [b'I', _, 43, ..] | [b'M', _, _, 43, ..])
}

/// Reads an unsigned integer with `length` bytes in the file's byte order.
fn number(file: &[u8], at: usize, length: usize) -> Option<u64> {
    let bytes = file.get(at..at.checked_add(length)?)?;
    let add = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
    Some(if file.starts_with(b"I") { bytes.iter().rev().fold(0, add) } else { bytes.iter().fold(0, add) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_with_more_values_than_bytes() {
        // The only entry is ImageWidth (256) with the type LONG.
        let little = |count: u32| {
            let head = [&b"II\x2a\0\x08\0\0\0"[..], &[1, 0, 0, 1, 4, 0]].concat();
            [head, count.to_le_bytes().to_vec(), vec![9; 8]].concat()
        };
        let big = |count: u64| {
            let head = [&b"MM\0\x2b\0\x08\0\0"[..], &16u64.to_be_bytes(), &1u64.to_be_bytes(), &[1, 0, 0, 4]].concat();
            [head, count.to_be_bytes().to_vec(), vec![9; 16]].concat()
        };
        assert_eq!([oversized_tag(&little(26)), oversized_tag(&little(27))], [None, Some((256, 27))]);
        assert_eq!([oversized_tag(&big(52)), oversized_tag(&big(53))], [None, Some((256, 53))]);
        // The crate reports directories that are cut short or outside the file.
        for file in [&little(99)[..17], b"II\x2a\0\xff\xff\xff\xff", &big(99)[..12], b"MM\0\x2b", b"", b"II"] {
            assert_eq!(oversized_tag(file), None, "{file:?}");
        }
        let message = check_first_directory(&little(2_771_273)).unwrap_err();
        assert!(["256", "2771273", "26 bytes"].iter().all(|part| message.contains(part)), "{message}");
    }
}
