//! The gradient of inputs: each thread that of some inputs, a piece of the outputs at a time, whose weights are transposed so that
//! inputs lie side by side.

use std::ops::Range;

use super::ahead::Ahead;
use super::forward::tile;
use super::sizes::{DEPTH, GROUP, Sizes};
use super::super::panels::PANEL;
use super::super::register_tile::by_rows;
use super::super::threads::{Shared, Threads};
use super::super::vector::{Avx2, Job, Vectors};
use super::transpose::{SIDE, transpose};

/// dx = dy W.
pub struct Inputs<'a> {
    pub sizes: Sizes,
    pub dy: &'a [f32],
    pub w: &'a [f32],
}

impl Inputs<'_> {
    /// With each thread's work space.
    pub fn run(&self, set: Avx2, threads: Threads, work: &mut [f32], dx: &mut [f32]) {
        let (work, dx, each) = (Shared::new(work), Shared::new(dx), self.sizes.inputs_work());
        threads.each(self.sizes.inputs.div_ceil(PANEL), |t, blocks| {
            // SAFETY: each thread has its own stretch, borrowed until `each` returns.
            let work = unsafe { work.part(t * each..(t + 1) * each) };
            set.run(Share { layer: self, set, blocks, work, dx });
        });
    }
}

/// Those of some blocks of [`PANEL`] inputs.
struct Share<'a> {
    layer: &'a Inputs<'a>,
    set: Avx2,
    blocks: Range<usize>,
    work: &'a mut [f32],
    dx: Shared<f32>,
}

impl Job for Share<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors>(self, set: S) {
        let Self { layer, set: avx2, blocks, work, dx } = self;
        let Sizes { n, inputs, outputs } = layer.sizes;
        let (turned, sums) = work.split_at_mut(GROUP * DEPTH);
        let end = (blocks.end * PANEL).min(inputs);
        for first in (blocks.start * PANEL..end).step_by(GROUP) {
            let group = first..(first + GROUP).min(end);
            let count = group.len().div_ceil(PANEL);
            for output in (0..outputs).step_by(DEPTH) {
                let depth = DEPTH.min(outputs - output);
                layer.turn(avx2, output..output + depth, group.clone(), turned);
                let (next, from) = if output + depth < outputs { (output + depth, first) } else { (0, group.end) };
                let next = (next / PANEL * inputs + from) * PANEL;
                let mut ahead = Ahead::new(layer.w, next, group.len(), inputs * PANEL);
                let each = (depth.div_ceil(PANEL) * group.len() * S::ROWS).div_ceil(count * n);
                for (u, sums) in turned.chunks_exact(DEPTH * PANEL).zip(sums.chunks_exact_mut(n * PANEL)).take(count) {
                    by_rows!(n, S::ROWS, |row| tile::<S, 2>(
                        set,
                        (&layer.dy[row * outputs + output..], outputs),
                        &u[..depth * PANEL],
                        &mut sums[row * PANEL..],
                        output > 0,
                        (&mut ahead, each)
                    ));
                }
            }
            for (i, sums) in sums.chunks_exact(n * PANEL).enumerate().take(count) {
                let block = first + i * PANEL..(first + (i + 1) * PANEL).min(group.end);
                for (n, sums) in sums.chunks_exact(PANEL).enumerate() {
                    // SAFETY: these inputs are this thread's alone, and `dx` is borrowed until all threads are done.
                    let to = unsafe { dx.part(n * inputs + block.start..n * inputs + block.end) };
                    to.copy_from_slice(&sums[..block.len()]);
                }
            }
        }
    }
}

impl Inputs<'_> {
    /// The weights of some outputs, whole panels or the last ones, and of a group of inputs: blocks of [`PANEL`] inputs, with
    /// [`DEPTH`] outputs each.
    #[inline(always)]
    fn turn(&self, set: Avx2, outputs: Range<usize>, group: Range<usize>, turned: &mut [f32]) {
        let panels = outputs.start / PANEL..outputs.end.div_ceil(PANEL);
        for (i, panel) in panels.enumerate() {
            let from = &self.w[(panel * self.sizes.inputs + group.start) * PANEL..][..group.len() * PANEL];
            for input in (0..group.len()).step_by(SIDE) {
                let to = &mut turned[(input / PANEL * DEPTH + i * PANEL) * PANEL + input % PANEL..];
                for output in (0..PANEL).step_by(SIDE) {
                    transpose(set, &from[input * PANEL + output..], &mut to[output * PANEL..], PANEL);
                }
            }
        }
    }
}
