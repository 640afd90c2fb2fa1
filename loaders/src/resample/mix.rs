//! The inner loops of resizing, compiled for AVX2 as well and chosen at run time. Sums keep one order and no multiply-add is
//! fused, so the bits do not depend on the choice.

use super::{Axis, ONE};

/// Bytes of a row that are summed at once: as many sums as stay in registers.
const BLOCK: usize = 32;

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
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { row_avx2((bytes, stride), weights, line, columns, scales, out) };
    }
    body((bytes, stride), weights, line, columns, scales, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn row_avx2<const C: usize>(
    (bytes, stride): (&[u8], usize),
    weights: &[i16],
    line: &mut [f32],
    columns: &Axis,
    scales: [(f32, f32); C],
    out: [&mut [f32]; C],
) {
    body((bytes, stride), weights, line, columns, scales, out);
}

#[inline(always)]
fn body<const C: usize>(
    (bytes, stride): (&[u8], usize),
    weights: &[i16],
    line: &mut [f32],
    columns: &Axis,
    scales: [(f32, f32); C],
    out: [&mut [f32]; C],
) {
    let count = line.len() - PADDING;
    let (blocks, rest) = line[..count].as_chunks_mut::<BLOCK>();
    let whole = blocks.len() * BLOCK;
    for (i, block) in blocks.iter_mut().enumerate() {
        sum_rows(&bytes[i * BLOCK..], stride, weights, block);
    }
    if !rest.is_empty() && count >= BLOCK {
        // The last block once more, with what lies before it: the same values again.
        let start = count - BLOCK;
        if let Some(block) = line[start..count].first_chunk_mut() {
            sum_rows(&bytes[start..], stride, weights, block);
        }
    } else {
        for (i, value) in rest.iter_mut().enumerate() {
            let row = bytes[whole + i..].iter().step_by(stride);
            let sum: i32 = row.zip(weights).map(|(&byte, &weight)| i32::from(byte) * i32::from(weight)).sum();
            *value = sum as f32;
        }
    }
    sum_columns(line, columns, scales.map(|(factor, offset)| (factor / ONE as f32, offset)), out);
}

/// The weighted sums of a block of bytes in each row.
#[inline(always)]
fn sum_rows(bytes: &[u8], stride: usize, weights: &[i16], block: &mut [f32; BLOCK]) {
    let mut sums = [0i32; BLOCK];
    for (k, &weight) in weights.iter().enumerate() {
        let Some(row) = bytes[k * stride..].first_chunk::<BLOCK>() else { unreachable!("rows reach that far") };
        for (sum, &byte) in sums.iter_mut().zip(row) {
            *sum += i32::from(byte) * i32::from(weight);
        }
    }
    *block = sums.map(|sum| sum as f32);
}

/// The weighted sums of columns, for all channels of a pixel at once.
#[inline(always)]
fn sum_columns<const C: usize>(line: &[f32], columns: &Axis, scales: [(f32, f32); C], out: [&mut [f32]; C]) {
    let taps = columns.taps;
    for (x, (&first, weights)) in columns.first.iter().zip(columns.weights.chunks_exact(taps)).enumerate() {
        let mut sums = [0f32; 4];
        let pixels = &line[first * C..][..(taps - 1) * C + 4];
        for (k, &weight) in weights.iter().enumerate() {
            let Some(pixel) = pixels[k * C..].first_chunk::<4>() else { unreachable!("the line is padded") };
            for (sum, value) in sums.iter_mut().zip(pixel) {
                *sum += weight * value;
            }
        }
        for c in 0..C {
            out[c][x] = sums[c] * scales[c].0 + scales[c].1;
        }
    }
}
