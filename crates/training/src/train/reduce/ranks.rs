//! Sums over the ranks, as the strategies need them.

use backend::Error;
use comm::Comm;

use crate::train::agree::session::Session;

/// Sums over the ranks.
pub trait RankSum {
    /// Replaces `values` by their sum over all ranks.
    fn sum(&mut self, values: &mut [f32]) -> Result<(), Error>;

    /// The same in double precision.
    fn sum_f64(&mut self, values: &mut [f64]) -> Result<(), Error>;

    /// Number of ranks.
    fn ranks(&self) -> usize;
}

/// All ranks of the run, by MPI.
pub struct MpiRanks {
    comm: Comm,
    ranks: usize,
}

impl MpiRanks {
    /// Those of the session.
    pub fn of(session: &Session) -> Self {
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
