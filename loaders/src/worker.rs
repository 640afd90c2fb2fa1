//! A loader thread: takes a free slot, then the next job, fills the slot whole and passes it on.
//! Delivery in order is the consumer's matter (`loader`).

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_channel::{Receiver, Sender};

use crate::dataset::Split;
use crate::error::Error;
use crate::nice;
use crate::order::{Job, Order};
use crate::record::OVERHEAD;
use crate::transform::{Pipeline, Scratch};

/// One batch's memory. It grows to the largest batch and then stays.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub job: Job,
    /// (N, C, H, W); at least as long as the job needs.
    pub images: Vec<f32>,
    pub labels: Vec<u32>,
    /// Bytes of the records read.
    pub bytes: u64,
}

/// What comes to the threads.
pub(crate) enum Token {
    Slot(Slot),
    /// To one thread: end.
    Stop,
}

/// What comes from the threads.
pub(crate) struct Filled {
    /// Position in the order; `None` for a failure outside of any job.
    pub number: Option<u64>,
    pub result: Result<Slot, Error>,
}

/// What all threads of a loader share.
pub(crate) struct Shared {
    split: Arc<Split>,
    pipeline: Pipeline,
    jobs: Mutex<Jobs>,
    stop: AtomicBool,
}

struct Jobs {
    order: Box<dyn Order>,
    /// Jobs handed out.
    count: u64,
    ended: bool,
}

/// Why a thread has no batch to pass on.
enum Outcome {
    Filled,
    /// The order has ended, or the loader stops.
    Over,
}

impl Shared {
    pub fn new(split: Arc<Split>, pipeline: Pipeline, order: Box<dyn Order>) -> Self {
        Self { split, pipeline, jobs: Mutex::new(Jobs { order, count: 0, ended: false }), stop: AtomicBool::new(false) }
    }

    /// Tells threads to end at the next sample.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// The number of jobs, once the order has ended.
    pub fn ended_after(&self) -> Option<u64> {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.ended.then_some(jobs.count)
    }

    /// Puts the next job into `job` and returns its number; `None` when there is none left.
    fn take_job(&self, job: &mut Job) -> Option<u64> {
        // A panic in the order's code reaches the consumer by the thread that had it; the others
        // need not trust the order afterwards, since the consumer stops them.
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if jobs.ended || !jobs.order.fill(job) {
            jobs.ended = true;
            return None;
        }
        jobs.count += 1;
        Some(jobs.count - 1)
    }

    fn fill(&self, slot: &mut Slot, scratch: &mut Scratch, number: &mut Option<u64>) -> Result<Outcome, Error> {
        *number = self.take_job(&mut slot.job);
        if number.is_none() {
            return Ok(Outcome::Over);
        }
        let values = self.pipeline.output().values();
        let needed = slot.job.ids.len() * values;
        if slot.images.len() < needed {
            slot.images.resize(needed, 0.0);
        }
        slot.labels.clear();
        slot.bytes = 0;
        for (i, &id) in slot.job.ids.iter().enumerate() {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(Outcome::Over);
            }
            let (shard, record) = self.split.locate(id)?;
            let payload = shard.record(record)?;
            let (example, label) = self.split.read(shard, record, payload)?;
            let image = &mut slot.images[i * values..][..values];
            self.pipeline
                .run(&example, id, slot.job.epoch, scratch, image)
                .map_err(|fault| shard.fault(record, fault))?;
            slot.labels.push(label);
            slot.bytes += payload.len() as u64 + OVERHEAD;
        }
        Ok(Outcome::Filled)
    }
}

/// The life of one thread. It ends when told to, after the last job, or after passing on an error;
/// a panic is an error like any other.
pub(crate) fn work(
    shared: &Shared,
    thread: usize,
    nice: i32,
    free_in: &Sender<Token>,
    free_out: &Receiver<Token>,
    ready: &Sender<Filled>,
) {
    if nice > 0
        && let Err(source) = nice::lower_current_thread(nice)
    {
        let result = Err(Error::Nice { nice, source });
        // If nobody listens any more, there is nobody to tell.
        let _ = ready.send(Filled { number: None, result });
        return;
    }
    let mut scratch = Scratch::default();
    while let Ok(Token::Slot(mut slot)) = free_out.recv() {
        let mut number = None;
        let outcome = catch_unwind(AssertUnwindSafe(|| shared.fill(&mut slot, &mut scratch, &mut number)));
        let result = match outcome {
            Ok(Ok(Outcome::Filled)) => Ok(slot),
            Ok(Ok(Outcome::Over)) => {
                // So that a thread which waits for a slot learns of the end, too.
                let _ = free_in.try_send(Token::Slot(slot));
                return;
            }
            Ok(Err(error)) => Err(error),
            Err(panic) => Err(Error::Panic { thread, message: message(&*panic) }),
        };
        let failed = result.is_err();
        if ready.send(Filled { number, result }).is_err() || failed {
            return;
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "no message".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_messages() {
        let of = |panic: Box<dyn Any + Send>| message(&*panic);
        assert_eq!(of(Box::new("text")), "text");
        assert_eq!(of(Box::new(String::from("string"))), "string");
        assert_eq!(of(Box::new(7)), "no message");
    }
}
