//! Converts decoded bytes to planar floats, with padding, mirroring, resizing and one table of values per channel.
//!
//! All of this happens in a single pass. RGB rows are converted with vector instructions if the CPU has AVX2 and the
//! tables are linear.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use crate::decode::Decoded;
use crate::transform::geometry::{Geometry, Resize, VisiblePart, Window, rgb};
use crate::transform::resample::{AxisRequest, Mirror, Planes, Resampler, ResizeRequest, Rows, Span};

/// The position of an image's visible rows in planes of `height` x `width`.
#[derive(Debug, Clone, Copy)]
struct Area {
    pub height: usize,
    pub width: usize,
    /// Number of padding rows above the image.
    pub above: usize,
    /// Number of padding columns to the left of the image.
    pub ahead: usize,
    /// Number of visible rows, at least 1.
    pub rows: usize,
}

impl Area {
    /// Writes RGB pixels as floats with vector instructions. Returns false without writing anything if a table is not
    /// linear, if a row is too short, or if the CPU does not have AVX2. The caller must then write each row with the tables.
    pub fn paint_rgb(self, pixels: Pixels<'_>, scales: &[Scale], values: &mut [f32]) -> bool {
        let Area { height, width, above, ahead, rows } = self;
        let scale = |channel: usize| &scales[channel % scales.len()];
        let [Some(red), Some(green), Some(blue)] = [0, 1, 2].map(|channel| scale(channel).exact) else { return false };
        if pixels.columns < FEWEST || !is_supported() {
            return false;
        }
        let start = above * width + ahead;
        let end = start + (rows - 1) * width + pixels.columns;
        for (channel, exact) in [red, green, blue].into_iter().enumerate() {
            let plane = &mut values[channel * height * width..][..height * width];
            let padding = scale(channel).table[0];
            plane[..start].fill(padding);
            plane[end..].fill(padding);
            let target = Target { values: &mut plane[start..end], width, padding };
            paint_plane(pixels, channel, exact, target);
        }
        true
    }
}

/// The position of an image row in the planes.
struct Row {
    pub start: usize,
    pub width: usize,
    pub plane: usize,
    /// Number of padding columns to the left of the pixels, or the whole width if the row has no pixels.
    pub ahead: usize,
    pub flipped: bool,
}

impl Row {
    /// Fills the padding of the row in a plane and returns the part for `columns` pixels.
    fn part<'p>(&self, plane: &'p mut [f32], columns: usize, padding: f32) -> &'p mut [f32] {
        let row = &mut plane[self.start..self.start + self.width];
        let (ahead, rest) = row.split_at_mut(self.ahead);
        let (part, behind) = rest.split_at_mut(columns);
        ahead.fill(padding);
        behind.fill(padding);
        part
    }

    pub fn paint_rgb(&self, pixels: &[u8], scales: &[Scale], values: &mut [f32]) {
        let table = |channel: usize| &scales[channel % scales.len()].table;
        let [red_table, green_table, blue_table] = [0, 1, 2].map(table);
        let (pixels, _) = pixels.as_chunks::<3>();
        let [red, green, blue] = rgb(&mut values[..3 * self.plane]);
        let red = self.part(red, pixels.len(), red_table[0]);
        let green = self.part(green, pixels.len(), green_table[0]);
        let blue = self.part(blue, pixels.len(), blue_table[0]);
        let targets = red.iter_mut().zip(green).zip(blue);
        let paint_pixel = |(((r, g), b), pixel): (((&mut f32, &mut f32), &mut f32), &[u8; 3])| {
            *r = red_table[usize::from(pixel[0])];
            *g = green_table[usize::from(pixel[1])];
            *b = blue_table[usize::from(pixel[2])];
        };
        if self.flipped {
            targets.zip(pixels.iter().rev()).for_each(paint_pixel);
        } else {
            targets.zip(pixels).for_each(paint_pixel);
        }
    }

    pub fn paint_any(&self, channels: usize, pixels: &[u8], scales: &[Scale], values: &mut [f32]) {
        let columns = pixels.len() / channels;
        for channel in 0..channels {
            let table = &scales[channel % scales.len()].table;
            let plane = &mut values[channel * self.plane..][..self.plane];
            let part = self.part(plane, columns, table[0]);
            let bytes = pixels.get(channel..).unwrap_or(&[]);
            match (channels, self.flipped) {
                (1, false) => paint_values(part, bytes.iter(), table),
                (1, true) => paint_values(part, bytes.iter().rev(), table),
                (_, false) => paint_values(part, bytes.iter().step_by(channels), table),
                (_, true) => paint_values(part.iter_mut().rev(), bytes.iter().step_by(channels), table),
            }
        }
    }
}

