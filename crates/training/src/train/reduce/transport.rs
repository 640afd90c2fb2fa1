//! How gradients come from this rank's device to the others' and back.

use backend::Backend;
use comm::codec::{Bucket, FLOAT, Settings};
use recipe::TransportSetting;

use crate::error::Error;
use crate::train::reduce::bucket_sum::BucketSum;
use crate::train::reduce::host::HostSum;
use crate::train::reduce::mpi::MpiSum;
use crate::train::reduce::nccl::{Group, NcclSum};

/// A way for a bucket to travel.
pub enum Transport<B: Backend> {
    /// Copied to the host, as f32 or as codes, summed there by MPI, copied back.
    Host,
    /// Summed by MPI in device memory.
    Mpi,
    /// Summed by the devices with NCCL.
    Nccl(Group<B>),
}

/// How buckets travel, as settled before the first step.
pub struct TransportPlan<B: Backend> {
    /// Whether they leave while backward goes on.
    pub overlap: bool,
    /// Where and how they are summed.
    pub transport: Transport<B>,
}

impl<B: Backend> Transport<B> {
    /// Its name in recipes and in the log.
    pub fn name(&self) -> &'static str {
        match self {
            Transport::Host => "staged",
            Transport::Mpi => "cuda-aware",
            Transport::Nccl(_) => "nccl",
        }
    }

    /// The planned sums, or those of f32 in device memory in their place.
    pub fn carry(&self, planned: Vec<Box<dyn BucketSum<B>>>) -> Vec<Box<dyn BucketSum<B>>> {
        match self {
            Transport::Host => planned,
            _ => planned.iter().map(|_| self.in_place()).collect(),
        }
    }

    /// The sum of a bucket of so many f32 by this transport, for a trial.
    pub fn float_sum(&self, len: usize) -> Box<dyn BucketSum<B>> {
        match self {
            Transport::Host => {
                Box::new(HostSum::new(&FLOAT, Bucket { len, tensors: Vec::new() }, &Settings::plain(1), 0..1))
            }
            _ => self.in_place(),
        }
    }

    fn in_place(&self) -> Box<dyn BucketSum<B>> {
        match self {
            Transport::Nccl(group) => Box::new(NcclSum(group.clone())),
            _ => Box::new(MpiSum),
        }
    }
}

/// Refuses transports that this device, or this codec, has not.
pub fn check(transport: TransportSetting, codec: &str, queues: bool) -> Result<(), Error> {
    let forced = matches!(transport, TransportSetting::CudaAware | TransportSetting::Nccl);
    if forced && !queues {
        return Err(Error::Usage(format!(
            "reduce.path = \"{transport}\" is for GPUs: leave it out, or compute with --device cuda"
        )));
    }
    if forced && codec != FLOAT.name {
        return Err(Error::Usage(format!(
            "reduce.path = \"{transport}\" adds f32 where they lie, and reduce.codec = \"{codec}\" sends other numbers; leave \
             reduce.path out, or use reduce.codec = \"{}\"",
            FLOAT.name
        )));
    }
    Ok(())
}
