//! The parameters of a graph with their gradients: names, plain shapes, formats and places in the flat arenas. Also the
//! places of running statistics, and what changes while parameters are frozen.

use backend::{Arena, Backend, Error, ParamFormat, Slot};
use net::{NetSpec, ParamSpec};

use super::accumulate::{Accumulator, Gather};
use super::memory::{BackwardStep, Memory};
use super::request::{PassGradients, Ready};

/// Number of elements per cache line. Every parameter starts at a cache line.
const ALIGN: usize = 16;

#[derive(Clone, Debug)]
pub struct Param<B: Backend> {
    /// `<layer>.<field>`, the name in checkpoints and patterns.
    pub name: String,
    /// Shape in PyTorch's layout, and initial values.
    pub spec: ParamSpec,
    pub node: usize,
    pub format: B::Format,
    pub slot: Slot,
}

/// All parameters in the order of the network, and the buckets in the order in which backward finishes them.
pub struct Layout<B: Backend> {
    pub params: Vec<Param<B>>,
    /// Number of elements of each bucket, including alignment.
    pub buckets: Vec<usize>,
    /// For each bucket, the node that completes it in the backward pass.
    pub finished_by: Vec<usize>,
    /// For each bucket, true if its parameters are frozen. No bucket mixes frozen and trained parameters.
    pub frozen: Vec<bool>,
}

impl<B: Backend> Layout<B> {
    /// Lays out the parameters from the last node to the first. When a bucket reaches `bucket_bytes`, the next node
    /// starts another bucket. `formats[node]` has the formats of a node's parameters.
    pub fn new(net: &NetSpec, specs: &[Vec<ParamSpec>], formats: &[Vec<B::Format>], bucket_bytes: usize) -> Self {
        let mut layout = Self { params: Vec::new(), buckets: Vec::new(), finished_by: Vec::new(), frozen: Vec::new() };
        // The open buckets: the first takes trained parameters and the second takes frozen parameters.
        let mut open = [None; 2];
        for node in (0..net.nodes.len()).rev() {
            for (spec, format) in specs[node].iter().zip(&formats[node]).rev() {
                let name = net.parameter(node, spec);
                let frozen = net.frozen.contains(&name);
                let bucket = *open[usize::from(frozen)].get_or_insert_with(|| layout.begin_bucket(frozen));
                let (offset, len) = (layout.buckets[bucket], format.elems());
                let slot = Slot { bucket, offset, len };
                layout.params.push(Param { name, spec: spec.clone(), node, format: format.clone(), slot });
                layout.buckets[bucket] = (offset + len).next_multiple_of(ALIGN);
                layout.finished_by[bucket] = node;
            }
            open = open.map(|bucket| bucket.filter(|bucket| layout.buckets[*bucket] * 4 < bucket_bytes));
        }
        layout.params.reverse();
        layout.sort_buckets();
        layout
    }

    fn begin_bucket(&mut self, frozen: bool) -> usize {
        self.buckets.push(0);
        self.finished_by.push(0);
        self.frozen.push(frozen);
        self.buckets.len() - 1
    }

    /// Numbers the buckets in the order in which backward finishes them. Buckets of frozen and of trained parameters
    /// are filled at the same time, so they may finish in a different order than they were created.
    fn sort_buckets(&mut self) {
        let mut order: Vec<usize> = (0..self.buckets.len()).collect();
        order.sort_by_key(|&bucket| std::cmp::Reverse(self.finished_by[bucket]));
        let mut number = vec![0; order.len()];
        order.iter().enumerate().for_each(|(new, &old)| number[old] = new);
        self.params.iter_mut().for_each(|p| p.slot.bucket = number[p.slot.bucket]);
        self.buckets = order.iter().map(|&bucket| self.buckets[bucket]).collect();
        self.finished_by = order.iter().map(|&bucket| self.finished_by[bucket]).collect();
        self.frozen = order.iter().map(|&bucket| self.frozen[bucket]).collect();
    }

    /// Returns the parameters of a bucket in the order of memory.
    pub fn of_bucket(&self, bucket: usize) -> Vec<&Param<B>> {
        let mut params: Vec<_> = self.params.iter().filter(|p| p.slot.bucket == bucket).collect();
        params.sort_by_key(|p| p.slot.offset);
        params
    }
}

/// The place of a batch normalisation's running statistics.
#[derive(Clone, Copy, Debug)]
pub struct NormPlace {
    pub node: usize,
    pub channels: usize,
    /// Index of the first of `2 * channels` values: means, then variances.
    pub offset: usize,
}

pub(super) struct Parameters<B: Backend> {
    pub weights: Arena<B>,
    /// True if the host changed the weights after the device's copies were last updated.
    pub changed: bool,
    pub gradients: Arena<B>,
    /// The gradients of this rank's workers, except the last worker's.
    pub earlier: Accumulator<B>,
    /// Running statistics in the layout of [`NormPlace`].
    pub running: Vec<f32>,
    /// True while the network's frozen parameters are not trained.
    pub frozen: bool,
}

impl<B: Backend> Parameters<B> {
    /// Returns true if the parameters of this bucket are currently trained.
    pub fn trains(&self, layout: &Layout<B>, bucket: usize) -> bool {
        !(self.frozen && layout.frozen[bucket])
    }

