//! A network on a device: everything planned before the first step, then forward, loss and backward over fixed memory.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use backend::{Across, Arena, Backend, DeviceMemory, Error, Input, LossSums, Planned};
use net::{NetSpec, Shape, SpecError};

use super::accumulate::{Accumulator, Gather};
use super::init;
use super::memory::{Memory, Need, NodeFacts};
use super::params::{Freeze, Layout, NormPlace, Param, Parameters};
use super::plan::{NetworkPlan, SizePlans, facts, initial_running, make_plan, norm_places, param_specs};
use super::profile::Clock;
use super::soft::SoftTargetLoss;
use super::tensors::Tensors;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Forward, backward, gradients of buckets of this many bytes.
    Train {
        /// A gradient bucket closes once it holds this much.
        bucket_bytes: usize,
    },
    /// Forward only; activations share memory.
    Infer,
}

/// A batch on the host.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// One a row.
    pub images: Input<'a>,
    /// Class of each row.
    pub labels: &'a [u32],
    /// Sample id of each row.
    pub ids: &'a [u64],
    pub epoch: u32,
}

#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// Weight spread evenly over all classes.
    pub smoothing: f32,
    /// Factor of the gradient: 1 / (true number of samples of the whole step).
    pub scale: f32,
}

/// Receives a finished bucket of gradients: the sum over this rank's workers, or each worker's in order (see [`Gather`]).
pub type Ready<'a, B, E> = &'a mut dyn FnMut(usize, Vec<<B as DeviceMemory>::Buf>) -> Result<(), E>;

/// A pass whose sums were not read.
pub(super) struct UnreadPass {
    pub rows: usize,
    /// If they are known without asking the device.
    pub sums: Option<LossSums>,
}

/// A pass in progress, and what was not read of those before.
pub(super) struct CurrentPass<B: Backend> {
    pub tensors: Tensors<B>,
    pub rows: usize,
    /// Passes whose sums were not read, in their order.
    pub unread: VecDeque<UnreadPass>,
    /// Rows of the pass whose sums were read last.
    pub rows_read: usize,
    pub clock: Clock,
}

/// A planned network with its parameters.
pub struct Graph<B: Backend> {
    pub(super) backend: Rc<B>,
    pub(super) plan: NetworkPlan<B>,
    /// The operations for the size of the images that it takes now.
    pub(super) now: SizePlans<B>,
    /// The operations for other sizes.
    pub(super) others: Vec<SizePlans<B>>,
    pub(super) parameters: Parameters<B>,
    pub(super) pass: CurrentPass<B>,
    /// Whether it only runs, beside another graph on its device.
    pub(super) beside: bool,
    /// The ranks that share each batch's statistics.
    pub(super) across: Option<Box<dyn Across>>,
    /// Where training is against targets in place of labels.
    pub(super) soft: Option<SoftTargetLoss<B>>,
}

/// What can go wrong while a graph is built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error(transparent)]
    Backend(#[from] Error),
}

impl<B: Backend> Graph<B> {
    /// Plans `net` for batches of up to `batch` rows and fills its parameters from `seed`.
    pub fn new(backend: B, net: NetSpec, batch: usize, purpose: Purpose, seed: u64) -> Result<Self, BuildError> {
        Self::build(Rc::new(backend), net, batch, purpose, seed)
    }

    /// A network for inference on the device of this one.
    pub fn beside(&self, net: NetSpec, batch: usize) -> Result<Self, BuildError> {
        let graph = Self::build(Rc::clone(&self.backend), net, batch, Purpose::Infer, self.plan.seed)?;
        Ok(Self { beside: true, ..graph })
    }

