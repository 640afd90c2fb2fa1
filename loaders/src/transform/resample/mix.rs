//! The inner loops of resizing, plain and with AVX2, chosen at run time. Both sum in the same order and fuse no multiply-add, so the
//! bits do not depend on the choice.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use super::filter::{Axis, GROUP, ONE};

/// Bytes of a row that are summed at once: as many sums as fit into registers.
const BLOCK: usize = 32;

/// Pads `line` so that four values can be read from any pixel's first.
pub(super) const PADDING: usize = 3;

/// Computes one output row: `line` gets the weighted sum of rows of `bytes`, times [`ONE`]; then the weighted sums of its columns, as
/// value * factor + offset of `scales`, go to `out`, one target row a channel.
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

/// Between what sums are cut: values times [`ONE`], as `line` has them.
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
        // SAFETY: no input reaches past `columns.end`, so four values from any on lie inside of `line`, as asserted above.
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

/// The weighted sums of a group of outputs: one vector a channel; those past `C` are unused.
///
/// # Safety
/// Four values from any input of these outputs on must lie inside of `line`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn sum_group_avx2<const C: usize>(line: &[f32], first: &[usize; GROUP], weights: &[f32]) -> [__m256; 4] {
    // of each pair of outputs (j, j + 4), all channels of the first in the low half and of the second in the high half
    let mut sums = [_mm256_setzero_ps(); 4];
    for (k, weight) in weights.as_chunks::<GROUP>().0.iter().enumerate() {
        // SAFETY: eight values.
        let weight = unsafe { _mm256_loadu_ps(weight.as_ptr()) };
        let pair = |j: usize| {
            // SAFETY: the caller's promise.
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
    // two transpositions of 4 x 4: outputs in order, a channel each
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
pub(super) fn sum_lines((bytes, stride): (&[u8], usize), weights: &[i16], line: &mut [f32]) {
    let count = line.len() - PADDING;
    let (blocks, rest) = line[..count].as_chunks_mut::<BLOCK>();
    let whole = blocks.len() * BLOCK;
    for (i, block) in blocks.iter_mut().enumerate() {
        sum_block(&bytes[i * BLOCK..], stride, weights, block);
    }
    if !rest.is_empty() && count >= BLOCK {
        // the last whole block, which overlaps the one before: its values are the same again
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
pub(super) fn sum_columns<const C: usize>(
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
