//! Optimizer steps, one element after another: every number in f64, rounded once where it is stored.

use crate::backend::{RmsProp, Rule, Stretch, Update};

/// One optimizer step over every stretch; tells whether all parameters are still finite.
pub(super) fn update(u: &Update, stretches: &[Stretch], w: &mut [f32], g: &[f32], slots: &mut [&mut [f32]]) -> bool {
    let mut finite = true;
    for s in stretches {
        for i in s.range.clone() {
            let mut own: Vec<f64> = slots.iter().map(|slot| f64::from(slot[i])).collect();
            w[i] = element(u, s, f64::from(w[i]), f64::from(g[i]), &mut own) as f32;
            slots.iter_mut().zip(own).for_each(|(slot, value)| slot[i] = value as f32);
            finite &= w[i].is_finite();
        }
    }
    finite
}

/// The new parameter; `slots` are its own.
fn element(u: &Update, s: &Stretch, w: f64, g: f64, slots: &mut [f64]) -> f64 {
    let (lr, decay) = (u.lr * f64::from(s.trust), f64::from(s.weight_decay));
    let raw = f64::from(u.gradient_scale) * g;
    let g = raw + decay * w;
    match u.rule {
        Rule::Sgd { momentum, nesterov } => {
            slots[0] = momentum * slots[0] + g;
            w - lr * if nesterov { g + momentum * slots[0] } else { slots[0] }
        }
        Rule::Lars { momentum } => {
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
