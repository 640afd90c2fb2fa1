//! Runs numbered tasks on several threads and returns the results in the order of the tasks.

use crate::error::Error;
pub(crate) use base::lock;
use loaders::stall::outside;
use loaders::{guarded_with, on_threads};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Resolves the option `jobs`: 0 means one thread per core.
pub(crate) fn threads(jobs: usize) -> usize {
    match jobs {
        0 => thread::available_parallelism().map_or(1, |n| n.get()),
        n => n,
    }
}

/// Runs `task(0)` to `task(tasks - 1)` on at most `jobs` threads, including the calling thread. 0 means one thread per
/// core. Uses fewer threads if the system cannot create them. Returns the error of the lowest-numbered task that
/// failed. No further task starts after a failure. A panic becomes [`Error::Panic`].
pub(crate) fn run<R: Send>(
    tasks: usize,
    jobs: usize,
    task: impl Fn(usize) -> Result<R, Error> + Sync,
) -> Result<Vec<R>, Error> {
    let failed = AtomicBool::new(false);
    let (sender, receiver) = crossbeam_channel::unbounded();
    // Tasks start in order and a started task always finishes. So all tasks before a failed one have a result.
    let numbers = (0..tasks).take_while(|_| !failed.load(Ordering::Relaxed));
    let work = |number| {
        let result = guarded_with(|| task(number), Error::Panic);
        failed.fetch_or(result.is_err(), Ordering::Relaxed);
        // Cannot fail: the receiver outlives the threads.
        let _ = sender.send((number, result));
    };
    outside(|| on_threads(threads(jobs).min(tasks), numbers, work));
    drop(sender);
    let mut results: Vec<(usize, Result<R, Error>)> = receiver.iter().collect();
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order() {
        for jobs in [0, 1, 2, 5, 100] {
            let got = run(20, jobs, |n| Ok(n * n)).unwrap();
            let expected: Vec<usize> = (0..20).map(|n| n * n).collect();
            assert_eq!(got, expected);
        }
        assert!(run(0, 3, Ok).unwrap().is_empty());
    }

    #[test]
    fn an_error_and_a_panic_come_back() {
        let error = run(50, 4, |n| match n {
            7 => Err(Error::Usage("seven".into())),
            _ => Ok(n),
        });
        assert_eq!(error.unwrap_err().to_string(), "seven");
        let error = run(3, 2, |n| if n == 2 { panic!("ouch {n}") } else { Ok(n) });
        assert!(matches!(error.unwrap_err(), Error::Panic(text) if text.contains("ouch 2")));
    }
}
