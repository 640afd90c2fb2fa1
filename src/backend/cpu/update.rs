//! The optimizer's pass over a chunk: parameters, gradients and momentum are read and written once.

use super::simd::simd;
use super::threads::{Shared, Threads};
use crate::backend::{DecayRange, Sgd};

/// Elements that one thread takes at least.
const UNIT: usize = 4096;

simd! {
    fn sgd_run(s: Sgd, decay: f32, w: &mut [f32], g: &[f32], m: &mut [f32]) {
        let (lr, momentum) = (s.lr, s.momentum);
        if s.nesterov {
            for ((w, g), m) in w.iter_mut().zip(g).zip(m) {
                let g = decay.mul_add(*w, *g);
                *m = momentum.mul_add(*m, g);
                *w = (-lr).mul_add(momentum.mul_add(*m, g), *w);
            }
        } else {
            for ((w, g), m) in w.iter_mut().zip(g).zip(m) {
                let g = decay.mul_add(*w, *g);
                *m = momentum.mul_add(*m, g);
                *w = (-lr).mul_add(*m, *w);
            }
        }
    }
}

/// `g += wd w; m = momentum m + g; w -= lr (nesterov ? g + momentum m : m)` over every range.
pub(super) fn sgd(threads: Threads, s: Sgd, ranges: &[DecayRange], w: &mut [f32], g: &[f32], m: &mut [f32]) {
    let (w, m) = (Shared::new(w), Shared::new(m));
    for DecayRange { range, weight_decay } in ranges {
        threads.each(range.len().div_ceil(UNIT), |_, units| {
            let part = range.start + units.start * UNIT..(range.start + units.end * UNIT).min(range.end);
            // SAFETY: the parts of different threads are disjoint, and both slices are borrowed for the whole call.
            let (w, m) = unsafe { (w.part(part.clone()), m.part(part.clone())) };
            sgd_run(s, *weight_decay, w, &g[part], m);
        });
    }
}
