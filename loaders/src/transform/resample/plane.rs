//! Resizes images of bytes to bytes, for `data convert`. Rows come first, then columns, with rounding to bytes after
//! each, as in PIL. All arithmetic uses integers, so the results are bit-identical with and without AVX2.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use base::simd;

use super::filter::{Axis, Filter, GROUP, ONE, Span};
use crate::channels::interleave;

/// Half of [`ONE`], for rounding.
const HALF: i32 = ONE / 2;
/// Number of fraction bits of [`ONE`].
const BITS: u32 = ONE.trailing_zeros();
/// Number of columns in a block of the plain loops.
const BLOCK: usize = 64;
/// Bytes per load. A single load must contain the first input pairs of all outputs in half of a group.
const LOAD: usize = 16;

/// A plane of bytes (H, W), or three planes whose bytes are interleaved (H, W, 3). Rows are stored without gaps. Height
/// and width are at least 1.
#[derive(Debug, Clone, Copy)]
pub struct Plane<'a> {
    pub bytes: &'a [u8],
    pub height: usize,
    pub width: usize,
    /// 1 or 3.
    pub channels: usize,
}

/// Resizes planes. Reuses its memory, and its weights while the sizes do not change.
#[derive(Debug, Default)]
pub struct PlaneResizer {
    rows: Taps,
    columns: Taps,
    line: Vec<u8>,
    /// A row of each channel before its columns are resized.
    wide: [Vec<u8>; 3],
    /// The rows of the channels after that, one after the other.
    narrow: Vec<u8>,
}

impl PlaneResizer {
    /// Computes `height` x `width` output pixels. Each covers `shrink` source rows and columns, and the first one
    /// starts at the source's top left corner. Beyond the source's end, its last row and column are repeated.
    ///
    /// # Panics
    ///
    /// Panics if a plane is empty, if its length does not match its size, or if there are not 1 or 3 channels.
    pub fn run(&mut self, source: Plane<'_>, shrink: (f64, f64), target: &mut [u8], (height, width): (usize, usize)) {
        let Plane { channels, .. } = source;
        let values = source.width * channels;
        assert!(
            [1, 3].contains(&channels)
                && values > 0
                && source.height > 0
                && source.bytes.len() == source.height * values
        );
        assert!(width > 0 && target.len() == height * width * channels);
        self.rows.plan(source.height, shrink.0, height);
        self.columns.plan(source.width, shrink.1, width);
        // A load at any tap must be inside the line.
        let beyond = 2 * self.columns.pairs + LOAD;
        self.line.resize(values + beyond, 0);
        let Self { rows, columns, line, wide, narrow } = self;
        if channels == 3 {
            wide.iter_mut().for_each(|row| row.resize(source.width + beyond, 0));
            narrow.resize(channels * width, 0);
        }
        for (i, out) in target.chunks_exact_mut(width * channels).enumerate() {
            rows.mix_rows(Plane { width: values, channels: 1, ..source }, i, line);
            if channels == 1 {
                columns.mix_columns(line, out);
                continue;
            }
            let [red, green, blue] = &mut *wide;
            split(&line[..values], red, green, blue);
            wide.iter().zip(narrow.chunks_exact_mut(width)).for_each(|(wide, row)| columns.mix_columns(wide, row));
            interleave(narrow, out.as_chunks_mut().0);
        }
    }
}

simd! {
    /// Splits interleaved pixels into their channels.
    fn split(pixels: &[u8], red: &mut [u8], green: &mut [u8], blue: &mut [u8]) {
        let channels = red.iter_mut().zip(green).zip(blue);
        for (((red, green), blue), pixel) in channels.zip(pixels.as_chunks::<3>().0) {
            [*red, *green, *blue] = *pixel;
        }
    }
}

