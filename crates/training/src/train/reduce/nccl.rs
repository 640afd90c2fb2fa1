//! A bucket's sum by the devices themselves, with NCCL.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use backend::{Backend, Buffer, Collective};
use comm::World;

use crate::train::reduce::bucket_sum::{BucketSum, SumStep};
use crate::train::reduce::costs::Timed;
use crate::train::reduce::error::Error;

/// A group of devices that all buckets share.
pub type Group<B> = Arc<Mutex<Box<dyn Collective<B>>>>;

/// The sum of f32 by a group of devices.
pub struct NcclSum<B: Backend>(pub Group<B>);

impl<B: Backend> BucketSum<B> for NcclSum<B> {
    fn sum(&mut self, _: &World, gradients: &mut [B::Buf], _: &SumStep) -> Result<Timed, Error> {
        let start = Instant::now();
        let Some(bucket) = gradients.last_mut() else { return Ok(Timed::in_place(start, 0)) };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).sum(bucket)?;
        Ok(Timed::in_place(start, bucket.len()))
    }
}
