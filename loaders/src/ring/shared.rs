//! What all threads of a loader share.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use crate::order::{Job, Order};
use crate::ring::pixel_format::PixelFormat;
use crate::ring::reader::ReadRequest;
use crate::ring::slot::FreeSlots;
use crate::ring::totals::Totals;
use crate::storage::open_shards::OpenShards;
use crate::sync::{AtomicBool, Mutex, Sender};
use crate::transform::Pipeline;

/// What all threads of a loader share.
pub(crate) struct Shared {
    pub shards: Arc<OpenShards>,
    pub pipeline: Pipeline,
    pub jobs: Mutex<Jobs>,
    pub free: Arc<FreeSlots>,
    pub totals: Totals,
    pub format: PixelFormat,
    /// Whether a record that cannot be used is left out.
    pub skip: bool,
    /// To the reader threads.
    pub requests: Sender<ReadRequest>,
    pub stop: AtomicBool,
}

/// The order, and how much of it has been handed out.
pub(crate) struct Jobs {
    order: Box<dyn Order>,
    /// Jobs handed out.
    count: u64,
    ended: bool,
}

impl Jobs {
    /// All jobs of an order.
    pub fn new(order: Box<dyn Order>) -> Mutex<Self> {
        Mutex::new(Self { order, count: 0, ended: false })
    }

    /// Puts the next job into `job` and returns its number; `None` after the last.
    fn take(&mut self, job: &mut Job) -> Option<u64> {
        if self.ended || !self.order.fill(job) {
            self.ended = true;
            return None;
        }
        self.count += 1;
        Some(self.count - 1)
    }
}

impl Shared {
    /// Tells threads to end at the next sample.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether threads are to end.
    pub fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Sends a request to the reader threads.
    pub fn request(&self, request: ReadRequest) {
        // a failure means that there are none, or none left
        let _ = self.requests.send(request);
    }

    /// The number of jobs, once the order has ended.
    pub fn ended_after(&self) -> Option<u64> {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.ended.then_some(jobs.count)
    }

    /// Puts the next job into `job`, requests the shards that come up soon, and returns the job's number; `None` after the last.
    pub fn take_job(&self, job: &mut Job) -> Option<u64> {
        // After a panic in the order's code its thread reports the panic and the consumer stops the others, so a poisoned lock does
        // no harm.
        let number = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take(job)?;
        job.ahead.drain(..).filter(|_| self.reads()).for_each(|shard| self.request(ReadRequest::Shard(shard)));
        Some(number)
    }

    /// Whether records are read at all.
    pub fn reads(&self) -> bool {
        !matches!(self.format, PixelFormat::CropRects { .. })
    }
}
