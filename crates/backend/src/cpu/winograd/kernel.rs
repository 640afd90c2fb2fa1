//! The two matrix products at one place of the grid.

use super::super::register_tile::{UNROLLED, by_rows, outer, rows};
use super::super::vector::Vectors;

/// What channels are padded to.
pub const PAD: usize = 16;
const _: () = assert!(PAD.is_multiple_of(UNROLLED));

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
            by_rows!(tiles, S::ROWS, |at| rows::<S, 1>(set, (&v[at * from..], from), u, (&mut m[at * to..], to), add));
        } else {
            by_rows!(tiles, S::ROWS, |at| rows::<S, 2>(set, (&v[at * from..], from), u, (&mut m[at * to..], to), add));
        }
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
            by_rows!(ci, most, |at| outer::<S, 1>(set, tiles, (&v[at..], step(ci)), d, &mut du[at * width..], true));
        } else {
            by_rows!(ci, most, |at| outer::<S, 2>(set, tiles, (&v[at..], step(ci)), d, &mut du[at * width..], true));
        }
    }
}
