//! The parameters of a graph with their gradients, and the table of their names, plain shapes, formats and places in the flat arenas. Also
//! places of running statistics, and which parameters are not trained.

use backend::{Arena, Backend, Error, ParamFormat, Slot};
use net::{NetSpec, ParamSpec};

use super::accumulate::{Accumulator, Gather};
use super::graph::Ready;
use super::memory::{Memory, Move};
use super::replay::PassGradients;

/// Slots start on multiples of this many elements: one cache line.
const ALIGN: usize = 16;

#[derive(Clone, Debug)]
pub struct Param<B: Backend> {
    /// `<layer>.<field>`.
    pub name: String,
    /// Plain shape and start.
    pub spec: ParamSpec,
    pub node: usize,
    /// How it lies in memory.
    pub format: B::Format,
    pub slot: Slot,
}

/// All parameters in the order of the network, and the buckets that hold them in the order in which backward finishes them.
pub struct Layout<B: Backend> {
    /// In the order of the network.
    pub params: Vec<Param<B>>,
    /// Elements of each bucket.
    pub buckets: Vec<usize>,
    /// Node whose backward pass finishes each bucket.
    pub finished_by: Vec<usize>,
    /// Whether the parameters of each bucket are the frozen ones; no bucket holds both kinds.
    pub frozen: Vec<bool>,
}

impl<B: Backend> Layout<B> {
    /// Packs parameters from the last node to the first; a bucket closes once it holds `bucket_bytes`.
    /// `formats[node]` are the formats of each node's parameters.
    pub fn new(net: &NetSpec, specs: &[Vec<ParamSpec>], formats: &[Vec<B::Format>], bucket_bytes: usize) -> Self {
        let mut layout = Self { params: Vec::new(), buckets: Vec::new(), finished_by: Vec::new(), frozen: Vec::new() };
        // the buckets that take parameters now, the trained and the frozen ones
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

    /// Numbers the buckets in the order in which backward finishes them: two that are filled side by side may end in another order than
    /// they begin.
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

    /// The parameters of a bucket in the order of memory.
    pub fn of_bucket(&self, bucket: usize) -> Vec<&Param<B>> {
        let mut params: Vec<_> = self.params.iter().filter(|p| p.slot.bucket == bucket).collect();
        params.sort_by_key(|p| p.slot.offset);
        params
    }
}

/// Where a batch normalisation's running statistics lie.
#[derive(Clone, Copy, Debug)]
pub struct NormPlace {
    pub node: usize,
    pub channels: usize,
    /// First of 2 C values: means, then variances.
    pub offset: usize,
}

/// The parameters and their gradients.
pub(super) struct Parameters<B: Backend> {
    pub weights: Arena<B>,
    /// Whether the host changed the weights since the last upload to the device.
    pub changed: bool,
    pub gradients: Arena<B>,
    /// Gradients of this rank's workers before the last.
    pub earlier: Accumulator<B>,
    /// Running statistics, see [`NormPlace`].
    pub running: Vec<f32>,
    /// Whether the network's frozen parameters are not trained now.
    pub frozen: bool,
}

impl<B: Backend> Parameters<B> {
    /// Whether the parameters of a bucket are trained now.
    pub fn trains(&self, layout: &Layout<B>, bucket: usize) -> bool {
        !(self.frozen && layout.frozen[bucket])
    }

    /// Completes the buckets from `next` on that are finished once backward has done `node`, and hands them over unless the device has
    /// a queue. Returns the first bucket that is not finished.
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
            // where earlier workers' are added, the update is not the only one to read them
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

    /// Hands over all buckets that are trained now.
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

    /// Takes back the buffers of a bucket; the last one holds the sum that the optimizer reads.
    pub fn put(&mut self, bucket: usize, mut gradients: Vec<B::Buf>) {
        self.gradients.buckets[bucket] = gradients.pop().unwrap_or_default();
        gradients.into_iter().for_each(|earlier| self.earlier.give_back(bucket, earlier));
    }
}

// Frozen parameters: which layers have no others, and the backward pass that skips gradients that only they need.

/// What a graph does without while its network's [`frozen`](NetSpec::frozen) parameters are not trained.
#[derive(Default)]
pub(super) struct Freeze {
    /// For each node, whether it has parameters and none of them is trained meanwhile.
    nodes: Vec<bool>,
    /// The backward pass of the meantime: from the last node to the first that a trained parameter needs.
    pub moves: Vec<Move>,
}

impl Freeze {
    /// Of a network for training.
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
        Self { nodes, moves: shortened(net, memory, &needed) }
    }

    /// Whether no parameter of this node is trained meanwhile, though it has some.
    pub fn holds(&self, node: usize) -> bool {
        self.nodes.get(node).is_some_and(|held| *held)
    }
}

/// The moves of backward without those for gradients that nobody needs; `needed`: of each tensor.
fn shortened(net: &NetSpec, memory: &Memory, needed: &[bool]) -> Vec<Move> {
    let of_inputs = |node: usize, dx: &[Option<usize>]| {
        net.nodes[node].inputs.iter().zip(dx).map(|(id, buffer)| buffer.filter(|_| needed[id.0])).collect()
    };
    // values that later moves may read
    let mut read = vec![false; memory.places.len()];
    let mut moves = Vec::new();
    for step in memory.moves.iter().rev() {
        let kept = match *step {
            Move::Add { tensor, .. } => needed[tensor].then(|| step.clone()),
            Move::Recompute { to, .. } => read[to].then(|| step.clone()),
            Move::Node { node, dy, second, ref dx } => {
                needed[node + 1].then(|| Move::Node { node, dy, second, dx: of_inputs(node, dx) })
            }
        };
        if let Some(Move::Node { node, .. } | Move::Recompute { node, .. }) = kept {
            let tensors = net.nodes[node].inputs.iter().map(|id| id.0).chain([node + 1]);
            tensors.for_each(|tensor| read[memory.kept[tensor]] = true);
        }
        moves.extend(kept);
    }
    moves.reverse();
    moves
}
