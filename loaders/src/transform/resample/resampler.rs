//! Resizes interleaved values to planar floats. Computes only the requested part.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

#[cfg(target_arch = "x86_64")]
use super::filter::GROUP;
use super::filter::{Axis, ONE, Span};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows<'a> {
    /// The rows, starting with the first pixel of the first row.
    pub bytes: &'a [u8],
    /// Distance between rows in bytes.
    pub stride: usize,
    /// Values per pixel.
    pub channels: usize,
    /// Row and column of the first pixel, in the coordinates of the spans.
    pub origin: (usize, usize),
}

/// The requested outputs along one axis, and the input that they are computed from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AxisRequest {
    pub span: Span,
    /// Number of outputs for the whole span.
    pub outputs: usize,
    /// The range of requested outputs. The end is exclusive.
    pub wanted: (usize, usize),
    /// Position of the first requested output in the target.
    pub to: usize,
}

/// True to reverse the order of rows or columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mirror {
    pub rows: bool,
    pub columns: bool,
}

/// An image to resize, and the part of the result that is requested.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResizeRequest<'a> {
    pub source: Rows<'a>,
    pub rows: AxisRequest,
    pub columns: AxisRequest,
    pub mirror: Mirror,
}

/// Working memory, reused for all images.
#[derive(Debug, Default)]
pub(crate) struct Resampler {
    rows: Axis,
    columns: Axis,
    line: Vec<f32>,
}

/// The target: planes of `height` x `width`.
#[derive(Debug)]
pub(crate) struct Planes<'a> {
    /// The planes, channel by channel.
    pub values: &'a mut [f32],
    pub height: usize,
    pub width: usize,
}

impl Resampler {
    /// Resizes bytes with at most 4 channels, mirrors them, and writes `value * factor + offset`. `scales` has a pair (factor, offset) per
    /// channel, or a single pair for all channels.
    pub fn run(&mut self, request: ResizeRequest<'_>, scales: &[(f32, f32)], target: &mut Planes<'_>) {
        match request.source.channels {
            1 => self.run_channels::<1>(request, scales, target),
            2 => self.run_channels::<2>(request, scales, target),
            3 => self.run_channels::<3>(request, scales, target),
            _ => self.run_channels::<4>(request, scales, target),
        }
    }

    fn run_channels<const C: usize>(
        &mut self,
        request: ResizeRequest<'_>,
        scales: &[(f32, f32)],
        target: &mut Planes<'_>,
    ) {
        let ResizeRequest { source, rows, columns, mirror } = request;
        let (left, right) = columns.span.support(columns.outputs, columns.wanted.0, columns.wanted.1);
        self.rows.plan(rows.span, rows.outputs, rows.wanted, mirror.rows, source.origin.0);
        self.columns.plan(columns.span, columns.outputs, columns.wanted, mirror.columns, left);
        self.columns.group();
        let begin = (left - source.origin.1) * C;
        self.line.resize((right - left) * C + PADDING, 0.0);
        let scales = std::array::from_fn(|c| scales[c % scales.len()]);
        let (width, plane) = (self.columns.first.len(), target.height * target.width);
        for (i, (&first, weights)) in
            self.rows.first.iter().zip(self.rows.fixed.chunks_exact(self.rows.taps)).enumerate()
        {
            let from = &source.bytes[first * source.stride + begin..];
            let start = (rows.to + i) * target.width + columns.to;
            let mut planes = target.values.chunks_mut(plane.max(1));
            let out: [&mut [f32]; C] = std::array::from_fn(|_| match planes.next() {
                Some(plane) => &mut plane[start..start + width],
                None => &mut [],
            });
            row((from, source.stride), weights, &mut self.line, &self.columns, scales, out);
        }
    }

