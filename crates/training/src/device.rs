//! The choice of a device, and the division of a rank's cores among its threads. Only [`launch`](crate::launch) names
//! concrete devices. All other code is generic over [`Device`].

use base::cores;
use recipe::Overlap;

use backend::Precision;
pub use backend::{DeviceKind as Device, DeviceSettings, Gpu};

/// Settings for deterministic f32 on one thread. Inference uses them, whatever precision a model was trained in.
pub const F32_SETTINGS: DeviceSettings = DeviceSettings {
    threads: 1,
    node_rank: 0,
    node_ranks: 1,
    precision: Precision::F32,
    tf32: false,
    deterministic: true,
};

/// The kind of device that `--device` requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// A usable GPU if available, otherwise the CPU.
    #[default]
    Auto,
    Kind(&'static str),
}

/// Numbers of threads that the user has set.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestedThreads {
    pub compute: Option<usize>,
    pub loader: Option<usize>,
}

/// Name of the operation in which the ranks agree whether to sum buckets during backward. They do so only if every rank
/// can. Otherwise ranks would run the operations in a step in different orders: some would sum a bucket before the batch
/// statistics, and some would sum it later.
pub const OVERLAP: &str = "agreement on sums during backward";

#[derive(Clone, Copy, Debug)]
pub struct Resources {
    /// Number of cores that this rank may use.
    pub cores: usize,
    pub compute: usize,
    pub loader: usize,
}

impl Resources {
    /// Divides the cores of a rank. `sums` is true if an additional thread sums gradients with MPI.
    ///
    /// If the device computes on cores, there is a compute thread per core by default. The loader gets the remaining
    /// cores, except one for MPI if `sums` is set. On other devices a single thread enqueues the work and mostly
    /// sleeps, as does the MPI thread, so the loader gets all cores but one. There is at least one loader thread.
    /// Loader threads run at nice 19, so on a shared core they use only the time that other threads leave.
    pub fn new<D: Device>(cores: usize, requested: RequestedThreads, sums: bool) -> Self {
        let compute = if D::USES_CORES { requested.compute.unwrap_or(cores) } else { 1 };
        let left = cores.saturating_sub(compute + usize::from(sums && D::USES_CORES));
        Self { cores, compute, loader: requested.loader.unwrap_or(left.max(1)) }
    }

    /// Divides all cores of this process.
    pub fn of_process<D: Device>(requested: RequestedThreads) -> Self {
        Self::new::<D>(cores::available(), requested, false)
    }

    /// Returns true if this rank can sum buckets during backward. By default this is the case if MPI has a core of its
    /// own. It is also the case if the device has a queue (`queues`), because the compute thread is then mostly idle.
    /// The ranks must agree on the result ([`OVERLAP`]).
    pub fn overlap(&self, wish: Overlap, queues: bool) -> bool {
        match wish {
            Overlap::On => true,
            Overlap::Off => false,
            Overlap::Auto => queues || self.cores > self.compute,
        }
    }
}
