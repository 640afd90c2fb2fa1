//! Which cores and threads of its node a rank uses, and for what.

use base::cores::Cores;
use recipe::Overlap;

use crate::device::Device;
use crate::train::plan::request::TrainRequest;

/// Threads and cores of one rank.
#[derive(Clone, Copy, Debug)]
pub struct Resources {
    /// Cores that this rank may use.
    pub cores: Cores,
    /// Compute threads.
    pub compute: usize,
    /// Loader threads.
    pub loader: usize,
}

impl Resources {
    /// Compute threads as requested, else all of this rank's cores. Loader threads as requested, else the cores that are left (one of
    /// them for MPI), at least one: they run at nice 19, so on a shared core they take what compute leaves.
    pub fn new<D: Device>(
        device: &D,
        cores: Cores,
        request: &TrainRequest,
        loader: Option<usize>,
        ranks: usize,
    ) -> Self {
        let compute = request.threads.unwrap_or(device.threads(cores.own));
        let left = cores.own.saturating_sub(compute + usize::from(ranks > 1));
        Self { cores, compute, loader: loader.unwrap_or(left.max(1)) }
    }

    /// Whether buckets travel while backward runs: where MPI has a core of its own, or a device that queues its work leaves the compute
    /// thread idle.
    pub fn overlap(&self, wish: Overlap, queues: bool) -> bool {
        match wish {
            Overlap::On => true,
            Overlap::Off => false,
            Overlap::Auto => queues || self.cores.spare(self.compute),
        }
    }
}
