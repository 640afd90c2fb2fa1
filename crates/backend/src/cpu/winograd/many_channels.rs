//! Convolutions with so many channels that the transformed filters, or their gradient, do not fit into the caches. The
//! transformed inputs of many tiles are kept. Each thread computes a few output channels for all of these tiles at a
//! time, so it needs only the filters of these channels.

use super::super::divide::{DividedMatrix, Items, PerThread};
use super::super::moments::Moments;
use super::super::threads::Threads;
use super::super::vector::{Job, Vectors};
use super::filters::Filters;
use super::outputs::{self, Finish, Output};
use super::strip::{self, Order, PAD, Run, padded, tiles};
use super::transform::PassInput;
use crate::TensorDesc;

/// With more channels, passes from x to y and from dy to dx use this method.
pub const MOST_CHANNELS: usize = 256;
/// Maximum number of tiles per strip.
const STRIP: usize = 64;
/// Number of tiles that are transformed at a time, rounded up to strips. It is large enough that transforming the
/// filters costs little compared with the products, and small enough for the caches.
const TILES: usize = 256;

/// Returns the number of channels above which the filter gradient uses this method. It is lower with more than one
/// thread. If threads divided the samples, each of them would need its own gradient of all transformed filters.
/// Together these gradients fill the caches sooner.
pub fn max_gradient_channels(threads: Threads) -> usize {
    if threads.0 > 1 { 128 } else { MOST_CHANNELS }
}

/// Returns true if a pass uses this method: it has more than `most` channels, and both sides have enough groups of
/// channels to keep all threads busy. `ci` and `co` are the padded numbers of channels.
pub fn suits(ci: usize, co: usize, most: usize, threads: Threads) -> bool {
    ci.max(co) > most && threads.are_busy(ci.min(co) / PAD)
}

/// Returns the number of tiles per strip. It is a multiple of the `rows` that the product kernel computes at a time,
/// and small enough that there are strips for all threads if possible.
pub fn strip_len(rows: usize, tiles: usize, threads: Threads) -> usize {
    let most = (TILES / threads.0).clamp(1, STRIP);
    tiles.div_ceil(tiles.div_ceil(most).max(1)).max(1).next_multiple_of(rows)
}

/// The images that the threads write, with the moments and the sums of all channels. See [`Output`].
type DividedOutput<'a> = (DividedMatrix<'a, f32>, DividedMatrix<'a, Moments>, DividedMatrix<'a, f64>);