    fn build(backend: Rc<B>, net: NetSpec, batch: usize, purpose: Purpose, seed: u64) -> Result<Self, BuildError> {
        let shapes = net.shapes()?;
        let (specs, trains) = (param_specs(&net, &shapes), purpose != Purpose::Infer);
        let (operations, descs) = make_plan(&*backend, &net, &shapes, batch, None, trains)?;
        let formats: Vec<_> =
            operations.iter().map(|op| op.as_ref().map_or_else(Vec::new, |op| op.formats())).collect();
        let facts: Vec<NodeFacts> =
            operations.iter().zip(&descs[1..]).map(|(op, d)| facts(&*backend, op.as_deref(), d)).collect();
        let input = backend.words(&descs[0]);
        let (memory, bucket_bytes) = match purpose {
            Purpose::Train { bucket_bytes } => (Memory::train(&net, input, &facts), bucket_bytes),
            Purpose::Infer => (Memory::infer(&net, input, &facts), usize::MAX),
        };
        let freeze = Freeze::new(&net, &specs, &memory);
        let layout = Layout::new(&net, &specs, &formats, bucket_bytes);
        let mut slots = vec![Vec::new(); net.nodes.len()];
        layout.params.iter().for_each(|p| slots[p.node].push(p.slot));
        let workspace = backend.scratch_bytes() + operations.iter().flatten().map(|op| op.state_bytes()).sum::<usize>();
        let elems = layout.buckets.iter().fold(0, |sum: usize, bucket| sum.saturating_add(*bucket));
        let bytes = backend.parameter_bytes().saturating_mul(elems);
        Need::new(bytes, trains, &memory, workspace).check(&net, batch, backend.free_bytes()?)?;
        let norms = norm_places(&net, &shapes);
        let parameters = Parameters {
            weights: Arena::new(&*backend, &layout.buckets)?,
            changed: true,
            gradients: Arena::new(&*backend, if trains { &layout.buckets } else { &[] })?,
            earlier: Accumulator::new(),
            running: initial_running(&norms),
            frozen: !net.frozen.is_empty(),
        };
        let tensors = Tensors::new(&*backend, &memory)?;
        let mut graph = Self {
            backend,
            plan: NetworkPlan { serving: net.serving(), net, seed, trains, layout, slots, norms, memory, freeze },
            now: SizePlans { shapes, descs, operations: BTreeMap::from([(batch, operations)]) },
            others: Vec::new(),
            parameters,
            pass: CurrentPass {
                tensors,
                rows: batch,
                rows_read: batch,
                unread: VecDeque::new(),
                clock: Clock::default(),
            },
            beside: false,
            across: None,
            soft: None,
        };
        graph.check_scores()?;
        for i in 0..graph.params().len() {
            let values = init::values(&graph.params()[i].spec, i, seed);
            graph.set_param(i, &values)?;
        }
        Ok(graph)
    }

    /// Fails unless the network and its auxiliary classifiers end in vectors of scores, which the losses read.
    fn check_scores(&self) -> Result<(), Error> {
        for scores in self.net().scores() {
            let (shape, memory) = (self.now.shapes[scores], self.now.descs[scores]);
            let in_order = memory.is_plain() || memory.shape.plane() == 1;
            if shape.plane() != 1 || !in_order {
                let why = format!("a network must end in a vector of scores, not in {shape}");
                return Err(Error::Unsupported { op: self.net().name.clone(), why });
            }
        }
        Ok(())
    }

    /// Allocates room for the gradients of this rank's workers.
    pub fn prepare_accumulation(&mut self, workers: std::ops::Range<usize>, gather: Gather) -> Result<(), Error> {
        self.parameters.earlier.prepare(&self.backend, &self.plan.layout.buckets, workers, gather)
    }
}

// Access to the state for training, checkpoints and tables: parameters, gradients, running statistics, formats.

impl<B: Backend> Graph<B> {
    pub fn backend(&self) -> &B {
        &self.backend
    }

    pub fn net(&self) -> &NetSpec {
        &self.plan.net
    }

    /// Logical shape of every tensor, input first.
    pub fn shapes(&self) -> &[Shape] {
        &self.now.shapes
    }

    /// Scores of an image, one a class.
    pub fn classes(&self) -> usize {
        self.now.shapes.last().map_or(0, |shape| shape.elems())
    }

