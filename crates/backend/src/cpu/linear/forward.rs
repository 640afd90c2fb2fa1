//! Outputs: each thread those of some panels, a piece of the inputs at a time, so that weights are read from memory once.

use std::ops::Range;

use super::ahead::Ahead;
use super::sizes::{DEPTH, Sizes};
use super::super::panels::PANEL;
use super::super::register_tile::{by_rows, rows};
use super::super::threads::{Shared, Threads};
use super::super::vector::{Avx2, Job, Vectors};

/// y = x W^T + b, then ReLU if requested.
pub struct Forward<'a> {
    pub sizes: Sizes,
    pub x: &'a [f32],
    pub w: &'a [f32],
    pub bias: Option<&'a [f32]>,
    pub relu: bool,
}

impl Forward<'_> {
    /// With work space for the outputs in panels.
    pub fn run(&self, set: Avx2, threads: Threads, work: &mut [f32], y: &mut [f32]) {
        let (work, y, sizes) = (Shared::new(work), Shared::new(y), self.sizes);
        let each = sizes.n * PANEL;
        threads.each(sizes.panels(), |_, panels| {
            // SAFETY: each thread has its own panels' outputs in both, borrowed until `each` returns.
            let sums = unsafe { work.part(panels.start * each..panels.end * each) };
            set.run(Sums { layer: self, panels: panels.clone(), sums });
            for (panel, sums) in panels.zip(sums.chunks_exact(each)) {
                let outputs = sizes.outputs_of(panel);
                let bias = self.bias.map(|bias| &bias[outputs.clone()]);
                for (n, sums) in sums.chunks_exact(PANEL).enumerate() {
                    let first = n * sizes.outputs;
                    // SAFETY: as above.
                    let y = unsafe { y.part(first + outputs.start..first + outputs.end) };
                    finish(&sums[..y.len()], bias, self.relu, y);
                }
            }
        });
    }
}

/// Adds the bias; ReLU keeps a NaN.
fn finish(sums: &[f32], bias: Option<&[f32]>, relu: bool, y: &mut [f32]) {
    y.copy_from_slice(sums);
    if let Some(bias) = bias {
        y.iter_mut().zip(bias).for_each(|(y, b)| *y += b);
    }
    if relu {
        y.iter_mut().for_each(|y| *y = if *y < 0.0 { 0.0 } else { *y });
    }
}

/// The products' sums for some panels.
struct Sums<'a> {
    layer: &'a Forward<'a>,
    panels: Range<usize>,
    sums: &'a mut [f32],
}

impl Job for Sums<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors>(self, set: S) {
        let Self { layer: Forward { sizes: Sizes { n, inputs, .. }, x, w, .. }, panels, sums } = self;
        let (n, inputs) = (*n, *inputs);
        let at = |panel: usize, input: usize| (panel * inputs + input) * PANEL;
        for first in (0..inputs).step_by(DEPTH) {
            let depth = DEPTH.min(inputs - first);
            for (panel, sums) in panels.clone().zip(sums.chunks_exact_mut(n * PANEL)) {
                let u = &w[at(panel, first)..][..depth * PANEL];
                let next = if panel + 1 < panels.end { at(panel + 1, first) } else { at(panels.start, first + depth) };
                let mut ahead = Ahead::new(w, next, depth, 0);
                let each = (depth * S::ROWS).div_ceil(n);
                by_rows!(n, S::ROWS, |row| tile::<S, 2>(
                    set,
                    (&x[row * inputs + first..], inputs),
                    u,
                    &mut sums[row * PANEL..],
                    first > 0,
                    (&mut ahead, each)
                ));
            }
        }
    }
}

/// The sums of T samples in a panel, and a few of the weights that come next.
#[inline(always)]
pub fn tile<S: Vectors, const T: usize, const C: usize>(
    set: S,
    x: (&[f32], usize),
    u: &[f32],
    sums: &mut [f32],
    add: bool,
    (ahead, each): (&mut Ahead, usize),
) {
    ahead.fetch(set, each);
    rows::<S, T, C>(set, x, u, (sums, PANEL), add);
}
