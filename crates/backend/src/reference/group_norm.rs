//! Normalises sets of values that share mean and variance, written directly from the definition. A set is a channel
//! group of a sample, or all channels of a position.

use net::GroupNorm;

use super::device::{HostBuf, Reference};
use crate::memory::store;
use crate::{Error, Gradients, Pass, PlanRequest, Planned, TensorDesc};

/// The values that are normalised together.
#[derive(Clone, Copy)]
pub(super) enum Set {
    /// Adjacent channels of a sample. The value is the number of groups per sample.
    Group(usize),
    Position,
}

/// A normalisation with the statistics of its last batch.
struct Plan {
    set: Set,
    eps: f64,
    x: TensorDesc,
    mean: Vec<f64>,
    inverse_std: Vec<f64>,
}

/// Plans a normalisation over these sets.
pub(super) fn plan_over(
    set: Set,
    eps: f32,
    r: &PlanRequest<'_, Reference>,
) -> Result<Box<dyn Planned<Reference>>, Error> {
    Ok(Box::new(Plan { set, eps: eps.into(), x: r.x[0], mean: Vec::new(), inverse_std: Vec::new() }))
}

pub(super) fn plan(op: &GroupNorm, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    plan_over(Set::Group(op.groups), op.eps, r)
}

impl Plan {
    /// Returns how many sets the batch has, and how many values are in each.
    fn sizes(&self) -> (usize, usize) {
        let sets = self.x.n * if let Set::Group(groups) = self.set { groups } else { self.x.shape.plane() };
        (sets, self.x.elems() / sets)
    }

    fn set_and_channel(&self, i: usize) -> (usize, usize) {
        let (c, plane) = (self.x.shape.c, self.x.shape.plane());
        let (sample, channel) = (i / (c * plane), i / plane % c);
        let set = match self.set {
            Set::Group(groups) => sample * groups + channel / (c / groups),
            Set::Position => sample * plane + i % plane,
        };
        (set, channel)
    }

    /// Returns, for each set, the mean of `f(element, set, channel)`.
    fn means(&self, f: impl Fn(usize, usize, usize) -> f64) -> Vec<f64> {
        let (sets, values) = self.sizes();
        let mut sums = vec![0.0; sets];
        for i in 0..self.x.elems() {
            let (set, channel) = self.set_and_channel(i);
            sums[set] += f(i, set, channel) / values as f64;
        }
        sums
    }
}

impl Planned<Reference> for Plan {
    fn output(&self) -> TensorDesc {
        self.x
    }

    fn formats(&self) -> Vec<usize> {
        vec![self.x.shape.c; 2]
    }

    fn state_bytes(&self) -> usize {
        self.sizes().0 * 16
    }

    fn input_with_gradient_in_dy(&self) -> Option<usize> {
        Some(0)
    }

    fn forward(&mut self, pass: &Pass<'_, Reference>, x: &[&HostBuf], y: &mut HostBuf) -> Result<(), Error> {
        let (x, weight, bias) = (&x[0].0, pass.params.get(pass.slots[0]), pass.params.get(pass.slots[1]));
        self.mean = self.means(|i, _, _| x[i].into());
        let variance = self.means(|i, set, _| (f64::from(x[i]) - self.mean[set]).powi(2));
        self.inverse_std = variance.iter().map(|v| 1.0 / (v + self.eps).sqrt()).collect();
        for (i, value) in x.iter().enumerate().take(self.x.elems()) {
            let (set, channel) = self.set_and_channel(i);
            let hat = (f64::from(*value) - self.mean[set]) * self.inverse_std[set];
            y.0[i] = (hat * f64::from(weight[channel]) + f64::from(bias[channel])) as f32;
        }
        Ok(())
    }

    fn backward(&mut self, pass: &Pass<'_, Reference>, g: Gradients<'_, Reference>) -> Result<(), Error> {
        let (x, weight) = (&g.x[0].0, pass.params.get(pass.slots[0]));
        let dy: Vec<f64> = g.dy.0[..self.x.elems()].iter().map(|d| f64::from(*d)).collect();
        let hat = |i: usize, set: usize| (f64::from(x[i]) - self.mean[set]) * self.inverse_std[set];
        let mut sums = vec![vec![0.0; self.x.shape.c]; 2];
        for (i, d) in dy.iter().enumerate() {
            let (set, channel) = self.set_and_channel(i);
            sums[0][channel] += d * hat(i, set);
            sums[1][channel] += d;
        }
        (0..2).filter(|_| !pass.frozen).for_each(|k| store(g.dparams.get_mut(pass.slots[k]), &sums[k]));
        let weighted = |i: usize, channel: usize| dy[i] * f64::from(weight[channel]);
        let first = self.means(|i, _, channel| weighted(i, channel));
        let second = self.means(|i, set, channel| weighted(i, channel) * hat(i, set));
        for i in 0..dy.len() {
            let (set, channel) = self.set_and_channel(i);
            let d = weighted(i, channel) - first[set] - hat(i, set) * second[set];
            g.dy.0[i] = (self.inverse_std[set] * d) as f32;
        }
        Ok(())
    }
}
