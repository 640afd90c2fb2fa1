//! The two matrix products at one place of the grid. Sums stay in registers: rows of one or two registers of columns.

use super::vector::Vectors;

/// What channels are padded to.
pub const PAD: usize = 16;

/// Channels, padded to what the kernels take at once.
pub fn padded(channels: usize) -> usize {
    channels.next_multiple_of(PAD)
}

/// Floats from tile to tile in a strip: a cache line more than the channels where these fill several, since many tiles whose distance
/// is a power of two would fight for the same few lines.
pub const fn step(channels: usize) -> usize {
    if channels <= 2 * PAD { channels } else { channels + PAD }
}

/// Columns that a kernel takes at once, of so many: those of two registers, or of one where two do not divide them.
pub fn width<S: Vectors>(columns: usize) -> usize {
    if padded(columns).is_multiple_of(2 * S::LANES) { 2 * S::LANES } else { S::LANES }
}

/// Calls a kernel for runs of as many rows as it takes and for what is left.
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

/// A row of C registers.
#[inline(always)]
fn load<S: Vectors, const C: usize>(set: S, from: &[f32]) -> [S::Lanes; C] {
    let from = &from[..C * S::LANES];
    let mut row = [set.zero(); C];
    for (c, lanes) in row.iter_mut().enumerate() {
        // SAFETY: the slice taken above.
        *lanes = unsafe { set.load(from.as_ptr().add(c * S::LANES)) };
    }
    row
}

#[inline(always)]
fn store<S: Vectors, const C: usize>(set: S, row: [S::Lanes; C], to: &mut [f32]) {
    let to = &mut to[..C * S::LANES];
    for (c, lanes) in row.into_iter().enumerate() {
        // SAFETY: the slice taken above.
        unsafe { set.store(lanes, to.as_mut_ptr().add(c * S::LANES)) };
    }
}

/// m[t] = v[t] u for T rows of v, `ci` long, and one group of columns; added to what is there if `add` says so.
#[inline(always)]
fn rows<S: Vectors, const T: usize, const C: usize>(
    set: S,
    v: &[f32],
    u: &[f32],
    (m, m_step): (&mut [f32], usize),
    add: bool,
) {
    let ci = u.len() / (C * S::LANES);
    let v_step = step(ci);
    let v = &v[..(T - 1) * v_step + ci];
    let mut acc = [[set.zero(); C]; T];
    for (i, u) in u.chunks_exact(C * S::LANES).enumerate() {
        let u = load::<S, C>(set, u);
        for (t, acc) in acc.iter_mut().enumerate() {
            // SAFETY: t < T and i < ci, and `v` ends with the last row's last value.
            let a = set.splat(*unsafe { v.get_unchecked(t * v_step + i) });
            for c in 0..C {
                acc[c] = set.mul_add(a, u[c], acc[c]);
            }
        }
    }
    for (t, mut acc) in acc.into_iter().enumerate() {
        let m = &mut m[t * m_step..];
        if add {
            let before = load::<S, C>(set, m);
            acc.iter_mut().zip(before).for_each(|(acc, before)| *acc = set.add(before, *acc));
        }
        store(set, acc, m);
    }
}

/// m (tiles, co) = v (tiles, ci) u, or, to `add`, the sum of both, with u in groups of [`width`] columns, rows of v and m [`step`] apart.
#[inline(always)]
pub fn multiply<S: Vectors>(
    set: S,
    tiles: usize,
    v: &[f32],
    u: &[f32],
    (ci, co): (usize, usize),
    m: &mut [f32],
    add: bool,
) {
    let (from, to) = (step(ci), step(co));
    let width = width::<S>(co);
    for (group, u) in u.chunks_exact(ci * width).enumerate() {
        let m = &mut m[group * width..];
        if width == S::LANES {
            by_rows!(tiles, S::ROWS, |at| rows::<S, 1>(set, &v[at * from..], u, (&mut m[at * to..], to), add));
        } else {
            by_rows!(tiles, S::ROWS, |at| rows::<S, 2>(set, &v[at * from..], u, (&mut m[at * to..], to), add));
        }
    }
}

/// du[t] += sum over tiles of v[tile][t] d[tile], for T rows and one group of columns.
#[inline(always)]
fn outer<S: Vectors, const T: usize, const C: usize>(
    set: S,
    tiles: usize,
    (v, v_step): (&[f32], usize),
    (d, d_step): (&[f32], usize),
    du: &mut [f32],
) {
    let width = C * S::LANES;
    let (v, d) = (&v[..(tiles - 1) * v_step + T], &d[..(tiles - 1) * d_step + width]);
    let du = &mut du[..T * width];
    let mut acc = [[set.zero(); C]; T];
    for (t, acc) in acc.iter_mut().enumerate() {
        *acc = load(set, &du[t * width..]);
    }
    for tile in 0..tiles {
        let d = load::<S, C>(set, &d[tile * d_step..]);
        for (t, acc) in acc.iter_mut().enumerate() {
            // SAFETY: the last tile's T values end where `v` does.
            let a = set.splat(*unsafe { v.get_unchecked(tile * v_step + t) });
            for c in 0..C {
                acc[c] = set.mul_add(a, d[c], acc[c]);
            }
        }
    }
    for (t, acc) in acc.into_iter().enumerate() {
        store(set, acc, &mut du[t * width..]);
    }
}

/// du (ci, co) += transpose of v (tiles, ci) times d (tiles, co), with du in groups of [`width`] columns, rows of v and d
/// [`step`] apart.
#[inline(always)]
pub fn accumulate<S: Vectors>(set: S, tiles: usize, v: &[f32], d: &[f32], (ci, co): (usize, usize), du: &mut [f32]) {
    let width = width::<S>(co);
    // sixteen rows, of which there are always whole runs, are twice eight, or six, six and four
    let most = S::ROWS.min(8);
    for (group, du) in du.chunks_exact_mut(ci * width).enumerate() {
        let d = (&d[group * width..], step(co));
        if width == S::LANES {
            by_rows!(ci, most, |at| outer::<S, 1>(set, tiles, (&v[at..], step(ci)), d, &mut du[at * width..]));
        } else {
            by_rows!(ci, most, |at| outer::<S, 2>(set, tiles, (&v[at..], step(ci)), d, &mut du[at * width..]));
        }
    }
}
