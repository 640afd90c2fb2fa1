//! A network on a device: everything planned before the first step, then forward, loss and backward over fixed memory.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};

use backend::{Across, Arena, Backend, DeviceMemory, Error, Input, LossSums, Objective, Regions, Slot, TensorDesc};
use net::{NetSpec, SpecError};

use super::accumulate::{Accumulator, Gather};
use super::init;
use super::memory::{Memory, Need, NodeFacts};
use super::params::Freeze;
use super::params::Layout;
use super::params::NormPlace;
use super::plan::{SizePlans, facts, initial_running, make_plan, norm_places, param_specs};
use super::tensors::Tensors;

/// What a graph is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Forward, backward, gradients of chunks of this many bytes.
    Train {
        /// A gradient chunk closes once it holds this much.
        chunk_bytes: usize,
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
    /// Epoch, for the random draws.
    pub epoch: u32,
}

/// Parameters of the loss.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// Weight spread evenly over all classes.
    pub smoothing: f32,
    /// Factor of the gradient: 1 / (true number of samples of the whole step).
    pub scale: f32,
}

/// Receives a finished chunk of gradients: the sum over this rank's workers, or each worker's in order (see [`Gather`]).
pub type Ready<'a, B, E> = &'a mut dyn FnMut(usize, Vec<<B as DeviceMemory>::Buf>) -> Result<(), E>;

/// What training compares the scores with, where that is not labels.
pub(super) struct Soft<B: Backend> {
    pub(super) objective: Objective,
    /// Of the next pass, as [`SoftTargets::table`](backend::SoftTargets::table).
    pub(super) table: Vec<f32>,
    pub(super) teacher: Option<Box<Graph<B>>>,
}

/// Time spent in one node, forward and backward.
pub type NodeTime = [Duration; 2];

/// What one node took.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeCost {
    /// Its time.
    pub time: NodeTime,
    /// Its parallel regions, on a device with threads of this process.
    pub regions: Regions,
}

/// When a node ran.
#[derive(Clone, Copy, Debug)]
pub struct NodeSpan {
    /// Which.
    pub node: usize,
    /// Its backward pass.
    pub backward: bool,
    /// Its beginning.
    pub start: Instant,
    /// How long it took.
    pub took: Duration,
}

/// A pass whose sums were not read.
pub(super) struct UnreadPass {
    pub rows: usize,
    /// If they are known without asking the device.
    pub sums: Option<LossSums>,
}

/// A planned network with its parameters.
pub struct Graph<B: Backend> {
    pub(super) backend: Rc<B>,
    pub(super) net: NetSpec,
    /// What the size of the images settles.
    pub(super) now: SizePlans<B>,
    /// The same of the other sizes.
    pub(super) others: Vec<SizePlans<B>>,
    /// For each node, whether the scores depend on it.
    pub(super) serving: Vec<bool>,
    pub(super) seed: u64,
    pub(super) purpose: Purpose,
    pub(super) layout: Layout<B>,
    pub(super) slots: Vec<Vec<Slot>>,
    pub(super) weights: Arena<B>,
    /// Whether it only runs, beside another graph on its device.
    pub(super) beside: bool,
    /// Whether the device has yet to learn that they are others than its updates have left.
    pub(super) changed: bool,
    pub(super) grads: Arena<B>,
    /// Sums of this rank's workers before the last.
    pub(super) earlier: Accumulator<B>,
    pub(super) norms: Vec<NormPlace>,
    pub(super) running: Vec<f32>,
    pub(super) memory: Memory,
    /// What is left out while some parameters are not trained.
    pub(super) freeze: Freeze,
    pub(super) tensors: Tensors<B>,
    pub(super) current: usize,
    /// Passes whose sums were not read, in their order.
    pub(super) unread: VecDeque<UnreadPass>,
    /// Rows of the pass whose sums were read last.
    pub(super) read: usize,
    pub(super) profile: Option<Vec<NodeCost>>,
    /// When each node ran, where that is traced.
    pub(super) spans: Option<Vec<NodeSpan>>,
    /// Passes of nodes whose times the device has not told yet: node, and 0 forward or 1 backward.
    pub(super) stamped: Vec<(usize, usize)>,
    /// The ranks that share each batch's statistics.
    pub(super) across: Option<Box<dyn Across>>,
    /// Where training is against targets in place of labels.
    pub(super) soft: Option<Soft<B>>,
}

/// What can go wrong while a graph is built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The network does not fit together.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The device failed.
    #[error(transparent)]
    Backend(#[from] Error),
}

impl<B: Backend> Graph<B> {
    /// Plans `net` for batches of up to `batch` rows and fills its parameters from `seed`.
    pub fn new(backend: B, net: NetSpec, batch: usize, purpose: Purpose, seed: u64) -> Result<Self, BuildError> {
        Self::on(Rc::new(backend), net, batch, purpose, seed)
    }

    /// A network for inference on the device of this one.
    pub fn beside(&self, net: NetSpec, batch: usize) -> Result<Self, BuildError> {
        let graph = Self::on(Rc::clone(&self.backend), net, batch, Purpose::Infer, self.seed)?;
        Ok(Self { beside: true, ..graph })
    }

