//! Loops over the channels of interleaved bytes: interleaving planes of bytes or floats, and sums per channel. `simd!`
//! also compiles them for AVX2, which has the shuffle instructions that they need, and for AVX-512. The results do not
//! depend on the CPU.

use base::simd;

/// Bytes that are summed in parallel. Must be a multiple of every channel count (1 and 3).
const LANES: usize = 48;

simd! {
    /// Interleaves three planes of equal size, stored consecutively, into `pixels`.
    ///
    /// # Panics
    ///
    /// Panics if `planes` and `pixels` have different numbers of bytes.
    pub fn interleave(planes: &[u8], pixels: &mut [[u8; 3]]) {
        assert_eq!(planes.len(), 3 * pixels.len());
        interleave_loop(planes, pixels);
    }
}

#[inline(always)]
fn interleave_loop(planes: &[u8], pixels: &mut [[u8; 3]]) {
    let (red, rest) = planes.split_at(planes.len() / 3);
    let (green, blue) = rest.split_at(red.len());
    for (((pixel, &r), &g), &b) in pixels.iter_mut().zip(red).zip(green).zip(blue) {
        *pixel = [r, g, b];
    }
}

/// [`deinterleave`] transposes blocks with this number of pixels and channels.
#[cfg(target_arch = "x86_64")]
const BLOCK: usize = 8;

/// Copies interleaved pixels to planes, stored consecutively.
///
/// # Panics
///
/// Panics if `pixels` is not a whole number of pixels or `planes` has another length.
pub(crate) fn deinterleave(pixels: &[f32], channels: usize, planes: &mut [f32]) {
    assert!(pixels.len().is_multiple_of(channels) && planes.len() == pixels.len());
    let count = pixels.len() / channels;
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut, reason = "the loops below do everything"))]
    let mut done = 0;
    #[cfg(target_arch = "x86_64")]
    if channels >= BLOCK && is_x86_feature_detected!("avx2") {
        done = count / BLOCK * BLOCK;
        // SAFETY: the checks above guarantee AVX2, enough channels and equal lengths.
        unsafe { deinterleave_avx2(pixels, channels, planes) };
    }
    for (channel, plane) in planes.chunks_exact_mut(count.max(1)).enumerate() {
        let values = pixels[done * channels..].iter().skip(channel).step_by(channels);
        plane[done..].iter_mut().zip(values).for_each(|(to, value)| *to = *value);
    }
}

/// Works like [`deinterleave`], but only for whole blocks of pixels.
///
/// # Safety
///
/// There must be at least [`BLOCK`] channels, and `planes` must be as long as `pixels`, a whole number of pixels.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn deinterleave_avx2(pixels: &[f32], channels: usize, planes: &mut [f32]) {
    use std::arch::x86_64::*;
    let count = pixels.len() / channels;
    for first in (0..count / BLOCK * BLOCK).step_by(BLOCK) {
        // The last channels may overlap those before them.
        for channel in (0..channels).step_by(BLOCK).map(|channel| channel.min(channels - BLOCK)) {
            let mut rows = [_mm256_setzero_ps(); BLOCK];
            for (pixel, row) in rows.iter_mut().enumerate() {
                let at = (first + pixel) * channels + channel;
                // SAFETY: pixel `first + pixel` exists and has eight values from `channel` on.
                *row = unsafe { _mm256_loadu_ps(pixels.as_ptr().add(at)) };
            }
            // Transpose the 4x4 values in each quarter, then exchange quarters. (Closures would not be inlined.)
            let mut quarters = [_mm256_setzero_ps(); BLOCK];
            for half in [0, BLOCK / 2] {
                let low = [
                    _mm256_unpacklo_ps(rows[half], rows[half + 1]),
                    _mm256_unpacklo_ps(rows[half + 2], rows[half + 3]),
                ];
                let high = [
                    _mm256_unpackhi_ps(rows[half], rows[half + 1]),
                    _mm256_unpackhi_ps(rows[half + 2], rows[half + 3]),
                ];
                quarters[half] = _mm256_shuffle_ps::<0x44>(low[0], low[1]);
                quarters[half + 1] = _mm256_shuffle_ps::<0xee>(low[0], low[1]);
                quarters[half + 2] = _mm256_shuffle_ps::<0x44>(high[0], high[1]);
                quarters[half + 3] = _mm256_shuffle_ps::<0xee>(high[0], high[1]);
            }
            for i in 0..BLOCK / 2 {
                let (upper, lower) = (quarters[i], quarters[i + BLOCK / 2]);
                rows[i] = _mm256_permute2f128_ps::<0x20>(upper, lower);
                rows[i + BLOCK / 2] = _mm256_permute2f128_ps::<0x31>(upper, lower);
            }
            for (i, row) in rows.into_iter().enumerate() {
                // SAFETY: plane `channel + i` exists and has eight values from `first` on.
                unsafe { _mm256_storeu_ps(planes.as_mut_ptr().add((channel + i) * count + first), row) };
            }
        }
    }
}

/// Number of pixels that are rounded at a time.
const ROUNDED: usize = 64;

