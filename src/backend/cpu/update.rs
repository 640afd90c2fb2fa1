//! The optimizer's passes over a chunk: parameters, gradients and slots are read and written once. Norms, clipping and moving
//! averages are passes of their own.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::simd::simd;
use super::threads::{Shared, Threads};
use crate::backend::update::Normed;
use crate::backend::update::rates::GRADIENT;
use crate::backend::{RmsProp, Rule, Stretch, Update};

/// Elements that the inner loop takes at once.
const LANES: usize = 16;

/// Elements that one thread takes at least; sums of squares are sums of sums over so many.
const UNIT: usize = 4096;

/// `one(w, g, slots)` gives the new parameter; zero comes back, or NaN if any new parameter is NaN or infinite.
#[inline(always)]
fn sweep<const S: usize>(
    w: &mut [f32],
    g: &[f32],
    slots: [&mut [f32]; S],
    one: impl Fn(f32, f32, [&mut f32; S]) -> f32,
) -> f32 {
    let mut poison = [0f32; LANES];
    let (groups, rest) = w.as_chunks_mut::<LANES>();
    let (g_groups, g_rest) = g.as_chunks::<LANES>();
    let mut slots = slots.map(|slot| slot.as_chunks_mut::<LANES>());
    for (i, (w, g)) in groups.iter_mut().zip(g_groups).enumerate() {
        // on copies, which the compiler knows to be apart: it keeps them in vector registers
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

/// Factors of one stretch: of the gradient, of the parameter in it, of the step.
#[derive(Clone, Copy)]
struct Factors {
    scale: f32,
    decay: f32,
    lr: f32,
}

impl Factors {
    #[inline(always)]
    fn gradient(self, w: f32, g: f32) -> f32 {
        self.decay.mul_add(w, self.scale * g)
    }
}

simd! {
    fn sgd(f: Factors, momentum: f32, nesterov: bool, w: &mut [f32], g: &[f32], slots: [&mut [f32]; 1]) -> f32 {
        sweep(w, g, slots, |w, g, [b]| {
            let g = f.gradient(w, g);
            *b = momentum.mul_add(*b, g);
            let step = if nesterov { momentum.mul_add(*b, g) } else { *b };
            (-f.lr).mul_add(step, w)
        })
    }
}

simd! {
    fn lars(f: Factors, momentum: f32, w: &mut [f32], g: &[f32], slots: [&mut [f32]; 1]) -> f32 {
        sweep(w, g, slots, |w, g, [v]| {
            *v = momentum.mul_add(*v, f.lr * f.gradient(w, g));
            w - *v
        })
    }
}

/// Adam's numbers, taken from f64 once.
#[derive(Clone, Copy)]
struct Adam {
    rest1: f32,
    beta2: f32,
    rest2: f32,
    eps: f32,
    step: f32,
    correction2: f32,
    /// What AdamW leaves of the parameter.
    keep: f32,
}

simd! {
    fn adam(f: Factors, a: Adam, w: &mut [f32], g: &[f32], slots: [&mut [f32]; 2]) -> f32 {
        sweep(w, g, slots, |w, g, [mean, square]| {
            let g = f.gradient(w, g);
            *mean = a.rest1.mul_add(g - *mean, *mean);
            *square = a.beta2.mul_add(*square, a.rest2 * g * g);
            let root = square.sqrt().mul_add(a.correction2, a.eps);
            (-a.step).mul_add(*mean / root, w * a.keep)
        })
    }
}

/// RMSProp's numbers, taken from f64 once.
#[derive(Clone, Copy)]
struct Rms {
    rest: f32,
    eps: f32,
    momentum: f32,
    tf: bool,
}

impl Rms {
    /// The new momentum and parameter; `square` is the mean square, centred or not.
    #[inline(always)]
    fn step(self, f: Factors, w: f32, g: f32, square: f32, momentum: &mut f32) -> f32 {
        let (inside, outside) = if self.tf { (self.eps, 0.0) } else { (0.0, self.eps) };
        let quotient = g / ((square + inside).sqrt() + outside);
        let (into, out) = if self.tf { (f.lr, 1.0) } else { (1.0, f.lr) };
        *momentum = self.momentum.mul_add(*momentum, into * quotient);
        (-out).mul_add(*momentum, w)
    }
}

simd! {
    fn rmsprop(f: Factors, r: Rms, w: &mut [f32], g: &[f32], slots: [&mut [f32]; 2]) -> f32 {
        sweep(w, g, slots, |w, g, [square, momentum]| {
            let g = f.gradient(w, g);
            *square = r.rest.mul_add(g.mul_add(g, -*square), *square);
            r.step(f, w, g, *square, momentum)
        })
    }
}

simd! {
    fn rmsprop_centered(f: Factors, r: Rms, w: &mut [f32], g: &[f32], slots: [&mut [f32]; 3]) -> f32 {
        sweep(w, g, slots, |w, g, [square, momentum, mean]| {
            let g = f.gradient(w, g);
            *square = r.rest.mul_add(g.mul_add(g, -*square), *square);
            *mean = r.rest.mul_add(g - *mean, *mean);
            // rounding may leave a variance just below zero
            let variance = (-*mean).mul_add(*mean, *square).max(0.0);
            r.step(f, w, g, variance, momentum)
        })
    }
}

/// One run of one stretch; `S` is the number of slots of the rule.
fn run(u: &Update, s: &Stretch, rates: &[f32], w: &mut [f32], g: &[f32], slots: Vec<&mut [f32]>) -> f32 {
    let lr = u.lr * f64::from(rates[s.rate]);
    let mut f = Factors { scale: rates[GRADIENT], decay: s.weight_decay, lr: lr as f32 };
    let rms = |r: RmsProp, tf| Rms { rest: (1.0 - r.alpha) as f32, eps: r.eps as f32, momentum: r.momentum as f32, tf };
    match u.rule {
        Rule::Sgd { momentum, nesterov } => sgd(f, momentum as f32, nesterov, w, g, take(slots)),
        Rule::Lars { momentum, .. } => lars(f, momentum as f32, w, g, take(slots)),
        Rule::Adam { beta1, beta2, eps, correction1, correction2, decoupled } => {
            let keep = if decoupled { (1.0 - lr * f64::from(s.weight_decay)) as f32 } else { 1.0 };
            if decoupled {
                f.decay = 0.0;
            }
            let numbers = Adam {
                rest1: (1.0 - beta1) as f32,
                beta2: beta2 as f32,
                rest2: (1.0 - beta2) as f32,
                eps: eps as f32,
                step: (lr * correction1) as f32,
                correction2: correction2 as f32,
                keep,
            };
            adam(f, numbers, w, g, take(slots))
        }
        Rule::RmsPropTorch(r) if r.centered => rmsprop_centered(f, rms(r, false), w, g, take(slots)),
        Rule::RmsPropTorch(r) => rmsprop(f, rms(r, false), w, g, take(slots)),
        Rule::RmsPropTf(r) if r.centered => rmsprop_centered(f, rms(r, true), w, g, take(slots)),
        Rule::RmsPropTf(r) => rmsprop(f, rms(r, true), w, g, take(slots)),
    }
}

/// The slots of a rule that has `S`.
fn take<const S: usize>(slots: Vec<&mut [f32]>) -> [&mut [f32]; S] {
    let got = slots.len();
    slots.try_into().unwrap_or_else(|_| panic!("{got} slots for a rule that has {S}"))
}

/// One optimizer step over every stretch; tells whether all parameters are still finite.
pub(super) fn update(
    threads: Threads,
    update: &Update,
    stretches: &[Stretch],
    rates: &[f32],
    w: &mut [f32],
    g: &[f32],
    slots: Vec<&mut [f32]>,
) -> bool {
    let finite = AtomicBool::new(true);
    let w = Shared::new(w);
    let slots: Vec<Shared<f32>> = slots.into_iter().map(Shared::new).collect();
    // one parallel region for all stretches: a layer-wise rule has one a tensor, many of them short
    let units = |s: &Stretch| s.range.len().div_ceil(UNIT);
    threads.each(stretches.iter().map(units).sum(), |_, share| {
        let mut first = 0;
        for s in stretches {
            let own =
                share.start.clamp(first, first + units(s)) - first..share.end.clamp(first, first + units(s)) - first;
            first += units(s);
            let part = s.range.start + own.start * UNIT..(s.range.start + own.end * UNIT).min(s.range.end);
            if own.is_empty() {
                continue;
            }
            // SAFETY: the parts of different threads are disjoint, and all slices are borrowed for the whole call.
            let w = unsafe { w.part(part.clone()) };
            // SAFETY: as above.
            let slots = slots.iter().map(|slot| unsafe { slot.part(part.clone()) }).collect();
            if run(update, s, rates, w, &g[part], slots) != 0.0 {
                finite.store(false, Ordering::Relaxed);
            }
        }
    });
    finite.into_inner()
}

simd! {
    /// In f64, where the square of an f32 is exact.
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

/// Sum of squares of every tensor, over blocks of fixed size and in their order: the same bits with any number of threads.
pub(super) fn squares(threads: Threads, x: &[f32], tensors: &[Normed]) -> Vec<f64> {
    let starts = |t: &Normed| t.range.clone().step_by(UNIT);
    let blocks: Vec<Range<usize>> =
        tensors.iter().flat_map(|t| starts(t).map(|at| at..(at + UNIT).min(t.range.end))).collect();
    let mut sums = vec![0.0; blocks.len()];
    threads.split(&mut sums, 1, |first, sums| {
        sums.iter_mut().zip(&blocks[first..]).for_each(|(sum, block)| *sum = square_sum(&x[block.clone()]));
    });
    let mut sums = sums.into_iter();
    tensors.iter().map(|t| sums.by_ref().take(starts(t).len()).sum()).collect()
}

/// Moves every value into [-limit, limit]; NaN stays.
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
    threads.split(to, UNIT, |first, to| lerp_run(to, &from[first * UNIT..][..to.len()], weight));
}
