//! A network on a device: its plan, its parameters and its current pass. Memory for activations is allocated once, for
//! the largest batch. Passes with smaller batches or smaller images use the same memory. A new batch size is planned
//! when a pass first needs it.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use backend::{Across, Arena, Backend, Error, LossSums, Objective, ParamFormat, Planned};
use net::{NetSpec, Shape, SpecError};

use super::accumulate::{Accumulator, Gather};
use super::init;
use super::memory::{Memory, Need, NodeFacts};
use super::params::{FrozenPlan, Layout, NormPlace, Param, Parameters};
use super::plan::{NetworkPlan, SizePlans, facts, initial_running, make_plan, norm_places, param_specs};
use super::profile::Clock;
use super::tensors::Tensors;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Forward and backward passes. Gradients are stored in buckets.
    Train {
        /// When a bucket reaches this many bytes, the next layer starts another bucket.
        bucket_bytes: usize,
    },
    /// Only forward passes. Activations share memory.
    Infer,
}

/// A pass whose loss sums were not read yet.
pub(super) struct UnreadPass {
    pub rows: usize,
    /// `None` until the loss is computed. On a device with a queue it stays `None`, and
    /// [`Queue::loss_sums`](backend::Queue::loss_sums) returns the sums.
    pub sums: Option<LossSums>,
}

/// The memory and state of the current pass, and earlier passes with unread sums.
pub(super) struct CurrentPass<B: Backend> {
    pub tensors: Tensors<B>,
    pub rows: usize,
    /// The oldest pass comes first.
    pub unread: VecDeque<UnreadPass>,
    /// Number of images in the pass for which [`Graph::sums`] was called last. At first, the size of the largest batch.
    pub rows_read: usize,
    pub clock: Clock,
}

/// The data for training that compares the scores with soft targets instead of labels.
pub(super) struct SoftTargetLoss<B: Backend> {
    pub(super) objective: Objective,
    /// The next pass's targets, see [`SoftTargets::table`](backend::SoftTargets::table).
    pub(super) table: Vec<f32>,
    pub(super) teacher: Option<Box<Graph<B>>>,
}

/// A planned network with its parameters.
pub struct Graph<B: Backend> {
    pub(super) backend: Rc<B>,
    pub(super) plan: NetworkPlan<B>,
    /// Plans for the current image size.
    pub(super) current_size: SizePlans<B>,
    /// Plans for other image sizes.
    pub(super) other_sizes: Vec<SizePlans<B>>,
    pub(super) parameters: Parameters<B>,
    pub(super) pass: CurrentPass<B>,
    /// True if this network was created with [`Graph::inference_graph`]. It only runs inference, and another network
    /// trains on the same device.
    pub(super) shares_device: bool,
    /// The connection to the other ranks for batch statistics, if batch normalisation spans all ranks.
    pub(super) across: Option<Box<dyn Across>>,
    /// Present if training uses soft targets instead of labels.
    pub(super) soft: Option<SoftTargetLoss<B>>,
}

#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error(transparent)]
    Backend(#[from] Error),
}

impl<B: Backend> Graph<B> {
    /// Plans `net` for batches of up to `batch` images, allocates its memory, and draws the initial parameters from
    /// `seed`.
    pub fn new(backend: B, net: NetSpec, batch: usize, purpose: Purpose, seed: u64) -> Result<Self, BuildError> {
        Self::build(Rc::new(backend), net, batch, purpose, seed, &Need::default())
    }

    /// Creates a second network, for inference only, on the same device. Returns an error if the device does not have
    /// enough memory for both networks.
    pub fn inference_graph(&self, net: NetSpec, batch: usize) -> Result<Self, BuildError> {
        let plan = &self.plan;
        let parameters = parameter_bytes(&*self.backend, &plan.layout);
        let training = Need::new(parameters, plan.trains, &plan.memory, 0);
        let graph = Self::build(Rc::clone(&self.backend), net, batch, Purpose::Infer, plan.seed, &training)?;
        Ok(Self { shares_device: true, ..graph })
    }

