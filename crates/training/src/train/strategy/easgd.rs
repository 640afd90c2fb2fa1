//! Synchronous elastic averaging, `sync = "easgd(tau, alpha)"` (Zhang, Choromanska and LeCun 2015, arXiv 1412.6651, equations 3 and 4):
//! in the first step and every tau-th after it, with the parameters x_i and the centre c from before it, x_i <- (step of x_i) - alpha
//! (x_i - c) and c <- c + alpha sum_i (x_i - c). Optimizer slots stay each rank's own; with Nesterov's momentum this is EAMSGD. The
//! centre is the synchronised model.

use backend::{Arena, Backend, Buffer, Error};
use engine::Graph;

use super::Strategy;
use super::average::{OwnModel, copy};
use crate::train::reduce::ranks::RankSum;

/// What a rank keeps between two synchronisations.
pub struct Easgd<B: Backend> {
    /// tau, steps from one synchronisation to the next.
    period: u64,
    /// Share of the distance to the centre that a synchronisation removes.
    alpha: f32,
    /// The same on all ranks.
    pub(super) centre: Arena<B>,
    /// x_i - c from before the step under way.
    distance: Arena<B>,
    own: Option<OwnModel<B>>,
}

impl<B: Backend> Easgd<B> {
    /// For ranks that start from these weights, the same on all of them.
    pub fn new(period: u64, alpha: f64, backend: &B, weights: &Arena<B>) -> Result<Self, Error> {
        let (centre, distance) = (copy(backend, weights)?, copy(backend, weights)?);
        Ok(Self { period, alpha: alpha as f32, centre, distance, own: None })
    }
}

impl<B: Backend> Strategy<B> for Easgd<B> {
    fn sums_gradients(&self) -> bool {
        false
    }

    fn synchronises(&self, done: u64) -> bool {
        done.is_multiple_of(self.period)
    }

    fn steps_apart(&self) -> u64 {
        self.period.saturating_sub(1)
    }

    /// Notes the distance to the centre, and moves the centre.
    fn before_update(&mut self, weights: &Arena<B>, ranks: &mut dyn RankSum) -> Result<(), Error> {
        let mut total = Vec::new();
        for ((centre, distance), own) in
            self.centre.chunks.iter_mut().zip(&mut self.distance.chunks).zip(&weights.chunks)
        {
            centre.fetch()?;
            own.read(0, distance.staged()?)?;
            let (c, d) = (centre.staged()?, distance.staged()?);
            d.iter_mut().zip(&*c).for_each(|(own, centre)| *own -= centre);
            total.clear();
            total.extend_from_slice(d);
            ranks.sum(&mut total)?;
            c.iter_mut().zip(&total).for_each(|(centre, total)| *centre += self.alpha * total);
            centre.unstage()?;
            distance.unstage()?;
        }
        Ok(())
    }

    /// Pulls this rank towards where the centre was.
    fn after_update(
        &mut self,
        weights: &mut Arena<B>,
        _: &mut dyn Iterator<Item = &mut Arena<B>>,
        _: &mut dyn RankSum,
    ) -> Result<(), Error> {
        for (own, distance) in weights.chunks.iter_mut().zip(&mut self.distance.chunks) {
            own.fetch()?;
            distance.fetch()?;
            let pairs = own.staged()?.iter_mut().zip(distance.staged()?);
            pairs.for_each(|(own, distance)| *own -= self.alpha * *distance);
            own.unstage()?;
        }
        Ok(())
    }

    fn swap_in(&mut self, graph: &mut Graph<B>, ranks: &mut dyn RankSum) -> Result<bool, Error> {
        if self.own.is_some() {
            return Ok(false);
        }
        let centre = copy(graph.backend(), &self.centre)?;
        self.own = Some(OwnModel::replace(graph, centre, ranks)?);
        Ok(true)
    }

    fn swap_out(&mut self, graph: &mut Graph<B>) {
        if let Some(own) = self.own.take() {
            own.put_back(graph);
        }
    }

    fn restart(&mut self, backend: &B, weights: &Arena<B>) -> Result<(), Error> {
        *self = Self::new(self.period, f64::from(self.alpha), backend, weights)?;
        Ok(())
    }

    fn describe(&self) -> Option<String> {
        Some(format!("elastic averaging every {} step(s)", self.period))
    }
}