/// The weights of each output along one axis, for pairs of neighbouring inputs. The last weight may be 0.
#[derive(Debug, Default)]
struct Taps {
    /// Number of inputs, inputs per output, and number of outputs for which the other fields were computed.
    plan: (usize, f64, usize),
    axis: Axis,
    pairs: usize,
    first: Vec<usize>,
    /// `2 * pairs` fixed-point weights per output.
    weights: Vec<i16>,
    /// Groups of outputs. The last group may overlap. Empty if the inputs of a group are too far apart or there are too
    /// few outputs.
    groups: Vec<Group>,
    /// The weights for each group and each pair.
    grouped: Vec<[i16; 2 * GROUP]>,
}

/// Where a group of outputs finds its inputs.
#[derive(Debug)]
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "the plain loops need no groups"))]
struct Group {
    /// Index of the group's first output.
    start: usize,
    /// The first input index for each half of the group. The [`LOAD`] bytes from there include the first input pair for
    /// every output in this half.
    loads: [usize; 2],
    /// A shuffle control that moves the input pairs from the two loads to their outputs and widens them to 16-bit
    /// integers.
    places: [u8; 2 * LOAD],
}

impl Taps {
    fn plan(&mut self, inputs: usize, shrink: f64, outputs: usize) {
        if self.plan == (inputs, shrink, outputs) {
            return;
        }
        let span = Span { start: 0.0, length: shrink * outputs as f64, filter: Filter::Bilinear };
        self.axis.plan(span, outputs, (0, outputs), false, 0);
        let taps = self.axis.taps;
        self.pairs = taps.div_ceil(2);
        self.first.clear();
        self.weights.clear();
        self.weights.resize(outputs * 2 * self.pairs, 0);
        let planned = self.axis.first.iter().zip(self.axis.fixed.chunks_exact(taps));
        for ((&first, fixed), weights) in planned.zip(self.weights.chunks_exact_mut(2 * self.pairs)) {
            // Beyond the end, the last input is repeated.
            let start = first.min(inputs.saturating_sub(taps));
            for (k, weight) in fixed.iter().enumerate() {
                weights[(first + k).min(inputs - 1) - start] += weight;
            }
            self.first.push(start);
        }
        self.group();
        self.plan = (inputs, shrink, outputs);
    }

    fn group(&mut self) {
        self.groups.clear();
        self.grouped.clear();
        let far = |half: &[usize]| half[GROUP / 2 - 1] - half[0] + 2 > LOAD;
        if self.first.windows(GROUP / 2).any(far) {
            return;
        }
        for start in starts(self.first.len(), GROUP) {
            let (first, weights) = (&self.first[start..], &self.weights[start * 2 * self.pairs..]);
            let place = |byte: usize| match byte % 4 {
                at @ (0 | 2) => (first[byte / 4] - first[byte / 16 * 4] + at / 2) as u8,
                _ => 0x80,
            };
            let (loads, places) = ([first[0], first[GROUP / 2]], std::array::from_fn(place));
            self.groups.push(Group { start, loads, places });
            for pair in 0..self.pairs {
                self.grouped.push(std::array::from_fn(|i| weights[i / 2 * 2 * self.pairs + 2 * pair + i % 2]));
            }
        }
    }