    /// `training` is the memory of the network in training if this is another network, otherwise zero.
    fn build(
        backend: Rc<B>,
        net: NetSpec,
        batch: usize,
        purpose: Purpose,
        seed: u64,
        training: &Need,
    ) -> Result<Self, BuildError> {
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
        let freeze = FrozenPlan::new(&net, &specs, &memory);
        let layout = Layout::new(&net, &specs, &formats, bucket_bytes);
        let mut slots = vec![Vec::new(); net.nodes.len()];
        layout.params.iter().for_each(|p| slots[p.node].push(p.slot));
        let workspace = backend.scratch_bytes() + operations.iter().flatten().map(|op| op.state_bytes()).sum::<usize>();
        let need = Need::new(parameter_bytes(&*backend, &layout), trains, &memory, workspace);
        need.check(&net, batch, trains, training, backend.memory_limit(training.bytes())?)?;
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
            current_size: SizePlans { shapes, descs, operations: BTreeMap::from([(batch, operations)]) },
            other_sizes: Vec::new(),
            parameters,
            pass: CurrentPass {
                tensors,
                rows: batch,
                rows_read: batch,
                unread: VecDeque::new(),
                clock: Clock::default(),
            },
            shares_device: false,
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

    /// Returns an error unless the network and its auxiliary classifiers end in vectors of scores, because the losses
    /// read vectors.
    fn check_scores(&self) -> Result<(), Error> {
        for scores in self.net().scores() {
            let (shape, memory) = (self.current_size.shapes[scores], self.current_size.descs[scores]);
            let in_order = memory.is_plain() || memory.shape.plane() == 1;
            if shape.plane() != 1 || !in_order {
                let why = format!("a network must end in a vector of scores, not in {shape}");
                return Err(Error::Unsupported { op: self.net().name.clone(), why });
            }
        }
        Ok(())
    }

    /// Allocates memory for the gradients of this rank's workers.
    pub fn prepare_accumulation(&mut self, workers: std::ops::Range<usize>, gather: Gather) -> Result<(), Error> {
        self.parameters.earlier.prepare(&self.backend, &self.plan.layout.buckets, workers, gather)
    }
}

// Access to parameters, gradients, running statistics and formats, for training, checkpoints and tables.

impl<B: Backend> Graph<B> {
    pub fn backend(&self) -> &B {
        &self.backend
    }

    pub fn net(&self) -> &NetSpec {
        &self.plan.net
    }

    /// Returns the logical shape of every tensor. The input comes first.
    pub fn shapes(&self) -> &[Shape] {
        &self.current_size.shapes
    }

    /// Returns the number of scores per image.
    pub fn classes(&self) -> usize {
        self.current_size.shapes.last().map_or(0, |shape| shape.elems())
    }

    /// Returns the parameters in the order of the network.
    pub fn params(&self) -> &[Param<B>] {
        &self.plan.layout.params
    }

    /// Returns true if the network has frozen parameters and they are currently not trained.
    pub fn is_frozen(&self) -> bool {
        self.parameters.frozen
    }

    /// Sets whether the network's frozen parameters stay unchanged from the next pass on. Does nothing if it has none.
    pub fn set_frozen(&mut self, frozen: bool) {
        self.parameters.frozen = frozen && !self.plan.net.frozen.is_empty();
    }

    /// Returns true if the node has parameters but none of them is currently trained.
    pub(super) fn is_node_frozen(&self, node: usize) -> bool {
        self.parameters.frozen && self.plan.freeze.freezes_node(node)
    }

    /// Returns true if the parameters of this bucket are currently trained.
    pub fn trains(&self, bucket: usize) -> bool {
        self.parameters.trains(&self.plan.layout, bucket)
    }

    pub fn layout(&self) -> &Layout<B> {
        &self.plan.layout
    }

    pub fn memory(&self) -> &Memory {
        &self.plan.memory
    }

    /// Returns the backend, the parameters and the gradients. The device copies of the parameters are updated before
    /// the next pass.
    pub fn arenas(&mut self) -> (&B, &mut Arena<B>, &mut Arena<B>) {
        self.parameters.changed = true;
        self.to_update()
    }

    /// Like [`Graph::arenas`], but does not mark the parameters as changed. The optimizer changes them only with
    /// [`Backend::update`], which also updates the device copies.
    pub fn to_update(&mut self) -> (&B, &mut Arena<B>, &mut Arena<B>) {
        (&self.backend, &mut self.parameters.weights, &mut self.parameters.gradients)
    }

