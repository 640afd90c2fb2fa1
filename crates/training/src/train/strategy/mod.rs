//! Which ranks step together, and when they synchronise: one strategy a file.
//!
//! With [`allreduce`] gradients are summed over all ranks in every step, so all ranks hold one model. With [`local_sgd`] and [`easgd`]
//! each rank steps by its own gradient, and the ranks synchronise their models every so many steps.
//!
//! A new strategy is a file here, a form of `sync` in the recipe, and a line where the run is built.

pub mod allreduce;
mod average;
pub mod easgd;
pub mod local_sgd;
#[cfg(test)]
mod tests;

use backend::{Arena, Backend, Error};
use engine::Graph;

use crate::train::reduce::ranks::RankSum;

/// How the ranks keep one model. All ranks call each method in the same steps, so a method may sum over them.
pub trait Strategy<B: Backend> {
    /// Whether every step sums its gradients over all ranks. If not, each rank steps by the gradient of its own workers.
    fn sums_gradients(&self) -> bool;

    /// Whether the ranks synchronise in the step that comes after `done` others.
    fn synchronises(&self, done: u64) -> bool;

    /// Steps from one word among the ranks to the next, beyond the step under way: 0 where each step has one.
    fn steps_apart(&self) -> u64 {
        0
    }

    /// Before the update of a step that synchronises.
    fn before_update(&mut self, _weights: &Arena<B>, _ranks: &mut dyn RankSum) -> Result<(), Error> {
        Ok(())
    }

    /// After the update of a step that synchronises; `slots` are the optimizer's.
    fn after_update(
        &mut self,
        _weights: &mut Arena<B>,
        _slots: &mut dyn Iterator<Item = &mut Arena<B>>,
        _ranks: &mut dyn RankSum,
    ) -> Result<(), Error> {
        Ok(())
    }

    /// Puts the synchronised model into the graph, for scoring and saving. False if it is there already.
    fn swap_in(&mut self, _graph: &mut Graph<B>, _ranks: &mut dyn RankSum) -> Result<bool, Error> {
        Ok(false)
    }

    /// Puts this rank's own model back; nothing happens if it is there.
    fn swap_out(&mut self, _graph: &mut Graph<B>) {}

    /// Starts again from these weights, the same on all ranks.
    fn restart(&mut self, _backend: &B, _weights: &Arena<B>) -> Result<(), Error> {
        Ok(())
    }

    /// What ranks exchange and when, for the log; `None` where it is the sum of gradients.
    fn describe(&self) -> Option<String> {
        None
    }
}