    /// Computes the weighted sum of the input rows for output row `i`.
    fn mix_rows(&self, source: Plane<'_>, i: usize, line: &mut [u8]) {
        let (first, weights) = (self.first[i], &self.weights[i * 2 * self.pairs..][..2 * self.pairs]);
        #[cfg(target_arch = "x86_64")]
        if source.width >= LOAD && is_x86_feature_detected!("avx2") {
            // SAFETY: the check above guarantees AVX2.
            unsafe {
                match self.pairs {
                    1 => return mix_rows_avx2::<1>(source, first, weights, line),
                    2 => return mix_rows_avx2::<2>(source, first, weights, line),
                    3 => return mix_rows_avx2::<3>(source, first, weights, line),
                    4 => return mix_rows_avx2::<4>(source, first, weights, line),
                    5 => return mix_rows_avx2::<5>(source, first, weights, line),
                    _ => {}
                }
            }
        }
        // The compiler vectorises the inner loop.
        for (block, values) in line[..source.width].chunks_mut(BLOCK).enumerate() {
            let mut sums = [HALF; BLOCK];
            for (k, &weight) in weights.iter().enumerate() {
                let at = (first + k).min(source.height - 1) * source.width + block * BLOCK;
                let bytes = &source.bytes[at..][..values.len()];
                sums.iter_mut().zip(bytes).for_each(|(sum, &byte)| *sum += i32::from(byte) * i32::from(weight));
            }
            values.iter_mut().zip(sums).for_each(|(value, sum)| *value = (sum >> BITS) as u8);
        }
    }

    /// Computes the weighted sums of columns.
    fn mix_columns(&self, line: &[u8], out: &mut [u8]) {
        #[cfg(target_arch = "x86_64")]
        if !self.groups.is_empty() && is_x86_feature_detected!("avx2") {
            // SAFETY: the check above guarantees AVX2.
            unsafe {
                match self.pairs {
                    1 => return mix_columns_avx2::<1>(self, line, out),
                    2 => return mix_columns_avx2::<2>(self, line, out),
                    3 => return mix_columns_avx2::<3>(self, line, out),
                    4 => return mix_columns_avx2::<4>(self, line, out),
                    5 => return mix_columns_avx2::<5>(self, line, out),
                    _ => {}
                }
            }
        }
        for (x, value) in out.iter_mut().enumerate() {
            let (taps, weights) = (&line[self.first[x]..], &self.weights[x * 2 * self.pairs..][..2 * self.pairs]);
            let products = taps.iter().zip(weights).map(|(&byte, &w)| i32::from(byte) * i32::from(w));
            *value = ((products.sum::<i32>() + HALF) >> BITS) as u8;
        }
    }
}

/// Returns the starts of blocks of `size` that cover `length`. The last block may overlap. Returns nothing if no block
/// fits.
fn starts(length: usize, size: usize) -> impl Iterator<Item = usize> {
    let last = length.checked_sub(size);
    (0..length).step_by(size).map_while(move |start| Some(start.min(last?)))
}

/// Writes the weighted sum of `P` pairs of rows, starting with row `first`, to `line`. There must be at least [`LOAD`]
/// columns.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn mix_rows_avx2<const P: usize>(source: Plane<'_>, first: usize, weights: &[i16], line: &mut [u8]) {
    let Plane { bytes, height, width, .. } = source;
    let row = |k: usize| &bytes[(first + k).min(height - 1) * width..][..width];
    let (mut rows, mut factors) = ([[&[] as &[u8]; 2]; P], [_mm256_setzero_si256(); P]);
    for (p, pair) in weights.as_chunks::<2>().0.iter().enumerate() {
        rows[p] = [row(2 * p), row(2 * p + 1)];
        factors[p] = _mm256_set1_epi32(i32::from(pair[1]) << 16 | i32::from(pair[0] as u16));
    }
    for start in starts(width, LOAD) {
        let mut sums = [_mm256_set1_epi32(HALF); 2];
        for p in 0..P {
            // SAFETY: each row has `width` bytes, and a block starts at least 16 bytes before its end.
            let (upper, lower) = unsafe { (load(rows[p][0], start), load(rows[p][1], start)) };
            let halves = [_mm_unpacklo_epi8(upper, lower), _mm_unpackhi_epi8(upper, lower)];
            for (sum, bytes) in sums.iter_mut().zip(halves) {
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(_mm256_cvtepu8_epi16(bytes), factors[p]));
            }
        }
        let bytes = _mm_packus_epi16(words(sums[0]), words(sums[1]));
        let out = &mut line[start..][..LOAD];
        // SAFETY: `out` has 16 bytes.
        unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), bytes) };
    }
}