    fn on(backend: Rc<B>, net: NetSpec, batch: usize, purpose: Purpose, seed: u64) -> Result<Self, BuildError> {
        let shapes = net.shapes()?;
        let (specs, train) = (param_specs(&net, &shapes), purpose != Purpose::Infer);
        let (plan, descs) = make_plan(&*backend, &net, &shapes, batch, None, train)?;
        let formats: Vec<_> = plan.iter().map(|p| p.as_ref().map_or_else(Vec::new, |p| p.formats())).collect();
        let facts: Vec<NodeFacts> =
            plan.iter().zip(&descs[1..]).map(|(p, d)| facts(&*backend, p.as_deref(), d)).collect();
        let input = backend.words(&descs[0]);
        let (memory, chunk_bytes) = match purpose {
            Purpose::Train { chunk_bytes } => (Memory::train(&net, input, &facts), chunk_bytes),
            Purpose::Infer => (Memory::infer(&net, input, &facts), usize::MAX),
        };
        let freeze = Freeze::new(&net, &specs, &memory);
        let layout = Layout::new(&net, &specs, &formats, chunk_bytes);
        let mut slots = vec![Vec::new(); net.nodes.len()];
        layout.params.iter().for_each(|p| slots[p.node].push(p.slot));
        let workspace = backend.scratch_bytes() + plan.iter().flatten().map(|p| p.state_bytes()).sum::<usize>();
        let elems = layout.chunks.iter().fold(0, |sum: usize, chunk| sum.saturating_add(*chunk));
        let parameters = backend.parameter_bytes().saturating_mul(elems);
        Need::of(parameters, train, &memory, workspace).check(&net, batch, backend.free_bytes()?)?;
        let weights = Arena::new(&*backend, &layout.chunks)?;
        let grads = Arena::new(&*backend, if train { &layout.chunks } else { &[] })?;
        let norms = norm_places(&net, &shapes);
        let running = initial_running(&norms);
        let tensors = Tensors::new(&*backend, &memory)?;
        let mut graph = Self {
            backend,
            serving: net.serving(),
            net,
            now: SizePlans { shapes, descs, plans: BTreeMap::from([(batch, plan)]) },
            others: Vec::new(),
            seed,
            purpose,
            layout,
            slots,
            weights,
            beside: false,
            changed: true,
            grads,
            earlier: Accumulator::new(),
            norms,
            running,
            memory,
            freeze,
            tensors,
            current: batch,
            unread: VecDeque::new(),
            read: batch,
            profile: None,
            spans: None,
            stamped: Vec::new(),
            across: None,
            soft: None,
        };
        graph.check_scores()?;
        graph.fill_params()?;
        Ok(graph)
    }

    /// Draws the parameters' first values from the seed.
    fn fill_params(&mut self) -> Result<(), Error> {
        (0..self.layout.params.len()).try_for_each(|i| {
            let values = init::values(&self.layout.params[i].spec, i, self.seed);
            self.set_param(i, &values)
        })
    }

    /// Fails unless the network and its auxiliary classifiers end in vectors of scores, which the losses read.
    fn check_scores(&self) -> Result<(), Error> {
        for scores in self.net.scores() {
            let (shape, memory) = (self.now.shapes[scores], self.memory_desc(scores));
            let in_order = memory.is_plain() || memory.shape.plane() == 1;
            if shape.plane() != 1 || !in_order {
                let why = format!("a network must end in a vector of scores, not in {shape}");
                return Err(Error::Unsupported { op: self.net.name.clone(), why });
            }
        }
        Ok(())
    }

    pub(super) fn memory_desc(&self, tensor: usize) -> TensorDesc {
        self.now.descs[tensor]
    }

    /// Plans a smaller batch over the same memory and parameters; does nothing if there is such a plan.
    pub fn prepare(&mut self, batch: usize) -> Result<(), Error> {
        let largest = self.now.plans.keys().next_back().copied().unwrap_or(0);
        if batch > largest {
            let (expected, got) = (format!("at most {largest} rows"), batch.to_string());
            return Err(Error::Size { op: "a batch".into(), expected, got });
        }
        if batch > 0 && !self.now.plans.contains_key(&batch) {
            let formats: Vec<Vec<B::Format>> = (0..self.net.nodes.len()).map(|n| self.formats_of(n)).collect();
            let train = self.purpose != Purpose::Infer;
            let (plan, descs) = make_plan(
                &*self.backend,
                &self.net,
                &self.now.shapes,
                batch,
                Some((&formats, &self.now.descs)),
                train,
            )?;
            self.fits(&plan, &descs)?;
            self.now.plans.insert(batch, plan);
        }
        Ok(())
    }

    pub(super) fn formats_of(&self, node: usize) -> Vec<B::Format> {
        self.layout.params.iter().filter(|p| p.node == node).map(|p| p.format.clone()).collect()
    }

    /// Allocates room for the gradients of this rank's workers.
    pub fn prepare_accumulation(&mut self, workers: std::ops::Range<usize>, gather: Gather) -> Result<(), Error> {
        self.earlier.prepare(&self.backend, &self.layout.chunks, workers, gather)
    }
}
