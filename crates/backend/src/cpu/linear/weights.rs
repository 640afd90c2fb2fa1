//! The gradients of weights and bias: each thread those of some panels, a group of inputs at a time, whose values stay in the first
//! cache for all of them.

use std::ops::Range;

use super::sizes::{DEPTH, GROUP, Sizes};
use super::super::panels::PANEL;
use super::super::register_tile::{by_rows, outer};
use super::super::threads::{Shared, Threads};
use super::super::vector::{Avx2, Job, Vectors};

/// dW = dy^T x, and db = the sum of dy over samples.
pub struct Weights<'a> {
    pub sizes: Sizes,
    pub x: &'a [f32],
    pub dy: &'a [f32],
}

impl Weights<'_> {
    /// With work space for dy in panels and each thread's group of inputs.
    pub fn run(&self, set: Avx2, threads: Threads, work: &mut [f32], dw: &mut [f32], db: Option<&mut [f32]>) {
        let Sizes { n, inputs, .. } = self.sizes;
        let (dy, groups) = work.split_at_mut(self.sizes.in_panels());
        let (dy, groups, dw, db) = (Shared::new(dy), Shared::new(groups), Shared::new(dw), db.map(Shared::new));
        threads.each(self.sizes.panels(), |t, panels| {
            let of = |each: usize| panels.start * each..panels.end * each;
            // SAFETY: each thread has its own panels and its own group, borrowed until `each` returns.
            let (dy, dw) = unsafe { (dy.part(of(n * PANEL)), dw.part(of(inputs * PANEL))) };
            // SAFETY: as above.
            let group = unsafe { groups.part(t * n * GROUP..(t + 1) * n * GROUP) };
            for (panel, dy) in panels.clone().zip(dy.chunks_exact_mut(n * PANEL)) {
                let sums = self.panel(panel, dy);
                if let Some(db) = &db {
                    // SAFETY: as above.
                    let db = unsafe { db.part(self.sizes.outputs_of(panel)) };
                    db.iter_mut().zip(sums).for_each(|(db, sum)| *db = sum as f32);
                }
            }
            set.run(Share { layer: self, dy, group, dw });
        });
    }

    /// The gradients of a panel's outputs side by side, with zeros where there are none; gives their sums over samples.
    fn panel(&self, panel: usize, to: &mut [f32]) -> [f64; PANEL] {
        let outputs: Range<usize> = self.sizes.outputs_of(panel);
        let mut sums = [0.0; PANEL];
        for (row, to) in self.dy.chunks_exact(self.sizes.outputs).zip(to.chunks_exact_mut(PANEL)) {
            let (there, rest) = to.split_at_mut(outputs.len());
            there.copy_from_slice(&row[outputs.clone()]);
            rest.fill(0.0);
            sums.iter_mut().zip(&*to).for_each(|(sum, dy)| *sum += f64::from(*dy));
        }
        sums
    }
}

/// The weights' gradients of some panels.
struct Share<'a> {
    layer: &'a Weights<'a>,
    dy: &'a [f32],
    group: &'a mut [f32],
    dw: &'a mut [f32],
}

impl Job for Share<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors>(self, set: S) {
        let Self { layer: Weights { sizes: Sizes { n, inputs, .. }, x, .. }, dy, group, dw } = self;
        let (n, inputs) = (*n, *inputs);
        for first in (0..inputs).step_by(GROUP) {
            let width = GROUP.min(inputs - first);
            for (to, x) in group.chunks_exact_mut(GROUP).zip(x.chunks_exact(inputs)) {
                to[..width].copy_from_slice(&x[first..][..width]);
            }
            for (dy, dw) in dy.chunks_exact(n * PANEL).zip(dw.chunks_exact_mut(inputs * PANEL)) {
                // of the same inputs in the next panel, which may lie beyond the last
                let next = dw.as_ptr().wrapping_add((inputs + first) * PANEL);
                let dw = &mut dw[first * PANEL..][..width * PANEL];
                for sample in (0..n).step_by(DEPTH) {
                    let count = DEPTH.min(n - sample);
                    let (x, dy) = (&group[sample * GROUP..], &dy[sample * PANEL..]);
                    by_rows!(width, S::ROWS, |row| tile::<S, 2>(
                        set,
                        count,
                        &x[row..],
                        dy,
                        &mut dw[row * PANEL..],
                        (sample == 0).then(|| next.wrapping_add(row * PANEL))
                    ));
                }
            }
        }
    }
}

/// The gradients of T inputs' weights in a panel: the first ones, and `next` is what to fetch meanwhile, or added to those before.
#[inline(always)]
fn tile<S: Vectors, const T: usize, const C: usize>(
    set: S,
    count: usize,
    x: &[f32],
    dy: &[f32],
    dw: &mut [f32],
    next: Option<*const f32>,
) {
    if let Some(next) = next {
        (0..T).for_each(|row| set.prefetch(next.wrapping_add(row * PANEL)));
    }
    outer::<S, T, C>(set, count, (x, GROUP), (dy, PANEL), dw, next.is_none());
}