    /// Resizes values of any type and number of channels and mirrors them. `read` converts the `N` bytes of a value to a
    /// float. Sums are in f32 in a fixed order without fused multiply-adds. Values are not rounded. Results that overshoot
    /// are clamped to the filter's limits only if `clamped` is set (for bytes), as in torchvision.
    pub fn run_values<const N: usize>(
        &mut self,
        request: ResizeRequest<'_>,
        (read, clamped): (impl Fn([u8; N]) -> f32, bool),
        target: &mut Planes<'_>,
    ) {
        let ResizeRequest { source: Rows { bytes, stride, channels, origin }, rows, columns, mirror } = request;
        let (left, right) = columns.span.support(columns.outputs, columns.wanted.0, columns.wanted.1);
        self.rows.plan(rows.span, rows.outputs, rows.wanted, mirror.rows, origin.0);
        self.columns.plan(columns.span, columns.outputs, columns.wanted, mirror.columns, left);
        let begin = (left - origin.1) * channels * N;
        let count = (right - left) * channels;
        self.line.clear();
        self.line.resize(count + channels, 0.0);
        let (line, sums) = self.line.split_at_mut(count);
        let limits = clamped.then_some(self.columns.limits);
        let plane = target.height * target.width;
        for (i, (&first, weights)) in
            self.rows.first.iter().zip(self.rows.weights.chunks_exact(self.rows.taps)).enumerate()
        {
            line.fill(0.0);
            for (k, weight) in weights.iter().enumerate() {
                let (row, _) = bytes[(first + k) * stride + begin..][..count * N].as_chunks::<N>();
                line.iter_mut().zip(row).for_each(|(sum, value)| *sum += weight * read(*value));
            }
            let start = (rows.to + i) * target.width + columns.to;
            for (x, weights) in self.columns.weights.chunks_exact(self.columns.taps).enumerate() {
                let pixels = &line[self.columns.first[x] * channels..][..self.columns.taps * channels];
                sums.fill(0.0);
                for (weight, pixel) in weights.iter().zip(pixels.chunks_exact(channels)) {
                    sums.iter_mut().zip(pixel).for_each(|(sum, value)| *sum += weight * value);
                }
                for (channel, sum) in sums.iter().enumerate() {
                    // NaN stays NaN.
                    target.values[channel * plane + start + x] =
                        limits.map_or(*sum, |(low, high)| sum.max(low).min(high));
                }
            }
        }
    }
}

// The inner loops of resizing, in a plain version and one with AVX2, chosen at run time. Both sum in the same order and
// without fused multiply-add, so the results are bit-identical.

/// Number of bytes of a row that are summed together: as many sums as fit into registers.
const BLOCK: usize = 32;

/// Padding at the end of `line`, so that four values can be read at the first value of any pixel.
const PADDING: usize = 3;

/// Computes an output row. First `line` gets the weighted sum of rows of `bytes`, times [`ONE`]. Then the weighted sums
/// of its columns are written to `out` as `value * factor + offset`, with one target row per channel.
fn row<const C: usize>(
    (bytes, stride): (&[u8], usize),
    weights: &[i16],
    line: &mut [f32],
    columns: &Axis,
    scales: [(f32, f32); C],
    out: [&mut [f32]; C],
) {
    let scales = scales.map(|(factor, offset)| (factor / ONE as f32, offset));
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the check above guarantees AVX2.
        return unsafe { row_avx2((bytes, stride), weights, line, columns, scales, out) };
    }
    sum_lines((bytes, stride), weights, line);
    sum_columns(line, columns, 0, scales, out);
}

