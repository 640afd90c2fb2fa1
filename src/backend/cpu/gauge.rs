//! Measures the cores: what a barrier costs, how fast they multiply and add, how fast memory is.

use std::time::Instant;

use super::buf::AlignedBuf;
use super::device::Cpu;
use super::flat::UNIT;
use super::regions;
use super::threads::Threads;
use crate::backend::{Cores, Error, Regions};
use crate::simd::{self, Level, simd};

/// What a loop is measured for; the fastest counts, as what disturbs it is no part of the machine.
const REPEATS: usize = 7;

/// Empty regions of a repeat.
const EMPTY: u32 = 3000;

/// Rounds of a repeat: some milliseconds.
const ROUNDS: usize = 1_000_000;

/// Elements of a vector of 512 bits, or of two of 256.
const LANES: usize = 16;

/// Elements of each of the three arrays: 128 MB, beyond the caches of a socket's share.
const ARRAY: usize = 1 << 25;

type Lanes = [f32; LANES];

/// `x factor + factor`: stays where it is for a half.
#[inline(always)]
fn step(mut lanes: Lanes, factor: f32) -> Lanes {
    for x in &mut lanes {
        *x = x.mul_add(factor, factor);
    }
    lanes
}

simd! {
    fn multiply_add<N: usize>(sums: [Lanes; N], factor: f32, rounds: usize) -> [Lanes; N] {
        let mut sums = sums;
        for _ in 0..rounds {
            for lanes in &mut sums {
                *lanes = step(*lanes, factor);
            }
        }
        sums
    }
}

simd! {
    /// STREAM's triad.
    fn triad(a: &mut [f32], b: &[f32], c: &[f32]) {
        for ((a, b), c) in a.iter_mut().zip(b).zip(c) {
            *a = 0.5f32.mul_add(*c, *b);
        }
    }
}

/// Seconds of the fastest repeat.
fn fastest(mut work: impl FnMut()) -> f64 {
    let time = |_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    (0..REPEATS).map(time).fold(f64::INFINITY, f64::min)
}

/// Multiplications and additions a second of all threads, of so many vectors side by side.
fn peak<const N: usize>(threads: Threads) -> f64 {
    let work = |_, _| {
        let sums = std::hint::black_box([[1.0; LANES]; N]);
        std::hint::black_box(multiply_add::<N>(sums, std::hint::black_box(0.5), ROUNDS));
    };
    let operations = 2 * LANES * N * ROUNDS * threads.0;
    operations as f64 / fastest(|| threads.each(threads.0, work))
}

impl Cores for Cpu {
    fn threads(&self) -> usize {
        self.threads.0
    }

    fn regions(&self) -> Regions {
        regions::so_far()
    }

    fn barrier(&self) -> f64 {
        let empty =
            || (0..EMPTY).for_each(|_| self.threads.each(self.threads.0, |thread, _| _ = std::hint::black_box(thread)));
        fastest(empty) / f64::from(EMPTY)
    }

    fn peak(&self) -> f64 {
        // as many sums side by side as hide the latency of two units, and as there are registers for
        match simd::level() {
            Level::Avx512 => peak::<8>(self.threads),
            Level::Avx2 | Level::Base => peak::<6>(self.threads),
        }
    }

    fn bandwidth(&self, threads: usize) -> Result<f64, Error> {
        let threads = Threads(threads.clamp(1, self.threads.0));
        let array = || AlignedBuf::touched_by(threads, ARRAY, "the measurement of memory");
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