    /// Completes the trained buckets, beginning with bucket `next`, that are finished after the backward pass of
    /// `node`. For the rank's last worker, hands them to `ready` unless the device has a queue. Returns the number of
    /// the first bucket that is not finished.
    pub fn finish_buckets<E: From<Error>>(
        &mut self,
        (backend, layout): (&B, &Layout<B>),
        next: usize,
        node: usize,
        wanted: PassGradients,
        ready: &mut Option<Ready<'_, B, E>>,
    ) -> Result<usize, E> {
        let finished = |c: &usize| layout.finished_by[*c] >= node;
        let end = (next..layout.buckets.len()).take_while(finished).count() + next;
        for bucket in next..end {
            if !self.trains(layout, bucket) {
                continue;
            }
            let own = &mut self.gradients.buckets[bucket];
            // If earlier workers' gradients are added, the update is not the only reader of these gradients.
            if wanted != PassGradients::ForUpdate || self.earlier.alive().next().is_some() {
                backend.gradients_done(bucket, own)?;
            }
            if wanted.last() {
                self.earlier.add_to(backend, bucket, own)?;
            }
            let departs = wanted.last() || self.earlier.gather() == Gather::PerWorker;
            match backend.queue() {
                Some(queue) if departs => queue.mark(own)?,
                None if wanted.last() => self.hand_over(bucket, ready)?,
                _ => {}
            }
        }
        Ok(end)
    }

    /// Hands all buckets that are currently trained to `ready`.
    pub fn hand_over_all<E: From<Error>>(
        &mut self,
        layout: &Layout<B>,
        ready: &mut Option<Ready<'_, B, E>>,
    ) -> Result<(), E> {
        (0..layout.buckets.len())
            .try_for_each(|bucket| if self.trains(layout, bucket) { self.hand_over(bucket, ready) } else { Ok(()) })
    }

    fn hand_over<E: From<Error>>(&mut self, bucket: usize, ready: &mut Option<Ready<'_, B, E>>) -> Result<(), E> {
        let own = std::mem::take(&mut self.gradients.buckets[bucket]);
        let finished = self.earlier.collect(bucket, own);
        match ready {
            Some(ready) => ready(bucket, finished)?,
            None => self.put(bucket, finished),
        }
        Ok(())
    }

    /// Puts the buffers of a bucket back into their arenas. The last buffer must contain the sum that the optimizer
    /// reads.
    pub fn put(&mut self, bucket: usize, mut gradients: Vec<B::Buf>) {
        self.gradients.buckets[bucket] = gradients.pop().unwrap_or_default();
        gradients.into_iter().for_each(|earlier| self.earlier.give_back(bucket, earlier));
    }
}

// Frozen parameters: which layers have no trained parameters, and a backward pass that leaves out gradients that only
// these layers need.

/// The parts of a plan that are different while the network's [`frozen`](NetSpec::frozen) parameters are not trained.
#[derive(Default)]
pub(super) struct FrozenPlan {
    /// For each node, true if it has parameters and all of them are frozen.
    nodes: Vec<bool>,
    /// The backward pass while the parameters are frozen. It leaves out the gradients that no trained parameter needs.
    pub backward_steps: Vec<BackwardStep>,
}

impl FrozenPlan {
    /// Plans the backward pass of a training network without its frozen parameters.
    pub fn new(net: &NetSpec, specs: &[Vec<ParamSpec>], memory: &Memory) -> Self {
        if net.frozen.is_empty() {
            return Self::default();
        }
        let is_frozen = |node: usize, p: &ParamSpec| net.frozen.contains(&net.parameter(node, p));
        let trained: Vec<bool> =
            specs.iter().enumerate().map(|(node, own)| own.iter().any(|p| !is_frozen(node, p))).collect();
        let mut needed = vec![false];
        for (node, trained) in net.nodes.iter().zip(&trained) {
            needed.push(*trained || node.inputs.iter().any(|id| needed[id.0]));
        }
        let nodes = specs.iter().zip(&trained).map(|(own, trained)| !own.is_empty() && !trained).collect();
        Self { nodes, backward_steps: prune_backward(net, memory, &needed) }
    }

    /// Returns true if the node has parameters and all of them are frozen.
    pub fn freezes_node(&self, node: usize) -> bool {
        self.nodes.get(node).is_some_and(|frozen| *frozen)
    }
}

/// Returns the steps of the backward pass without the gradients that no trained parameter needs. `needed` says for each
/// tensor whether its gradient is needed.
fn prune_backward(net: &NetSpec, memory: &Memory, needed: &[bool]) -> Vec<BackwardStep> {
    let of_inputs = |node: usize, dx: &[Option<usize>]| {
        net.nodes[node].inputs.iter().zip(dx).map(|(id, buffer)| buffer.filter(|_| needed[id.0])).collect()
    };
    // values that later backward steps read (this loop goes from the last step to the first)
    let mut read = vec![false; memory.places.len()];
    let mut backward_steps = Vec::new();
    for step in memory.backward_steps.iter().rev() {
        let kept = match *step {
            BackwardStep::Add { tensor, .. } => needed[tensor].then(|| step.clone()),
            BackwardStep::Recompute { to, .. } => read[to].then(|| step.clone()),
            BackwardStep::Node { node, dy, second, ref dx } => {
                needed[node + 1].then(|| BackwardStep::Node { node, dy, second, dx: of_inputs(node, dx) })
            }
        };
        if let Some(BackwardStep::Node { node, .. } | BackwardStep::Recompute { node, .. }) = kept {
            let tensors = net.nodes[node].inputs.iter().map(|id| id.0).chain([node + 1]);
            tensors.for_each(|tensor| read[memory.kept[tensor]] = true);
        }
        backward_steps.extend(kept);
    }
    backward_steps.reverse();
    backward_steps
}
