//! Synchronous SGD: gradients are summed over all ranks in every step (Goyal et al. 2017, arXiv 1706.02677). All ranks hold the same
//! model all the time, so there is nothing else to synchronise.

use backend::Backend;

use super::Strategy;

/// The default.
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
