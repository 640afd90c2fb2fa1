//! Inverted dropout, and the draws that every backend shares.

use super::{HostBuf, Reference, loops};
use crate::backend::{DrawKey, Error, Gradients, Pass, Planned, TensorDesc};
use loaders::random::Draws;

/// Dropout of known size, with the factors of its last batch.
pub(super) struct Plan {
    pub p: f32,
    pub index: u16,
    pub x: TensorDesc,
    pub kept: Vec<f32>,
}

/// First op index of a network's layers; the transforms of the loader count from zero.
pub(in crate::backend) const FIRST_INDEX: u16 = 0x8000;

/// Fills `factors` (elements of one sample in C, H, W order) with 0 or 1/(1-p), from (seed, epoch, sample, op) alone.
pub(in crate::backend) fn factors(p: f32, index: u16, key: &DrawKey<'_>, row: usize, factors: &mut [f32]) {
    let mut draws = Draws::new(key.seed, key.ids[row], key.epoch, FIRST_INDEX | index);
    let scale = 1.0 / (1.0 - p);
    for f in factors {
        *f = if draws.unit() < p { 0.0 } else { scale };
    }
}

impl Planned<Reference> for Plan {
    fn output(&self) -> TensorDesc {
        self.x
    }

    fn formats(&self) -> Vec<usize> {
        Vec::new()
    }

    fn state_bytes(&self) -> usize {
        self.x.elems() * 4
    }

    fn implementation(&self) -> String {
        loops()
    }

    fn alias(&self) -> Option<usize> {
        Some(0)
    }

    fn forward(&mut self, pass: &Pass<'_, Reference>, x: &[&HostBuf], y: &mut HostBuf) -> Result<(), Error> {
        self.kept.resize(self.x.elems(), 1.0);
        if pass.training {
            for (row, kept) in self.kept.chunks_mut(self.x.shape.elems()).enumerate() {
                factors(self.p, self.index, &pass.key, row, kept);
            }
        } else {
            self.kept.fill(1.0);
        }
        for ((y, x), k) in y.0.iter_mut().zip(&x[0].0).zip(&self.kept) {
            *y = x * k;
        }
        Ok(())
    }

    fn backward(&mut self, _: &Pass<'_, Reference>, g: Gradients<'_, Reference>) -> Result<(), Error> {
        for (d, k) in g.dy.0.iter_mut().zip(&self.kept) {
            *d *= k;
        }
        Ok(())
    }
}