fn paint_values<'v, 'b>(
    values: impl IntoIterator<Item = &'v mut f32>,
    bytes: impl Iterator<Item = &'b u8>,
    table: &Table,
) {
    for (value, byte) in values.into_iter().zip(bytes) {
        *value = table[usize::from(*byte)];
    }
}

pub(super) type Table = [f32; 256];

/// A function of the values 0 to 255: a table for bytes, and `value * factor + offset` for the values between them.
#[derive(Debug)]
pub(super) struct Scale {
    pub table: Table,
    pub factor: f32,
    pub offset: f32,
    /// A factor and an offset in f64 that reproduce the table exactly, if they exist.
    pub exact: Option<Exact>,
}

/// Computes `value * factor + offset` in f64 and rounds once to f32.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exact {
    pub factor: f64,
    pub offset: f64,
}

impl Exact {
    fn scaled(self, byte: u8) -> f32 {
        (f64::from(byte) * self.factor + self.offset) as f32
    }
}

impl Scale {
    /// `table` must contain `value * factor + offset` up to rounding.
    pub fn new(table: Table, factor: f64, offset: f64) -> Self {
        let exact = Exact { factor, offset };
        let gives_table = (0..=255u8).all(|byte| exact.scaled(byte).to_bits() == table[usize::from(byte)].to_bits());
        Self { table, factor: factor as f32, offset: offset as f32, exact: gives_table.then_some(exact) }
    }
}

/// The scale that maps each byte to the float with the same value, for all channels.
pub(super) static IDENTITY: [Scale; 1] = [Scale {
    table: {
        let mut table = [0.0; 256];
        let mut i = 0;
        while i < 256 {
            table[i] = i as f32;
            i += 1;
        }
        table
    },
    factor: 1.0,
    offset: 0.0,
    exact: Some(Exact { factor: 1.0, offset: 0.0 }),
}];

/// Writes the window as planar floats. `scales` has an entry per channel, or a single entry for all channels.
pub(super) fn paint_stored(geometry: &Geometry, image: &Decoded<'_>, scales: &[Scale], values: &mut [f32]) {
    let (height, width, channels) = (geometry.window.height(), geometry.window.width(), geometry.channels);
    let seen = geometry.visible_part();
    if let Some(seen) = seen.filter(|_| channels == 3 && !geometry.flipped_vertically) {
        let (rows, columns) = (seen.window.height(), seen.window.width());
        let area = Area { height, width, above: seen.above, ahead: seen.ahead, rows };
        let stride = image.columns * 3;
        let bytes = &image.bytes[start(&seen, image, 0, 3)..][..(rows - 1) * stride + columns * 3];
        let pixels = Pixels { bytes, stride, columns, flipped: geometry.flipped };
        if area.paint_rgb(pixels, scales, values) {
            return;
        }
    }
    for row in 0..height {
        let pixels = pixels(geometry, seen.as_ref(), image, row);
        let ahead = seen.map_or(width, |seen| seen.ahead);
        let target = Row {
            start: row * width,
            width,
            plane: height * width,
            ahead: if pixels.is_empty() { width } else { ahead },
            flipped: geometry.flipped,
        };
        match channels {
            3 => target.paint_rgb(pixels, scales, values),
            n => target.paint_any(n, pixels, scales, values),
        }
    }
}

/// Writes the window as interleaved stored values.
pub(super) fn copy(geometry: &Geometry, image: &Decoded<'_>, out: &mut [u8]) {
    let row = geometry.as_one_row(image.columns);
    let geometry = row.as_ref().unwrap_or(geometry);
    let (height, width) = (geometry.window.height(), geometry.window.width());
    let (seen, unit) = (geometry.visible_part(), geometry.channels * image.dtype.bytes());
    for (row, out) in out.chunks_exact_mut((width * unit).max(1)).take(height).enumerate() {
        let pixels = pixels(geometry, seen.as_ref(), image, row);
        let ahead = seen.map_or(0, |seen| seen.ahead);
        let (ahead, rest) = out.split_at_mut(ahead * unit);
        let (part, behind) = rest.split_at_mut(pixels.len());
        ahead.fill(0);
        behind.fill(0);
        if geometry.flipped {
            let mirrored = part.chunks_exact_mut(unit).rev().zip(pixels.chunks_exact(unit));
            mirrored.for_each(|(to, from)| to.copy_from_slice(from));
        } else {
            part.copy_from_slice(pixels);
        }
    }
}

