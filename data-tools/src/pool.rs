//! Runs numbered tasks on several threads and returns the results in the order of the tasks.

use crate::error::Error;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// The number of threads for the option `jobs`: 0 means one for each core.
pub(crate) fn threads(jobs: usize) -> usize {
    match jobs {
        0 => thread::available_parallelism().map_or(1, |n| n.get()),
        n => n,
    }
}

/// Runs `task(0)` to `task(tasks - 1)` on at most `jobs` threads (0: one for each core).
///
/// # Errors
/// The error of the lowest-numbered task that failed; no further task is begun then. A panic becomes [`Error::Panic`].
pub(crate) fn run<R: Send>(
    tasks: usize,
    jobs: usize,
    task: impl Fn(usize) -> Result<R, Error> + Sync,
) -> Result<Vec<R>, Error> {
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let (sender, receiver) = crossbeam_channel::unbounded();
    let work = &|sender: crossbeam_channel::Sender<(usize, Result<R, Error>)>| {
        while !failed.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= tasks {
                break;
            }
            let result = panic::catch_unwind(AssertUnwindSafe(|| task(number)))
                .unwrap_or_else(|cause| Err(Error::Panic(message(&*cause))));
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            // The receiver outlives the scope, so the message arrives.
            let _ = sender.send((number, result));
        }
    };
    thread::scope(|scope| {
        for _ in 0..threads(jobs).min(tasks) {
            let sender = sender.clone();
            scope.spawn(move || work(sender));
        }
    });
    drop(sender);
    let mut results: Vec<(usize, Result<R, Error>)> = receiver.iter().collect();
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}

/// The message of a panic.
pub(crate) fn message(cause: &(dyn std::any::Any + Send)) -> String {
    if let Some(text) = cause.downcast_ref::<&str>() {
        text.to_string()
    } else if let Some(text) = cause.downcast_ref::<String>() {
        text.clone()
    } else {
        "no message".to_string()
    }
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
        assert_eq!(error.unwrap_err().to_string(), "a worker thread panicked: ouch 2");
    }
}
