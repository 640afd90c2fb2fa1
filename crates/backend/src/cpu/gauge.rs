//! Measures the cores: barrier time, multiply-adds per second, and memory bandwidth.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use base::simd;

use super::buf::AlignedBuf;
use super::device::Cpu;
use super::flat::UNIT;
use super::isa::Isa;
use super::number::Bf16;
use super::threads::{self, Threads};
use super::vector::{Eight, Job, MOST_LANES, Sixteen, SixteenBf16, Vectors, store};
use crate::{Cores, Error, Regions};

/// Number of times that each loop is measured. The result is the fastest time, because other activity on the machine
/// can only slow a loop down.
const REPEATS: usize = 7;

/// Number of empty parallel regions per repeat.
const EMPTY: u32 = 3000;

/// Number of rounds per repeat, which takes some milliseconds.
const ROUNDS: usize = 1_000_000;

/// Elements in each of the three arrays. An array has 128 MB, more than a rank's share of a socket's caches.
const ARRAY: usize = 1 << 25;

/// Adds products to `N` independent sums, [`ROUNDS`] times. `N` is large enough to hide the latency of two multiply-add
/// units, and small enough for the registers.
struct Products<const N: usize>;

impl<const N: usize> Job for Products<N> {
    /// Number of multiplications and additions that the thread has done.
    type Output = usize;

    #[inline(always)]
    fn run<S: Vectors>(self, set: S) -> usize {
        let factor = set.splat(std::hint::black_box(0.5));
        let mut sums = [factor; N];
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = set.in_order(set.product(factor, factor, *sum));
            }
        }
        let total = sums.into_iter().fold(set.zero(), |a, b| set.add(a, b));
        let mut lanes = [0.0; MOST_LANES];
        store(set, total, &mut lanes);
        std::hint::black_box(lanes);
        2 * S::FACTORS * S::LANES * N * ROUNDS
    }
}

/// Works like [`Products`] on processors without AVX2. They have no fused multiply-add, so it multiplies and adds
/// separately.
fn unfused() -> usize {
    const SUMS: usize = 32;
    let factor = std::hint::black_box(0.5f32);
    let mut sums = [factor; SUMS];
    for _ in 0..ROUNDS {
        for sum in &mut sums {
            *sum = *sum * factor + factor;
        }
    }
    std::hint::black_box(sums);
    2 * SUMS * ROUNDS
}

simd! {
    /// Computes the triad of the STREAM benchmark.
    fn triad(a: &mut [f32], b: &[f32], c: &[f32]) {
        for ((a, b), c) in a.iter_mut().zip(b).zip(c) {
            *a = 0.5f32.mul_add(*c, *b);
        }
    }
}

/// Returns the time of the fastest repeat in seconds.
fn fastest(mut work: impl FnMut()) -> f64 {
    let time = |_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    (0..REPEATS).map(time).fold(f64::INFINITY, f64::min)
}

/// Returns the multiplications and additions per second of all threads together. `work` returns the number of
/// operations that it has done.
fn rate(threads: Threads, work: impl Fn() -> usize + Sync) -> f64 {
    let operations = AtomicUsize::new(0);
    let seconds = fastest(|| threads.each(threads.0, |_, _| operations.store(work(), Ordering::Relaxed)));
    (operations.into_inner() * threads.0) as f64 / seconds
}

impl Cores for Cpu {
    fn threads(&self) -> usize {
        self.threads.0
    }

    fn regions(&self) -> Regions {
        threads::regions()
    }

    fn barrier(&self) -> f64 {
        let empty =
            || (0..EMPTY).for_each(|_| self.threads.each(self.threads.0, |thread, _| _ = std::hint::black_box(thread)));
        fastest(empty) / f64::from(EMPTY)
    }

    fn peak(&self) -> f64 {
        let wide = self.isa >= Isa::Avx512;
        if let (true, Some(set)) = (self.bf16 == Some(Bf16::Native), SixteenBf16::detect()) {
            return rate(self.threads, || set.run(Products::<16>));
        }
        match (Sixteen::detect().filter(|_| wide), Eight::detect().filter(|_| self.isa.has_fma())) {
            (Some(set), _) => rate(self.threads, || set.run(Products::<16>)),
            (None, Some(set)) => rate(self.threads, || set.run(Products::<12>)),
            (None, None) => rate(self.threads, unfused),
        }
    }

    fn bandwidth(&self, threads: usize) -> Result<f64, Error> {
        let threads = Threads(threads.clamp(1, self.threads.0));
        let array = || AlignedBuf::touched_by(threads, ARRAY, "the measurement of memory bandwidth");
        let (mut a, b, c) = (array()?, array()?, array()?);
        let (b, c) = (b.as_slice(), c.as_slice());
        let once = || {
            threads.split(a.as_mut_slice(), UNIT, |unit, run| {
                let first = unit * UNIT;
                triad(run, &b[first..][..run.len()], &c[first..][..run.len()]);
            });
        };
        Ok((3 * 4 * ARRAY) as f64 / fastest(once))
    }
}
