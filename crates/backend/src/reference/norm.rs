//! Batch normalisation from its definition, with two passes for the statistics.

use std::ops::Range;

use net::Norm;

use super::activation::relu;
use super::device::{HostBuf, Reference};
use crate::{Error, Gradients, Pass, PlanRequest, Planned, TensorDesc, across};

/// Batch normalisation with the statistics of its last batch.
pub(super) struct Plan {
    op: Norm,
    x: TensorDesc,
    /// Groups of rows that are normalised together. Each group has its own statistics.
    groups: Vec<Group>,
}

/// Rows that are normalised together.
struct Group {
    op: Norm,
    x: TensorDesc,
    rows: Range<usize>,
    mean: Vec<f64>,
    /// Sum of squared deviations from the mean, for each channel.
    m2: Vec<f64>,
    /// Values per channel in the statistics: this rank's or the whole batch's.
    n: f64,
}

impl Group {
    fn new(op: &Norm, x: TensorDesc, rows: Range<usize>) -> Self {
        let c = x.shape.c;
        Self { op: op.clone(), x, rows, mean: vec![0.0; c], m2: vec![0.0; c], n: 1.0 }
    }

    fn count(&self) -> f64 {
        (self.rows.len() * self.x.shape.plane()) as f64
    }

    fn inverse_std(&self, c: usize) -> f64 {
        1.0 / (self.m2[c] / self.n + self.op.eps as f64).sqrt()
    }

    /// Computes mean and `m2` over the rows, and over all ranks if the pass spans them.
    fn statistics(&mut self, pass: &Pass<'_, Reference>, x: &HostBuf) -> Result<(), Error> {
        self.n = self.count();
        for c in 0..self.x.shape.c {
            self.mean[c] = self.channel(c).map(|i| x.0[i] as f64).sum::<f64>() / self.n;
            self.m2[c] = self.channel(c).map(|i| (x.0[i] as f64 - self.mean[c]).powi(2)).sum();
        }
        if let Some(ranks) = pass.across {
            self.n = across::statistics(ranks, self.n, pass.running, &mut self.mean, &mut self.m2)?;
        }
        Ok(())
    }

    fn forward(&mut self, pass: &Pass<'_, Reference>, x: &[&HostBuf], y: &mut HostBuf) -> Result<(), Error> {
        let channels = self.x.shape.c;
        let (gamma, beta) = self.op.gamma_beta(pass.slots);
        let (gamma, beta) = (gamma.map(|slot| pass.params.get(slot)), pass.params.get(beta));
        if pass.takes_statistics() {
            self.statistics(pass, x[0])?;
        }
        for c in 0..channels {
            let (mean, inverse) = if pass.takes_statistics() {
                (self.mean[c], self.inverse_std(c))
            } else {
                let var = pass.running[channels + c] as f64;
                (pass.running[c] as f64, 1.0 / (var + self.op.eps as f64).sqrt())
            };
            let (gamma, beta) = (gamma.map_or(1.0, |gamma| gamma[c] as f64), beta[c] as f64);
            for i in self.channel(c) {
                let mut v = (x[0].0[i] as f64 - mean) * inverse * gamma + beta;
                if self.op.residual {
                    v += x[1].0[i] as f64;
                }
                y.0[i] = if self.op.relu { relu(v as f32) } else { v as f32 };
            }
        }
        Ok(())
    }

    /// Runs the backward pass with running statistics. They do not depend on x, so dx = gamma / sqrt(var + eps) dy.
    fn backward_frozen(&self, pass: &Pass<'_, Reference>, dy: &[f32], dx: &mut HostBuf) {
        let (gamma, _) = self.op.gamma_beta(pass.slots);
        for c in 0..self.x.shape.c {
            let gamma = gamma.map_or(1.0, |slot| pass.params.get(slot)[c] as f64);
            let scale = gamma / (pass.running[self.x.shape.c + c] as f64 + self.op.eps as f64).sqrt();
            self.channel(c).for_each(|i| dx.0[i] = (scale * dy[i] as f64) as f32);
        }
    }