    /// The parameters in the order of the network.
    pub fn params(&self) -> &[Param<B>] {
        &self.plan.layout.params
    }

    /// Whether the network's frozen parameters are not trained now.
    pub fn is_frozen(&self) -> bool {
        self.parameters.frozen
    }

    /// Trains the network's frozen parameters from the next pass on, or no longer.
    pub fn set_frozen(&mut self, frozen: bool) {
        self.parameters.frozen = frozen && !self.plan.net.frozen.is_empty();
    }

    /// Whether no parameter of a node is trained now, though it has some.
    pub(super) fn holds(&self, node: usize) -> bool {
        self.parameters.frozen && self.plan.freeze.holds(node)
    }

    /// Whether the parameters of a bucket are trained now.
    pub fn trains(&self, bucket: usize) -> bool {
        self.parameters.trains(&self.plan.layout, bucket)
    }

    pub fn layout(&self) -> &Layout<B> {
        &self.plan.layout
    }

    pub fn memory(&self) -> &Memory {
        &self.plan.memory
    }

    /// The flat parameters and gradients, to change them.
    pub fn arenas(&mut self) -> (&B, &mut Arena<B>, &mut Arena<B>) {
        self.parameters.changed = true;
        self.to_update()
    }

    /// The same for the optimizer, which changes parameters by the device's updates alone.
    pub fn to_update(&mut self) -> (&B, &mut Arena<B>, &mut Arena<B>) {
        (&self.backend, &mut self.parameters.weights, &mut self.parameters.gradients)
    }

    pub fn weights(&self) -> &Arena<B> {
        &self.parameters.weights
    }

    /// Exchanges all parameters and running statistics for others of the same layout: moving averages, for a while.
    pub fn swap_weights(&mut self, weights: &mut Arena<B>, running: &mut [f32]) {
        self.parameters.changed = true;
        std::mem::swap(&mut self.parameters.weights, weights);
        self.parameters.running.swap_with_slice(running);
    }

    /// The flat parameters, to replace them as a whole.
    pub fn weights_mut(&mut self) -> (&B, &mut Arena<B>) {
        self.parameters.changed = true;
        (&self.backend, &mut self.parameters.weights)
    }

    /// Gives back the buffers of a gradient bucket; the last one holds the sum that the optimizer reads.
    pub fn put(&mut self, bucket: usize, gradients: Vec<B::Buf>) {
        self.parameters.put(bucket, gradients);
    }

    /// Arenas of gradients beside the one that the optimizer reads: sums of workers, or one per worker.
    pub fn gathered_arenas(&self) -> usize {
        self.parameters.earlier.kept()
    }

    pub fn take(&mut self, bucket: usize) -> B::Buf {
        std::mem::take(&mut self.parameters.gradients.buckets[bucket])
    }

    /// A parameter as a plain tensor.
    pub fn param(&self, index: usize) -> Result<Vec<f32>, Error> {
        self.unpack(index, &self.parameters.weights)
    }

    /// A parameter's gradient as a plain tensor.
    pub fn gradient(&self, index: usize) -> Result<Vec<f32>, Error> {
        self.unpack(index, &self.parameters.gradients)
    }

    /// A parameter's values in any arena of the parameters' layout (gradients, an optimizer's slot) as a plain tensor.
    pub fn unpack(&self, index: usize, arena: &Arena<B>) -> Result<Vec<f32>, Error> {
        let p = &self.params()[index];
        let mut plain = vec![0.0; p.spec.elems()];
        arena.unpack(&p.format, p.slot, &mut plain)?;
        Ok(plain)
    }

    /// Sets a parameter from a plain tensor.
    pub fn set_param(&mut self, index: usize, plain: &[f32]) -> Result<(), Error> {
        self.parameters.changed = true;
        pack(&self.plan.layout.params[index], plain, &mut self.parameters.weights)
    }

    /// Sets a parameter's values in any arena of the parameters' layout from a plain tensor.
    pub fn pack(&self, index: usize, plain: &[f32], arena: &mut Arena<B>) -> Result<(), Error> {
        pack(&self.params()[index], plain, arena)
    }

