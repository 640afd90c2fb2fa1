//! Optimizer steps, one element after another: every number in f64, rounded once where it is stored.

use super::Reference;
use crate::backend::update::rates;
use crate::backend::{Arena, Norms, RmsProp, Rule, Stretch, Update};

/// One optimizer step over every stretch; tells whether all parameters are still finite.
pub(super) fn update(
    u: &Update,
    stretches: &[Stretch],
    factors: &[f32],
    w: &mut [f32],
    g: &[f32],
    slots: &mut [&mut [f32]],
) -> bool {
    let mut finite = true;
    for s in stretches {
        let lr = u.lr * f64::from(factors[s.rate]);
        for i in s.range.clone() {
            let mut own: Vec<f64> = slots.iter().map(|slot| f64::from(slot[i])).collect();
            let raw = f64::from(factors[rates::GRADIENT]) * f64::from(g[i]);
            w[i] = element(u.rule, lr, f64::from(s.weight_decay), f64::from(w[i]), raw, &mut own) as f32;
            slots.iter_mut().zip(own).for_each(|(slot, value)| slot[i] = value as f32);
            finite &= w[i].is_finite();
        }
    }
    finite
}

/// The sum of squares of each tensor.
pub(super) fn squares(norms: &Norms, arena: &Arena<Reference>) -> Vec<f64> {
    let square = |&x: &f32| f64::from(x) * f64::from(x);
    let chunks = arena.chunks.iter().zip(&norms.tensors);
    chunks.flat_map(|(x, tensors)| tensors.iter().map(move |t| x.0[t.range.clone()].iter().map(square).sum())).collect()
}

/// The new parameter; `slots` are its own, `raw` is the gradient without decay.
fn element(rule: Rule, lr: f64, decay: f64, w: f64, raw: f64, slots: &mut [f64]) -> f64 {
    let g = raw + decay * w;
    match rule {
        Rule::Sgd { momentum, nesterov } => {
            slots[0] = momentum * slots[0] + g;
            w - lr * if nesterov { g + momentum * slots[0] } else { slots[0] }
        }
        Rule::Lars { momentum, .. } => {
            slots[0] = momentum * slots[0] + lr * g;
            w - slots[0]
        }
        Rule::Adam { beta1, beta2, eps, correction1, correction2, decoupled } => {
            let (w, g) = if decoupled { (w - lr * decay * w, raw) } else { (w, g) };
            slots[0] = beta1 * slots[0] + (1.0 - beta1) * g;
            slots[1] = beta2 * slots[1] + (1.0 - beta2) * g * g;
            w - lr * correction1 * slots[0] / (slots[1].sqrt() * correction2 + eps)
        }
        Rule::RmsPropTorch(r) => {
            let square = mean_square(r, g, slots);
            slots[1] = r.momentum * slots[1] + g / (square.sqrt() + r.eps);
            w - lr * slots[1]
        }
        Rule::RmsPropTf(r) => {
            let square = mean_square(r, g, slots);
            slots[1] = r.momentum * slots[1] + lr * g / (square + r.eps).sqrt();
            w - slots[1]
        }
    }
}

/// Moves the means; gives the mean square, or the variance.
fn mean_square(r: RmsProp, g: f64, slots: &mut [f64]) -> f64 {
    slots[0] = r.alpha * slots[0] + (1.0 - r.alpha) * g * g;
    if !r.centered {
        return slots[0];
    }
    slots[2] = r.alpha * slots[2] + (1.0 - r.alpha) * g;
    // rounding may leave it just below zero
    (slots[0] - slots[2] * slots[2]).max(0.0)
}
