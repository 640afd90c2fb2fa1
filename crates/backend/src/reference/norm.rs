//! Batch normalisation from its definition, with two passes for the statistics.

use net::Norm;

use super::activation::relu;
use super::device::HostBuf;
use super::device::Reference;
use crate::{Error, Gradients, Pass, PlanRequest, Planned, TensorDesc, across};

/// Batch normalisation with the statistics of its last batch.
pub(super) struct Plan {
    op: Norm,
    x: TensorDesc,
    mean: Vec<f64>,
    /// Sum of squared deviations from the mean.
    m2: Vec<f64>,
    /// Values per channel in the statistics: this rank's or the whole batch's.
    n: f64,
}

impl Plan {
    pub fn new(op: Norm, x: TensorDesc) -> Self {
        let c = x.shape.c;
        Self { op, x, mean: vec![0.0; c], m2: vec![0.0; c], n: 1.0 }
    }

    fn count(&self) -> f64 {
        (self.x.n * self.x.shape.plane()) as f64
    }

    fn inverse_std(&self, c: usize) -> f64 {
        1.0 / (self.m2[c] / self.n + self.op.eps as f64).sqrt()
    }

    /// Computes mean and M2 of the batch, over all ranks if the pass spans them.
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

    /// Runs the backward pass with running statistics. They do not depend on x, so dx = gamma / sqrt(var + eps) dy.
    fn backward_frozen(&self, pass: &Pass<'_, Reference>, dy: &[f32], to: Option<&mut HostBuf>) {
        let Some(dx) = to else { return };
        let (gamma, _) = self.op.gamma_beta(pass.slots);
        for c in 0..self.x.shape.c {
            let gamma = gamma.map_or(1.0, |slot| pass.params.get(slot)[c] as f64);
            let scale = gamma / (pass.running[self.x.shape.c + c] as f64 + self.op.eps as f64).sqrt();
            self.channel(c).for_each(|i| dx.0[i] = (scale * dy[i] as f64) as f32);
        }
    }

    /// Returns the indices of a channel's values.
    fn channel(&self, c: usize) -> impl Iterator<Item = usize> + use<> {
        let (channels, plane) = (self.x.shape.c, self.x.shape.plane());
        (0..self.x.n).flat_map(move |n| (0..plane).map(move |p| (n * channels + c) * plane + p))
    }
}

pub(super) fn plan(op: &Norm, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    Ok(Box::new(Plan::new(op.clone(), r.x[0])))
}

impl Planned<Reference> for Plan {
    fn output(&self) -> TensorDesc {
        self.x
    }

    fn formats(&self) -> Vec<usize> {
        vec![self.x.shape.c; 1 + usize::from(self.op.scale)]
    }

    fn state_bytes(&self) -> usize {
        self.x.shape.c * 16
    }

    fn alias(&self) -> Option<usize> {
        self.op.residual.then_some(1)
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

    fn backward(&mut self, pass: &Pass<'_, Reference>, mut g: Gradients<'_, Reference>) -> Result<(), Error> {
        if self.op.relu {
            super::activation::mask(&mut g.dy.0[..self.x.elems()], &g.y.0);
        }
        let mut to = g.take_dx(0);
        if pass.frozen {
            self.backward_frozen(pass, &g.dy.0, to);
            return Ok(());
        }
        let (dy, x, channels) = (&g.dy.0, &g.x[0].0, self.x.shape.c);
        let hat = |i: usize, c: usize| (x[i] as f64 - self.mean[c]) * self.inverse_std(c);
        let sum = |c: usize, f: &dyn Fn(usize) -> f64| self.channel(c).map(f).sum::<f64>();
        let mut dbeta: Vec<f64> = (0..channels).map(|c| sum(c, &|i| dy[i] as f64)).collect();
        let mut dgamma: Vec<f64> = (0..channels).map(|c| sum(c, &|i| dy[i] as f64 * hat(i, c))).collect();
        let (gamma, beta) = self.op.gamma_beta(pass.slots);
        for c in 0..channels {
            if let Some(gamma) = gamma {
                g.dparams.get_mut(gamma)[c] = dgamma[c] as f32;
            }
            g.dparams.get_mut(beta)[c] = dbeta[c] as f32;
        }
        // the parameters' gradients are summed with all other gradients later, but dx needs the sums of the whole batch
        // now
        if let Some(ranks) = pass.across {
            across::gradients(ranks, channels, &mut dbeta, &mut dgamma)?;
        }
        let n = self.n;
        for c in 0..channels {
            let inverse = self.inverse_std(c);
            if let Some(dx) = &mut to {
                let gamma = gamma.map_or(1.0, |slot| pass.params.get(slot)[c] as f64);
                for i in self.channel(c) {
                    let d = dy[i] as f64 - dbeta[c] / n - hat(i, c) * dgamma[c] / n;
                    dx.0[i] = (gamma * inverse * d) as f32;
                }
            }
        }
        Ok(())
    }

    fn pool_statistics(&self, running: &[f32], sums: &mut [f64]) -> u64 {
        let (c, n) = (self.x.shape.c, self.count());
        for i in 0..c {
            let d = self.mean[i] - running[i] as f64;
            sums[i] += n * d;
            // this rank's share of the whole batch's sum
            sums[c + i] += n * (self.m2[i] / self.n + d * d);
        }
        n as u64
    }
}
