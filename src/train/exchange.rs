//! Sums over all ranks: gradient chunks as backward finishes them, and the step's small sums.

use std::time::{Duration, Instant};

use super::Error;
use crate::backend::{Backend, Buffer};
use crate::comm::{Comm, Pending};
use crate::nn::Graph;

/// The gradients' way to the other ranks and back.
pub struct Exchange<B: Backend> {
    comm: Comm,
    ranks: usize,
    /// Whether chunks leave while backward goes on; else all leave at its end, where no core is spare for MPI.
    overlap: bool,
    held: Vec<(usize, B::Buf)>,
    pending: Vec<(usize, Pending<B::Buf>)>,
    waited: Duration,
}

impl<B: Backend> Exchange<B> {
    /// Over all ranks of `comm`.
    pub fn new(comm: Comm, ranks: usize, overlap: bool) -> Self {
        Self { comm, ranks, overlap, held: Vec::new(), pending: Vec::new(), waited: Duration::ZERO }
    }

    /// Takes a finished chunk of gradients.
    pub fn ready(&mut self, chunk: usize, gradients: B::Buf) -> Result<(), Error> {
        if self.overlap && self.ranks > 1 {
            self.start(chunk, gradients);
        } else {
            self.held.push((chunk, gradients));
        }
        Ok(())
    }

    fn start(&mut self, chunk: usize, mut gradients: B::Buf) {
        let pending = self.comm.start("sum of gradients", move |world| {
            // every backend of this build keeps its memory on the host
            if let Some(values) = gradients.host_mut() {
                world.sum_f32(values)?;
            }
            Ok(gradients)
        });
        self.pending.push((chunk, pending));
    }

    /// Sums what is left, and `sums`, over all ranks; gives the gradients back to the graph.
    pub fn finish(&mut self, graph: &mut Graph<B>, mut sums: Vec<f64>) -> Result<Vec<f64>, Error> {
        for (chunk, gradients) in std::mem::take(&mut self.held) {
            if self.ranks > 1 {
                self.start(chunk, gradients);
            } else {
                graph.put(chunk, gradients);
            }
        }
        if self.ranks == 1 {
            return Ok(sums);
        }
        let small = self.comm.start("sum of losses and statistics", move |world| {
            world.sum_f64(&mut sums)?;
            Ok(sums)
        });
        let start = Instant::now();
        for (chunk, pending) in self.pending.drain(..) {
            graph.put(chunk, pending.wait()?);
        }
        let sums = small.wait()?;
        self.waited += start.elapsed();
        Ok(sums)
    }

    /// How long this rank has waited for the others since the last call.
    pub fn take_wait(&mut self) -> Duration {
        std::mem::take(&mut self.waited)
    }
}