/// Writes the weighted sum of `P` pairs of inputs for each output. `columns.groups` must not be empty.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn mix_columns_avx2<const P: usize>(columns: &Taps, line: &[u8], out: &mut [u8]) {
    // The first inputs are in increasing order, so no output reads beyond the inputs of the last output.
    assert!(columns.first[columns.first.len() - 1] + 2 * P + LOAD <= line.len());
    for (group, weights) in columns.groups.iter().zip(columns.grouped.as_chunks::<P>().0) {
        // SAFETY: `places` has 32 bytes.
        let places = unsafe { _mm256_loadu_si256(group.places.as_ptr().cast()) };
        let mut sum = _mm256_set1_epi32(HALF);
        for (p, weights) in weights.iter().enumerate() {
            // SAFETY: 16 bytes starting at any pair are inside `line`, as asserted above.
            let bytes =
                unsafe { _mm256_set_m128i(load(line, group.loads[1] + 2 * p), load(line, group.loads[0] + 2 * p)) };
            // SAFETY: `weights` has 32 bytes.
            let weights = unsafe { _mm256_loadu_si256(weights.as_ptr().cast()) };
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_shuffle_epi8(bytes, places), weights));
        }
        let bytes = _mm_packus_epi16(words(sum), _mm_setzero_si128());
        let out = &mut out[group.start..][..GROUP];
        // SAFETY: `out` has 8 bytes.
        unsafe { _mm_storel_epi64(out.as_mut_ptr().cast(), bytes) };
    }
}

/// Removes the fraction of sums and packs them to 16 bits.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
fn words(sums: __m256i) -> __m128i {
    let whole = _mm256_srli_epi32::<{ BITS as i32 }>(sums);
    _mm_packus_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256::<1>(whole))
}

