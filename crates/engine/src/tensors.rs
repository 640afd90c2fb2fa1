//! The memory of a graph's activations and their gradients: each operation takes the values that it reads and writes, and gives them back.

use std::ops::{Deref, DerefMut, Range};

use backend::{Arena, Backend, Error, Gradients, Keeps, Planned, Region, TensorDesc};

use super::graph::{Batch, Graph};
use super::memory::{Memory, Move};

/// Values in the places that the memory plan gives them.
pub(super) struct Tensors<B: Backend> {
    region: Box<dyn Region<B::Buf>>,
    places: Vec<Range<usize>>,
}

/// A value in use.
pub(super) struct Taken<'a, B: Backend> {
    of: &'a Tensors<B>,
    value: usize,
    buf: B::Buf,
}

impl<B: Backend> Tensors<B> {
    pub fn new(backend: &B, memory: &Memory) -> Result<Self, Error> {
        let region = backend.region(memory.elems, &memory.places)?;
        Ok(Self { region, places: memory.places.clone() })
    }

    /// A value, until the result is dropped; meanwhile neither it nor one in the same place can be taken.
    pub fn take(&self, value: usize) -> Result<Taken<'_, B>, Error> {
        Ok(Taken { of: self, value, buf: self.region.take(&self.places[value])? })
    }

    /// These values to read, each as often as it is named; an empty buffer where none is.
    pub fn take_all(&self, values: impl Iterator<Item = Option<usize>>) -> Result<TakenAll<'_, B>, Error> {
        let (mut taken, mut order): (Vec<Taken<'_, B>>, Vec<Option<usize>>) = Default::default();
        for value in values {
            let Some(value) = value else {
                order.push(None);
                continue;
            };
            let known = taken.iter().position(|taken| taken.value == value);
            order.push(Some(known.unwrap_or(taken.len())));
            if known.is_none() {
                taken.push(self.take(value)?);
            }
        }
        Ok(TakenAll { taken, order, nothing: B::Buf::default() })
    }
}

impl<B: Backend> Deref for Taken<'_, B> {
    type Target = B::Buf;

    fn deref(&self) -> &B::Buf {
        &self.buf
    }
}

impl<B: Backend> DerefMut for Taken<'_, B> {
    fn deref_mut(&mut self) -> &mut B::Buf {
        &mut self.buf
    }
}

impl<B: Backend> Drop for Taken<'_, B> {
    fn drop(&mut self) {
        self.of.region.give(&self.of.places[self.value], std::mem::take(&mut self.buf));
    }
}

/// Values to read.
pub(super) struct TakenAll<'a, B: Backend> {
    taken: Vec<Taken<'a, B>>,
    order: Vec<Option<usize>>,
    nothing: B::Buf,
}

impl<B: Backend> TakenAll<'_, B> {
    /// In the order in which they were named.
    pub fn refs(&self) -> Vec<&B::Buf> {
        self.order.iter().map(|at| at.map_or(&self.nothing, |at| &*self.taken[at])).collect()
    }
}

// The moves of the backward pass: which values each takes out of the memory of tensors, and what is done with them.

impl<B: Backend> Graph<B> {
    /// Runs one move.
    pub(super) fn step_back(&mut self, step: &Move, batch: &Batch<'_>) -> Result<(), Error> {
        match *step {
            Move::Add { tensor, to, from } => {
                let desc = TensorDesc { n: self.current, ..self.memory_desc(tensor) };
                let [mut to, from] = [self.tensors.take(to)?, self.tensors.take(from)?];
                self.backend.add_tensors(&desc, &mut to, &from)
            }
            Move::Recompute { node, to } => self.with_plan(node, |graph, op| {
                let x = graph.inputs(node, &graph.memory.kept, usize::MAX)?;
                let mut y = graph.tensors.take(to)?;
                op.recompute(&graph.pass(node, batch, true), &x.refs(), &mut y)
            }),
            Move::Node { node, dy, second, ref dx } => {
                let mut dparams = std::mem::replace(&mut self.grads, Arena { chunks: Vec::new() });
                let result = self.with_plan(node, |graph, op| {
                    let Keeps { inputs, output } = op.keeps();
                    let x = graph.inputs(node, &graph.memory.kept, inputs)?;
                    let y = graph.tensors.take_all([output.then_some(graph.memory.kept[node + 1])].into_iter())?;
                    let mut dy = graph.tensors.take(dy)?;
                    let second = second.map(|second| graph.tensors.take(second)).transpose()?;
                    let take = |to: &Option<usize>| to.map(|to| graph.tensors.take(to)).transpose();
                    let mut dx = dx.iter().map(take).collect::<Result<Vec<_>, _>>()?;
                    let g = Gradients {
                        x: &x.refs(),
                        y: y.refs()[0],
                        dy: &mut *dy,
                        dy2: second.as_deref(),
                        dx: dx.iter_mut().map(Option::as_deref_mut).collect(),
                        dparams: &mut dparams,
                    };
                    op.backward(&graph.pass(node, batch, true), g)
                });
                self.grads = dparams;
                result
            }
        }
    }

    /// Runs a part of backward by the plan of a node, if it has one; it counts as the node's backward pass where times are noted.
    fn with_plan(
        &mut self,
        node: usize,
        run: impl FnOnce(&Self, &mut dyn Planned<B>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let start = self.clock()?;
        let mut plan = self.now.plans.remove(&self.current).unwrap_or_default();
        let result = plan[node].as_mut().map_or(Ok(()), |op| run(self, op.as_mut()));
        self.now.plans.insert(self.current, plan);
        result?;
        self.clocked(node, 1, start)
    }

    /// The first so many inputs of a node, each in its tensor's value of these; empty buffers for the others.
    pub(super) fn inputs(&self, node: usize, values: &[usize], count: usize) -> Result<TakenAll<'_, B>, Error> {
        let inputs = self.net.nodes[node].inputs.iter().enumerate();
        self.tensors.take_all(inputs.map(|(i, id)| (i < count).then(|| values[id.0])))
    }
}