    /// Writes dx and returns these rows' gradients for gamma and beta.
    fn backward(
        &self,
        pass: &Pass<'_, Reference>,
        (x, dy): (&[f32], &[f32]),
        to: Option<&mut HostBuf>,
    ) -> Result<[Vec<f64>; 2], Error> {
        let channels = self.x.shape.c;
        let hat = |i: usize, c: usize| (x[i] as f64 - self.mean[c]) * self.inverse_std(c);
        let sum = |c: usize, f: &dyn Fn(usize) -> f64| self.channel(c).map(f).sum::<f64>();
        let mut dbeta: Vec<f64> = (0..channels).map(|c| sum(c, &|i| dy[i] as f64)).collect();
        let mut dgamma: Vec<f64> = (0..channels).map(|c| sum(c, &|i| dy[i] as f64 * hat(i, c))).collect();
        // dgamma and dbeta are summed over the ranks later, with all other gradients, but dx needs the sums over the
        // whole batch now
        let own = [dgamma.clone(), dbeta.clone()];
        if let Some(ranks) = pass.across {
            across::gradients(ranks, channels, &mut dbeta, &mut dgamma)?;
        }
        let Some(dx) = to else { return Ok(own) };
        let (gamma, _) = self.op.gamma_beta(pass.slots);
        for c in 0..channels {
            let inverse = self.inverse_std(c);
            let gamma = gamma.map_or(1.0, |slot| pass.params.get(slot)[c] as f64);
            for i in self.channel(c) {
                let d = dy[i] as f64 - dbeta[c] / self.n - hat(i, c) * dgamma[c] / self.n;
                dx.0[i] = (gamma * inverse * d) as f32;
            }
        }
        Ok(own)
    }

    /// Returns the indices of a channel's values in these rows.
    fn channel(&self, c: usize) -> impl Iterator<Item = usize> + use<> {
        let (channels, plane) = (self.x.shape.c, self.x.shape.plane());
        self.rows.clone().flat_map(move |n| (0..plane).map(move |p| (n * channels + c) * plane + p))
    }
}

pub(super) fn plan(op: &Norm, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    let groups = r.norm_groups().map(|rows| Group::new(op, r.x[0], rows)).collect();
    Ok(Box::new(Plan { op: op.clone(), x: r.x[0], groups }))
}

impl Planned<Reference> for Plan {
    fn output(&self) -> TensorDesc {
        self.x
    }

    fn formats(&self) -> Vec<usize> {
        vec![self.x.shape.c; 1 + usize::from(self.op.scale)]
    }

    fn state_bytes(&self) -> usize {
        self.groups.len() * self.x.shape.c * 16
    }

    fn input_with_gradient_in_dy(&self) -> Option<usize> {
        self.op.residual.then_some(1)
    }

    fn forward(&mut self, pass: &Pass<'_, Reference>, x: &[&HostBuf], y: &mut HostBuf) -> Result<(), Error> {
        self.groups.iter_mut().try_for_each(|group| group.forward(pass, x, y))
    }

    fn backward(&mut self, pass: &Pass<'_, Reference>, mut g: Gradients<'_, Reference>) -> Result<(), Error> {
        if self.op.relu {
            super::activation::mask(&mut g.dy.0[..self.x.elems()], &g.y.0);
        }
        let mut to = g.take_dx(0);
        let (dy, x, channels) = (&g.dy.0, &g.x[0].0, self.x.shape.c);
        if pass.frozen {
            to.iter_mut().for_each(|dx| self.groups.iter().for_each(|group| group.backward_frozen(pass, dy, dx)));
            return Ok(());
        }
        let mut sums = [vec![0.0; channels], vec![0.0; channels]];
        for group in &self.groups {
            let own = group.backward(pass, (x, dy), to.as_deref_mut())?;
            sums.iter_mut().flatten().zip(own.iter().flatten()).for_each(|(sum, own)| *sum += own);
        }
        let [dgamma, dbeta] = sums.map(|sums| sums.into_iter().map(|v| v as f32).collect::<Vec<_>>());
        let (gamma, beta) = self.op.gamma_beta(pass.slots);
        if let Some(gamma) = gamma {
            g.dparams.get_mut(gamma).copy_from_slice(&dgamma);
        }
        g.dparams.get_mut(beta).copy_from_slice(&dbeta);
        Ok(())
    }

    fn pool_statistics(&self, running: &[f32], sums: &mut [f64]) -> u64 {
        let c = self.x.shape.c;
        for group in &self.groups {
            let n = group.count();
            for i in 0..c {
                let d = group.mean[i] - running[i] as f64;
                sums[i] += n * d;
                // this rank's share in the sum for the whole batch
                sums[c + i] += n * (group.m2[i] / group.n + d * d);
            }
        }
        (self.x.n * self.x.shape.plane()) as u64
    }
}
