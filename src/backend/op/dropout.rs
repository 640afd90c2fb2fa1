//! Dropout: its probability, and the random draws, which are the same on every backend.

use loaders::random::Draws;

use super::spec::{OpSpec, Reads};

/// Inverted dropout with this probability of zero; the identity in evaluation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Dropout(pub f32);

impl OpSpec for Dropout {
    fn kind(&self) -> &'static str {
        "dropout"
    }

    fn reads(&self) -> Reads {
        Reads::Elements
    }
}

/// What identifies the random draws of a pass: they are functions of (seed, epoch, sample, op), of nothing else.
#[derive(Clone, Copy, Debug)]
pub struct DrawKey<'a> {
    /// The run's seed.
    pub seed: u64,
    /// Epoch of these samples.
    pub epoch: u32,
    /// Sample id of each row of the batch.
    pub ids: &'a [u64],
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