/// Returns an output without moments and sums.
pub fn without_totals(y: DividedMatrix<'_, f32>) -> DividedOutput<'_> {
    (y, DividedMatrix::by_rows(&mut [], 1, 1), DividedMatrix::by_rows(&mut [], 1, 1))
}

/// Sizes of the parts of a pass's workspace, in floats.
pub struct Workspace {
    threads: Threads,
    /// Size of a strip's transformed inputs.
    strip: usize,
    /// Number of strips that are transformed at a time.
    strips: usize,
    /// Size of the transformed filters of [`PAD`] output channels. `outputs` is the size of a strip's products for
    /// these channels.
    filters: usize,
    outputs: usize,
}

impl Workspace {
    /// Computes the sizes from the numbers of matrices that are read, of values per transformed filter, and of matrices
    /// that are computed. `channels` is the padded number of channels that are read. A strip has `strip` of the batch's
    /// `all` tiles, and `most` tiles, rounded up to strips, are transformed at a time.
    pub fn new<S: Vectors>(
        threads: Threads,
        [read, filters, computed]: [usize; 3],
        channels: usize,
        (strip, all, most): (usize, usize, usize),
        tile_columns: usize,
    ) -> Self {
        let place = |channels| Order::by_place::<S>(channels, strip, tile_columns).place;
        Self {
            threads,
            strip: read * place(channels),
            strips: all.min(most).div_ceil(strip),
            filters: filters * channels * PAD,
            outputs: computed * place(PAD),
        }
    }

    /// Returns the size of the whole workspace.
    pub fn floats(&self) -> usize {
        self.strips * self.strip + self.threads.0 * (self.filters + self.outputs)
    }

    /// Transforms the inputs of as many strips as fit into `workspace` with `transform(strip, inputs)`. Then it calls
    /// `f(group of PAD channels, filters, products, strips with their inputs, the thread's part of the output)` for all
    /// groups of channels. It repeats this until all strips are done.
    pub fn each_group<T: Sync>(
        &self,
        strips: &[T],
        groups: usize,
        workspace: &mut [f32],
        (mut y, mut moments, mut sums): DividedOutput<'_>,
        transform: impl Fn(&T, &mut [f32]) + Sync,
        f: impl Fn(usize, &mut [f32], &mut [f32], &mut dyn Iterator<Item = (&T, &[f32])>, &mut Output<'_>) + Sync,
    ) {
        let (inputs, own) = workspace[..self.floats()].split_at_mut(self.strips * self.strip);
        for strips in strips.chunks(self.strips) {
            self.threads.divide(strips.len(), Items::new(inputs, self.strip), |items, inputs| {
                let strips = strips[items].iter().zip(inputs.chunks_exact_mut(self.strip));
                strips.for_each(|(strip, v)| transform(strip, v));
            });
            let parts = (y.reborrow(), moments.reborrow(), sums.reborrow());
            let parts = (PerThread::new(own, self.filters + self.outputs), parts);
            self.threads.divide(groups, parts, |groups, (own, (y, moments, sums))| {
                let mut output = Output { y, moments, sums };
                let (u, m) = own.split_at_mut(self.filters);
                for group in groups {
                    f(group, u, m, &mut strips.iter().zip(inputs.chunks_exact(self.strip)), &mut output);
                }
            });
        }
    }
}

/// Returns the workspace for all passes in floats. `ci` and `co` are the padded numbers of channels, and `of` are the
/// numbers of tiles in a strip and in the batch.
pub fn workspace<S: Vectors>(
    places: usize,
    [ci, co]: [usize; 2],
    of: (usize, usize),
    tile_columns: usize,
    threads: Threads,
) -> usize {
    let [ci, co] = [ci, co].map(|channels| {
        Workspace::new::<S>(threads, [places; 3], channels, (of.0, of.1, TILES), tile_columns).floats()
    });
    ci.max(co)
}

/// A pass in which threads divide the output channels. `from` is its input: x, or dy for the input gradient.
pub struct ManyChannels<'a, S> {
    pub set: S,
    pub threads: Threads,
    pub from: PassInput<'a>,
    pub filters: Filters,
    /// Tiles per strip.
    pub strip: usize,
}

impl<S: Vectors> ManyChannels<'_, S> {
    /// Computes `to` (y from x, or dx from dy) with plain filters `w`.
    pub fn convolve<const A: usize, const B: usize, const M: usize>(
        &self,
        to: &TensorDesc,
        w: &[f32],
        finish: Finish<'_>,
        workspace: &mut [f32],
        (y, moments, sums): (&mut [f32], &mut [Moments], &mut [f64]),
    ) {
        let channels = to.blocks() * to.block;
        let y = DividedMatrix::by_columns(y, to.sample_elems(), PAD * to.shape.plane());
        let moments = DividedMatrix::by_columns(moments, channels, PAD);
        let output = (y, moments, DividedMatrix::by_columns(sums, channels, PAD));
        let order = self.order::<M>();
        self.each_group::<A, B, M>(to, workspace, output, |group, u, m, strips, output| {
            self.filters.transform_group::<S, A, B, M>(self.set, group, w, u);
            for (&run, v) in strips {
                let (m, output) = (&mut *m, output.reborrow());
                self.set.run(ProductsJob::<A, B, M> { to, group, finish, order, run, v, u, m, output });
            }
        });
    }

    /// Computes the filter gradient in plain order from x and `dy`.
    pub fn correlate<const A: usize, const B: usize, const M: usize>(
        &self,
        dy: PassInput<'_>,
        workspace: &mut [f32],
        dw: &mut [f32],
    ) {
        dw.fill(0.0);
        let (dw, order) = (without_totals(self.filters.by_columns(dw, PAD)), self.order::<M>());
        self.each_group::<A, B, M>(&dy.desc, workspace, dw, |group, u, d, strips, output| {
            u.fill(0.0);
            for (&run, v) in strips {
                let (d, du) = (&mut *d, &mut *u);
                self.set.run(GradientJob::<A, B, M> { dy, group, order, run, v, d, du });
            }
            self.filters.add_group::<S, A, B, M>(self.set, group, u, &mut output.y);
        });
    }

    /// Returns the layout of a strip's transformed inputs.
    fn order<const M: usize>(&self) -> Order {
        Order::by_place::<S>(padded(self.from.desc.shape.c), self.strip, M)
    }

    /// Calls [`Workspace::each_group`] for all groups of channels in `to`, which also defines the tiles.
    fn each_group<const A: usize, const B: usize, const M: usize>(
        &self,
        to: &TensorDesc,
        workspace: &mut [f32],
        output: DividedOutput<'_>,
        f: impl Fn(usize, &mut [f32], &mut [f32], &mut dyn Iterator<Item = (&Run, &[f32])>, &mut Output<'_>) + Sync,
    ) {
        let (channels, tiles, order) = (padded(self.from.desc.shape.c), to.n * tiles(to, M), self.order::<M>());
        let room = Workspace::new::<S>(self.threads, [A * B; 3], channels, (self.strip, tiles, TILES), M);
        let runs: Vec<Run> = Run::each(tiles, self.strip).collect();
        let transform = |run: &Run, v: &mut [f32]| {
            self.set.run(InputsJob::<A, B, M> { from: self.from, run: *run, of: to, order, v });
        };
        room.each_group(&runs, padded(to.shape.c) / PAD, workspace, output, transform, f);
    }
}

/// Returns the channel blocks of a group of [`PAD`] channels, without blocks that are only padding.
pub fn blocks<S: Vectors>(desc: &TensorDesc, group: usize) -> std::ops::Range<usize> {
    let each = PAD / S::LANES;
    group * each..desc.blocks().min((group + 1) * each)
}

/// Transforms the inputs of a strip.
struct InputsJob<'a, const A: usize, const B: usize, const M: usize> {
    from: PassInput<'a>,
    run: Run,
    /// Layout of the tensor that defines the tiles.
    of: &'a TensorDesc,
    order: Order,
    v: &'a mut [f32],
}

