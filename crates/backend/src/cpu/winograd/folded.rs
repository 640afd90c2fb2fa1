//! Computes F(2x4, 3x3) with output transforms in registers. The 4 x 6 products of a tile are computed line by line,
//! and each line is added to the tile's 2 x 4 outputs at once. So the products, which are three times as large as the
//! outputs, are never written. Instruction sets need enough registers for these sums.

use super::super::vector::{GridMut, Job, Vectors};
use super::outputs::{self, Convolution, Finish, Output};
use super::strip::{Order, PixelPrefetcher, Run, padded, tiles};
use super::transform::{PassInput, output_line};

/// Sizes of F(2x4, 3x3): a transformed tile has A lines of B places, and a tile has M output columns.
const A: usize = 4;
const B: usize = 6;
const M: usize = 4;
/// Number of tiles at a time. Their 24 sums leave registers for the factors.
const TILES: usize = 4;
/// Minimum number of vector registers of an instruction set.
const REGISTERS: usize = 32;
/// Tiles per strip. Their transformed inputs stay in the caches.
const STRIP: usize = 16;
/// With more channels, filters are read from memory for each strip, so longer strips are better.
const MOST_CHANNELS: usize = 256;
/// The order in which the lines of products are added. The second and third line contribute to both rows of outputs,
/// the first and last to a single row.
const LINES: [usize; A] = [1, 2, 0, 3];

/// Returns true if this method computes a convolution with `a` lines per transformed tile. `ci` and `co` are the padded
/// numbers of channels.
pub fn suits<S: Vectors>(a: usize, ci: usize, co: usize) -> bool {
    S::REGISTERS >= REGISTERS && a == A && ci.max(co) <= MOST_CHANNELS
}

/// Returns the layouts of a strip's inputs and outputs.
fn orders<S: Vectors>(ci: usize, co: usize) -> (Order, Order) {
    (Order::by_tile::<S>(ci, A * B, M), Order::by_tile::<S>(co, 2 * M, M))
}

/// Returns the floats of a strip's inputs and outputs.
pub fn workspace<S: Vectors>(ci: usize, co: usize) -> usize {
    let (v, m) = orders::<S>(ci, co);
    STRIP * (v.tile + m.tile)
}

/// A line of a transformed tile, for T tiles and a register of output channels. `u` has the line's filters (input
/// channel, place, lane), and `m` the 2 x 4 outputs of each tile.
struct Line<'a> {
    v: &'a [f32],
    v_order: Order,
    u: &'a [f32],
    line: usize,
    m: &'a mut [f32],
    m_order: Order,
}

impl Line<'_> {
    #[inline(always)]
    fn run<S: Vectors, const T: usize>(self, set: S) {
        let Self { v, v_order, u, line, m, m_order } = self;
        let sums = Self::sums::<S, T>(set, &v[line * B * S::LANES..], v_order, u);
        for (t, sums) in sums.into_iter().enumerate() {
            let mut m = GridMut::<S, 2, M>::new(set, &mut m[t * m_order.tile..], [M * S::LANES, S::LANES]);
            for (c, sum) in output_line::<S, B, M>(set, sums).into_iter().enumerate() {
                // A^T has the rows 1 1 1 0 and 0 1 -1 -1. Line 1 comes first, so it is stored instead of added.
                match line {
                    0 => m.put(0, c, set.add(m.get(0, c), sum)),
                    1 => m.put(1, c, sum),
                    2 => {
                        let second = m.get(1, c);
                        m.put(0, c, set.add(second, sum));
                        m.put(1, c, set.sub(second, sum));
                    }
                    _ => m.put(1, c, set.sub(m.get(1, c), sum)),
                }
            }
        }
    }

    /// Returns the sums of the products over the input channels, as (tile, place).
    #[inline(always)]
    fn sums<S: Vectors, const T: usize>(set: S, v: &[f32], order: Order, u: &[f32]) -> [[S::Lanes; B]; T] {
        let mut sums = [[set.zero(); B]; T];
        for (block, u) in u.chunks_exact(S::LANES * B * S::LANES).enumerate() {
            let v = &v[block * order.block..][..(T - 1) * order.tile + B * S::LANES];
            for (lane, u) in u.chunks_exact(B * S::LANES).enumerate() {
                for place in 0..B {
                    // SAFETY: the slice has a register for each place.
                    let u = unsafe { set.load(u.as_ptr().add(place * S::LANES)) };
                    for (t, sums) in sums.iter_mut().enumerate() {
                        // SAFETY: the last place of the last tile ends where `v` ends.
                        let v = set.splat(*unsafe { v.get_unchecked(t * order.tile + place * S::LANES + lane) });
                        sums[place] = set.mul_add(v, u, sums[place]);
                    }
                }
            }
        }
        sums
    }
}

/// Computes all tiles of a thread's samples.
pub struct Folded<'a> {
    pub convolution: &'a Convolution<'a>,
    pub from: PassInput<'a>,
    pub finish: Finish<'a>,
    pub samples: usize,
    pub workspace: &'a mut [f32],
    pub output: Output<'a>,
}

impl Job for Folded<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors>(self, set: S) {
        let Self { convolution: Convolution { to, filters, .. }, from, finish, samples, workspace, mut output } = self;
        let (ci, co) = (padded(from.desc.shape.c), padded(to.shape.c));
        let (v_order, m_order) = orders::<S>(ci, co);
        let (v, m) = workspace.split_at_mut(STRIP * v_order.tile);
        let len = ci * B * S::LANES;
        for run in Run::each(samples * tiles(to, M), STRIP) {
            from.inputs::<S, A, B, M>(set, run, to, v_order, v);
            let calls = co / S::LANES * A * run.count.div_ceil(TILES);
            let ahead = (run, tiles(to, M));
            let mut inputs = PixelPrefetcher::new(&from.desc, from.data.as_ptr(), ahead, 1, calls);
            let mut written = PixelPrefetcher::new(to, output.y.as_ptr(), ahead, 0, calls);
            let mut norms =
                finish.gradient.map(|gradient| PixelPrefetcher::new(to, gradient.x.as_ptr(), ahead, 0, calls));
            for (group, u) in filters[..A * B * ci * co].chunks_exact(A * len).enumerate() {
                for line in LINES {
                    let u = &u[line * len..][..len];
                    for first in (0..run.count).step_by(TILES) {
                        let (v, m) =
                            (&v[first * v_order.tile..], &mut m[first * m_order.tile + group * m_order.block..]);
                        let line = Line { v, v_order, u, line, m, m_order };
                        match run.count - first {
                            1 => line.run::<S, 1>(set),
                            2 => line.run::<S, 2>(set),
                            3 => line.run::<S, 3>(set),
                            _ => line.run::<S, TILES>(set),
                        }
                        inputs.fetch(set);
                        written.fetch(set);
                        if let Some(norms) = &mut norms {
                            norms.fetch(set);
                        }
                    }
                }
            }
            let run = (run, 0..to.blocks());
            outputs::outputs::<S, 0, B, M>(set, to, m, run, m_order, finish, output.reborrow());
        }
    }
}
