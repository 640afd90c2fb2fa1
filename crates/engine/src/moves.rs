//! The moves of the backward pass: which values each takes out of the memory of tensors, and what is done with them.

use backend::{Arena, Backend, Error, Gradients, Keeps, Planned, TensorDesc};

use super::graph::{Batch, Graph};
use super::memory::Move;
use super::tensors::TakenAll;

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
