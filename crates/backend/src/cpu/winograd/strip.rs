//! Which tiles are taken through all stages at once, and how they lie in memory on the way.

use super::super::vector::Vectors;
use super::kernel::{PAD, step};
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
