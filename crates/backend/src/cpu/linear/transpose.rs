//! Squares of floats, rows for columns.

use std::arch::x86_64 as x86;

use super::super::vector::Avx2;

/// Side of a square: the lanes of a register.
pub const SIDE: usize = 8;

/// Rows become columns; both have `step` floats from row to row.
#[inline(always)]
pub fn transpose(_: Avx2, from: &[f32], to: &mut [f32], step: usize) {
    let last = (SIDE - 1) * step + SIDE;
    let (from, to) = (from[..last].as_ptr(), to[..last].as_mut_ptr());
    // SAFETY: the processor has AVX2, as there is a value of the set, and the last rows end where the slices taken above do.
    unsafe { square(from, to, step) }
}

/// # Safety
/// [`SIDE`] rows of as many floats lie at `from`, and there is room for them at `to`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn square(from: *const f32, to: *mut f32, step: usize) {
    // SAFETY: the caller's promise.
    let rows: [x86::__m256; SIDE] = std::array::from_fn(|i| unsafe { x86::_mm256_loadu_ps(from.add(i * step)) });
    let mut pairs = rows;
    for i in (0..SIDE).step_by(2) {
        pairs[i] = x86::_mm256_unpacklo_ps(rows[i], rows[i + 1]);
        pairs[i + 1] = x86::_mm256_unpackhi_ps(rows[i], rows[i + 1]);
    }
    let mut fours = rows;
    for i in (0..SIDE).step_by(4) {
        for odd in 0..2 {
            let (a, b) = (pairs[i + odd], pairs[i + odd + 2]);
            fours[i + 2 * odd] = x86::_mm256_shuffle_ps::<0x44>(a, b);
            fours[i + 2 * odd + 1] = x86::_mm256_shuffle_ps::<0xee>(a, b);
        }
    }
    for i in 0..SIDE / 2 {
        let (a, b) = (fours[i], fours[i + SIDE / 2]);
        // SAFETY: the caller's promise.
        unsafe {
            x86::_mm256_storeu_ps(to.add(i * step), x86::_mm256_permute2f128_ps::<0x20>(a, b));
            x86::_mm256_storeu_ps(to.add((i + SIDE / 2) * step), x86::_mm256_permute2f128_ps::<0x31>(a, b));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_columns() {
        let Some(set) = Avx2::detect() else { return eprintln!("skipped: no AVX2") };
        let (step, value) = (11, |row: usize, column: usize| (10 * row + column) as f32);
        let from: Vec<f32> = (0..SIDE * step).map(|i| value(i / step, i % step)).collect();
        let mut to = vec![-1.0; SIDE * step];
        transpose(set, &from, &mut to, step);
        for (i, to) in to.iter().enumerate() {
            let (row, column) = (i / step, i % step);
            assert_eq!(*to, if column < SIDE { value(column, row) } else { -1.0 });
        }
    }
}
