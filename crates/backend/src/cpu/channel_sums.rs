//! Sums over a batch of which each thread makes its part: f64 for each channel, padding included.

use super::threads::{Shared, Threads};

/// Each thread's part of some sums a channel.
pub(super) struct ChannelSums {
    threads: Threads,
    /// Sums of one thread.
    each: usize,
    parts: Vec<f64>,
}

impl ChannelSums {
    /// Of `each` sums.
    pub fn new(threads: Threads, each: usize) -> Self {
        Self { threads, each, parts: vec![0.0; threads.0 * each] }
    }

    /// Bytes of work space.
    pub fn bytes(&self) -> usize {
        self.parts.len() * 8
    }

    /// `f(items, their part of the sums)` on each thread for its run of samples or channel blocks; the parts are added in the order of the
    /// threads.
    pub fn of(&mut self, items: usize, f: impl Fn(std::ops::Range<usize>, &mut [f64]) + Sync) -> Vec<f64> {
        self.parts.fill(0.0);
        let (parts, each) = (Shared::new(&mut self.parts), self.each);
        self.threads.each(items, |t, items| {
            // SAFETY: each thread has a part of its own, and `parts` is borrowed until `each` returns.
            f(items, unsafe { parts.part(t * each..(t + 1) * each) });
        });
        (0..each).map(|i| self.parts[i..].iter().step_by(each).sum()).collect()
    }
}
