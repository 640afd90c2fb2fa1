//! Batch normalisation over all ranks: its sums are operations of [`Comm`] like those of the gradients, so their order is the same on
//! all ranks.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use backend::{Across, Error};
use comm::Comm;

/// All ranks of the run.
pub struct AllRanks {
    comm: Comm,
    waited: Waited,
}

/// Time of this rank in such sums since it was last taken.
pub type Waited = Rc<Cell<Duration>>;

impl AllRanks {
    /// Adds the time of its sums to `waited`.
    pub fn new(comm: Comm, waited: Waited) -> Self {
        Self { comm, waited }
    }
}

impl Across for AllRanks {
    fn sum(&self, values: &mut [f64]) -> Result<(), Error> {
        let start = Instant::now();
        let sum = self.comm.run("sum of batch statistics", |world| world.sum_f64(values));
        self.waited.set(self.waited.get() + start.elapsed());
        sum.map_err(|error| Error::Across { why: error.to_string() })
    }
}
