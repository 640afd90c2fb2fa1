//! A strip: the tiles that are taken through all stages at once, how they are stored on the way, and the matrix products at one place of
//! the grid.

use super::super::register_tile::{UNROLLED, by_rows, outer, rows};
use super::super::vector::Vectors;
use crate::TensorDesc;

/// Tiles of one image: two rows of `wide` outputs each.
pub fn tiles(d: &TensorDesc, wide: usize) -> usize {
    d.shape.h.div_ceil(2) * d.shape.w.div_ceil(wide)
}

/// How tiles of `wide` output columns lie: floats from tile to tile, from channel block to channel block, from place to place of the grid.
#[derive(Clone, Copy)]
pub struct Order {
    pub wide: usize,
    pub tile: usize,
    pub block: usize,
    pub place: usize,
}

impl Order {
    /// The channels of a tile side by side: a matrix for each place, with room for `len` tiles, and a cache line more, since a tile is
    /// written to all places at once.
    pub fn by_place<S: Vectors>(channels: usize, len: usize, wide: usize) -> Self {
        Self { wide, tile: step(channels), block: S::LANES, place: len * step(channels) + PAD }
    }

    /// Zeros, at so many places, in the channels beyond the last block, which no plane fills; for [`Self::by_place`].
    pub fn clear_rest(self, desc: &TensorDesc, channels: usize, places: usize, v: &mut [f32]) {
        let have = desc.blocks() * desc.block;
        if have < channels {
            for place in v[..places * self.place].chunks_exact_mut(self.place) {
                place.chunks_exact_mut(self.tile).for_each(|tile| tile[have..channels].fill(0.0));
            }
        }
    }

    /// The places of a tile side by side, `places` of them for each channel block, and a cache line: tiles whose distance is a power
    /// of two would fight for the same few lines.
    pub fn by_tile<S: Vectors>(channels: usize, places: usize, wide: usize) -> Self {
        let block = places * S::LANES;
        Self { wide, tile: channels / S::LANES * block + S::LANES, block, place: S::LANES }
    }
}

/// Tiles `first .. first + count` of a run of samples.
#[derive(Clone, Copy)]
pub struct Run {
    pub first: usize,
    pub count: usize,
}

impl Run {
    /// The runs of `len` tiles that so many tiles are cut into.
    pub fn each(tiles: usize, len: usize) -> impl Iterator<Item = Self> {
        (0..tiles).step_by(len).map(move |first| Self { first, count: len.min(tiles - first) })
    }

    /// The parts of it that lie in one sample each: the sample, the tiles there, and where they begin in the strip.
    pub fn parts(self, d: &TensorDesc, order: Order) -> impl Iterator<Item = (usize, Strip, usize)> {
        let (h, w, tiles) = (d.shape.h, d.shape.w, tiles(d, order.wide));
        let mut done = 0;
        std::iter::from_fn(move || {
            let (n, first) = ((self.first + done) / tiles, (self.first + done) % tiles);
            let count = (self.count - done).min(tiles - first);
            let at = done * order.tile;
            done += count;
            (count > 0).then_some((n, Strip { h, w, first, count, order }, at))
        })
    }
}

/// Where tiles lie: tiles `first .. first + count` of an image of h rows and w columns.
#[derive(Clone, Copy)]
pub struct Strip {
    pub h: usize,
    pub w: usize,
    pub first: usize,
    pub count: usize,
    pub order: Order,
}

impl Strip {
    /// First output row and column of a tile.
    #[inline(always)]
    pub fn tile(self, i: usize) -> (usize, usize) {
        let across = self.w.div_ceil(self.order.wide);
        ((self.first + i) / across * 2, (self.first + i) % across * self.order.wide)
    }

    /// Its tiles: number in the strip, first output row and column.
    pub fn tiles(self) -> impl Iterator<Item = (usize, usize, usize)> {
        (0..self.count).map(move |i| {
            let (top, left) = self.tile(i);
            (i, top, left)
        })
    }
}

// Pixels of the next strip, brought into the caches while the products of this one keep the core busy: strips come and go too quickly
// for the processor to foresee them.

/// The pixels that the run of tiles after a given one will touch, a few at a time.
pub struct Ahead {
    next: *const f32,
    /// Pixels that are left, in each channel block.
    left: usize,
    /// Pixels at a time.
    each: usize,
    blocks: usize,
    /// Floats of a channel block.
    plane: usize,
}

impl Ahead {
    /// What follows `run` in `data`, from `row` rows below its first tile's on, in so many calls of [`Self::fetch`]. The `tiles` of an
    /// image have equal shares of its pixels, whatever their size.
    pub fn new(desc: &TensorDesc, data: *const f32, (run, tiles): (Run, usize), row: usize, calls: usize) -> Self {
        let (plane, following) = (desc.shape.plane(), run.first + run.count);
        let first = following / tiles * desc.blocks() * plane;
        let pixel = first + following % tiles * plane / tiles + row * desc.shape.w;
        let left = run.count * plane / tiles;
        Self {
            next: data.wrapping_add(pixel * desc.block),
            left,
            each: left.div_ceil(calls),
            blocks: desc.blocks(),
            plane: desc.shape.plane() * desc.block,
        }
    }

    /// Fetches the next of them; none at the end.
    #[inline(always)]
    pub fn fetch<S: Vectors>(&mut self, set: S) {
        let pixels = self.each.min(self.left);
        for block in 0..self.blocks {
            for pixel in 0..pixels {
                set.prefetch(self.next.wrapping_add(block * self.plane + pixel * S::LANES));
            }
        }
        self.next = self.next.wrapping_add(pixels * S::LANES);
        self.left -= pixels;
    }
}

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

/// Returns the number of columns that a kernel processes at once: two registers, or one if two do not divide the padded columns.
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
