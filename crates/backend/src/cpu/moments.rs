//! Sums per channel over a batch, and the moments of a tensor's channels. A convolution can sum the moments of its
//! output while it writes.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use super::divide::{Divide, PerThread};
use super::threads::Threads;

/// Sums of (x - reference) and (x - reference)^2 over some values x of a channel. `reference` is the mean of a few
/// values, so the sums are accurate even if all values are far from zero.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moments {
    pub n: f64,
    pub reference: f32,
    pub offsets: f64,
    pub squares: f64,
}

impl Moments {
    /// Adds the sums over more values of the same channel.
    #[inline(always)]
    pub fn add(&mut self, other: &Self) {
        if self.n == 0.0 {
            *self = *other;
            return;
        }
        let step = if other.n == 0.0 { 0.0 } else { f64::from(other.reference) - f64::from(self.reference) };
        self.n += other.n;
        self.offsets += other.offsets + other.n * step;
        self.squares += other.squares + step * (2.0 * other.offsets + other.n * step);
    }
}

/// Moments of a convolution's output, for the batch norm that is its only reader.
pub(super) struct OutputMoments {
    pub conv: String,
    requested: Cell<bool>,
    /// The last batch's moments for all channels, including padding, until they are read.
    of_channels: RefCell<Option<Vec<Moments>>>,
}

impl OutputMoments {
    pub fn new(conv: &str) -> Self {
        Self { conv: conv.into(), requested: Cell::new(false), of_channels: RefCell::default() }
    }

    /// Requests the moments from the convolution.
    pub fn request(&self) {
        self.requested.set(true);
    }

    pub fn are_requested(&self) -> bool {
        self.requested.get()
    }

    /// Adds up `parts` in order and stores the result. Each part has the moments of all channels.
    pub fn put(&self, parts: &[Moments], channels: usize) {
        let mut parts = parts.chunks_exact(channels);
        let mut all = parts.next().map_or_else(Vec::new, <[_]>::to_vec);
        parts.for_each(|part| all.iter_mut().zip(part).for_each(|(all, part)| all.add(part)));
        self.of_channels.replace(Some(all));
    }

    /// Returns the moments of the last batch and removes them.
    pub fn take(&self) -> Option<Vec<Moments>> {
        self.of_channels.take()
    }
}

/// Sums per channel, with a part for each thread.
pub(super) struct ChannelSums {
    threads: Threads,
    /// Number of sums that each thread has.
    each: usize,
    parts: Vec<f64>,
}

impl ChannelSums {
    pub fn new(threads: Threads, each: usize) -> Self {
        Self { threads, each, parts: vec![0.0; threads.0 * each] }
    }

    pub fn bytes(&self) -> usize {
        self.parts.len() * 8
    }

    /// Divides the items (samples or channel blocks) among the threads and calls `f(items, the thread's sums, the
    /// thread's part of `others`)` on each. Returns the sums of all threads, added in the order of the threads.
    pub fn compute<P: Divide>(
        &mut self,
        items: usize,
        others: P,
        f: impl Fn(Range<usize>, &mut [f64], P::Part) + Sync,
    ) -> Vec<f64> {
        let each = self.each;
        let parts = (PerThread::new(&mut self.parts, each), others);
        self.threads.divide(items, parts, |items, (sums, others)| {
            sums.fill(0.0);
            f(items, sums, others);
        });
        let threads: Vec<usize> = self.threads.with_items(items).collect();
        (0..each).map(|i| threads.iter().map(|thread| self.parts[thread * each + i]).sum()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f32]) -> Moments {
        let reference = values[0];
        let offsets = || values.iter().map(|x| f64::from(*x) - f64::from(reference));
        let squares = offsets().map(|d| d * d).sum();
        Moments { n: values.len() as f64, reference, offsets: offsets().sum(), squares }
    }

    #[test]
    fn adding_moments_of_parts_equals_moments_of_all_values() {
        for mean in [0.0, 1e4, -3e6] {
            let values: Vec<f32> = (0..64).map(|i| mean + (i * 7 % 64) as f32 - 20.0).collect();
            let whole = of(&values);
            let variance = |m: &Moments| (m.squares - m.offsets * m.offsets / m.n) / m.n;
            for cut in [1, 5, 32, 63] {
                let mut parts = Moments::default();
                values.chunks(cut).for_each(|part| parts.add(&of(part)));
                parts.add(&Moments::default());
                assert_eq!((parts.n, parts.reference), (64.0, values[0]));
                assert_eq!(parts.offsets, whole.offsets);
                assert!((variance(&parts) - variance(&whole)).abs() < 1e-9, "{mean} {cut}");
                assert!((variance(&whole) - 4095.0 / 12.0).abs() < 1e-9);
            }
        }
    }

    #[test]
    fn sums_of_an_earlier_batch_do_not_count() {
        let mut all = ChannelSums::new(Threads(3), 2);
        let mut count = |items| all.compute(items, (), |items, sums, ()| sums[1] += items.len() as f64);
        assert_eq!(count(7), [0.0, 7.0]);
        assert_eq!(count(2), [0.0, 2.0]);
    }

    #[test]
    fn take_returns_the_moments_only_once() {
        let moments = OutputMoments::new("conv");
        assert!(!moments.are_requested() && moments.take().is_none());
        moments.request();
        moments.put(&[of(&[1.0]), of(&[2.0]), of(&[3.0]), of(&[5.0, 6.0])], 2);
        let channels = moments.take().unwrap();
        assert!(moments.are_requested() && moments.take().is_none());
        assert_eq!(
            channels.iter().map(|c| (c.n, c.reference, c.offsets)).collect::<Vec<_>>(),
            [(2.0, 1.0, 2.0), (3.0, 2.0, 7.0)]
        );
    }
}
