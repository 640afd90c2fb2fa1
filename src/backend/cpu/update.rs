//! The optimizer's pass over a chunk: parameters, gradients and momentum are read and written once.

use std::sync::atomic::{AtomicBool, Ordering};

use super::simd::simd;
use super::threads::{Shared, Threads};
use crate::backend::{DecayRange, Sgd};

/// Elements that the inner loop takes at once.
const LANES: usize = 16;

/// Elements that one thread takes at least.
const UNIT: usize = 4096;

simd! {
    /// Gives zero, or NaN if any new parameter is NaN or infinite.
    fn sgd_run(s: Sgd, decay: f32, w: &mut [f32], g: &[f32], m: &mut [f32]) -> f32 {
        let (lr, momentum) = (s.lr, s.momentum);
        let mut poison = [0f32; LANES];
        let n = w.len();
        let (g, m) = (&g[..n], &mut m[..n]);
        let mut one = |i: usize, lane: usize, w: &mut f32| {
            let g = decay.mul_add(*w, g[i]);
            m[i] = momentum.mul_add(m[i], g);
            let step = if s.nesterov { momentum.mul_add(m[i], g) } else { m[i] };
            *w = (-lr).mul_add(step, *w);
            poison[lane] = w.mul_add(0.0, poison[lane]);
        };
        let whole = n - n % LANES;
        let (groups, rest) = w.as_chunks_mut::<LANES>();
        for (group, w) in groups.iter_mut().enumerate() {
            for (lane, w) in w.iter_mut().enumerate() {
                one(group * LANES + lane, lane, w);
            }
        }
        for (lane, w) in rest.iter_mut().enumerate() {
            one(whole + lane, lane, w);
        }
        poison.iter().sum()
    }
}

/// `g += wd w; m = momentum m + g; w -= lr (nesterov ? g + momentum m : m)` over every range; tells whether all parameters are
/// still finite.
pub(super) fn sgd(threads: Threads, s: Sgd, ranges: &[DecayRange], w: &mut [f32], g: &[f32], m: &mut [f32]) -> bool {
    let finite = AtomicBool::new(true);
    let (w, m) = (Shared::new(w), Shared::new(m));
    for DecayRange { range, weight_decay } in ranges {
        threads.each(range.len().div_ceil(UNIT), |_, units| {
            let part = range.start + units.start * UNIT..(range.start + units.end * UNIT).min(range.end);
            // SAFETY: the parts of different threads are disjoint, and both slices are borrowed for the whole call.
            let (w, m) = unsafe { (w.part(part.clone()), m.part(part.clone())) };
            if sgd_run(s, *weight_decay, w, &g[part], m) != 0.0 {
                finite.store(false, Ordering::Relaxed);
            }
        });
    }
    finite.into_inner()
}