    pub fn weights(&self) -> &Arena<B> {
        &self.parameters.weights
    }

    /// Exchanges all parameters and running statistics with other values of the same layout, for example with moving
    /// averages.
    pub fn swap_weights(&mut self, weights: &mut Arena<B>, running: &mut [f32]) {
        self.parameters.changed = true;
        std::mem::swap(&mut self.parameters.weights, weights);
        self.parameters.running.swap_with_slice(running);
    }

    /// Returns the backend and the parameters, so that the caller can replace the parameters.
    pub fn weights_mut(&mut self) -> (&B, &mut Arena<B>) {
        self.parameters.changed = true;
        (&self.backend, &mut self.parameters.weights)
    }

    /// Puts the buffers of a gradient bucket back into the graph. The last buffer must contain the sum that the
    /// optimizer reads.
    pub fn put(&mut self, bucket: usize, gradients: Vec<B::Buf>) {
        self.parameters.put(bucket, gradients);
    }

    /// Returns the number of gradient arenas besides the arena that the optimizer reads. They hold sums over workers,
    /// or a single worker's gradients.
    pub fn gathered_arenas(&self) -> usize {
        self.parameters.earlier.kept()
    }

    pub fn take(&mut self, bucket: usize) -> B::Buf {
        std::mem::take(&mut self.parameters.gradients.buckets[bucket])
    }

    /// Returns a parameter's values in PyTorch's layout.
    pub fn param(&self, index: usize) -> Result<Vec<f32>, Error> {
        self.unpack(index, &self.parameters.weights)
    }

    /// Returns the gradient of a parameter in PyTorch's layout.
    pub fn gradient(&self, index: usize) -> Result<Vec<f32>, Error> {
        self.unpack(index, &self.parameters.gradients)
    }

    /// Returns a parameter's values in PyTorch's layout. They come from any arena with the parameters' layout, such as
    /// the gradients or an optimizer slot.
    pub fn unpack(&self, index: usize, arena: &Arena<B>) -> Result<Vec<f32>, Error> {
        let p = &self.params()[index];
        let mut plain = vec![0.0; p.spec.elems()];
        arena.unpack(&p.format, p.slot, &mut plain)?;
        Ok(plain)
    }

    /// Sets a parameter from values in PyTorch's layout.
    pub fn set_param(&mut self, index: usize, plain: &[f32]) -> Result<(), Error> {
        self.parameters.changed = true;
        pack(&self.plan.layout.params[index], plain, &mut self.parameters.weights)
    }

    /// Sets a parameter's values in any arena with the parameters' layout. `plain` has PyTorch's layout.
    pub fn pack(&self, index: usize, plain: &[f32], arena: &mut Arena<B>) -> Result<(), Error> {
        pack(&self.params()[index], plain, arena)
    }

    /// Makes batch normalisation compute its statistics over the whole batch of all ranks. From then on, each rank must
    /// run exactly one pass per step.
    ///
    /// # Errors
    ///
    /// Returns an error if batch normalisation divides its batch into groups.
    pub fn normalise_across(&mut self, ranks: Box<dyn Across>) -> Result<(), Error> {
        if self.plan.net.bn_groups > 1 {
            let why = "sync_bn uses the statistics of the whole batch, but bn_group divides it into groups; remove one of the two".into();
            return Err(Error::Unsupported { op: "batch normalisation".into(), why });
        }
        self.across = Some(ranks);
        Ok(())
    }

    pub fn norms(&self) -> &[NormPlace] {
        &self.plan.norms
    }

    /// Returns the running means and variances of all batch normalisations, at the places that [`NormPlace`] describes.
    pub fn running(&self) -> &[f32] {
        &self.parameters.running
    }

    pub fn running_mut(&mut self) -> &mut [f32] {
        &mut self.parameters.running
    }

