//! Strategies that decide which ranks step together, and when they synchronise.
//!
//! With [`Allreduce`] gradients are summed over all ranks in every step, so all ranks hold one model. With [`LocalSgd`]
//! and [`Easgd`] each rank uses its own gradient, and the ranks synchronise their models after a number of steps.
//!
//! To add a strategy, write a type here, add a form of `sync` to the recipe, and extend `strategy` in `plan/build.rs`.

#[cfg(test)]
mod tests;

use backend::{Arena, Backend, Buffer, Error};
use base::text::plural;
use engine::Graph;

use crate::train::reduce::ranks::RankSum;

/// Decides when ranks exchange data, and keeps their models together. All ranks call each method in the same steps, so a method may sum
/// over the ranks.
pub trait Strategy<B: Backend> {
    /// Returns true if every step sums its gradients over all ranks. Otherwise each rank uses the gradient of its own
    /// workers.
    fn sums_gradients(&self) -> bool {
        false
    }

    /// Returns true if the ranks synchronise in the step that follows `done` steps.
    fn synchronises(&self, done: u64) -> bool;

    /// Returns the maximum number of steps after the current step until the ranks communicate again. 0 means that they communicate in every
    /// step.
    fn steps_apart(&self) -> u64 {
        0
    }

    /// Called before the update in a step that synchronises.
    fn before_update(&mut self, _weights: &Arena<B>, _ranks: &mut dyn RankSum) -> Result<(), Error> {
        Ok(())
    }

    /// Called after the update in a step that synchronises. `slots` is the optimizer's state.
    fn after_update(
        &mut self,
        _weights: &mut Arena<B>,
        _slots: &mut dyn Iterator<Item = &mut Arena<B>>,
        _ranks: &mut dyn RankSum,
    ) -> Result<(), Error> {
        Ok(())
    }

    /// Writes the weights of the synchronised model to `to`. `weights` are those of this rank. Not called if ranks sum their gradients,
    /// because each rank then has this model.
    fn synchronised(
        &self,
        _backend: &B,
        _weights: &Arena<B>,
        _to: &mut Arena<B>,
        _ranks: &mut dyn RankSum,
    ) -> Result<(), Error> {
        Ok(())
    }

    /// Forgets the previous state and continues from these weights, which are the same on all ranks.
    fn restart(&mut self, _backend: &B, _weights: &Arena<B>) -> Result<(), Error> {
        Ok(())
    }

    /// Describes for the log what ranks exchange, and when. `None` if they sum gradients in every step.
    fn describe(&self) -> Option<String> {
        None
    }
}

/// Synchronous SGD (Goyal et al. 2017, arXiv 1706.02677): every step sums the gradients over all ranks. All ranks always have the same
/// model, so only the gradients are synchronised.
#[derive(Clone, Copy, Debug)]
pub struct Allreduce;

impl<B: Backend> Strategy<B> for Allreduce {
    fn sums_gradients(&self) -> bool {
        true
    }

    fn synchronises(&self, _: u64) -> bool {
        true
    }
}

/// Memory for a rank's own weights and running statistics while the graph has the synchronised model, which has the running statistics of
/// all ranks together. It is allocated before the first step, so that missing memory is reported at the start.
pub struct OwnModel<B: Backend> {
    pub weights: Arena<B>,
    running: Vec<f32>,
    /// True while the graph has the synchronised model.
    is_kept: bool,
}

impl<B: Backend> OwnModel<B> {
    /// Allocates memory for the model in `graph`.
    pub fn new(graph: &Graph<B>) -> Result<Self, Error> {
        let weights = Arena::new(graph.backend(), &lengths(graph.weights()))?;
        Ok(Self { weights, running: graph.running().to_vec(), is_kept: false })
    }

