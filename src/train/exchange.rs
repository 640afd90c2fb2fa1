//! Sums over all ranks: gradient chunks as backward finishes them, and the step's small sums.

use std::time::{Duration, Instant};

use super::Error;
use super::costs::{MEASURED, Measured};
use super::reduction::Reduction;
use crate::backend::{Backend, Buffer};
use crate::comm::codec::{Costs, Key, Reducer, Share, fixed};
use crate::comm::{self, Comm, Pending};
use crate::nn::{Gather, Graph};
use crate::report;

/// The codec that others are compared with.
const FLOAT: &str = "float";

/// The gradients' way to the other ranks and back.
pub struct Exchange<B: Backend> {
    comm: Comm,
    ranks: usize,
    root: bool,
    /// This rank's workers.
    mine: std::ops::Range<usize>,
    /// V.
    workers: usize,
    codec: &'static str,
    integer: bool,
    gather: Gather,
    seed: u64,
    /// Whether chunks leave while backward goes on; else all leave at its end, where no core is spare for MPI.
    overlap: bool,
    /// One a chunk; those under way are not here.
    reducers: Vec<Option<Reducer>>,
    step: u64,
    held: Vec<(usize, Vec<B::Buf>)>,
    pending: Vec<(usize, Pending<Arrived<B>>)>,
    waited: Duration,
    costs: Costs,
    measured: Measured,
}

/// What comes back from the thread that owns MPI.
struct Arrived<B: Backend> {
    gradients: Vec<B::Buf>,
    reducer: Reducer,
    costs: Costs,
}

impl<B: Backend> Exchange<B> {
    /// Over all ranks of `comm`, as planned, for the rank with these workers.
    pub fn new(
        comm: Comm,
        (rank, ranks): (usize, usize),
        overlap: bool,
        mine: std::ops::Range<usize>,
        plan: &mut Reduction,
    ) -> Self {
        Self {
            comm,
            ranks,
            root: rank == 0,
            mine,
            workers: plan.settings.workers,
            codec: plan.entry.name,
            integer: plan.entry.integer,
            gather: plan.gather(),
            seed: plan.seed,
            overlap,
            reducers: std::mem::take(&mut plan.reducers).into_iter().map(Some).collect(),
            step: 0,
            held: Vec::new(),
            pending: Vec::new(),
            waited: Duration::ZERO,
            costs: Costs::default(),
            measured: Measured::default(),
        }
    }

    /// Begins the exchange of the step after `done` others.
    pub fn begin(&mut self, done: u64) {
        self.step = done;
        self.costs = Costs::default();
    }

    /// Whether anything goes through the codec: float has nothing to do on one rank.
    fn travels(&self) -> bool {
        self.ranks > 1 || self.gather == Gather::Apart
    }

    /// Takes a finished chunk of gradients.
    pub fn ready(&mut self, chunk: usize, gradients: Vec<B::Buf>) -> Result<(), Error> {
        if self.overlap && self.travels() {
            self.start(chunk, gradients)
        } else {
            self.held.push((chunk, gradients));
            Ok(())
        }
    }

    fn start(&mut self, chunk: usize, mut gradients: Vec<B::Buf>) -> Result<(), Error> {
        let mut reducer = self.reducers[chunk]
            .take()
            .ok_or_else(|| Error::Failed(format!("gradient chunk {chunk} was handed over twice in one step")))?;
        let key = Key { seed: self.seed, step: self.step };
        let first = self.mine.end - gradients.len();
        let compare = self.codec != FLOAT && self.ranks > 1 && MEASURED.contains(&self.step);
        let pending = self.comm.start("sum of gradients", move |world| {
            // every backend of this build keeps its memory on the host
            let shares = gradients.iter_mut().enumerate();
            let shares = shares.filter_map(|(i, g)| Some(Share { worker: first + i, gradients: g.host_mut()? }));
            let costs = reducer.reduce(world, &mut shares.collect::<Vec<_>>(), key, compare)?;
            Ok(Arrived { gradients, reducer, costs })
        });
        self.pending.push((chunk, pending));
        Ok(())
    }

    /// Sums what is left, and `sums` (one vector a worker, and one of this rank), over all ranks; gives the gradients back to
    /// the graph.
    pub fn finish(&mut self, graph: &mut Graph<B>, sums: Vec<Vec<f64>>) -> Result<Vec<f64>, Error> {
        for (chunk, gradients) in std::mem::take(&mut self.held) {
            if self.travels() {
                self.start(chunk, gradients)?;
            } else {
                graph.put(chunk, gradients);
            }
        }
        let small = self.start_sums(sums);
        let start = Instant::now();
        for (chunk, pending) in std::mem::take(&mut self.pending) {
            let arrived = pending.wait().map_err(|e| known_to_all(e, self.root))?;
            graph.put(chunk, arrived.gradients);
            self.reducers[chunk] = Some(arrived.reducer);
            self.costs += arrived.costs;
        }
        let sums = match small {
            Ok(pending) => pending.wait()?,
            Err(sums) => sums,
        };
        self.waited += start.elapsed();
        Ok(sums)
    }

    /// The sums under way, or, where nothing travels, there at once. Beside an integer codec they must not depend on their order
    /// either; each rank's own vector counts as one more worker.
    fn start_sums(&self, sums: Vec<Vec<f64>>) -> Result<Pending<Vec<f64>>, Vec<f64>> {
        let (what, most) = ("sum of losses and statistics", 2 * self.workers);
        if self.integer {
            return Ok(self.comm.start(what, move |world| fixed::sum(world, &sums, most)));
        }
        let mut shares = sums.into_iter();
        let mut sum = shares.next().unwrap_or_default();
        shares.for_each(|share| sum.iter_mut().zip(share).for_each(|(s, x)| *s += x));
        if self.ranks == 1 {
            return Err(sum);
        }
        Ok(self.comm.start(what, move |world| {
            world.sum_f64(&mut sum)?;
            Ok(sum)
        }))
    }

    /// How long this rank has waited for the others since the last call.
    pub fn take_wait(&mut self) -> Duration {
        std::mem::take(&mut self.waited)
    }

    /// After the last of the first steps: what the exchange of gradients costs this rank.
    pub fn take_report(&mut self) -> Option<report::Exchange> {
        self.measured.add(self.step, std::mem::take(&mut self.costs), self.codec)
    }
}

/// An error that all ranks see alike is said by rank 0 alone.
fn known_to_all(error: comm::Error, root: bool) -> Error {
    match error {
        comm::Error::NotFinite { .. } if root => Error::Agreed { code: 1, text: error.to_string() },
        comm::Error::NotFinite { .. } => Error::Elsewhere { code: 1 },
        other => other.into(),
    }
}
