//! Averages of the parameters and of batch norm's running statistics. All kinds start from the initial values, and
//! depend only on the step and the averaged values:
//!
//! * exponential moving averages with TensorFlow's rule,
//! * the mean of the parameters after some epochs: stochastic weight averaging (Izmailov et al. 2018, arXiv
//!   1803.05407),
//! * lookahead (Zhang et al. 2019, arXiv 1907.08610), whose averages replace the parameters after some steps.
//!
//! The running statistics are averaged because they belong to the weights. Inception's training script and timm do the
//! same.

use backend::{Arena, Backend, Error};

use crate::Graph;

/// How the averages change after a step. A "value" is the current value of a parameter or running statistic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Averaging {
    /// At step t, counted from 1, with d = min(decay, (1 + t) / (10 + t)): average -= (1 - d) (average - value).
    Exponential {
        /// Upper limit of d, the weight of the old average.
        decay: f64,
    },
    /// The mean of the values after step `first` and after every `period` further steps. Until step `first`, the
    /// averages are equal to the current values.
    Equal {
        /// The mean begins with the values after this step.
        first: u64,
        /// Number of steps between two values of the mean.
        period: u64,
    },
    /// After every `period` steps t, with d = decay * (t / total)^power: average += (1 - d) (value - average), and then
    /// the average replaces the value. After the last planned step, `total`, the average replaces the value in any case.
    /// A learning-rate search can have more steps. After `total`, d = decay.
    Lookahead { period: u64, decay: f64, power: f64, total: u64 },
}

impl Averaging {
    /// Returns the weight of the current values in the averages after optimizer step `step`, counted from 1.
    pub fn weight(self, step: u64) -> f64 {
        match self {
            Averaging::Exponential { decay } => {
                let t = step as f64;
                1.0 - decay.min((1.0 + t) / (10.0 + t))
            }
            Averaging::Equal { first, .. } if step <= first => 1.0,
            Averaging::Equal { first, period } if (step - first).is_multiple_of(period) => {
                1.0 / ((step - first) / period + 1) as f64
            }
            Averaging::Equal { .. } => 0.0,
            Averaging::Lookahead { period, decay, power, total } if step.is_multiple_of(period) => {
                1.0 - decay * (step as f64 / total as f64).min(1.0).powf(power)
            }
            Averaging::Lookahead { .. } => 0.0,
        }
    }

    /// Returns true if the averages replace the values after optimizer step `step`, counted from 1.
    fn replaces(self, step: u64) -> bool {
        matches!(self, Averaging::Lookahead { period, total, .. } if step.is_multiple_of(period) || step == total)
    }
}

pub struct Ema<B: Backend> {
    averaging: Averaging,
    /// Averages of the parameters, in the parameters' layout.
    pub weights: Arena<B>,
    /// Averages of the running statistics.
    pub running: Vec<f32>,
}

impl<B: Backend> Ema<B> {
    /// Creates averages that start from the graph's parameters and running statistics.
    pub fn new(graph: &Graph<B>, averaging: Averaging) -> Result<Self, Error> {
        let weights = Arena::new(graph.backend(), &graph.layout().buckets)?;
        let mut averages = Self { averaging, weights, running: Vec::new() };
        averages.restart(graph)?;
        Ok(averages)
    }

    /// Restarts from the graph's parameters and running statistics.
    pub fn restart(&mut self, graph: &Graph<B>) -> Result<(), Error> {
        for i in 0..graph.layout().params.len() {
            graph.pack(i, &graph.param(i)?, &mut self.weights)?;
        }
        self.running = graph.running().to_vec();
        Ok(())
    }

    pub fn weight(&self, step: u64) -> f64 {
        self.averaging.weight(step)
    }

    /// Updates the averages of the running statistics after a step. If lookahead replaces the parameters after this
    /// step, also replaces the statistics by their averages. [`Optimizer::step`](super::Optimizer::step) does both for
    /// the parameters.
    pub fn update_running(&mut self, running: &mut [f32], step: u64) {
        let weight = self.weight(step);
        for (to, from) in self.running.iter_mut().zip(&*running) {
            *to = (f64::from(*to) + weight * (f64::from(*from) - f64::from(*to))) as f32;
        }
        if self.averaging.replaces(step) {
            running.copy_from_slice(&self.running);
        }
    }

    /// If lookahead replaces the parameters after this step, replaces the graph's parameters by their averages.
    pub(super) fn replace_weights(&self, graph: &mut Graph<B>, step: u64) -> Result<(), Error> {
        if !self.averaging.replaces(step) {
            return Ok(());
        }
        let (backend, weights) = graph.weights_mut();
        let mut pairs = weights.buckets.iter_mut().zip(&self.weights.buckets);
        pairs.try_for_each(|(to, from)| backend.copy(to, from))
    }

    /// Runs `f` on the graph with the averages instead of its parameters and running statistics.
    pub fn with<T>(&mut self, graph: &mut Graph<B>, f: impl FnOnce(&mut Graph<B>) -> T) -> T {
        graph.swap_weights(&mut self.weights, &mut self.running);
        let result = f(graph);
        graph.swap_weights(&mut self.weights, &mut self.running);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swa_weights_compute_the_mean() {
        let swa = Averaging::Equal { first: 4, period: 2 };
        let weights: Vec<f64> = (1..=8).map(|step| swa.weight(step)).collect();
        assert_eq!(weights, [1.0, 1.0, 1.0, 1.0, 0.0, 0.5, 0.0, 1.0 / 3.0]);
        let (mut mean, values) = (0.0, [9.0, 8.0, 7.0, 1.0, 50.0, 2.0, 60.0, 6.0]);
        (1..).zip(values).for_each(|(step, value)| mean += swa.weight(step) * (value - mean));
        assert_eq!(mean, 3.0, "the mean of 1, 2 and 6");
    }

    /// Uses the settings of the published airbench94 script: every 5 steps, decay 0.95^5 (t / T)^3.
    #[test]
    fn lookahead_replaces_weights_every_period_and_at_the_end() {
        let rule = Averaging::Lookahead { period: 5, decay: 0.95f64.powi(5), power: 3.0, total: 12 };
        let replaced: Vec<u64> = (1..=12).filter(|step| rule.replaces(*step)).collect();
        assert_eq!(replaced, [5, 10, 12]);
        assert_eq!((rule.weight(4), rule.weight(12)), (0.0, 0.0));
        assert!((rule.weight(10) - (1.0 - 0.7737809375 * (10.0f64 / 12.0).powi(3))).abs() < 1e-12);
        // a weight is a fraction after the last planned step, too
        assert!((rule.weight(25) - (1.0 - 0.7737809375)).abs() < 1e-12);
    }
}