    /// Puts the synchronised weights and the pooled running statistics into the graph, and keeps those that were in the graph. Returns
    /// false if the graph already has the synchronised model. Collective.
    pub fn swap_in(
        &mut self,
        graph: &mut Graph<B>,
        strategy: &dyn Strategy<B>,
        ranks: &mut dyn RankSum,
    ) -> Result<bool, Error> {
        if self.is_kept {
            return Ok(false);
        }
        strategy.synchronised(graph.backend(), graph.weights(), &mut self.weights, ranks)?;
        self.running.copy_from_slice(graph.running());
        let places: Vec<_> = graph.norms().iter().map(|n| (n.offset, n.channels)).collect();
        pool(graph.running_mut(), &places, ranks)?;
        std::mem::swap(&mut self.weights, graph.weights_mut().1);
        self.is_kept = true;
        Ok(true)
    }

    /// Puts the rank's own model back into the graph. Does nothing if it is already there.
    pub fn swap_out(&mut self, graph: &mut Graph<B>) {
        if std::mem::take(&mut self.is_kept) {
            std::mem::swap(&mut self.weights, graph.weights_mut().1);
            graph.running_mut().copy_from_slice(&self.running);
        }
    }
}

/// Replaces the values of an arena by their means over the ranks. Collective.
pub fn mean<B: Backend>(arena: &mut Arena<B>, ranks: &mut dyn RankSum) -> Result<(), Error> {
    let share = 1.0 / ranks.ranks() as f32;
    arena.buckets.iter_mut().try_for_each(|bucket| {
        bucket.fetch()?;
        let values = bucket.staged()?;
        ranks.sum(values)?;
        values.iter_mut().for_each(|value| *value *= share);
        bucket.unstage()
    })
}

/// Replaces running statistics by those of all ranks together, with equal weight per rank. `places` has the offset and the number of
/// channels of each batch norm. From means m and variances v this computes M = mean(m) and mean(v + m^2) - M^2. The variance is computed
/// from m - M to avoid cancellation. Collective.
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

/// Allocates an arena with the same layout, also the memory for its copies on the host.
fn allocate<B: Backend>(backend: &B, layout: &Arena<B>) -> Result<Arena<B>, Error> {
    let mut arena = Arena::new(backend, &lengths(layout))?;
    allocate_on_host(&mut arena)?;
    Ok(arena)
}

fn lengths<B: Backend>(arena: &Arena<B>) -> Vec<usize> {
    arena.buckets.iter().map(Buffer::len).collect()
}

/// Allocates the memory for an arena's copies on the host, unless the host can address the arena.
pub fn allocate_on_host<B: Backend>(arena: &mut Arena<B>) -> Result<(), Error> {
    arena.buckets.iter_mut().try_for_each(|bucket| bucket.staged().map(|_| ()))
}

/// Copies all values between arenas with the same layout.
fn copy<B: Backend>(backend: &B, to: &mut Arena<B>, from: &Arena<B>) -> Result<(), Error> {
    to.buckets.iter_mut().zip(&from.buckets).try_for_each(|(to, from)| backend.copy(to, from))
}

/// Synchronous elastic averaging, `sync = "easgd(tau, alpha)"` (Zhang, Choromanska and LeCun 2015, arXiv 1412.6651, equations 3 and 4). The
/// ranks have parameters `x_i`, and they share a centre `c`. The first step and every tau-th step after it synchronises:
/// `x_i <- (update of x_i) - alpha (x_i - c)` and `c <- c + alpha sum_i (x_i - c)`, where `x_i - c` is the difference before the step. Each
/// rank keeps its own optimizer state. With Nesterov's momentum this is EAMSGD. The synchronised model is the centre.
pub struct Easgd<B: Backend> {
    /// Period tau: the first step and every tau-th step after it synchronises.
    period: u64,
    /// Fraction of the distance to the centre that a synchronisation removes.
    alpha: f32,
    /// The centre c. Equal on all ranks.
    centre: Arena<B>,
    /// The difference x_i - c from before the current step.
    distance: Arena<B>,
    /// Buffer in which the ranks sum the differences of a bucket.
    total: Vec<f32>,
}

impl<B: Backend> Easgd<B> {
    /// Creates the state for ranks that start from these weights, which must be equal on all ranks.
    pub fn new(period: u64, alpha: f64, backend: &B, weights: &Arena<B>) -> Result<Self, Error> {
        let (centre, distance) = (allocate(backend, weights)?, allocate(backend, weights)?);
        let total = Vec::with_capacity(weights.buckets.iter().map(Buffer::len).max().unwrap_or(0));
        let mut own = Self { period, alpha: alpha as f32, centre, distance, total };
        own.restart(backend, weights)?;
        Ok(own)
    }
}

