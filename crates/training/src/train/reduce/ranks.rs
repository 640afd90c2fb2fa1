//! Sums over the ranks, for the strategies and for batch norm over all ranks. They are operations of [`Comm`], as the
//! gradient sums are, so that all ranks run them in the same order.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use backend::{Across, Error};
use comm::Comm;

use crate::train::agree::Session;

pub trait RankSum {
    /// Replaces `values` by their sum over all ranks.
    fn sum(&mut self, values: &mut [f32]) -> Result<(), Error>;

    /// Works like [`RankSum::sum`], in double precision.
    fn sum_f64(&mut self, values: &mut [f64]) -> Result<(), Error>;

    fn ranks(&self) -> usize;
}

pub struct MpiRanks {
    comm: Comm,
    ranks: usize,
}

impl MpiRanks {
    /// Uses the ranks of the session.
    pub fn new(session: &Session) -> Self {
        Self { comm: session.comm.clone(), ranks: session.world.size }
    }
}

impl RankSum for MpiRanks {
    fn sum(&mut self, values: &mut [f32]) -> Result<(), Error> {
        self.comm.run("sum of parameters", |world| world.sum_f32(values)).map_err(failed)
    }

    fn sum_f64(&mut self, values: &mut [f64]) -> Result<(), Error> {
        self.comm.run("sum of statistics", |world| world.sum_f64(values)).map_err(failed)
    }

    fn ranks(&self) -> usize {
        self.ranks
    }
}

fn failed(error: comm::Error) -> Error {
    Error::Across { why: error.to_string() }
}

// Batch norm over all ranks. Its sums are operations of [`Comm`], as the gradient sums are, so that all ranks run them
// in the same order.

pub struct AllRanks {
    comm: Comm,
    waited: Waited,
}

/// How long this rank has spent in these sums since the value was last read.
pub type Waited = Rc<Cell<Duration>>;

impl AllRanks {
    /// Creates the sums. Their time is added to `waited`.
    pub fn new(comm: Comm, waited: Waited) -> Self {
        Self { comm, waited }
    }
}

impl Across for AllRanks {
    fn sum(&self, values: &mut [f64]) -> Result<(), Error> {
        let start = Instant::now();
        let sum = self.comm.run("sum of batch statistics", |world| world.sum_f64(values));
        self.waited.set(self.waited.get() + start.elapsed());
        sum.map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_sum_is_named() {
        let text = failed(comm::Error::Finished { what: "sum of parameters" }).to_string();
        assert!(text.starts_with("sum of parameters: "), "{text}");
    }
}
