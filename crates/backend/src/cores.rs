//! What the cores behind a device can do, for benches, and how often the device brings its threads together.

use std::ops::{AddAssign, Sub};

use super::error::Error;

/// Parallel regions: all threads start, and the region ends when the last one is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Regions {
    /// Loops of our own.
    pub own: u64,
    /// Executions of a library's primitives; each is one region at least.
    pub library: u64,
}

impl Regions {
    /// Both.
    pub fn all(self) -> u64 {
        self.own + self.library
    }
}

impl AddAssign for Regions {
    fn add_assign(&mut self, other: Self) {
        self.own += other.own;
        self.library += other.library;
    }
}

impl Sub for Regions {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { own: self.own - other.own, library: self.library - other.library }
    }
}

/// The cores of a device that computes with threads of this process.
pub trait Cores {
    /// Compute threads.
    fn threads(&self) -> usize;

    /// Regions of the calling thread so far; with one thread, those that several would have.
    fn regions(&self) -> Regions;

    /// Seconds of a region with nothing in it.
    fn barrier(&self) -> f64;

    /// Multiply-adds in registers, of bf16 where products are of pairs of them, else of f32: operations a second of all threads together,
    /// a multiply-add counted as two.
    fn peak(&self) -> f64;

    /// Bytes a second that so many of the threads together read and write in arrays far larger than caches (two read, one written).
    fn bandwidth(&self, threads: usize) -> Result<f64, Error>;
}
