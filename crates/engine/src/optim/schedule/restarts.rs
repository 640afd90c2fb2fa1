//! Cosine with warm restarts (Loshchilov and Hutter 2017, arXiv 1608.03983), with PyTorch's cycles and timm's fall from cycle to cycle.

use std::f64::consts::PI;

use schema::{Range, section};

use super::decay::{AfterWarmup, Decay, rounded};

section! {
    /// Half a cosine down to end_lr, again and again: PyTorch's CosineAnnealingWarmRestarts, step by step.
    pub struct WarmRestarts {
        /// Epochs of the first cycle (T_0).
        required cycle_epochs: f64, in Range::Positive;
        /// Factor from the length of a cycle to that of the next (T_mult).
        optional cycle_factor: f64 = 1.0, in Range::AtLeast(1.0);
        /// Factor from the highest rate of a cycle to that of the next.
        optional gamma: f64 = 1.0, in Range::Positive;
        /// Last rate of each cycle, scaled like base_lr.
        optional end_lr: f64 = 0.0, in Range::AtLeast(0.0);
    }
}

impl Decay for WarmRestarts {
    fn rate(&self, at: AfterWarmup) -> f64 {
        let mut length = (self.cycle_epochs * at.steps_per_epoch as f64).max(1.0);
        let (mut left, mut top) = (at.since as f64, at.target);
        // growing cycles soon pass any number of steps; equal ones are counted at once
        if self.cycle_factor() == 1.0 {
            let cycles = (left / length).floor();
            top *= self.gamma().powf(cycles);
            left -= cycles * length;
        } else {
            while left >= length {
                left -= length;
                length *= self.cycle_factor();
                top *= self.gamma();
            }
        }
        let end = self.end_lr() * at.scale;
        end + (top - end) * (1.0 + (PI * left / length).cos()) / 2.0
    }

    fn describe(&self, scale: f64) -> String {
        let end = rounded(self.end_lr() * scale);
        let growing = match self.cycle_factor() {
            1.0 => String::new(),
            factor => format!(", each {factor} times as long as the one before"),
        };
        format!(", then cosine to {end} in cycles of {} epochs{growing}", self.cycle_epochs)
    }
}
