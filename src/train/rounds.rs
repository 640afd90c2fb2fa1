//! Ranks that meet only now and then: local SGD and elastic averaging. Each trains by itself on its share of every batch, with the
//! optimizer of the recipe; here is what happens when they meet, and the one model that is scored and saved.
//!
//! - `local(H)`, local SGD: after every H-th step all go on from the mean of their parameters and optimizer slots. With the slots,
//!   `local(1)` is allreduce to rounding, and convergence with momentum is proven (Yu, Jin and Yang 2019, arXiv 1905.03817).
//! - `easgd(tau, alpha)`, synchronous elastic averaging (Zhang, Choromanska and LeCun 2015, arXiv 1412.6651, equations 3 and 4): in every
//!   tau-th step, with the parameters x_i and the centre c from before it, x_i <- (step of x_i) - alpha (x_i - c) and
//!   c <- c + alpha sum_i (x_i - c). Slots stay each rank's own; with Nesterov's momentum this is EAMSGD.
//!
//! Running statistics of batch normalisation are each rank's own and are pooled for the one model.

use crate::backend::{Arena, Backend, Buffer, Error};
use crate::nn::Graph;
use crate::recipe::Sync;

/// Sums over the ranks.
pub trait Sum {
    /// Replaces `values` by their sum over all ranks.
    fn sum(&mut self, values: &mut [f32]) -> Result<(), Error>;

    /// The same in double precision.
    fn sum_f64(&mut self, values: &mut [f64]) -> Result<(), Error>;

    /// Number of ranks.
    fn ranks(&self) -> usize;
}

/// What a rank keeps between meetings.
pub struct Rounds<B: Backend> {
    sync: Sync,
    /// EASGD's centre, the same on all ranks.
    centre: Option<Arena<B>>,
    /// How far this rank was from the centre before the step under way.
    apart: Option<Arena<B>>,
    /// What the rank had before it put on the one model.
    own: Option<(Arena<B>, Vec<f32>)>,
}

impl<B: Backend> Rounds<B> {
    /// For ranks that start from these parameters, the same on all of them.
    pub fn new(sync: Sync, backend: &B, weights: &Arena<B>) -> Result<Self, Error> {
        let mut rounds = Self { sync, centre: None, apart: None, own: None };
        if let Sync::Easgd { .. } = sync {
            rounds.centre = Some(copy(backend, weights)?);
            rounds.apart = Some(copy(backend, weights)?);
        }
        Ok(rounds)
    }

    /// Whether the ranks meet in the step that comes after `done` others.
    pub fn meets(&self, done: u64) -> bool {
        match self.sync {
            Sync::Easgd { period, .. } => done.is_multiple_of(period),
            _ => (done + 1).is_multiple_of(self.sync.period()),
        }
    }

    /// Before the update of a step in which the ranks meet: with EASGD, notes the distance and moves the centre.
    pub fn before(&mut self, weights: &Arena<B>, ranks: &mut dyn Sum) -> Result<(), Error> {
        let (Sync::Easgd { alpha, .. }, Some(centre), Some(apart)) = (self.sync, &mut self.centre, &mut self.apart)
        else {
            return Ok(());
        };
        let mut total = Vec::new();
        for ((centre, apart), own) in centre.chunks.iter_mut().zip(&mut apart.chunks).zip(&weights.chunks) {
            let (centre, apart, own) = (host_mut(centre)?, host_mut(apart)?, host(own)?);
            for ((apart, own), centre) in apart.iter_mut().zip(own).zip(centre.iter()) {
                *apart = own - centre;
            }
            total.clear();
            total.extend_from_slice(apart);
            ranks.sum(&mut total)?;
            centre.iter_mut().zip(&total).for_each(|(centre, total)| *centre += alpha as f32 * total);
        }
        Ok(())
    }

    /// After the update of a step in which the ranks meet: the elastic pull of EASGD, or the mean of local SGD, of the optimizer's
    /// `slots` too.
    pub fn after<'a>(
        &mut self,
        weights: &'a mut Arena<B>,
        slots: impl Iterator<Item = &'a mut Arena<B>>,
        ranks: &mut dyn Sum,
    ) -> Result<(), Error>
    where
        B: 'a,
    {
        match (self.sync, &self.apart) {
            (Sync::Easgd { alpha, .. }, Some(apart)) => {
                for (own, apart) in weights.chunks.iter_mut().zip(&apart.chunks) {
                    let (own, apart) = (host_mut(own)?, host(apart)?);
                    own.iter_mut().zip(apart).for_each(|(own, apart)| *own -= alpha as f32 * apart);
                }
                Ok(())
            }
            (Sync::Local(_), _) => std::iter::once(weights).chain(slots).try_for_each(|arena| mean(arena, ranks)),
            _ => Ok(()),
        }
    }

    /// Puts the one model into the graph, for scoring and saving: EASGD's centre, or the mean; with pooled running statistics.
    pub fn put_on(&mut self, graph: &mut Graph<B>, ranks: &mut dyn Sum) -> Result<(), Error> {
        let running = graph.running().to_vec();
        let places: Vec<_> = graph.norms().iter().map(|n| (n.offset, n.channels)).collect();
        pool(graph.running_mut(), &places, ranks)?;
        let (backend, weights) = graph.weights_mut();
        let mut one = copy(backend, self.centre.as_ref().unwrap_or(weights))?;
        if self.centre.is_none() {
            mean(&mut one, ranks)?;
        }
        self.own = Some((std::mem::replace(weights, one), running));
        Ok(())
    }

    /// Goes on with the rank's own parameters and statistics.
    pub fn take_off(&mut self, graph: &mut Graph<B>) {
        if let Some((weights, running)) = self.own.take() {
            *graph.weights_mut().1 = weights;
            graph.running_mut().copy_from_slice(&running);
        }
    }
}

/// Replaces an arena by its mean over the ranks.
fn mean<B: Backend>(arena: &mut Arena<B>, ranks: &mut dyn Sum) -> Result<(), Error> {
    let share = 1.0 / ranks.ranks() as f32;
    arena.chunks.iter_mut().try_for_each(|chunk| {
        let values = host_mut(chunk)?;
        ranks.sum(values)?;
        values.iter_mut().for_each(|value| *value *= share);
        Ok(())
    })
}

/// Replaces running means m and variances v (`channels` of each, from `offset` on) by those of all ranks' data together, every rank
/// weighing alike: mean of m, and mean of (v + m^2) - (mean of m)^2, by offsets from m's mean so that nothing cancels.
fn pool(running: &mut [f32], places: &[(usize, usize)], ranks: &mut dyn Sum) -> Result<(), Error> {
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

fn copy<B: Backend>(backend: &B, from: &Arena<B>) -> Result<Arena<B>, Error> {
    let lengths: Vec<usize> = from.chunks.iter().map(Buffer::len).collect();
    let mut arena = Arena::new(backend, &lengths)?;
    for (to, from) in arena.chunks.iter_mut().zip(&from.chunks) {
        host_mut(to)?.copy_from_slice(host(from)?);
    }
    Ok(arena)
}

fn host<T: Buffer>(buffer: &T) -> Result<&[f32], Error> {
    buffer.host().ok_or_else(on_device)
}

fn host_mut<T: Buffer>(buffer: &mut T) -> Result<&mut [f32], Error> {
    buffer.host_mut().ok_or_else(on_device)
}

fn on_device() -> Error {
    let why = "parameters that the host cannot address cannot be averaged; use sync = \"allreduce\"";
    Error::Unsupported { op: "sync".into(), why: why.into() }
}

#[cfg(test)]
mod tests;