/// Returns the range to which sums are clamped. Like the values in `line`, it is multiplied by [`ONE`].
fn limits(columns: &Axis) -> (f32, f32) {
    let (low, high) = columns.limits;
    (low * ONE as f32, high * ONE as f32)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn row_avx2<const C: usize>(
    source: (&[u8], usize),
    weights: &[i16],
    line: &mut [f32],
    columns: &Axis,
    scales: [(f32, f32); C],
    out: [&mut [f32]; C],
) {
    sum_lines(source, weights, line);
    let (firsts, _) = columns.first.as_chunks::<GROUP>();
    assert!(columns.end * C + PADDING <= line.len() && out.iter().all(|out| out.len() >= columns.first.len()));
    let (low, high) = limits(columns);
    let limits = (_mm256_set1_ps(low), _mm256_set1_ps(high));
    let vectors = scales.map(|(factor, offset)| (_mm256_set1_ps(factor), _mm256_set1_ps(offset)));
    for (group, (first, weights)) in firsts.iter().zip(columns.grouped.chunks_exact(GROUP * columns.taps)).enumerate() {
        // SAFETY: no input is beyond `columns.end`, so four values starting at any input are inside `line`, as asserted
        // above.
        let sums = unsafe { sum_group_avx2::<C>(line, first, weights) };
        for c in 0..C {
            let sum = _mm256_min_ps(_mm256_max_ps(sums[c], limits.0), limits.1);
            let scaled = _mm256_add_ps(_mm256_mul_ps(sum, vectors[c].0), vectors[c].1);
            // SAFETY: a row has room for all groups, as asserted above.
            unsafe { _mm256_storeu_ps(out[c].as_mut_ptr().add(group * GROUP), scaled) };
        }
    }
    sum_columns(line, columns, firsts.len() * GROUP, scales, out);
}

/// Computes the weighted sums of a group of outputs, one vector per channel. The vectors after the first `C` are
/// unused.
///
/// # Safety
///
/// Four values starting at any input of these outputs must be inside `line`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn sum_group_avx2<const C: usize>(line: &[f32], first: &[usize; GROUP], weights: &[f32]) -> [__m256; 4] {
    // Each vector is for a pair of outputs (j, j + 4). Its low half has all channels of output j, and its high half all
    // channels of output j + 4.
    let mut sums = [_mm256_setzero_ps(); 4];
    for (k, weight) in weights.as_chunks::<GROUP>().0.iter().enumerate() {
        // SAFETY: the chunk has eight values.
        let weight = unsafe { _mm256_loadu_ps(weight.as_ptr()) };
        let pair = |j: usize| {
            // SAFETY: the caller guarantees four values at each input.
            unsafe {
                let low = _mm_loadu_ps(line.as_ptr().add((first[j] + k) * C));
                let high = _mm_loadu_ps(line.as_ptr().add((first[j + 4] + k) * C));
                _mm256_set_m128(high, low)
            }
        };
        sums[0] = _mm256_add_ps(sums[0], _mm256_mul_ps(_mm256_permute_ps::<0b00_00_00_00>(weight), pair(0)));
        sums[1] = _mm256_add_ps(sums[1], _mm256_mul_ps(_mm256_permute_ps::<0b01_01_01_01>(weight), pair(1)));
        sums[2] = _mm256_add_ps(sums[2], _mm256_mul_ps(_mm256_permute_ps::<0b10_10_10_10>(weight), pair(2)));
        sums[3] = _mm256_add_ps(sums[3], _mm256_mul_ps(_mm256_permute_ps::<0b11_11_11_11>(weight), pair(3)));
    }
    // Two 4 x 4 transpositions. Afterwards each vector has one channel, with the outputs in order.
    let (a, b) = (_mm256_unpacklo_ps(sums[0], sums[1]), _mm256_unpacklo_ps(sums[2], sums[3]));
    let (c, d) = (_mm256_unpackhi_ps(sums[0], sums[1]), _mm256_unpackhi_ps(sums[2], sums[3]));
    [
        _mm256_shuffle_ps::<0b01_00_01_00>(a, b),
        _mm256_shuffle_ps::<0b11_10_11_10>(a, b),
        _mm256_shuffle_ps::<0b01_00_01_00>(c, d),
        _mm256_shuffle_ps::<0b11_10_11_10>(c, d),
    ]
}

/// Computes the weighted sums of rows, times [`ONE`].
#[inline(always)]
fn sum_lines((bytes, stride): (&[u8], usize), weights: &[i16], line: &mut [f32]) {
    let count = line.len() - PADDING;
    let (blocks, rest) = line[..count].as_chunks_mut::<BLOCK>();
    let whole = blocks.len() * BLOCK;
    for (i, block) in blocks.iter_mut().enumerate() {
        sum_block(&bytes[i * BLOCK..], stride, weights, block);
    }
    if !rest.is_empty() && count >= BLOCK {
        // The last whole block overlaps the previous one and computes some values twice, with equal results.
        let start = count - BLOCK;
        if let Some(block) = line[start..count].first_chunk_mut() {
            sum_block(&bytes[start..], stride, weights, block);
        }
    } else {
        for (i, value) in rest.iter_mut().enumerate() {
            let row = bytes[whole + i..].iter().step_by(stride);
            let sum: i32 = row.zip(weights).map(|(&byte, &weight)| i32::from(byte) * i32::from(weight)).sum();
            *value = sum as f32;
        }
    }
}