/// Writes the visible window as planes of bytes.
pub(super) fn planes(geometry: &Geometry, image: &Decoded<'_>, out: &mut [u8]) {
    let (height, width, channels) = (geometry.window.height(), geometry.window.width(), geometry.channels);
    let seen = geometry.visible_part();
    for row in 0..height {
        let pixels = pixels(geometry, seen.as_ref(), image, row);
        let ahead = seen.map_or(0, |seen| seen.ahead);
        for channel in 0..channels {
            let (before, rest) = out[(channel * height + row) * width..][..width].split_at_mut(ahead);
            let (part, behind) = rest.split_at_mut(pixels.len() / channels);
            before.fill(0);
            behind.fill(0);
            let bytes = pixels.chunks_exact(channels).map(|pixel| pixel[channel]);
            match geometry.flipped {
                true => part.iter_mut().rev().zip(bytes).for_each(|(to, from)| *to = from),
                false => part.iter_mut().zip(bytes).for_each(|(to, from)| *to = from),
            }
        }
    }
}

/// Returns the visible bytes for a row of the output. The result is empty if the row is padding.
pub(super) fn pixels<'a>(geometry: &Geometry, seen: Option<&VisiblePart>, image: &Decoded<'a>, row: usize) -> &'a [u8] {
    let unit = geometry.channels * image.dtype.bytes();
    match seen.and_then(|seen| Some((seen, row.checked_sub(seen.above)?))) {
        Some((seen, row)) if row < seen.window.height() => {
            let row = if geometry.flipped_vertically { seen.window.height() - 1 - row } else { row };
            &image.bytes[start(seen, image, row, unit)..][..seen.window.width() * unit]
        }
        _ => &[],
    }
}

/// Returns where a visible row begins in the decoded bytes. A pixel has `unit` bytes.
fn start(seen: &VisiblePart, image: &Decoded<'_>, row: usize, unit: usize) -> usize {
    let (top, left) = (seen.window.top as usize - image.origin.0, seen.window.left as usize - image.origin.1);
    ((top + row) * image.columns + left) * unit
}

/// Maximum channel count for [`paint_resized`].
pub(super) const MOST_CHANNELS: usize = 4;

/// Writes the window of a resized image as planar floats. `scales` has an entry per channel, or a single entry for all
/// channels.
pub(super) fn paint_resized(
    geometry: &Geometry,
    resize: Resize,
    image: &Decoded<'_>,
    scales: &[Scale],
    resampler: &mut Resampler,
    values: &mut [f32],
) {
    let (height, width, channels) = (geometry.window.height(), geometry.window.width(), geometry.channels);
    let seen = geometry.visible_part();
    if seen.is_none_or(|seen| seen.window != geometry.window) {
        for (channel, plane) in values.chunks_exact_mut((height * width).max(1)).take(channels).enumerate() {
            plane.fill(scales[channel % scales.len()].table[0]);
        }
    }
    let Some(seen) = seen else { return };
    let mut pairs = [(0.0, 0.0); MOST_CHANNELS];
    for (pair, scale) in pairs.iter_mut().zip(scales) {
        *pair = (scale.factor, scale.offset);
    }
    let request = resize_request(geometry, resize, &seen, image);
    resampler.run(request, &pairs[..scales.len()], &mut Planes { values, height, width });
}

