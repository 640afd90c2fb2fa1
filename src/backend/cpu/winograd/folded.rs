//! Products of F(2x2, 3x3) at half of the places of the grid at once, whose sums are folded to outputs before they leave the registers:
//! the grid of the products, four times as large as the outputs, is never written. For sets with registers for that many sums.

use super::ahead::Ahead;
use super::kernel::padded;
use super::passes::Convolution;
use super::strip::{Order, Run};
use super::transform::{self, Side, output_line};
use super::vector::{Job, Vectors};

/// Side of the grid.
const A: usize = 4;
/// Rows of the grid at once.
const ROWS: usize = A / 2;
/// Tiles at once: their 24 sums leave registers for the factors.
const TILES: usize = 3;
/// Registers that this takes.
const REGISTERS: usize = 32;
/// Tiles of a strip at most. Their grid stays in the second cache, as do the filters of half a grid and one register of channels.
const STRIP: usize = 48;
/// Channels from which on filters come from memory: they are read once for each strip, so that longer ones are better.
const MOST_CHANNELS: usize = 256;

/// Whether a convolution between so many padded channels on a grid of side `a` is computed in this way.
pub fn suits<S: Vectors>(a: usize, ci: usize, co: usize) -> bool {
    S::REGISTERS >= REGISTERS && a == A && ci.max(co) <= MOST_CHANNELS
}

/// One half of the grid, of T tiles and one register of output channels: `u` has their filters (input channel, place, lane), `m` the
/// four outputs of each tile, which the second half adds to.
struct Half<'a> {
    v: &'a [f32],
    v_order: Order,
    u: &'a [f32],
    second: bool,
    m: &'a mut [f32],
    m_order: Order,
}

impl Half<'_> {
    #[inline(always)]
    fn run<S: Vectors, const T: usize>(self, set: S) {
        let Self { v, v_order, u, second, m, m_order } = self;
        let sums = Self::sums::<S, T>(set, &v[if second { ROWS * A * S::LANES } else { 0 }..], v_order, u);
        for (t, [upper, lower]) in sums.into_iter().enumerate() {
            let [upper, lower] = [output_line(set, upper), output_line(set, lower)];
            let m = &mut m[t * m_order.tile..][..4 * S::LANES];
            for c in 0..2 {
                // SAFETY: the slice taken above has two rows of two registers; A^T has the rows 1 1 1 0 and 0 1 -1 -1.
                unsafe {
                    let above = m.as_mut_ptr().add(c * S::LANES);
                    let below = above.add(2 * S::LANES);
                    if second {
                        set.store(set.add(set.load(above), upper[c]), above);
                        set.store(set.sub(set.load(below), set.add(upper[c], lower[c])), below);
                    } else {
                        set.store(set.add(upper[c], lower[c]), above);
                        set.store(lower[c], below);
                    }
                }
            }
        }
    }

    /// The products' sums over the input channels: tile, row, column.
    #[inline(always)]
    fn sums<S: Vectors, const T: usize>(set: S, v: &[f32], order: Order, u: &[f32]) -> [[[S::Lanes; A]; ROWS]; T] {
        let mut sums = [[[set.zero(); A]; ROWS]; T];
        for (block, u) in u.chunks_exact(S::LANES * ROWS * A * S::LANES).enumerate() {
            let v = &v[block * order.block..][..(T - 1) * order.tile + ROWS * A * S::LANES];
            for (lane, u) in u.chunks_exact(ROWS * A * S::LANES).enumerate() {
                for r in 0..ROWS {
                    for c in 0..A {
                        let place = (r * A + c) * S::LANES;
                        // SAFETY: the slice has a register for each place.
                        let u = unsafe { set.load(u.as_ptr().add(place)) };
                        for (t, sums) in sums.iter_mut().enumerate() {
                            // SAFETY: the last tile's last place ends where `v` does.
                            let v = set.splat(*unsafe { v.get_unchecked(t * order.tile + place + lane) });
                            sums[r][c] = set.mul_add(v, u, sums[r][c]);
                        }
                    }
                }
            }
        }
        sums
    }
}

/// All tiles of a thread.
pub struct Folded<'a> {
    pub convolution: &'a Convolution<'a>,
    pub from: Side<'a>,
    pub tiles: usize,
    pub work: &'a mut [f32],
    pub y: &'a mut [f32],
}

impl Job for Folded<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors>(self, set: S) {
        let Self { convolution: Convolution { to, filters, strip, finish, .. }, from, tiles, work, y } = self;
        let (ci, co) = (padded(from.desc.shape.c), padded(to.shape.c));
        let strip = STRIP.min(*strip);
        let (v_order, m_order) = (Order::by_tile::<S>(ci, A * A), Order::by_tile::<S>(co, 4));
        let (v, m) = work.split_at_mut(strip * v_order.tile);
        let halves = filters[..A * A * ci * co].chunks_exact(ci * ROWS * A * S::LANES);
        for run in Run::each(tiles, strip) {
            from.inputs::<S, A>(set, run, v_order, v);
            let calls = halves.len() * run.count.div_ceil(TILES);
            let mut inputs = Ahead::new(&from.desc, from.data, run, 1, calls);
            let mut outputs = Ahead::new(to, y, run, 0, calls);
            for (i, u) in halves.clone().enumerate() {
                let (group, second) = (i / 2, i % 2 == 1);
                for first in (0..run.count).step_by(TILES) {
                    let (v, m) = (&v[first * v_order.tile..], &mut m[first * m_order.tile + group * m_order.block..]);
                    let half = Half { v, v_order, u, second, m, m_order };
                    match run.count - first {
                        1 => half.run::<S, 1>(set),
                        2 => half.run::<S, 2>(set),
                        _ => half.run::<S, TILES>(set),
                    }
                    inputs.fetch(set);
                    outputs.fetch(set);
                }
            }
            transform::outputs::<S, A, true>(set, to, m, run, m_order, *finish, y);
        }
    }
}