/// Loads 16 bytes at `at`.
///
/// # Safety
///
/// The 16 bytes must be inside `bytes`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn load(bytes: &[u8], at: usize) -> __m128i {
    debug_assert!(at + LOAD <= bytes.len());
    // SAFETY: the caller guarantees that the bytes are inside.
    unsafe { _mm_loadu_si128(bytes.as_ptr().add(at).cast()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Draws;

    /// Returns the filter in f64: a triangle that extends `shrink` to both sides, cut off at the end of the covered
    /// range.
    fn exact(source: Plane<'_>, shrink: (f64, f64), (y, x): (usize, usize), outputs: (usize, usize)) -> f64 {
        let along = |at: usize, shrink: f64, outputs: usize| -> Vec<(usize, f64)> {
            let (centre, reach) = ((at as f64 + 0.5) * shrink, shrink.max(1.0));
            let end = (shrink * outputs as f64).ceil() as usize;
            let weight = |i: usize| (1.0 - ((i as f64 + 0.5 - centre) / reach).abs()).max(0.0);
            let sum: f64 = (0..end).map(weight).sum();
            (0..end).map(|i| (i, weight(i) / sum)).collect()
        };
        let (rows, columns) = (along(y, shrink.0, outputs.0), along(x, shrink.1, outputs.1));
        let at = |i: usize, j: usize| source.bytes[i.min(source.height - 1) * source.width + j.min(source.width - 1)];
        let row = |i: usize| columns.iter().map(|&(j, w)| f64::from(at(i, j)) * w).sum::<f64>();
        rows.iter().map(|&(i, w)| row(i) * w).sum()
    }

    /// Shrinks, enlarges and reads past the end, with few and many taps, with whole groups and a remainder.
    #[test]
    fn resized_bytes_match_the_filter_to_rounding() {
        for case in 0..300 {
            let mut draws = Draws::new(9, case, 0, 0);
            let (height, width) = (1 + draws.below(40) as usize, 1 + draws.below(90) as usize);
            let outputs = (1 + draws.below(20) as usize, 1 + draws.below(60) as usize);
            let past = |inputs: usize, n: usize, more: u32| (inputs as f64 + f64::from(more) / 2.0) / n as f64;
            let shrink = (past(height, outputs.0, draws.below(3)), past(width, outputs.1, draws.below(3)));
            let bytes: Vec<u8> = (0..height * width).map(|_| draws.next_u32() as u8).collect();
            let source = Plane { bytes: &bytes, height, width, channels: 1 };
            let mut target = vec![0; outputs.0 * outputs.1];
            PlaneResizer::default().run(source, shrink, &mut target, outputs);
            for (i, &got) in target.iter().enumerate() {
                let expected = exact(source, shrink, (i / outputs.1, i % outputs.1), outputs);
                let difference = (f64::from(got) - expected).abs();
                assert!(difference < 1.1, "case {case}, {height} x {width} to {outputs:?}, {i}: {got}, not {expected}");
            }
        }
    }

    /// The vectorised code produces the same bytes as plain loops with the same weights.
    #[test]
    fn vectorised_resize_equals_plain_loops() {
        for case in 0..300 {
            let mut draws = Draws::new(10, case, 0, 0);
            let (height, width) = (1 + draws.below(30) as usize, 1 + draws.below(200) as usize);
            let (rows, columns) = (1 + draws.below(20) as usize, 1 + draws.below(100) as usize);
            let bytes: Vec<u8> = (0..height * width).map(|_| draws.next_u32() as u8).collect();
            let shrink = (height as f64 / rows as f64, width as f64 / columns as f64);
            let mut target = vec![0; rows * columns];
            let mut resizer = PlaneResizer::default();
            resizer.run(Plane { bytes: &bytes, height, width, channels: 1 }, shrink, &mut target, (rows, columns));
            let PlaneResizer { rows: down, columns: across, .. } = &resizer;
            let sum = |taps: &Taps, i: usize, at: &dyn Fn(usize) -> u8| {
                let weights = taps.weights[i * 2 * taps.pairs..][..2 * taps.pairs].iter().enumerate();
                let products = weights.map(|(k, &w)| i32::from(at(taps.first[i] + k)) * i32::from(w));
                ((products.sum::<i32>() + HALF) >> BITS) as u8
            };
            for y in 0..rows {
                let line: Vec<u8> =
                    (0..width).map(|x| sum(down, y, &|i| bytes[i.min(height - 1) * width + x])).collect();
                let expected: Vec<u8> = (0..columns).map(|x| sum(across, x, &|i| line[i.min(width - 1)])).collect();
                assert_eq!(target[y * columns..][..columns], expected, "case {case}, row {y}");
            }
        }
    }

    #[test]
    fn interleaved_resize_equals_resize_of_planes() {
        for case in 0..100 {
            let mut draws = Draws::new(11, case, 0, 0);
            let (height, width, channels) = (1 + draws.below(30) as usize, 1 + draws.below(80) as usize, 3);
            let (rows, columns) = (1 + draws.below(20) as usize, 1 + draws.below(60) as usize);
            let shrink = (height as f64 / rows as f64, width as f64 / columns as f64);
            let bytes: Vec<u8> = (0..height * width * channels).map(|_| draws.next_u32() as u8).collect();
            let mut target = vec![0; rows * columns * channels];
            let source = Plane { bytes: &bytes, height, width, channels };
            PlaneResizer::default().run(source, shrink, &mut target, (rows, columns));
            for channel in 0..channels {
                let of = |values: &[u8]| values.iter().skip(channel).step_by(channels).copied().collect::<Vec<u8>>();
                let mut expected = vec![0; rows * columns];
                let plane = Plane { bytes: &of(&bytes), height, width, channels: 1 };
                PlaneResizer::default().run(plane, shrink, &mut expected, (rows, columns));
                assert_eq!(of(&target), expected, "case {case}, channel {channel}");
            }
        }
    }
}