/// Describes how to resize an image to its visible part.
pub(super) fn resize_request<'a>(
    geometry: &Geometry,
    resize: Resize,
    seen: &VisiblePart,
    image: &Decoded<'a>,
) -> ResizeRequest<'a> {
    let Geometry { channels, flipped, flipped_vertically, .. } = *geometry;
    let Resize { region, filter, .. } = resize;
    let Decoded { bytes, columns, origin, reduction, dtype } = *image;
    let Window { top, left, bottom, right } = seen.window;
    ResizeRequest {
        source: Rows { bytes, stride: columns * channels * dtype.bytes(), channels, origin },
        rows: AxisRequest {
            span: Span::reduced(region.top, region.bottom, reduction, filter),
            outputs: resize.height as usize,
            wanted: (top as usize, bottom as usize),
            to: seen.above,
        },
        columns: AxisRequest {
            span: Span::reduced(region.left, region.right, reduction, filter),
            outputs: resize.width as usize,
            wanted: (left as usize, right as usize),
            to: seen.ahead,
        },
        mirror: Mirror { rows: flipped_vertically, columns: flipped },
    }
}

// Converts a channel of RGB bytes to a plane of floats with AVX2 or, on ARM, with a loop that the compiler vectorises.
// This is the inner loop for small images. With table lookups, half of its time would go to the lookups.
//
// A value becomes `value * factor + offset` in f64, rounded once to f32. `Scale::new` has checked that this reproduces
// the table exactly, so the result does not depend on the CPU.

/// Number of pixels per vector.
#[cfg(target_arch = "x86_64")]
const STEP: usize = 4;
/// Number of bytes that one load reads.
const LOAD: usize = 16;

/// Minimum number of pixels in a row for [`paint_plane`].
const FEWEST: usize = LOAD.div_ceil(3);

#[derive(Debug, Clone, Copy)]
struct Pixels<'a> {
    /// The bytes from the first pixel of the first row to the last pixel of the last row.
    pub bytes: &'a [u8],
    /// Distance between rows in bytes.
    pub stride: usize,
    /// Number of pixels in a row, at least [`FEWEST`].
    pub columns: usize,
    /// True if rows are read from right to left.
    pub flipped: bool,
}

/// Returns true if this CPU supports [`paint_plane`].
fn is_supported() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx2");
    #[cfg(not(target_arch = "x86_64"))]
    true
}

/// The destination of a channel: rows that are `width` values apart. The gaps between them are filled with `padding`.
struct Target<'a> {
    /// The part of a plane from the first value that is written to the last.
    pub values: &'a mut [f32],
    pub width: usize,
    pub padding: f32,
}

/// Writes a channel as floats.
///
/// # Panics
///
/// Panics if `channel` is above 2, if `pixels.columns` is less than [`FEWEST`] or greater than the target's width, if
/// the numbers of rows do not match, or if the CPU is not [supported](is_supported).
fn paint_plane(pixels: Pixels<'_>, channel: usize, scale: Exact, target: Target<'_>) {
    assert!(is_supported());
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the assertion above guarantees that the CPU has AVX2.
    unsafe {
        paint_plane_avx2(pixels, channel, scale, target)
    }
    #[cfg(not(target_arch = "x86_64"))]
    paint_plane_loop(pixels, channel, scale, target);
}

