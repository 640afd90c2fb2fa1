//! Sums over all ranks: gradient chunks as backward finishes them, and the step's small sums.

use std::time::{Duration, Instant};

use crate::backend::{self, Backend, Buffer};
use crate::comm::codec::{Costs, Key, fixed};
use crate::comm::{self, Comm, Pending, World};
use crate::error::Error;
use crate::nn::{Gather, Graph};
use crate::report;
use crate::train::observe::diagnose;
use crate::train::observe::trace::{Lane, Trace};
use crate::train::reduce::coded::{Chunk, Coded, Took};
use crate::train::reduce::costs::{MEASURED, Measured};
use crate::train::reduce::path::Way;
use crate::train::reduce::reduction::Reduction;
use crate::train::save::snapshot::to_bytes;

/// The codec that others are compared with.
const FLOAT: &str = "float";

/// The gradients' way to the other ranks and back.
pub struct Exchange<B: Backend> {
    comm: Comm,
    ranks: usize,
    /// This rank's workers.
    mine: std::ops::Range<usize>,
    /// V.
    workers: usize,
    codec: &'static str,
    integer: bool,
    /// Whether codecs carry over what they cut off.
    feedback: bool,
    gather: Gather,
    seed: u64,
    /// Where and how chunks are summed.
    way: Way<B>,
    /// Whether a bucket that is not finite stays so, for the device to leave the step out.
    scaled: bool,
    /// Whether chunks leave while backward goes on; else all leave at its end, where no core is spare for MPI.
    overlap: bool,
    /// One a chunk; those under way are not here.
    codecs: Vec<Option<Coded<B>>>,
    step: u64,
    /// This rank's part of its loss.
    loss: f64,
    held: Vec<(usize, Vec<B::Buf>)>,
    pending: Vec<(usize, Pending<Came<B>>)>,
    waited: Duration,
    costs: Costs,
    measured: Measured,
    trace: Trace,
}

/// How buckets travel, as settled before the first step.
pub struct ExchangePlan<B: Backend> {
    /// Whether they leave while backward goes on.
    pub overlap: bool,
    /// Where and how they are summed.
    pub way: Way<B>,
}

/// Name of the exchange of a chunk.
const GRADIENTS: &str = "sum of gradients";

/// How the exchange of a chunk went, as far as the device goes.
type Came<B> = Result<Arrived<B>, backend::Error>;

/// The exchange of a chunk, on whichever thread.
trait Job<B: Backend>: FnOnce(&World) -> Result<Came<B>, comm::Error> + Send + 'static {}

impl<B: Backend, F: FnOnce(&World) -> Result<Came<B>, comm::Error> + Send + 'static> Job<B> for F {}

/// What comes back from it.
struct Arrived<B: Backend> {
    gradients: Vec<B::Buf>,
    coded: Coded<B>,
    took: Took,
}

impl<B: Backend> Exchange<B> {
    /// Over all `ranks` of `comm`, as planned, for the rank with these workers.
    pub fn new(
        comm: Comm,
        ranks: usize,
        ExchangePlan { overlap, way }: ExchangePlan<B>,
        mine: std::ops::Range<usize>,
        plan: &mut Reduction<B>,
    ) -> Self {
        Self {
            comm,
            ranks,
            mine,
            workers: plan.settings.workers,
            codec: plan.entry.name,
            integer: plan.entry.integer,
            feedback: plan.settings.error_feedback,
            gather: plan.gather(),
            seed: plan.seed,
            scaled: plan.scaled,
            way,
            overlap,
            codecs: std::mem::take(&mut plan.codecs).into_iter().map(Some).collect(),
            step: 0,
            loss: 0.0,
            held: Vec::new(),
            pending: Vec::new(),
            waited: Duration::ZERO,
            costs: Costs::default(),
            measured: Measured::default(),
            trace: Trace::default(),
        }
    }

