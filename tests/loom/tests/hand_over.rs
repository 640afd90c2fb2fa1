//! The hand-over between training and the thread that writes checkpoints, in every interleaving. Each job is done once,
//! its answer comes back, and a job in progress is finished before the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use trireme_loom::hand_over::HandOver;

/// Runs `train` in every interleaving with a thread that squares numbers, and checks how many it has squared.
fn check(train: fn(HandOver<u64, u64>), expected: usize) {
    loom::model(move || {
        let (begun, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (begin, work) = (Arc::clone(&begun), Arc::clone(&done));
        let square = move |job: u64| {
            work.fetch_add(1, Ordering::SeqCst);
            job * job
        };
        let begin = move || {
            begin.fetch_add(1, Ordering::SeqCst);
        };
        train(HandOver::start("checkpoint", begin, square).unwrap());
        assert_eq!((begun.load(Ordering::SeqCst), done.load(Ordering::SeqCst)), (1, expected));
    });
}

#[test]
fn answers_come_back_one_by_one() {
    check(
        |mut thread| {
            for job in [3, 4] {
                assert!(!thread.is_busy() && thread.poll(true).is_none());
                thread.give(job).ok().unwrap();
                assert!(thread.is_busy());
                let answer = thread.poll(false).or_else(|| thread.poll(true));
                assert_eq!((answer, thread.is_busy()), (Some(job * job), false));
            }
        },
        2,
    );
}

#[test]
fn a_job_under_way_is_finished() {
    check(|mut thread| thread.give(5).ok().unwrap(), 1);
}

#[test]
fn a_thread_without_jobs_ends() {
    check(drop, 0);
}