simd! {
    /// Rounds three planes of values from 0 to 255, stored consecutively, and interleaves them into `pixels`. Halves are
    /// rounded up.
    ///
    /// # Panics
    ///
    /// Panics if `planes` and `pixels` have different numbers of values.
    pub(crate) fn interleave_rounded(planes: &[f32], pixels: &mut [[u8; 3]]) {
        let count = pixels.len();
        assert_eq!(planes.len(), 3 * count);
        let mut bytes = [0; 3 * ROUNDED];
        for (i, pixels) in pixels.chunks_mut(ROUNDED).enumerate() {
            let bytes = &mut bytes[..3 * pixels.len()];
            for (channel, bytes) in bytes.chunks_exact_mut(pixels.len()).enumerate() {
                let values = &planes[channel * count + i * ROUNDED..][..bytes.len()];
                bytes.iter_mut().zip(values).for_each(|(byte, value)| *byte = rounded(*value));
            }
            interleave_loop(bytes, pixels);
        }
    }
}

/// Rounds a value from 0 to 255 to a byte. Halves are rounded up. The result is that of `(value + 0.5) as u8`, which
/// compilers do not vectorise.
#[inline(always)]
#[expect(clippy::manual_clamp, reason = "clamp leaves NaN as it is")]
pub(crate) fn rounded(value: f32) -> u8 {
    let inside = (value + 0.5).max(0.0).min(255.0);
    // SAFETY: the value is from 0 to 255, because `max` turns NaN into 0.
    let whole: i32 = unsafe { inside.to_int_unchecked() };
    whole as u8
}

simd! {
    /// Adds the bytes of `C` interleaved channels to `sums`, and their squares to `squares`. `C` must divide 48.
    pub fn add_sums<C: usize>(bytes: &[u8], sums: &mut [u64; C], squares: &mut [u64; C]) {
        const { assert!(LANES.is_multiple_of(C)) };
        // A u16 can hold the sum of 2^8 bytes and a u32 the sum of 2^16 squares. Small integers vectorise best.
        for block in bytes.chunks(LANES << 8) {
            let (mut sum, mut square) = ([0u16; LANES], [0u32; LANES]);
            let (rows, rest) = block.as_chunks::<LANES>();
            for row in rows {
                for i in 0..LANES {
                    let value = u16::from(row[i]);
                    sum[i] += value;
                    square[i] += u32::from(value * value);
                }
            }
            for (i, &byte) in rest.iter().enumerate() {
                sums[i % C] += u64::from(byte);
                squares[i % C] += u64::from(byte) * u64::from(byte);
            }
            for i in 0..LANES {
                sums[i % C] += u64::from(sum[i]);
                squares[i % C] += u64::from(square[i]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(length: usize) -> Vec<u8> {
        (0..length as u64).map(|i| (i * i % 253) as u8).collect()
    }

    #[test]
    fn deinterleave_splits_pixels_into_planes() {
        for channels in 1..40 {
            for count in [0, 1, 7, 8, 9, 16, 23, 64] {
                let pixels: Vec<f32> = (0..channels * count).map(|i| i as f32).collect();
                let mut planes = vec![f32::NAN; pixels.len()];
                deinterleave(&pixels, channels, &mut planes);
                let value = |i: usize| pixels[i % count * channels + i / count];
                let expected: Vec<f32> = (0..pixels.len()).map(value).collect();
                assert_eq!(planes, expected, "{channels} channels, {count} pixels");
            }
        }
    }

    #[test]
    fn interleave_merges_planes_of_any_length() {
        for area in (0..200).chain([1024]) {
            let planes = bytes(3 * area);
            let mut pixels = vec![[9; 3]; area];
            interleave(&planes, &mut pixels);
            for (i, pixel) in pixels.iter().enumerate() {
                assert_eq!(*pixel, [planes[i], planes[area + i], planes[2 * area + i]], "{i} of {area}");
            }
        }
    }

    #[test]
    fn interleave_rounded_rounds_to_the_nearest_byte() {
        let value = |i: usize| (i * i % 1021) as f32 / 4.0;
        for area in (0..200).chain([1024]) {
            let planes: Vec<f32> = (0..3 * area).map(value).collect();
            let mut pixels = vec![[9; 3]; area];
            interleave_rounded(&planes, &mut pixels);
            for (i, pixel) in pixels.iter().enumerate() {
                let expected = [i, area + i, 2 * area + i].map(|at| (value(at) + 0.5) as u8);
                assert_eq!(*pixel, expected, "{i} of {area}");
            }
        }
        let odd = [-1.0, -0.0, 0.49, 0.5, 254.5, 255.49, 255.6, 300.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
        assert_eq!(odd.map(rounded), odd.map(|value| (value + 0.5) as u8));
    }

    #[test]
    fn add_sums_is_exact_at_any_length() {
        for length in (0..200).chain([(LANES << 8) - 1, LANES << 8, (LANES << 8) + 50, 3 << 16]) {
            for bytes in [bytes(length), vec![255; length]] {
                let (mut sums, mut squares) = ([5; 3], [7; 3]);
                add_sums(&bytes, &mut sums, &mut squares);
                for c in 0..3 {
                    let values = || bytes.iter().skip(c).step_by(3).map(|&b| u64::from(b));
                    assert_eq!(sums[c], 5 + values().sum::<u64>(), "{length}");
                    assert_eq!(squares[c], 7 + values().map(|v| v * v).sum::<u64>(), "{length}");
                }
                let (mut sum, mut square) = ([0], [0]);
                add_sums(&bytes, &mut sum, &mut square);
                assert_eq!(sum[0], bytes.iter().map(|&b| u64::from(b)).sum::<u64>());
                assert_eq!(square[0], bytes.iter().map(|&b| u64::from(b).pow(2)).sum::<u64>());
            }
        }
    }
}
