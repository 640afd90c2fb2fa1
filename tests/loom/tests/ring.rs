//! The loader's ring in every interleaving of its threads. Batches come once and in order, no more buffers are made
//! than the ring has slots, and every thread ends.

use std::sync::Arc;

use trireme_loom::error::Error;
use trireme_loom::order::{Job, Order};
use trireme_loom::ring::loader::Loader;
use trireme_loom::ring::options::Options;
use trireme_loom::storage::dataset::Split;
use trireme_loom::transform::Pipeline;
use trireme_loom::{FAULTY, LOST, buffers};

/// Stands for a missing sample in a list of ids: a job with only this id has no samples, as in a short last step.
const NOBODY: u64 = 2000;

/// An order of jobs with up to `each` samples. [`NOBODY`] ids are left out.
struct Samples {
    ids: std::vec::IntoIter<u64>,
    each: usize,
    step: u64,
}

impl Order for Samples {
    fn fill(&mut self, job: &mut Job) -> bool {
        job.ids = self.ids.by_ref().take(self.each).collect();
        if job.ids.is_empty() {
            return false;
        }
        job.ids.retain(|id| *id != NOBODY);
        job.step = self.step;
        self.step += 1;
        true
    }
}

#[derive(Clone, Copy)]
struct Ring {
    threads: usize,
    slots: usize,
    ahead: bool,
    /// Samples in a batch. If `ahead` is false, threads share a batch and each sample is a separate piece of work.
    each: usize,
}

impl Ring {
    fn start(self, ids: &[u64]) -> Loader {
        let Ring { threads, slots, ahead, each } = self;
        let order = Samples { ids: ids.to_vec().into_iter(), each, step: 0 };
        let options = Options { threads, slots, nice: 0, skip: false, ahead };
        Loader::start(Arc::new(Split), Pipeline, Box::new(order), options).unwrap()
    }

    /// Runs `consume` with this ring in every interleaving. No run may create more buffers than there are slots.
    fn check(self, ids: &'static [u64], consume: fn(Loader)) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.max_branches = 10_000;
        model.check(move || {
            buffers();
            consume(self.start(ids));
            let made = buffers();
            assert!(made <= self.slots, "{made} buffers for {} slots", self.slots);
        });
    }
}

fn take_all(mut loader: Loader) {
    let mut taken = 0;
    while let Some(batch) = loader.next().unwrap() {
        assert_eq!((batch.ids()[0], batch.step()), (7 + taken, taken));
        taken += 1;
    }
    assert_eq!(taken, 3);
}

#[test]
fn one_thread() {
    Ring { threads: 1, slots: 2, ahead: false, each: 1 }.check(&[7, 8, 9], take_all);
}

#[test]
fn batches_of_two_threads_come_once_and_in_order() {
    Ring { threads: 2, slots: 2, ahead: false, each: 1 }.check(&[7, 8, 9], take_all);
}

#[test]
fn a_thread_that_takes_its_next_job_early() {
    Ring { threads: 1, slots: 2, ahead: true, each: 1 }.check(&[7, 8, 9], take_all);
}

#[test]
fn two_threads_that_take_their_next_jobs_early() {
    Ring { threads: 2, slots: 3, ahead: true, each: 1 }.check(&[7, 8, 9], take_all);
}

/// Two threads fill parts of the same batch, and the last batch is short. Each sample must occur once and in order.
#[test]
fn pieces_of_a_batch_by_two_threads() {
    Ring { threads: 2, slots: 2, ahead: false, each: 2 }.check(&[7, 8, 9], |mut loader| {
        assert_eq!(loader.next().unwrap().unwrap().ids(), [7, 8]);
        assert_eq!(loader.next().unwrap().unwrap().ids(), [9]);
        assert!(loader.next().unwrap().is_none());
    });
}

/// Both samples of the second batch are invalid. The consumer must get one error for this batch, whether one thread or two fill it.
#[test]
fn errors_of_pieces_come_once_in_their_turn() {
    for threads in [1, 2] {
        Ring { threads, slots: 2, ahead: false, each: 2 }.check(&[7, 8, FAULTY, FAULTY, 9], |mut loader| {
            assert_eq!(loader.next().unwrap().unwrap().ids(), [7, 8]);
            assert!(matches!(loader.next(), Err(Error::Record)));
            assert!(matches!(loader.next(), Err(Error::Stopped)));
        });
    }
}

/// A thread that cannot request its records still gets the signal to end.
#[test]
fn failed_requests_lose_no_end_signal() {
    for threads in [1, 2] {
        Ring { threads, slots: 2, ahead: true, each: 1 }.check(&[7, LOST, LOST, LOST], |mut loader| {
            assert_eq!(loader.next().unwrap().unwrap().ids(), [7]);
            drop(loader);
        });
    }
}

/// If a request for records ahead of time fails, the error belongs to the batch with these records, and earlier batches
/// arrive. If `is_ready` returns true, `next` does not wait.
#[test]
fn requests_that_fail_end_their_own_batch() {
    for threads in [1, 2] {
        Ring { threads, slots: 2, ahead: true, each: 1 }.check(&[7, 8, LOST], |mut loader| {
            for id in [7, 8] {
                let ready = loader.is_ready();
                let waited = loader.stats().wait;
                assert_eq!(loader.next().unwrap().unwrap().ids(), [id]);
                assert!(!ready || loader.stats().wait == waited, "the consumer waited for a batch that was ready");
            }
            assert!(matches!(loader.next(), Err(Error::Record)));
        });
    }
}

/// The loader is dropped while threads may still be filling parts of the second batch.
#[test]
fn threads_end_between_pieces() {
    Ring { threads: 2, slots: 1, ahead: false, each: 2 }.check(&[7, 8, 9, 10], |mut loader| {
        let batch = loader.next().unwrap().unwrap();
        drop(loader);
        assert_eq!(batch.ids(), [7, 8]);
    });
}

/// A batch stays valid after its loader is dropped. At that moment the other slots can be in any state.
#[test]
fn threads_end_with_their_loader() {
    for ahead in [false, true] {
        Ring { threads: 2, slots: 2, ahead, each: 1 }.check(&[7, NOBODY, 9, NOBODY], |mut loader| {
            let batch = loader.next().unwrap().unwrap();
            drop(loader);
            assert_eq!(batch.ids(), [7]);
        });
    }
}

#[test]
fn an_error_comes_in_its_turn_and_ends_all_threads() {
    Ring { threads: 2, slots: 2, ahead: false, each: 1 }.check(&[7, FAULTY, 9, 10], |mut loader| {
        assert_eq!(loader.next().unwrap().unwrap().ids(), [7]);
        assert!(matches!(loader.next(), Err(Error::Record)));
        assert!(matches!(loader.next(), Err(Error::Stopped)));
    });
}

/// Another thread returns the last batch while the consumer asks for the next. The consumer gets the next batch, or the
/// error that it holds all slots, and then gets the batch after the slot is back.
#[test]
fn a_slot_that_comes_back_on_another_thread() {
    Ring { threads: 1, slots: 1, ahead: false, each: 1 }.check(&[7, 8], |mut loader| {
        let first = loader.next().unwrap().unwrap();
        let other = loom::thread::spawn(move || drop(first));
        let second = loader.next();
        other.join().unwrap();
        let second = match second {
            Err(Error::SlotsHeld { slots: 1 }) => loader.next(),
            second => second,
        };
        assert_eq!(second.unwrap().unwrap().ids(), [8]);
    });
}
