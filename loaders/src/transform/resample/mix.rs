//! The inner loops of resizing, for AVX2 as well and chosen at run time. Sums keep one order and no multiply-add is
//! fused, so the bits do not depend on the choice.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use super::{Axis, ONE};

/// Bytes of a row that are summed at once: as many sums as stay in registers.
const BLOCK: usize = 32;

/// Outputs of a row that are summed at once.
pub(super) const GROUP: usize = 8;

/// Pads `line` so that four values can be read from any pixel's first.
pub(super) const PADDING: usize = 3;

/// One output row: `line` takes the weighted sum of rows of `bytes`, times [`ONE`]; then for each channel the weighted sums of
/// its columns, value * factor + offset of `scales`, go to `out`, one target row a channel.
pub(super) fn row<const C: usize>(
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
        // SAFETY: the processor has AVX2.
        return unsafe { row_avx2((bytes, stride), weights, line, columns, scales, out) };
    }
    sum_lines((bytes, stride), weights, line);
    sum_columns(line, columns, 0, scales, out);
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
    let groups = columns.first.len() / GROUP;
    for group in 0..groups {
        let sums = sum_group_avx2::<C>(line, columns, group);
        for c in 0..C {
            let scaled =
                _mm256_add_ps(_mm256_mul_ps(sums[c], _mm256_set1_ps(scales[c].0)), _mm256_set1_ps(scales[c].1));
            let target = &mut out[c][group * GROUP..][..GROUP];
            // SAFETY: `target` holds eight values.
            unsafe { _mm256_storeu_ps(target.as_mut_ptr(), scaled) };
        }
    }
    sum_columns(line, columns, groups * GROUP, scales, out);
}

/// The weighted sums of a group of outputs: a vector a channel, those past `C` without meaning.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
fn sum_group_avx2<const C: usize>(line: &[f32], columns: &Axis, group: usize) -> [__m256; 4] {
    let taps = columns.taps;
    let first = &columns.first[group * GROUP..][..GROUP];
    let weights = &columns.grouped[group * GROUP * taps..][..GROUP * taps];
    // From here on what is read lies inside: outputs are in order, forwards or (mirrored) backwards.
    let last = first[0].max(first[GROUP - 1]) + taps - 1;
    assert!(last * C + 4 <= line.len() && first.iter().all(|&at| at + taps - 1 <= last));
    // Of each pair of outputs (j, j + 4), all channels of the one in the low half and of the other in the high half.
    let mut sums = [_mm256_setzero_ps(); 4];
    for k in 0..taps {
        // SAFETY: `weights` holds `taps` times eight values.
        let weight = unsafe { _mm256_loadu_ps(weights.as_ptr().add(k * GROUP)) };
        let pair = |j: usize| {
            // SAFETY: four values from any tap of these outputs lie inside of `line`, as asserted above.
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
    // Two transpositions of 4 x 4: outputs in order, a channel each.
    let (a, b) = (_mm256_unpacklo_ps(sums[0], sums[1]), _mm256_unpacklo_ps(sums[2], sums[3]));
    let (c, d) = (_mm256_unpackhi_ps(sums[0], sums[1]), _mm256_unpackhi_ps(sums[2], sums[3]));
    [
        _mm256_shuffle_ps::<0b01_00_01_00>(a, b),
        _mm256_shuffle_ps::<0b11_10_11_10>(a, b),
        _mm256_shuffle_ps::<0b01_00_01_00>(c, d),
        _mm256_shuffle_ps::<0b11_10_11_10>(c, d),
    ]
}

/// The weighted sums of rows, times [`ONE`].
#[inline(always)]
fn sum_lines((bytes, stride): (&[u8], usize), weights: &[i16], line: &mut [f32]) {
    let count = line.len() - PADDING;
    let (blocks, rest) = line[..count].as_chunks_mut::<BLOCK>();
    let whole = blocks.len() * BLOCK;
    for (i, block) in blocks.iter_mut().enumerate() {
        sum_block(&bytes[i * BLOCK..], stride, weights, block);
    }
    if !rest.is_empty() && count >= BLOCK {
        // The last block once more, with what lies before it: the same values again.
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

/// The weighted sums of a block of bytes in each row.
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

/// The weighted sums of columns from output `begin` on, for all channels of a pixel at once.
#[inline(always)]
fn sum_columns<const C: usize>(
    line: &[f32],
    columns: &Axis,
    begin: usize,
    scales: [(f32, f32); C],
    out: [&mut [f32]; C],
) {
    for x in begin..columns.first.len() {
        let mut sums = [0f32; C];
        for (k, weight) in columns.weights[x * columns.taps..][..columns.taps].iter().enumerate() {
            let pixel = &line[(columns.first[x] + k) * C..][..C];
            for (sum, value) in sums.iter_mut().zip(pixel) {
                *sum += weight * value;
            }
        }
        for c in 0..C {
            out[c][x] = sums[c] * scales[c].0 + scales[c].1;
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::super::{Cut, Planes, Resampler, Rows, Stretch};
    use super::*;
    use crate::random::Draws;

    /// Both ways of summing, over widths with and without a rest, stretched, shrunk and mirrored.
    #[test]
    fn avx2_gives_the_bits_of_plain_loops() {
        if !is_x86_feature_detected!("avx2") {
            return;
        }
        for case in 0..400 {
            let mut draws = Draws::new(8, case, 0, 0);
            let (height, width) = (1 + draws.below(20) as usize, 1 + draws.below(50) as usize);
            let bytes: Vec<u8> = (0..height * width * 3).map(|_| draws.next_u32() as u8).collect();
            let stretch = |length: usize| Stretch { start: 0.0, length: length as f64 };
            let cut = |length, outputs| Cut { stretch: stretch(length), outputs, wanted: (0, outputs), to: 0 };
            let (rows, columns) = (1 + draws.below(9) as usize, 1 + draws.below(40) as usize);
            let source = Rows { bytes: &bytes, stride: width * 3, channels: 3, origin: (0, 0) };
            let mut values = vec![f32::NAN; rows * columns * 3];
            let mut target = Planes { values: &mut values, height: rows, width: columns };
            let mut resampler = Resampler::default();
            let scales = [(1.5, -0.25), (0.75, 1.0), (-2.0, 0.5)];
            let flipped = draws.below(2) == 1;
            resampler.run(source, cut(height, rows), cut(width, columns), flipped, &scales, &mut target);

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
