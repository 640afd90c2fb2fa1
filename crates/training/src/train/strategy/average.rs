//! Means over the ranks, and the exchange of a rank's own model for the synchronised one.
//!
//! Running statistics of batch normalisation are each rank's own and are pooled for the synchronised model.

use backend::{Arena, Backend, Buffer, Error};
use engine::Graph;

use crate::train::reduce::ranks::RankSum;

/// A rank's own weights and running statistics while the synchronised model is in the graph.
pub struct OwnModel<B: Backend> {
    weights: Arena<B>,
    running: Vec<f32>,
}

impl<B: Backend> OwnModel<B> {
    /// Puts `weights` and the pooled running statistics into the graph; gives what was there. Collective.
    pub fn replace(graph: &mut Graph<B>, weights: Arena<B>, ranks: &mut dyn RankSum) -> Result<Self, Error> {
        let running = graph.running().to_vec();
        let places: Vec<_> = graph.norms().iter().map(|n| (n.offset, n.channels)).collect();
        pool(graph.running_mut(), &places, ranks)?;
        Ok(Self { weights: std::mem::replace(graph.weights_mut().1, weights), running })
    }

    /// Puts it back into the graph.
    pub fn put_back(self, graph: &mut Graph<B>) {
        *graph.weights_mut().1 = self.weights;
        graph.running_mut().copy_from_slice(&self.running);
    }
}

/// Replaces an arena by its mean over the ranks.
pub fn mean<B: Backend>(arena: &mut Arena<B>, ranks: &mut dyn RankSum) -> Result<(), Error> {
    let share = 1.0 / ranks.ranks() as f32;
    arena.chunks.iter_mut().try_for_each(|chunk| {
        chunk.fetch()?;
        let values = chunk.staged()?;
        ranks.sum(values)?;
        values.iter_mut().for_each(|value| *value *= share);
        chunk.unstage()
    })
}

/// Replaces running means m and variances v (`channels` of each, from `offset` on) by those of all ranks' data together, every rank
/// weighing alike: mean of m, and mean of (v + m^2) - (mean of m)^2, by offsets from m's mean so that nothing cancels.
pub fn pool(running: &mut [f32], places: &[(usize, usize)], ranks: &mut dyn RankSum) -> Result<(), Error> {
    let share = 1.0 / ranks.ranks() as f64;
    let mut means: Vec<f64> = running.iter().map(|v| f64::from(*v)).collect();
    ranks.sum_f64(&mut means)?;
    means.iter_mut().for_each(|v| *v *= share);
    let mut spread = vec![0.0; running.len()];
    for &(offset, channels) in places {
        for i in offset..offset + channels {
            spread[i] = f64::from(running[i + channels]) + (f64::from(running[i]) - means[i]).powi(2);
        }
    }
    ranks.sum_f64(&mut spread)?;
    for &(offset, channels) in places {
        for i in offset..offset + channels {
            running[i] = means[i] as f32;
            running[i + channels] = (spread[i] * share) as f32;
        }
    }
    Ok(())
}

/// A copy in memory of its own.
pub fn copy<B: Backend>(backend: &B, from: &Arena<B>) -> Result<Arena<B>, Error> {
    let lengths: Vec<usize> = from.chunks.iter().map(Buffer::len).collect();
    let mut arena = Arena::new(backend, &lengths)?;
    for (to, from) in arena.chunks.iter_mut().zip(&from.chunks) {
        backend.copy(to, from)?;
    }
    Ok(arena)
}
