//! Local SGD, `sync = "local(H)"`: after every H-th step all ranks go on from the mean of their parameters and optimizer slots. With the
//! slots, `local(1)` is allreduce to rounding, and convergence with momentum is proven (Yu, Jin and Yang 2019, arXiv 1905.03817).

use backend::{Arena, Backend, Error};
use engine::Graph;

use super::Strategy;
use super::average::{OwnModel, copy, mean};
use crate::train::reduce::ranks::RankSum;

/// What a rank keeps between two synchronisations.
pub struct LocalSgd<B: Backend> {
    /// H, steps from one synchronisation to the next.
    period: u64,
    own: Option<OwnModel<B>>,
}

impl<B: Backend> LocalSgd<B> {
    /// Synchronises after every `period`-th step.
    pub fn new(period: u64) -> Self {
        Self { period, own: None }
    }
}

impl<B: Backend> Strategy<B> for LocalSgd<B> {
    fn sums_gradients(&self) -> bool {
        false
    }

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

    fn swap_in(&mut self, graph: &mut Graph<B>, ranks: &mut dyn RankSum) -> Result<bool, Error> {
        if self.own.is_some() {
            return Ok(false);
        }
        let mut weights = copy(graph.backend(), graph.weights())?;
        mean(&mut weights, ranks)?;
        self.own = Some(OwnModel::replace(graph, weights, ranks)?);
        Ok(true)
    }

    fn swap_out(&mut self, graph: &mut Graph<B>) {
        if let Some(own) = self.own.take() {
            own.put_back(graph);
        }
    }

    fn restart(&mut self, _: &B, _: &Arena<B>) -> Result<(), Error> {
        self.own = None;
        Ok(())
    }

    fn describe(&self) -> Option<String> {
        Some(format!("mean of parameters and optimizer slots after every {} step(s)", self.period))
    }
}
