//! Optimizer steps, element by element. All numbers are f64 and are rounded once when they are stored.

use std::ops::Range;

use crate::update::{ElementLoop, GroupStep, rates};
use crate::{ParamGroup, Update};

/// Performs an optimizer step on all groups. Returns true if all parameters are still finite.
pub(super) fn update(
    u: &Update,
    groups: &[ParamGroup],
    factors: &[f32],
    w: &mut [f32],
    g: &[f32],
    slots: &mut [&mut [f32]],
) -> bool {
    let mut finite = true;
    for group in groups {
        let step = GroupStep {
            gradient_factor: f64::from(factors[rates::GRADIENT]),
            weight_decay: f64::from(group.weight_decay),
            lr: u.lr * f64::from(factors[group.rate]),
            step_lr: u.lr,
            group_factor: f64::from(factors[group.rate]),
        };
        finite &= u.rule.run(step, Elements { range: group.range.clone(), w, g, slots });
    }
    finite
}

struct Elements<'a, 'b> {
    range: Range<usize>,
    w: &'a mut [f32],
    g: &'a [f32],
    slots: &'a mut [&'b mut [f32]],
}

impl ElementLoop<f64> for Elements<'_, '_> {
    fn each<const S: usize>(self, one: impl Fn(f64, f64, [&mut f64; S]) -> f64 + Copy) -> bool {
        let mut finite = true;
        for i in self.range {
            let mut own: [f64; S] = std::array::from_fn(|slot| f64::from(self.slots[slot][i]));
            self.w[i] = one(f64::from(self.w[i]), f64::from(self.g[i]), own.each_mut()) as f32;
            self.slots.iter_mut().zip(own).for_each(|(slot, value)| slot[i] = value as f32);
            finite &= self.w[i].is_finite();
        }
        finite
    }
}