    /// Makes batch normalisation take its statistics over all ranks' shares of each batch. Each rank must then run one pass a step.
    pub fn normalise_across(&mut self, ranks: Box<dyn Across>) {
        self.across = Some(ranks);
    }

    pub fn norms(&self) -> &[NormPlace] {
        &self.plan.norms
    }

    /// Running means and variances of all batch normalisations, each as [`NormPlace`] says.
    pub fn running(&self) -> &[f32] {
        &self.parameters.running
    }

    /// The same, for writing.
    pub fn running_mut(&mut self) -> &mut [f32] {
        &mut self.parameters.running
    }

    /// Adds the statistics of the batch whose sums were read last to `sums` (as [`NormPlace`] lays them out: `n d`, then
    /// `M2 + n d^2`) and its number of values per channel to `counts`, one for each batch normalisation.
    pub fn pool_statistics(&self, sums: &mut [f64], counts: &mut [f64]) {
        let Some(operations) = self.now.operations.get(&self.pass.rows_read) else { return };
        for (place, count) in self.norms().iter().zip(counts).filter(|(place, _)| !self.holds(place.node)) {
            if let Some(op) = &operations[place.node] {
                let range = place.offset..place.offset + 2 * place.channels;
                *count += op.pool_statistics(&self.running()[range.clone()], &mut sums[range]) as f64;
            }
        }
    }

    /// A tensor of the last pass (0 is the input, i + 1 the output of node i) as plain NCHW.
    pub fn output(&self, tensor: usize) -> Result<Vec<f32>, Error> {
        let unmade =
            |node: usize| !self.net().nodes[node].op.renames() && self.operation(node).is_none_or(|op| !op.writes());
        if let Some(node) = tensor.checked_sub(1).filter(|&node| unmade(node)) {
            let why = "the layer behind reads through it, so its output is never made".into();
            return Err(Error::Unsupported { op: self.net().nodes[node].name.clone(), why });
        }
        let desc = self.now.desc(tensor, self.pass.rows);
        self.backend.download(&desc, &*self.pass.tensors.take(self.plan.value_of(tensor))?)
    }

    /// Bytes of one number of a tensor as it lies in memory: tensor 0 is the network's input, tensor i + 1 the output of node i.
    pub fn bytes_each(&self, tensor: usize) -> usize {
        if self.now.descs[tensor].bf16 { 2 } else { 4 }
    }

    /// Primitives behind a node, for the largest batch.
    pub fn implementation(&self, node: usize) -> String {
        match self.operation(node) {
            Some(planned) => planned.implementation(),
            None if self.net().nodes[node].op.renames() => "renamed".into(),
            None => "read through by the norms beside it".into(),
        }
    }

    /// The plan of a node for the largest batch; none where it has no pass.
    fn operation(&self, node: usize) -> Option<&(dyn Planned<B> + 'static)> {
        self.now.largest().and_then(|operations| operations[node].as_deref())
    }

    /// Bytes of private memory of all plans.
    pub fn state_bytes(&self) -> usize {
        let sizes = std::iter::once(&self.now).chain(&self.others);
        sizes.flat_map(|size| size.operations.values()).flatten().flatten().map(|op| op.state_bytes()).sum()
    }

    /// One line per parameter that says how it lies in memory: equal on all ranks, or their sums would mix elements.
    pub fn format_lines(&self) -> String {
        self.params().iter().map(|p| format!("{} {:?} {:?}\n", p.name, p.slot, p.format)).collect()
    }
}

fn pack<B: Backend>(p: &Param<B>, plain: &[f32], arena: &mut Arena<B>) -> Result<(), Error> {
    if plain.len() != p.spec.elems() {
        let (expected, got) = (format!("{} elements", p.spec.elems()), plain.len().to_string());
        return Err(Error::Size { op: p.name.clone(), expected, got });
    }
    arena.pack(&p.format, plain, p.slot)
}