#[cfg(not(target_arch = "x86_64"))]
fn paint_plane_loop(pixels: Pixels<'_>, channel: usize, scale: Exact, target: Target<'_>) {
    let Pixels { bytes, stride, columns, flipped } = pixels;
    let value = |pixel: &[u8; 3]| (f64::from(pixel[channel]) * scale.factor + scale.offset) as f32;
    for (row, values) in target.values.chunks_mut(target.width).enumerate() {
        let pixels = bytes[row * stride..][..3 * columns].as_chunks::<3>().0;
        let (values, gap) = values.split_at_mut(columns);
        if flipped {
            values.iter_mut().zip(pixels.iter().rev()).for_each(|(to, pixel)| *to = value(pixel));
        } else {
            values.iter_mut().zip(pixels).for_each(|(to, pixel)| *to = value(pixel));
        }
        gap.fill(target.padding);
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn paint_plane_avx2(pixels: Pixels<'_>, channel: usize, scale: Exact, target: Target<'_>) {
    let Pixels { bytes, stride, columns, flipped } = pixels;
    let Target { values, width, padding } = target;
    let rows = values.len().div_ceil(width);
    assert!(columns >= FEWEST && columns <= width && channel < 3 && values.len() == (rows - 1) * width + columns);
    assert!(bytes.len() >= (rows - 1) * stride + 3 * columns);
    let constants = Constants {
        shuffle: shuffle(flipped, channel),
        factor: _mm256_set1_pd(scale.factor),
        offset: _mm256_set1_pd(scale.offset),
    };
    for row in 0..rows {
        let source = &bytes[row * stride..];
        // A load at the last four pixels reads four bytes beyond them.
        let roomy = source.len() >= 3 * columns + LOAD - 3 * STEP;
        // SAFETY: the row's pixels and values are inside the slices, as asserted above.
        let out = unsafe {
            let out = values.as_mut_ptr().add(row * width);
            match (flipped, roomy) {
                (false, true) => constants.paint_row::<false, true>(source, columns, out),
                (true, true) => constants.paint_row::<true, true>(source, columns, out),
                (false, false) => constants.paint_row::<false, false>(source, columns, out),
                (true, false) => constants.paint_row::<true, false>(source, columns, out),
            }
            out
        };
        if row + 1 < rows {
            // Stores may extend into the next row, which is written later.
            for gap in (columns..width).step_by(STEP) {
                // SAFETY: another row with at least four values follows.
                unsafe { _mm_storeu_ps(out.add(gap), _mm_set1_ps(padding)) };
            }
        }
    }
}

/// The constants for converting four pixels to floats.
#[cfg(target_arch = "x86_64")]
struct Constants {
    shuffle: __m128i,
    factor: __m256d,
    offset: __m256d,
}

#[cfg(target_arch = "x86_64")]
impl Constants {
    /// Converts a row. `ROOMY` means that at least four bytes follow the row's pixels in `source`.
    ///
    /// # Safety
    ///
    /// `source` must have at least `columns` pixels, and `out` must be valid for `columns` values. `columns` must be at
    /// least [`FEWEST`].
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn paint_row<const FLIPPED: bool, const ROOMY: bool>(&self, source: &[u8], columns: usize, out: *mut f32) {
        let last = columns - STEP;
        let mut to = 0;
        loop {
            let from = 3 * if FLIPPED { last - to } else { to };
            // SAFETY: both addresses are inside, because `to` is at most `last`.
            unsafe {
                let integers = match ROOMY || from + LOAD <= source.len() {
                    true => _mm_shuffle_epi8(_mm_loadu_si128(source.as_ptr().add(from).cast()), self.shuffle),
                    false => last_integers(source, from, self.shuffle),
                };
                let scaled = _mm256_add_pd(_mm256_mul_pd(_mm256_cvtepi32_pd(integers), self.factor), self.offset);
                _mm_storeu_ps(out.add(to), _mm256_cvtpd_ps(scaled));
            }
            if to == last {
                break;
            }
            // The last four pixels may overlap the four before them.
            to = last.min(to + STEP);
        }
    }
}

/// Returns the shuffle that moves one channel of four pixels to the lowest bytes of four integers.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn shuffle(flipped: bool, channel: usize) -> __m128i {
    let first = match flipped {
        false => _mm_setr_epi8(0, -1, -1, -1, 3, -1, -1, -1, 6, -1, -1, -1, 9, -1, -1, -1),
        true => _mm_setr_epi8(9, -1, -1, -1, 6, -1, -1, -1, 3, -1, -1, -1, 0, -1, -1, -1),
    };
    // -1 selects no byte and must stay negative.
    let none = _mm_cmplt_epi8(first, _mm_setzero_si128());
    _mm_or_si128(_mm_add_epi8(first, _mm_set1_epi8(channel as i8)), none)
}

/// Returns the integers of the last pixels, where a normal load would go beyond the end of `bytes`.
///
/// # Safety
///
/// `bytes` must have at least 16 elements.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[cold]
unsafe fn last_integers(bytes: &[u8], from: usize, shuffle: __m128i) -> __m128i {
    let load = bytes.len() - LOAD;
    // SAFETY: the caller guarantees 16 bytes.
    let taken = unsafe { _mm_loadu_si128(bytes.as_ptr().add(load).cast()) };
    let none = _mm_cmplt_epi8(shuffle, _mm_setzero_si128());
    _mm_shuffle_epi8(taken, _mm_or_si128(_mm_add_epi8(shuffle, _mm_set1_epi8((from - load) as i8)), none))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Draws;
    use crate::spec::{Dtype, ImageSpec};
    use crate::transform::paint_values::paint_values as paint_any_dtype;

    #[test]
    fn scale_is_exact_only_for_linear_tables() {
        let mut table = IDENTITY[0].table;
        assert!(Scale::new(table, 1.0, 0.0).exact.is_some());
        table[200] += 1.0;
        assert!(Scale::new(table, 1.0, 0.0).exact.is_none());
    }

    /// Every window of an image, also beyond its borders and mirrored, contains the values that plain loops find.
    #[test]
    fn windows_of_stored_values_match_plain_loops() {
        let (rows, columns) = (3i64, 2i64);
        let numbers: Vec<f32> = (1..=rows * columns).map(|number| number as f32).collect();
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let image =
            Decoded { bytes: &bytes, dtype: Dtype::F32, columns: columns as usize, origin: (0, 0), reduction: 1 };
        for case in 0..1600 {
            let [top, left] = [case % 5 - 2, case / 5 % 5 - 2];
            let [height, width] = [1 + case / 25 % 4, 1 + case / 100 % 4];
            let mut geometry = Geometry::new(ImageSpec::new(rows as u32, columns as u32, 1));
            (geometry.flipped, geometry.flipped_vertically) = (case / 400 % 2 == 1, case / 800 == 1);
            geometry.window = Window { top, left, bottom: top + height, right: left + width };
            let at = |y: i64, x: i64| {
                let y = if geometry.flipped_vertically { top + height - 1 - y } else { top + y };
                let x = if geometry.flipped { left + width - 1 - x } else { left + x };
                let is_inside = (0..rows).contains(&y) && (0..columns).contains(&x);
                if is_inside { numbers[(y * columns + x) as usize] } else { 0.0 }
            };
            let expected: Vec<f32> = (0..height * width).map(|i| at(i / width, i % width)).collect();
            let mut copied = vec![9; 4 * expected.len()];
            copy(&geometry, &image, &mut copied);
            let copied: Vec<f32> = copied.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
            assert_eq!(copied, expected, "{geometry:?}");
            let mut values = vec![9.0; expected.len()];
            let work = (&mut Resampler::default(), &mut Vec::new());
            paint_any_dtype(&geometry, &image, |_| |value| value, work, &mut values);
            assert_eq!(values, expected, "{geometry:?}");
        }
    }

    /// For all widths, with and without padding and mirroring, and cut out of wider rows, the planes contain the values
    /// of the tables.
    #[test]
    fn planes_contain_the_values_of_the_tables() {
        for case in 0..500 {
            let mut draws = Draws::new(12, case, 0, 0);
            let mut below = |n: u32| draws.below(n) as usize;
            let (columns, rows, flipped, wider) = (1 + below(70), 1 + below(5), below(2) == 1, below(4));
            let [above, under, ahead, behind] = [0; 4].map(|_: usize| below(3));
            let (stride, height, width) = (3 * (columns + wider), above + rows + under, ahead + columns + behind);
            let bytes: Vec<u8> = (0..(rows - 1) * stride + 3 * columns).map(|_| below(256) as u8).collect();
            let scale = |mean: f64, std: f64| {
                let table = std::array::from_fn(|byte| ((byte as f64 / 255.0 - mean) / std) as f32);
                Scale::new(table, 1.0 / (255.0 * std), -mean / std)
            };
            let scales = [scale(0.4914, 0.2470), scale(0.4822, 0.2435), scale(0.4465, 0.2616)];
            let mut values = vec![f32::NAN; 3 * height * width];
            let area = Area { height, width, above, ahead, rows };
            let done = area.paint_rgb(Pixels { bytes: &bytes, stride, columns, flipped }, &scales, &mut values);
            assert_eq!(done, columns >= FEWEST && is_supported());
            for (i, value) in values.iter().enumerate().filter(|_| done) {
                let (channel, y, x) = (i / (height * width), i / width % height, i % width);
                let seen =
                    y.checked_sub(above).filter(|&y| y < rows).zip(x.checked_sub(ahead).filter(|&x| x < columns));
                let byte = seen
                    .map_or(0, |(y, x)| bytes[y * stride + 3 * if flipped { columns - 1 - x } else { x } + channel]);
                let expected = scales[channel].table[usize::from(byte)];
                assert_eq!(value.to_bits(), expected.to_bits(), "case {case}: channel {channel}, row {y}, column {x}");
            }
        }
    }
}
