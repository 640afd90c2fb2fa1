//! The optimizer's passes over a bucket. They read and write parameters, gradients and slots once. Norms, clipping and
//! moving averages are separate passes.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use base::simd;

use super::divide::SharedSlice;
use super::threads::Threads;
use crate::update::{ElementLoop, NormedTensor, Units};
use crate::{ParamGroup, Update};

/// Number of elements that the inner loop processes at a time.
const LANES: usize = 16;

/// Minimum number of elements per thread. Sums of squares are computed for blocks of this size, then added.
const UNIT: usize = 4096;

simd! {
    /// Applies `one` to all elements. `one(w, g, slots)` returns the new parameter. The result is zero, or NaN if any
    /// new parameter is NaN or infinite.
    fn sweep [F: Fn(f32, f32, [&mut f32; S]) -> f32, const S: usize] (
        w: &mut [f32], g: &[f32], slots: [&mut [f32]; S], one: F
    ) -> f32 {
        let mut poison = [0f32; LANES];
        let (groups, rest) = w.as_chunks_mut::<LANES>();
        let (g_groups, g_rest) = g.as_chunks::<LANES>();
        let mut slots = slots.map(|slot| slot.as_chunks_mut::<LANES>());
        for (i, (w, g)) in groups.iter_mut().zip(g_groups).enumerate() {
            // The compiler knows that local copies do not overlap, so it keeps them in vector registers.
            let (mut new, mut own) = (*w, slots.each_ref().map(|slot| slot.0[i]));
            for lane in 0..LANES {
                new[lane] = one(new[lane], g[lane], own.each_mut().map(|s| &mut s[lane]));
                poison[lane] = new[lane].mul_add(0.0, poison[lane]);
            }
            *w = new;
            slots.iter_mut().zip(own).for_each(|(slot, own)| slot.0[i] = own);
        }
        for (lane, (w, &g)) in rest.iter_mut().zip(g_rest).enumerate() {
            *w = one(*w, g, slots.each_mut().map(|slot| &mut slot.1[lane]));
            poison[lane] = w.mul_add(0.0, poison[lane]);
        }
        poison.iter().sum()
    }
}

/// A part of a group's elements.
struct Elements<'a> {
    w: &'a mut [f32],
    g: &'a [f32],
    slots: Vec<&'a mut [f32]>,
}

impl ElementLoop<f32> for Elements<'_> {
    fn for_each_element<const S: usize>(self, update_element: impl Fn(f32, f32, [&mut f32; S]) -> f32 + Copy) -> bool {
        sweep(self.w, self.g, take::<S>(self.slots), update_element) == 0.0
    }
}

/// Converts the slots to an array. Panics if the rule does not have `S` slots.
fn take<const S: usize>(slots: Vec<&mut [f32]>) -> [&mut [f32]; S] {
    let got = slots.len();
    slots.try_into().unwrap_or_else(|_| panic!("{got} slots for a rule that has {S}"))
}

/// Runs an optimizer step for all groups. Returns true if all parameters are still finite.
pub(super) fn update<'a>(
    threads: Threads,
    update: &Update,
    groups: &[ParamGroup],
    rates: &[f32],
    w: &'a mut [f32],
    g: &[f32],
    slots: Vec<&'a mut [f32]>,
) -> bool {
    let finite = AtomicBool::new(true);
    let w = SharedSlice::new(w);
    let slots: Vec<_> = slots.into_iter().map(SharedSlice::new).collect();
    // All groups share a parallel region, because a layer-wise rule has a group for each tensor, and most are short.
    let units = |s: &ParamGroup| s.range.len().div_ceil(UNIT);
    threads.each(groups.iter().map(units).sum(), |_, share| {
        let mut first = 0;
        for s in groups {
            let own =
                share.start.clamp(first, first + units(s)) - first..share.end.clamp(first, first + units(s)) - first;
            first += units(s);
            let part = s.range.start + own.start * UNIT..(s.range.start + own.end * UNIT).min(s.range.end);
            if own.is_empty() {
                continue;
            }
            // SAFETY: groups do not overlap, and each thread gets different elements of a group.
            let own = |all: &SharedSlice<'a, f32>| unsafe { all.part(part.clone()) };
            let (w, slots) = (own(&w), slots.iter().map(own).collect());
            if !update.rule.run(s.step(update, rates), Elements { w, g: &g[part], slots }) {
                finite.store(false, Ordering::Relaxed);
            }
        }
    });
    finite.into_inner()
}

simd! {
    /// Returns the sum of squares. It is computed in f64, where the square of an f32 is exact.
    fn square_sum(x: &[f32]) -> f64 {
        let mut sums = [0f64; LANES];
        let (groups, rest) = x.as_chunks::<LANES>();
        for group in groups {
            for (sum, &x) in sums.iter_mut().zip(group) {
                *sum = f64::from(x).mul_add(f64::from(x), *sum);
            }
        }
        for (sum, &x) in sums.iter_mut().zip(rest) {
            *sum = f64::from(x).mul_add(f64::from(x), *sum);
        }
        sums.iter().sum()
    }
}

/// Returns every tensor's sum of squares. Blocks of fixed size are added in a fixed order, so the bits do not depend on
/// the number of threads.
pub(super) fn squares(threads: Threads, x: &[f32], tensors: &[NormedTensor]) -> Vec<f64> {
    let starts = |t: &NormedTensor| t.range.clone().step_by(UNIT);
    let blocks: Vec<Range<usize>> =
        tensors.iter().flat_map(|t| starts(t).map(|at| at..(at + UNIT).min(t.range.end))).collect();
    let mut sums = vec![0.0; blocks.len()];
    threads.split(&mut sums, 1, |first, sums| {
        sums.iter_mut().zip(&blocks[first..]).for_each(|(sum, block)| *sum = square_sum(&x[block.clone()]));
    });
    let mut sums = sums.into_iter();
    tensors.iter().map(|t| sums.by_ref().take(starts(t).len()).sum()).collect()
}

pub(super) fn limit_units(threads: Threads, units: &Units, w: &[f32], g: &mut [f32]) {
    let g = SharedSlice::new(g);
    threads.each(units.tensors.len(), |_, share| {
        for number in share {
            let range = units.tensors[number].range.clone();
            // SAFETY: tensors do not overlap, and the slice is borrowed for the whole call.
            let own = unsafe { g.part(range.clone()) };
            units.limit(number, &w[range], own);
        }
    });
}

/// Clamps every value to [-limit, limit]. NaN stays NaN.
pub(super) fn clamp(threads: Threads, x: &mut [f32], limit: f32) {
    threads.split(x, UNIT, |_, x| x.iter_mut().for_each(|x| *x = x.clamp(-limit, limit)));
}

simd! {
    fn lerp_run(to: &mut [f32], from: &[f32], weight: f32) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to = weight.mul_add(from - *to, *to));
    }
}

/// `to += weight (from - to)`.
pub(super) fn lerp(threads: Threads, to: &mut [f32], from: &[f32], weight: f32) {
    threads.split_both(to, from, UNIT, |to, from| lerp_run(to, from, weight));
}
