//! Shares work between threads.

use std::sync::Mutex;
use std::thread::{Builder, scope};

use base::lock;

/// Calls `work` for each item of `parts` on `threads` threads, including the calling thread. Uses fewer threads if the
/// system does not start more.
pub fn on_threads<P>(threads: usize, parts: impl Iterator<Item = P> + Send, work: impl Fn(P) + Sync) {
    let parts = Mutex::new(parts);
    // The lock is held only while a part is taken.
    let next = || lock(&parts).next();
    let run = || {
        while let Some(part) = next() {
            work(part);
        }
    };
    scope(|scope| {
        for _ in 1..threads {
            // If a thread cannot be started, the other threads do its part.
            let _ = Builder::new().spawn_scoped(scope, run);
        }
        run();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_threads_runs_every_part_once() {
        for threads in [0, 1, 2, 5] {
            let mut done = [0u8; 100];
            on_threads(threads, done.iter_mut(), |part| *part += 1);
            assert_eq!(done, [1; 100]);
        }
    }
}