    /// Records each chunk's way.
    pub fn follow(&mut self, trace: &Trace) {
        self.trace = trace.clone();
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
    pub fn ready(&mut self, chunk: usize, mut gradients: Vec<B::Buf>) -> Result<(), Error> {
        if self.travels() && matches!((&self.way, &self.codecs[chunk]), (Way::Staged, Some(Coded::Host(_)))) {
            gradients.iter_mut().try_for_each(Buffer::fetch)?;
        }
        if self.overlap && self.travels() {
            self.start(chunk, gradients)
        } else {
            self.held.push((chunk, gradients));
            Ok(())
        }
    }

    fn start(&mut self, chunk: usize, gradients: Vec<B::Buf>) -> Result<(), Error> {
        let job = self.job(chunk, gradients)?;
        self.pending.push((chunk, self.comm.start(GRADIENTS, job)));
        Ok(())
    }

    /// A chunk's way through its codec, for whoever does it.
    fn job(&mut self, chunk: usize, mut gradients: Vec<B::Buf>) -> Result<impl Job<B>, Error> {
        let mut coded = self.codecs[chunk]
            .take()
            .ok_or_else(|| Error::Failed(format!("gradient chunk {chunk} was handed over twice in one step")))?;
        let key = Key { seed: self.seed, step: self.step };
        let first = self.mine.end - gradients.len();
        let (way, scaled) = (self.way.clone(), self.scaled);
        let compare = self.codec != FLOAT && self.ranks > 1 && MEASURED.contains(&self.step);
        Ok(move |world: &World| {
            if !matches!(way, Way::Staged) {
                return direct(&way, world, gradients, coded);
            }
            let chunk = Chunk { gradients: &mut gradients, worker: first, key, scaled, compare };
            Ok(coded.sum(world, chunk)?.map(|took| Arrived { gradients, coded, took }))
        })
    }

    fn arrived(
        &mut self,
        graph: &mut Graph<B>,
        chunk: usize,
        arrived: Result<Came<B>, comm::Error>,
        lane: Lane,
    ) -> Result<(), Error> {
        let arrived = match arrived {
            Err(error @ comm::Error::NotFinite { .. }) => {
                return Err(diagnose::in_codec(&self.comm, &error, self.loss));
            }
            other => other??,
        };
        let (mut at, costs) = arrived.took;
        let Costs { encode, wire, decode, .. } = costs;
        for (kind, took) in [("encode", encode), ("wire", wire), ("decode", decode)] {
            self.trace.part(kind, format!("{kind} chunk {chunk}"), lane, at, took);
            at += took;
        }
        graph.put(chunk, arrived.gradients);
        self.codecs[chunk] = Some(arrived.coded);
        self.costs += costs;
        Ok(())
    }

    /// Sums what is left, and `sums` (one vector a worker, and one of this rank), over all ranks; gives the gradients back to
    /// the graph.
    pub fn finish(&mut self, graph: &mut Graph<B>, sums: Vec<Vec<f64>>) -> Result<Vec<f64>, Error> {
        let start = Instant::now();
        self.loss = sums.iter().map(|share| share[0]).sum();
        // what has not left yet goes by this thread, which has it in its cache
        for (chunk, gradients) in std::mem::take(&mut self.held) {
            if self.travels() {
                let job = self.job(chunk, gradients)?;
                let arrived = self.comm.run(GRADIENTS, job);
                self.arrived(graph, chunk, arrived, Lane::Compute)?;
            } else {
                graph.put(chunk, gradients);
            }
        }
        for (chunk, pending) in std::mem::take(&mut self.pending) {
            let wait = Instant::now();
            let arrived = pending.wait();
            self.trace.part("wait", format!("wait for chunk {chunk}"), Lane::Compute, wait, wait.elapsed());
            self.arrived(graph, chunk, arrived, Lane::Mpi)?;
        }
        let wait = Instant::now();
        let sums = self.sum(sums)?;
        self.trace.part("wait", "sum of losses and statistics", Lane::Compute, wait, wait.elapsed());
        self.waited += start.elapsed();
        Ok(sums)
    }

    /// The sums over all ranks. Beside an integer codec they must not depend on their order either; each rank's own vector counts
    /// as one more worker.
    fn sum(&self, sums: Vec<Vec<f64>>) -> Result<Vec<f64>, comm::Error> {
        let (what, most) = ("sum of losses and statistics", 2 * self.workers);
        if self.integer {
            return self.comm.run(what, |world| fixed::sum(world, &sums, most));
        }
        let mut shares = sums.into_iter();
        let mut sum = shares.next().unwrap_or_default();
        shares.for_each(|share| sum.iter_mut().zip(share).for_each(|(s, x)| *s += x));
        if self.ranks > 1 {
            self.comm.run(what, |world| world.sum_f64(&mut sum))?;
        }
        Ok(sum)
    }

    /// What error feedback carries over to the next step: on rank 0 one vector a rank, its workers one after another, each all
    /// chunks. Nothing without error feedback. Collective.
    pub fn gather_residuals(&mut self) -> Result<Vec<Vec<u8>>, Error> {
        if !self.feedback {
            return Ok(Vec::new());
        }
        let mut own = Vec::new();
        for worker in self.mine.clone() {
            for coded in self.codecs.iter_mut().flatten() {
                coded.residual(worker)?.iter().for_each(|values| to_bytes(values, &mut own));
            }
        }
        if self.ranks == 1 {
            return Ok(vec![own]);
        }
        Ok(self.comm.run("gathering of residuals", move |world| world.gather(&own))?.unwrap_or_default())
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

/// A chunk's way without its coming to the host.
fn direct<B: Backend>(
    way: &Way<B>,
    world: &World,
    mut gradients: Vec<B::Buf>,
    coded: Coded<B>,
) -> Result<Came<B>, comm::Error> {
    let start = Instant::now();
    let Some(last) = gradients.last_mut() else {
        return Ok(Ok(Arrived { gradients, coded, took: (start, Costs::default()) }));
    };
    let bytes = 4 * last.len() as u64;
    let summed = way.sum(world, last)?;
    let costs = Costs { bytes, float_bytes: bytes, wire: start.elapsed(), ..Costs::default() };
    Ok(summed.map(|()| Arrived { gradients, coded, took: (start, costs) }))
}
