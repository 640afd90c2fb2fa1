//! Matrix products that keep their sums in registers. A tile has a few rows, and a register or two of columns.

use super::vector::{Vectors, load, store};

/// Calls a kernel until all rows are done. Each call processes 1, 2, 4, 6, 8 or 12 rows: the largest possible number,
/// but at most `$most`.
macro_rules! by_rows {
    ($rows:expr, $most:expr, |$at:ident| $f:ident::<$s:ident, $c:literal>($($arg:expr),*)) => {
        let mut $at = 0;
        while $at < $rows {
            $at += match ($rows - $at).min($most) {
                1 => { $f::<$s, 1, $c>($($arg),*); 1 }
                2..4 => { $f::<$s, 2, $c>($($arg),*); 2 }
                4..6 => { $f::<$s, 4, $c>($($arg),*); 4 }
                6..8 => { $f::<$s, 6, $c>($($arg),*); 6 }
                8..12 => { $f::<$s, 8, $c>($($arg),*); 8 }
                _ => { $f::<$s, 12, $c>($($arg),*); 12 }
            };
        }
    };
}
pub(super) use by_rows;

/// Number of steps of a sum between two tests for the loop's end. A test in each step would be a seventh of all
/// instructions, which costs time if another hyperthread shares the core.
pub const UNROLLED: usize = 8;

/// Repeats the body [`UNROLLED`] times. The compiler does not unroll loops that contain
/// [`in_order`](Vectors::in_order).
macro_rules! unrolled {
    (|$k:ident| $body:expr) => {
        unrolled!($k $body, 0 1 2 3 4 5 6 7)
    };
    ($k:ident $body:expr, $($number:literal)*) => {
        $({ let $k = $number; $body })*
    };
}

/// Loads the first C registers of a slice.
#[inline(always)]
fn load_row<S: Vectors, const C: usize>(set: S, from: &[f32]) -> [S::Lanes; C] {
    let mut row = [set.zero(); C];
    for (c, lanes) in row.iter_mut().enumerate() {
        *lanes = load(set, from, c * S::LANES);
    }
    row
}

/// Stores C registers to the start of a slice.
#[inline(always)]
fn store_row<S: Vectors, const C: usize>(set: S, row: [S::Lanes; C], to: &mut [f32]) {
    for (c, lanes) in row.into_iter().enumerate() {
        store(set, lanes, &mut to[c * S::LANES..]);
    }
}

/// sums[t] += v[t] u, with `step` floats from v[t] to v[t + 1].
///
/// # Safety
/// `v` must point to T values at this distance, and `u` to C registers.
#[inline(always)]
unsafe fn rank_one<S: Vectors, const T: usize, const C: usize>(
    set: S,
    sums: &mut [[S::Lanes; C]; T],
    (v, step): (*const f32, usize),
    u: *const f32,
) {
    // SAFETY: the caller ensures that the values are there.
    unsafe {
        let mut row = [set.zero(); C];
        for (c, lanes) in row.iter_mut().enumerate() {
            *lanes = set.load(u.add(c * S::LANES));
        }
        for (t, sums) in sums.iter_mut().enumerate() {
            let a = set.splat(*v.add(t * step));
            for c in 0..C {
                sums[c] = set.in_order(set.mul_add(a, row[c], sums[c]));
            }
        }
    }
}

/// m[t] = v[t] u for T rows of v and the columns of u, or m[t] += v[t] u if `add` is set. Rows of v are `v_step` apart.
/// They have as many values as u has rows of C registers, which must be a multiple of [`UNROLLED`].
#[inline(always)]
pub fn rows<S: Vectors, const T: usize, const C: usize>(
    set: S,
    (v, v_step): (&[f32], usize),
    u: &[f32],
    (m, m_step): (&mut [f32], usize),
    add: bool,
) {
    let width = C * S::LANES;
    let len = u.len() / width;
    assert!(len.is_multiple_of(UNROLLED), "rows of {len} values");
    let v = v[..(T - 1) * v_step + len].as_ptr();
    let m = &mut m[..(T - 1) * m_step + width];
    let mut acc = [[set.zero(); C]; T];
    for i in 0..len / UNROLLED {
        // SAFETY: i < len / UNROLLED, `u` has `len` rows, and the last row of `v` ends at the end of the slice taken
        // above.
        unsafe {
            let (v, u) = (v.add(i * UNROLLED), u.as_ptr().add(i * UNROLLED * width));
            unrolled!(|k| rank_one(set, &mut acc, (v.add(k), v_step), u.add(k * width)));
        }
    }
    for (t, mut acc) in acc.into_iter().enumerate() {
        let m = &mut m[t * m_step..][..width];
        if add {
            let before: [S::Lanes; C] = load_row(set, m);
            acc.iter_mut().zip(before).for_each(|(acc, before)| *acc = set.add(before, *acc));
        }
        store_row(set, acc, m);
    }
}

/// du[t] = sum over tiles of v[tile][t] d[tile], for T rows and a group of columns. If `add` is set, the sum is added
/// to du.
/// `v_step` and `d_step` are the floats from tile to tile.
#[inline(always)]
pub fn outer<S: Vectors, const T: usize, const C: usize>(
    set: S,
    tiles: usize,
    (v, v_step): (&[f32], usize),
    (d, d_step): (&[f32], usize),
    du: &mut [f32],
    add: bool,
) {
    let width = C * S::LANES;
    let mut v = v[..(tiles - 1) * v_step + T].as_ptr();
    let mut d = d[..(tiles - 1) * d_step + width].as_ptr();
    let du = &mut du[..T * width];
    let mut acc = [[set.zero(); C]; T];
    if add {
        for (acc, du) in acc.iter_mut().zip(du.chunks_exact(width)) {
            *acc = load_row(set, du);
        }
    }
    // Advance the pointers in each step. Unrolled code with multiples of the distances would need too many registers.
    let mut next = || {
        let at = (v, d);
        (v, d) = (v.wrapping_add(v_step), d.wrapping_add(d_step));
        at
    };
    for _ in 0..tiles / UNROLLED {
        unrolled!(|_k| {
            let (v, d) = next();
            // SAFETY: the pointers are at a tile's T values and C registers. For the last tile, they end where the
            // slices taken above end.
            unsafe { rank_one(set, &mut acc, (v, 1), d) }
        });
    }
    for _ in 0..tiles % UNROLLED {
        let (v, d) = next();
        // SAFETY: the pointers are inside the slices, as in the loop above.
        unsafe { rank_one(set, &mut acc, (v, 1), d) };
    }
    for (acc, du) in acc.into_iter().zip(du.chunks_exact_mut(width)) {
        store_row(set, acc, du);
    }
}