    /// For each batch normalisation that is currently trained, adds the batch statistics of the pass for which
    /// [`Graph::sums`] was called last. Does nothing for frozen ones, which do not compute batch statistics. `sums`
    /// gets `n d` and `M2 + n d^2` in the layout of [`NormPlace`]. [`Planned::pool_statistics`] explains the symbols.
    /// `counts` gets the number of values per channel.
    pub fn pool_statistics(&self, sums: &mut [f64], counts: &mut [f64]) {
        let Some(operations) = self.current_size.operations.get(&self.pass.rows_read) else { return };
        for (place, count) in self.norms().iter().zip(counts).filter(|(place, _)| !self.is_node_frozen(place.node)) {
            if let Some(op) = &operations[place.node] {
                let range = place.offset..place.offset + 2 * place.channels;
                *count += op.pool_statistics(&self.running()[range.clone()], &mut sums[range]) as f64;
            }
        }
    }

    /// Returns a tensor of the last pass in NCHW order. Tensor 0 is the input, tensor i + 1 is the output of node i.
    ///
    /// # Errors
    ///
    /// Returns an error if the tensor is never stored. Its reader then computes it from the input of the layer that
    /// produces it.
    pub fn output(&self, tensor: usize) -> Result<Vec<f32>, Error> {
        let unmade = |node: usize| {
            !self.net().nodes[node].op.renames() && self.operation(node).is_none_or(|op| !op.writes_output())
        };
        if let Some(node) = tensor.checked_sub(1).filter(|&node| unmade(node)) {
            let why = "the output of this layer is not stored, because the next layer computes it from the input of this layer".into();
            return Err(Error::Unsupported { op: self.net().nodes[node].name.clone(), why });
        }
        let desc = self.current_size.desc(tensor, self.pass.rows);
        self.backend.download(&desc, &*self.pass.tensors.take(self.plan.value_of(tensor))?)
    }

    /// Returns the bytes per element of a stored tensor. Tensor 0 is the input, tensor i + 1 is the output of node i.
    pub fn bytes_each(&self, tensor: usize) -> usize {
        if self.current_size.descs[tensor].bf16 { 2 } else { 4 }
    }

    /// Returns the names of the primitives that compute a node for the largest batch.
    pub fn implementation(&self, node: usize) -> String {
        match self.operation(node) {
            Some(planned) => planned.implementation(),
            None if self.net().nodes[node].op.renames() => "renamed".into(),
            None => "fused into the adjacent norms".into(),
        }
    }

    /// Returns the plan of a node for the largest batch, or `None` if the node has no pass.
    fn operation(&self, node: usize) -> Option<&(dyn Planned<B> + 'static)> {
        self.current_size.largest().and_then(|operations| operations[node].as_deref())
    }

    /// Returns the bytes that all planned operations allocated for themselves.
    pub fn state_bytes(&self) -> usize {
        let sizes = std::iter::once(&self.current_size).chain(&self.other_sizes);
        sizes.flat_map(|size| size.operations.values()).flatten().flatten().map(|op| op.state_bytes()).sum()
    }

    /// Describes the memory format of each parameter in one line. All ranks must have equal lines, because otherwise
    /// sums of gradients would mix different elements.
    pub fn format_lines(&self) -> String {
        let line = |p: &Param<B>| {
            let (bucket, at, format) = (p.slot.bucket, p.slot.range(), p.format.describe());
            format!("{}: bucket {bucket}, elements {} to {}, {format}\n", p.name, at.start, at.end)
        };
        self.params().iter().map(line).collect()
    }
}

fn parameter_bytes<B: Backend>(backend: &B, layout: &Layout<B>) -> usize {
    let elems = layout.buckets.iter().fold(0, |sum: usize, bucket| sum.saturating_add(*bucket));
    backend.parameter_bytes().saturating_mul(elems)
}

fn pack<B: Backend>(p: &Param<B>, plain: &[f32], arena: &mut Arena<B>) -> Result<(), Error> {
    if plain.len() != p.spec.elems() {
        let (expected, got) = (format!("{} elements", p.spec.elems()), plain.len().to_string());
        return Err(Error::Size { op: p.name.clone(), expected, got });
    }
    let zeros = &p.spec.zeros;
    if plain[zeros.clone()].iter().all(|value| *value == 0.0) {
        return arena.pack(&p.format, plain, p.slot);
    }
    let mut masked = plain.to_vec();
    masked[zeros.clone()].fill(0.0);
    arena.pack(&p.format, &masked, p.slot)
}
