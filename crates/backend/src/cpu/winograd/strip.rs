//! Strips: the tiles that go through all stages together, their layout in the workspace, and the matrix products for
//! one place of the transformed tiles.

use super::super::register_tile::{UNROLLED, by_rows, outer, rows};
use super::super::vector::Vectors;
use crate::TensorDesc;

/// Returns the number of tiles per image. A tile has two rows of `tile_columns` outputs.
pub fn tiles(d: &TensorDesc, tile_columns: usize) -> usize {
    d.shape.h.div_ceil(2) * d.shape.w.div_ceil(tile_columns)
}

/// Layout of transformed tiles with `tile_columns` output columns: the floats from tile to tile, from channel block to
/// channel block, and from place to place.
#[derive(Clone, Copy)]
pub struct Order {
    pub tile_columns: usize,
    pub tile: usize,
    pub block: usize,
    pub place: usize,
}

impl Order {
    /// Returns a layout with a matrix for each place, in which the channels of a tile are contiguous. A matrix has room
    /// for `len` tiles and an additional cache line. Transforming a tile writes to all matrices, and without the
    /// additional line these addresses would conflict in the cache.
    pub fn by_place<S: Vectors>(channels: usize, len: usize, tile_columns: usize) -> Self {
        Self { tile_columns, tile: step(channels), block: S::LANES, place: len * step(channels) + PAD }
    }

    /// Zeroes the channels after the last channel block in the first `places` matrices, because the transforms do not
    /// write them. Use it with [`Self::by_place`].
    pub fn clear_rest(self, desc: &TensorDesc, channels: usize, places: usize, v: &mut [f32]) {
        let have = desc.blocks() * desc.block;
        if have < channels {
            for place in v[..places * self.place].chunks_exact_mut(self.place) {
                place.chunks_exact_mut(self.tile).for_each(|tile| tile[have..channels].fill(0.0));
            }
        }
    }

    /// Returns a layout in which the `places` places of a tile and channel block are contiguous. An additional cache
    /// line separates tiles, because tiles at a distance of a power of two would conflict in the cache.
    pub fn by_tile<S: Vectors>(channels: usize, places: usize, tile_columns: usize) -> Self {
        let block = places * S::LANES;
        Self { tile_columns, tile: channels / S::LANES * block + S::LANES, block, place: S::LANES }
    }
}

/// Tiles `first .. first + count`, counted over consecutive samples.
#[derive(Clone, Copy)]
pub struct Run {
    pub first: usize,
    pub count: usize,
}

impl Run {
    /// Divides `tiles` tiles into runs of `len`.
    pub fn each(tiles: usize, len: usize) -> impl Iterator<Item = Self> {
        (0..tiles).step_by(len).map(move |first| Self { first, count: len.min(tiles - first) })
    }

    /// Divides the run by samples. Returns the sample, its tiles, and their offset in the strip.
    pub fn parts(self, d: &TensorDesc, order: Order) -> impl Iterator<Item = (usize, Strip, usize)> {
        let (h, w, tiles) = (d.shape.h, d.shape.w, tiles(d, order.tile_columns));
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

/// Tiles `first .. first + count` of an image with h rows and w columns.
#[derive(Clone, Copy)]
pub struct Strip {
    pub h: usize,
    pub w: usize,
    pub first: usize,
    pub count: usize,
    pub order: Order,
}

impl Strip {
    /// Returns the first output row and column of a tile.
    #[inline(always)]
    pub fn tile(self, i: usize) -> (usize, usize) {
        let across = self.w.div_ceil(self.order.tile_columns);
        ((self.first + i) / across * 2, (self.first + i) % across * self.order.tile_columns)
    }

    /// Returns for each tile its index in the strip and its first output row and column.
    pub fn tiles(self) -> impl Iterator<Item = (usize, usize, usize)> {
        (0..self.count).map(move |i| {
            let (top, left) = self.tile(i);
            (i, top, left)
        })
    }
}

// The pixels of the next strip are prefetched during the products of the current strip. Strips are too short for the
// hardware prefetcher.

/// Prefetches the pixels of the next run of tiles, a few at a time.
pub struct PixelPrefetcher {
    next: *const f32,
    /// Number of remaining pixels in each channel block.
    left: usize,
    /// Number of pixels that each call prefetches.
    each: usize,
    blocks: usize,
    /// Number of floats in the plane of a channel block.
    plane: usize,
}

impl PixelPrefetcher {
    /// Creates a prefetcher for the pixels of the tiles that follow `run` in `data`. They are prefetched in `calls`
    /// calls of [`Self::fetch`]. The first pixel is `row` rows below the first of these tiles. All positions are
    /// estimates: each of the `tiles` tiles of an image counts as the same number of pixels.
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

    /// Prefetches the next pixels. Does nothing when all are done.
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

/// Channels are padded to a multiple of this number.
pub const PAD: usize = 16;
const _: () = assert!(PAD.is_multiple_of(UNROLLED));

pub fn padded(channels: usize) -> usize {
    channels.next_multiple_of(PAD)
}

/// Returns the distance between tiles in a strip, in floats. Channels that fill more than two cache lines get an
/// additional line, because tiles at a distance of a power of two would conflict in the cache.
pub const fn step(channels: usize) -> usize {
    if channels <= 2 * PAD { channels } else { channels + PAD }
}

/// Returns the number of columns that a kernel processes at a time: two registers, or a single register if two do not
/// divide the padded columns.
pub fn width<S: Vectors>(columns: usize) -> usize {
    if padded(columns).is_multiple_of(2 * S::LANES) { 2 * S::LANES } else { S::LANES }
}

/// Computes `m = v u`, or `m += v u` if `add` is set. v is (tiles, ci) and m is (tiles, co), both with [`step`] floats
/// between rows. u is (ci, co), stored in groups of [`width`] columns.
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

/// Computes du += v^T d, where v is (tiles, ci) and d is (tiles, co), both with [`step`] floats between rows. du is
/// (ci, co), stored in groups of [`width`] columns.
#[inline(always)]
pub fn accumulate<S: Vectors>(set: S, tiles: usize, v: &[f32], d: &[f32], (ci, co): (usize, usize), du: &mut [f32]) {
    let width = width::<S>(co);
    // `ci` is a multiple of 16. With at most eight rows at a time, 16 rows need two calls. With at most six, they need
    // three: six, six and four.
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