impl<B: Backend> Strategy<B> for Easgd<B> {
    fn synchronises(&self, done: u64) -> bool {
        done.is_multiple_of(self.period)
    }

    fn steps_apart(&self) -> u64 {
        self.period.saturating_sub(1)
    }

    /// Stores this rank's difference from the centre, and then moves the centre.
    fn before_update(&mut self, weights: &Arena<B>, ranks: &mut dyn RankSum) -> Result<(), Error> {
        let total = &mut self.total;
        for ((centre, distance), own) in
            self.centre.buckets.iter_mut().zip(&mut self.distance.buckets).zip(&weights.buckets)
        {
            centre.fetch()?;
            own.read(0, distance.staged()?)?;
            let (c, d) = (centre.staged()?, distance.staged()?);
            d.iter_mut().zip(&*c).for_each(|(own, centre)| *own -= centre);
            total.clear();
            total.extend_from_slice(d);
            ranks.sum(total)?;
            c.iter_mut().zip(&*total).for_each(|(centre, total)| *centre += self.alpha * total);
            centre.unstage()?;
            distance.unstage()?;
        }
        Ok(())
    }

    /// Moves this rank's parameters towards the centre, by the difference that `before_update` stored.
    fn after_update(
        &mut self,
        weights: &mut Arena<B>,
        _: &mut dyn Iterator<Item = &mut Arena<B>>,
        _: &mut dyn RankSum,
    ) -> Result<(), Error> {
        for (own, distance) in weights.buckets.iter_mut().zip(&mut self.distance.buckets) {
            own.fetch()?;
            distance.fetch()?;
            let pairs = own.staged()?.iter_mut().zip(distance.staged()?);
            pairs.for_each(|(own, distance)| *own -= self.alpha * *distance);
            own.unstage()?;
        }
        Ok(())
    }

    fn synchronised(&self, backend: &B, _: &Arena<B>, to: &mut Arena<B>, _: &mut dyn RankSum) -> Result<(), Error> {
        copy(backend, to, &self.centre)
    }

    fn restart(&mut self, backend: &B, weights: &Arena<B>) -> Result<(), Error> {
        copy(backend, &mut self.centre, weights)
    }

    fn describe(&self) -> Option<String> {
        Some(format!("elastic averaging every {}", plural(self.period, "step")))
    }
}

/// Local SGD, `sync = "local(H)"`: after every H-th step all ranks continue with the means of their parameters and optimizer state. Because
/// the state is averaged too, convergence with momentum is proven (Yu, Jin and Yang 2019, arXiv 1905.03817). With SGD, whose update is
/// linear in the gradient, without clipping, and with the same number of images on every rank, `local(1)` equals allreduce up to rounding.
pub struct LocalSgd {
    /// Period H: the ranks synchronise after every H-th step.
    pub period: u64,
}

impl<B: Backend> Strategy<B> for LocalSgd {
    fn synchronises(&self, done: u64) -> bool {
        (done + 1).is_multiple_of(self.period)
    }

    fn steps_apart(&self) -> u64 {
        self.period.saturating_sub(1)
    }

    fn after_update(
        &mut self,
        weights: &mut Arena<B>,
        slots: &mut dyn Iterator<Item = &mut Arena<B>>,
        ranks: &mut dyn RankSum,
    ) -> Result<(), Error> {
        mean(weights, ranks)?;
        for slot in slots {
            mean(slot, ranks)?;
        }
        Ok(())
    }

    fn synchronised(
        &self,
        backend: &B,
        weights: &Arena<B>,
        to: &mut Arena<B>,
        ranks: &mut dyn RankSum,
    ) -> Result<(), Error> {
        copy(backend, to, weights)?;
        mean(to, ranks)
    }

    fn describe(&self) -> Option<String> {
        Some(format!("mean of parameters and optimizer slots after every {}", plural(self.period, "step")))
    }
}