/// Computes the weighted sums of a block of bytes over all rows.
#[inline(always)]
fn sum_block(bytes: &[u8], stride: usize, weights: &[i16], block: &mut [f32; BLOCK]) {
    let mut sums = [0i32; BLOCK];
    for (k, &weight) in weights.iter().enumerate() {
        for (sum, &byte) in sums.iter_mut().zip(&bytes[k * stride..][..BLOCK]) {
            *sum += i32::from(byte) * i32::from(weight);
        }
    }
    for (value, sum) in block.iter_mut().zip(sums) {
        *value = sum as f32;
    }
}

/// Computes the weighted sums of columns for the outputs from `begin`, for all channels of a pixel at once.
#[inline(always)]
fn sum_columns<const C: usize>(
    line: &[f32],
    columns: &Axis,
    begin: usize,
    scales: [(f32, f32); C],
    out: [&mut [f32]; C],
) {
    let (low, high) = limits(columns);
    for x in begin..columns.first.len() {
        let mut sums = [0f32; C];
        for (k, weight) in columns.weights[x * columns.taps..][..columns.taps].iter().enumerate() {
            let pixel = &line[(columns.first[x] + k) * C..][..C];
            for (sum, value) in sums.iter_mut().zip(pixel) {
                *sum += weight * value;
            }
        }
        for c in 0..C {
            out[c][x] = sums[c].max(low).min(high) * scales[c].0 + scales[c].1;
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::random::Draws;
    use crate::transform::resample::filter::Filter;

    /// Tests widths that are and are not multiples of the group size, enlarged, reduced and mirrored.
    #[test]
    fn avx2_resize_equals_plain_loops_bit_for_bit() {
        if !is_x86_feature_detected!("avx2") {
            return;
        }
        for case in 0..400 {
            let mut draws = Draws::new(8, case, 0, 0);
            let (height, width) = (1 + draws.below(20) as usize, 1 + draws.below(50) as usize);
            let bytes: Vec<u8> = (0..height * width * 3).map(|_| draws.next_u32() as u8).collect();
            let (_, filter) = Filter::NAMES[case as usize % 3];
            let span = |length: usize| Span { start: 0.0, length: length as f64, filter };
            let cut = |length, outputs| AxisRequest { span: span(length), outputs, wanted: (0, outputs), to: 0 };
            let (rows, columns) = (1 + draws.below(9) as usize, 1 + draws.below(40) as usize);
            let source = Rows { bytes: &bytes, stride: width * 3, channels: 3, origin: (0, 0) };
            let mut values = vec![f32::NAN; rows * columns * 3];
            let mut target = Planes { values: &mut values, height: rows, width: columns };
            let mut resampler = Resampler::default();
            let scales = [(1.5, -0.25), (0.75, 1.0), (-2.0, 0.5)];
            let mirror = Mirror { rows: draws.below(2) == 1, columns: draws.below(2) == 1 };
            let request = ResizeRequest { source, rows: cut(height, rows), columns: cut(width, columns), mirror };
            resampler.run(request, &scales, &mut target);

            let mut plain = vec![f32::NAN; values.len()];
            let Resampler { rows: down, columns: across, line } = &mut resampler;
            let scales = scales.map(|(factor, offset)| (factor / ONE as f32, offset));
            for row in 0..rows {
                let weights = &down.fixed[row * down.taps..][..down.taps];
                sum_lines((&bytes[down.first[row] * width * 3..], width * 3), weights, line);
                let mut planes = plain.chunks_mut(rows * columns).map(|plane| &mut plane[row * columns..][..columns]);
                let out: [&mut [f32]; 3] = std::array::from_fn(|_| planes.next().unwrap());
                sum_columns(line, across, 0, scales, out);
            }
            assert!(values == plain, "case {case}: {height} x {width} to {rows} x {columns}");
        }
    }
}
