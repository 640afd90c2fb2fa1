//! The two matrix products at one place of the grid, for AVX2. Sums stay in registers: 6 rows of 16 columns are 12 of the 16.

use std::arch::x86_64::{
    __m256, _mm256_broadcast_ss, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_setzero_ps, _mm256_storeu_ps,
};

/// Columns (output channels) that a kernel takes at once: two registers.
pub const WIDTH: usize = 16;

/// Rows that a kernel takes at once where there are as many.
pub const ROWS: usize = 6;

/// Floats from tile to tile in a strip: a cache line more than the channels, since many tiles whose distance is a power of two
/// would fight for the same few lines.
pub const fn step(channels: usize) -> usize {
    channels + WIDTH
}

/// One row of sums.
type Row = [__m256; 2];

/// Calls a kernel for runs of 6 rows and for what is left.
macro_rules! by_rows {
    ($rows:expr, |$at:ident| $f:ident($($arg:expr),*)) => {
        let mut $at = 0;
        while $at < $rows {
            $at += match $rows - $at {
                1 => { $f::<1>($($arg),*); 1 }
                2..4 => { $f::<2>($($arg),*); 2 }
                4..ROWS => { $f::<4>($($arg),*); 4 }
                _ => { $f::<ROWS>($($arg),*); ROWS }
            };
        }
    };
}

#[target_feature(enable = "avx2,fma")]
fn load(from: &[f32; WIDTH]) -> Row {
    let at = from.as_ptr();
    // SAFETY: sixteen values lie there.
    unsafe { [_mm256_loadu_ps(at), _mm256_loadu_ps(at.add(8))] }
}

#[target_feature(enable = "avx2,fma")]
fn store(row: Row, to: &mut [f32; WIDTH]) {
    let at = to.as_mut_ptr();
    // SAFETY: room for sixteen values.
    unsafe {
        _mm256_storeu_ps(at, row[0]);
        _mm256_storeu_ps(at.add(8), row[1]);
    }
}

/// The group of columns that starts at `at`.
#[target_feature(enable = "avx2,fma")]
fn group(values: &mut [f32], at: usize) -> &mut [f32; WIDTH] {
    &mut values[at..].as_chunks_mut::<WIDTH>().0[0]
}

/// m[t] = v[t] u for T rows of v (as long as u) and one group of columns.
#[target_feature(enable = "avx2,fma")]
fn rows<const T: usize>(v: &[f32], u: &[[f32; WIDTH]], m: &mut [f32], m_step: usize) {
    let v_step = step(u.len());
    let v = &v[..(T - 1) * v_step + u.len()];
    let mut acc = [[_mm256_setzero_ps(); 2]; T];
    for (i, u) in u.iter().enumerate() {
        let u = load(u);
        for (t, acc) in acc.iter_mut().enumerate() {
            // SAFETY: t < T and i < u.len(), and `v` ends with the last row's last value.
            let a = _mm256_broadcast_ss(unsafe { v.get_unchecked(t * v_step + i) });
            acc[0] = _mm256_fmadd_ps(a, u[0], acc[0]);
            acc[1] = _mm256_fmadd_ps(a, u[1], acc[1]);
        }
    }
    for (t, acc) in acc.into_iter().enumerate() {
        store(acc, group(m, t * m_step));
    }
}

/// m (tiles, co) = v (tiles, ci) u, with u in groups of [`WIDTH`] columns, rows of v and m [`step`] apart.
#[target_feature(enable = "avx2,fma")]
pub fn multiply(tiles: usize, v: &[f32], u: &[f32], (ci, co): (usize, usize), m: &mut [f32]) {
    for (group, u) in u.as_chunks::<WIDTH>().0.chunks_exact(ci).enumerate() {
        by_rows!(tiles, |at| rows(&v[at * step(ci)..], u, &mut m[at * step(co) + group * WIDTH..], step(co)));
    }
}

/// du[t] += sum over tiles of v[tile][t] d[tile], for T rows and one group of columns.
#[target_feature(enable = "avx2,fma")]
fn outer<const T: usize>(tiles: usize, v: &[f32], v_step: usize, d: &[f32], d_step: usize, du: &mut [[f32; WIDTH]]) {
    let (v, d) = (&v[..(tiles - 1) * v_step + T], &d[..(tiles - 1) * d_step + WIDTH]);
    let mut acc = [[_mm256_setzero_ps(); 2]; T];
    for (acc, du) in acc.iter_mut().zip(&*du) {
        *acc = load(du);
    }
    for tile in 0..tiles {
        // SAFETY: the last tile's values end where `d` does.
        let d = unsafe {
            let at = d.as_ptr().add(tile * d_step);
            [_mm256_loadu_ps(at), _mm256_loadu_ps(at.add(8))]
        };
        for (t, acc) in acc.iter_mut().enumerate() {
            // SAFETY: the last tile's T values end where `v` does.
            let a = _mm256_broadcast_ss(unsafe { v.get_unchecked(tile * v_step + t) });
            acc[0] = _mm256_fmadd_ps(a, d[0], acc[0]);
            acc[1] = _mm256_fmadd_ps(a, d[1], acc[1]);
        }
    }
    for (acc, du) in acc.into_iter().zip(du) {
        store(acc, du);
    }
}

/// du (ci, co) += transpose of v (tiles, ci) times d (tiles, co), with du in groups of [`WIDTH`] columns, rows of v and d
/// [`step`] apart.
#[target_feature(enable = "avx2,fma")]
pub fn accumulate(tiles: usize, v: &[f32], d: &[f32], (ci, co): (usize, usize), du: &mut [f32]) {
    for (group, du) in du.as_chunks_mut::<WIDTH>().0.chunks_exact_mut(ci).enumerate() {
        by_rows!(ci, |at| outer(tiles, &v[at..], step(ci), &d[group * WIDTH..], step(co), &mut du[at..]));
    }
}

/// Channels, padded to what the kernels take at once.
pub fn padded(channels: usize) -> usize {
    channels.next_multiple_of(WIDTH)
}
