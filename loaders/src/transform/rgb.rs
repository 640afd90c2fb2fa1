//! One channel of RGB bytes to a plane of floats with AVX2: the inner loop for small images, half of whose time would otherwise be
//! spent on table lookups.
//!
//! A value becomes value * factor + offset in f64, rounded to f32 once. `scale` has checked that this gives the bits of the table, so
//! the bits do not depend on the processor.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use crate::transform::paint::Exact;

/// Pixels that are converted at a time.
const STEP: usize = 4;
/// Bytes of one load.
const LOAD: usize = 16;

/// The fewest pixels of a row that [`paint_plane`] takes.
pub(super) const FEWEST: usize = LOAD.div_ceil(3);

/// Rows of RGB pixels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pixels<'a> {
    /// From the first pixel of the first row to the last one of the last row.
    pub bytes: &'a [u8],
    /// Bytes from row to row.
    pub stride: usize,
    /// Pixels of a row, at least [`FEWEST`].
    pub columns: usize,
    /// Whether rows are mirrored.
    pub flipped: bool,
}

/// Whether this processor has what [`paint_plane`] needs.
pub(super) fn is_supported() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx2");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Where a channel goes: rows that are `width` values apart, and the value of the gaps between them.
pub(super) struct Target<'a> {
    /// From the first value painted to the last.
    pub values: &'a mut [f32],
    pub width: usize,
    pub padding: f32,
}

/// Writes a channel as floats.
///
/// # Panics
/// If there are too few pixels, or more values than pixels, or the processor is not [supported](is_supported).
pub(super) fn paint_plane(pixels: Pixels<'_>, channel: usize, scale: Exact, target: Target<'_>) {
    assert!(is_supported());
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the processor has AVX2, as just asserted.
    unsafe {
        paint_plane_avx2(pixels, channel, scale, target)
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
        // a load from the last four pixels reads four bytes more
        let roomy = source.len() >= 3 * columns + LOAD - 3 * STEP;
        // SAFETY: the row's pixels and values lie inside, as asserted above.
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
            // stores that reach into the next row are overwritten by it
            for gap in (columns..width).step_by(STEP) {
                // SAFETY: another row of at least four values follows.
                unsafe { _mm_storeu_ps(out.add(gap), _mm_set1_ps(padding)) };
            }
        }
    }
}

/// How four pixels become floats.
#[cfg(target_arch = "x86_64")]
struct Constants {
    shuffle: __m128i,
    factor: __m256d,
    offset: __m256d,
}

#[cfg(target_arch = "x86_64")]
impl Constants {
    /// One row; `ROOMY` if there are four bytes behind its pixels.
    ///
    /// # Safety
    /// `source` must hold that many pixels, `out` as many values; at least [`FEWEST`].
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn paint_row<const FLIPPED: bool, const ROOMY: bool>(&self, source: &[u8], columns: usize, out: *mut f32) {
        let last = columns - STEP;
        let mut to = 0;
        loop {
            let from = 3 * if FLIPPED { last - to } else { to };
            // SAFETY: both lie inside, as `to` is not behind `last`.
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
            // the last four may overlap the four before
            to = last.min(to + STEP);
        }
    }
}

/// For a channel of four pixels: which bytes of a load become the lowest bytes of the four integers.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn shuffle(flipped: bool, channel: usize) -> __m128i {
    let first = match flipped {
        false => _mm_setr_epi8(0, -1, -1, -1, 3, -1, -1, -1, 6, -1, -1, -1, 9, -1, -1, -1),
        true => _mm_setr_epi8(9, -1, -1, -1, 6, -1, -1, -1, 3, -1, -1, -1, 0, -1, -1, -1),
    };
    // -1 selects nothing and stays negative
    let none = _mm_cmplt_epi8(first, _mm_setzero_si128());
    _mm_or_si128(_mm_add_epi8(first, _mm_set1_epi8(channel as i8)), none)
}

/// The integers of the last pixels, from which a load would reach past the end.
///
/// # Safety
/// There must be 16 bytes.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[cold]
unsafe fn last_integers(bytes: &[u8], from: usize, shuffle: __m128i) -> __m128i {
    let load = bytes.len() - LOAD;
    // SAFETY: the caller's promise.
    let taken = unsafe { _mm_loadu_si128(bytes.as_ptr().add(load).cast()) };
    let none = _mm_cmplt_epi8(shuffle, _mm_setzero_si128());
    _mm_shuffle_epi8(taken, _mm_or_si128(_mm_add_epi8(shuffle, _mm_set1_epi8((from - load) as i8)), none))
}