impl<const A: usize, const B: usize, const M: usize> Job for InputsJob<'_, A, B, M> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors>(self, set: S) {
        let Self { from, run, of, order, v } = self;
        order.clear_rest(&from.desc, padded(from.desc.shape.c), A * B, v);
        from.inputs::<S, A, B, M>(set, run, of, order, v);
    }
}

/// Computes a strip's products and outputs in a group of channels.
struct ProductsJob<'a, const A: usize, const B: usize, const M: usize> {
    to: &'a TensorDesc,
    group: usize,
    finish: Finish<'a>,
    order: Order,
    run: Run,
    v: &'a [f32],
    u: &'a [f32],
    m: &'a mut [f32],
    output: Output<'a>,
}

impl<const A: usize, const B: usize, const M: usize> Job for ProductsJob<'_, A, B, M> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors>(self, set: S) {
        let Self { to, group, finish, order, run, v, u, m, output } = self;
        let (filters, place) = (u.len() / (A * B), m.len() / (A * B));
        let places = v.chunks_exact(order.place).zip(u.chunks_exact(filters)).zip(m.chunks_exact_mut(place));
        for ((v, u), m) in places {
            strip::multiply(set, run.count, v, u, (filters / PAD, PAD), m, false);
        }
        let order = Order { place, ..Order::by_place::<S>(PAD, 0, M) };
        outputs::outputs::<S, A, B, M>(set, to, m, (run, blocks::<S>(to, group)), order, finish, output);
    }
}

/// Adds a strip's contribution to the filter gradient for a group of channels.
struct GradientJob<'a, const A: usize, const B: usize, const M: usize> {
    dy: PassInput<'a>,
    group: usize,
    order: Order,
    run: Run,
    v: &'a [f32],
    d: &'a mut [f32],
    du: &'a mut [f32],
}

impl<const A: usize, const B: usize, const M: usize> Job for GradientJob<'_, A, B, M> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors>(self, set: S) {
        let Self { dy, group, order, run, v, d, du } = self;
        let (filters, place) = (du.len() / (A * B), d.len() / (A * B));
        let blocks = blocks::<S>(&dy.desc, group);
        if blocks.len() * S::LANES < PAD {
            d.fill(0.0);
        }
        let d_order = Order { place, ..Order::by_place::<S>(PAD, 0, M) };
        dy.gradients::<S, A, B, M>(set, (run, blocks), d_order, d);
        let places = v.chunks_exact(order.place).zip(d.chunks_exact(place)).zip(du.chunks_exact_mut(filters));
        for ((v, d), du) in places {
            strip::accumulate(set, run.count, v, d, (filters / PAD, PAD), du);
        }
    }
}
