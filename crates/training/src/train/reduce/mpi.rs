//! A bucket's sum by MPI in device memory, without a copy to the host.

use std::time::Instant;

use backend::{Backend, Buffer};
use comm::World;

use crate::train::reduce::bucket_sum::{BucketSum, SumStep};
use crate::train::reduce::costs::Timed;
use crate::train::reduce::error::Error;

/// The sum of f32 by an MPI library that takes device memory.
pub struct MpiSum;

impl<B: Backend> BucketSum<B> for MpiSum {
    fn sum(&mut self, world: &World, gradients: &mut [B::Buf], _: &SumStep) -> Result<Timed, Error> {
        let start = Instant::now();
        let Some(bucket) = gradients.last_mut() else { return Ok(Timed::in_place(start, 0)) };
        let elements = bucket.len();
        let mut region = bucket.region()?.ok_or_else(no_region)?;
        world.sum_region(&mut region)?;
        Ok(Timed::in_place(start, elements))
    }
}

fn no_region() -> backend::Error {
    let why = "no library can be given this device's memory; use reduce.path = \"staged\"".into();
    backend::Error::Unsupported { op: "the sum of gradients".into(), why }
}
