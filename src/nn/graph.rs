//! A network on a device: everything planned before the first step, then forward, loss and backward over fixed memory.

use std::collections::BTreeMap;
use std::time::Instant;

use super::accumulate::{Accumulator, Gather, Turn};
use super::init;
use super::memory::{Memory, Move, NodeFacts};
use super::params::Layout;
use super::plan::{Plan, facts, initial_running, make_plan, norm_places, param_specs};
use super::profile::{NodeSpan, NodeTime};
use super::spec::{NetSpec, SpecError};
use crate::backend::op::Shape;
use crate::backend::{
    Across, Arena, Backend, CrossEntropy, DrawKey, Error, Gradients, LossSums, Pass, Planned, Slot, TensorDesc,
};

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
    /// Plain NCHW.
    pub images: &'a [f32],
    /// Class of each row.
    pub labels: &'a [u32],
    /// Sample id of each row.
    pub ids: &'a [u64],
    /// Epoch, for the random draws.
    pub epoch: u32,
}

/// How the loss is taken.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// Weight spread evenly over all classes.
    pub smoothing: f32,
    /// Factor of the gradient: 1 / (true number of samples of the whole step).
    pub scale: f32,
}

/// Where a batch normalisation's running statistics lie.
#[derive(Clone, Copy, Debug)]
pub struct NormPlace {
    /// Its node.
    pub node: usize,
    /// Its number of channels C.
    pub channels: usize,
    /// First of 2 C values: means, then variances.
    pub offset: usize,
}

/// Takes a finished chunk of gradients: their sum over this rank's workers, or each worker's in order (see [`Gather`]).
pub type Ready<'a, B, E> = &'a mut dyn FnMut(usize, Vec<<B as Backend>::Buf>) -> Result<(), E>;

/// A planned network with its parameters.
pub struct Graph<B: Backend> {
    pub(super) backend: B,
    pub(super) net: NetSpec,
    pub(super) shapes: Vec<Shape>,
    seed: u64,
    purpose: Purpose,
    pub(super) layout: Layout<B>,
    slots: Vec<Vec<Slot>>,
    pub(super) weights: Arena<B>,
    pub(super) grads: Arena<B>,
    /// Sums of this rank's workers before the last.
    pub(super) earlier: Accumulator<B>,
    pub(super) norms: Vec<NormPlace>,
    pub(super) running: Vec<f32>,
    pub(super) plans: BTreeMap<usize, Plan<B>>,
    descs: Vec<TensorDesc>,
    pub(super) memory: Memory,
    buffers: Vec<B::Buf>,
    pub(super) current: usize,
    pub(super) profile: Option<Vec<NodeTime>>,
    /// The spans of the nodes, where someone follows them.
    pub(super) spans: Option<Vec<NodeSpan>>,
    /// The ranks that share each batch's statistics.
    pub(super) across: Option<Box<dyn Across>>,
}

/// What can go wrong while a graph is built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The network does not fit together.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The device refused.
    #[error(transparent)]
    Backend(#[from] Error),
}

impl<B: Backend> Graph<B> {
    /// Plans `net` for batches of up to `batch` rows and fills its parameters from `seed`.
    pub fn new(backend: B, net: NetSpec, batch: usize, purpose: Purpose, seed: u64) -> Result<Self, BuildError> {
        let shapes = net.shapes()?;
        let specs = param_specs(&net, &shapes);
        let (plan, descs) = make_plan(&backend, &net, &shapes, batch, None, purpose != Purpose::Infer)?;
        let formats: Vec<_> = plan.iter().map(|p| p.as_ref().map_or_else(Vec::new, |p| p.formats())).collect();
        let facts: Vec<NodeFacts> = plan.iter().zip(&descs[1..]).map(|(p, d)| facts(p.as_deref(), d)).collect();
        let (memory, chunk_bytes) = match purpose {
            Purpose::Train { chunk_bytes } => (Memory::train(&net, descs[0].elems(), &facts), chunk_bytes),
            Purpose::Infer => (Memory::infer(&net, descs[0].elems(), &facts), usize::MAX),
        };
        let layout = Layout::new(&backend, &net, &specs, &formats, chunk_bytes);
        let mut slots = vec![Vec::new(); net.nodes.len()];
        layout.params.iter().for_each(|p| slots[p.node].push(p.slot));
        let weights = Arena::new(&backend, &layout.chunks)?;
        let train = purpose != Purpose::Infer;
        let grads = Arena::new(&backend, if train { &layout.chunks } else { &[] })?;
        let norms = norm_places(&net, &shapes);
        let running = initial_running(&norms);
        let buffers = memory.buffers.iter().map(|&n| backend.alloc(n)).collect::<Result<_, _>>()?;
        let mut graph = Self {
            backend,
            net,
            shapes,
            seed,
            purpose,
            layout,
            slots,
            weights,
            grads,
            earlier: Accumulator::new(),
            norms,
            running,
            plans: BTreeMap::from([(batch, plan)]),
            descs,
            memory,
            buffers,
            current: batch,
            profile: None,
            spans: None,
            across: None,
        };
        graph.check_scores()?;
        for i in 0..graph.layout.params.len() {
            let values = init::values(&graph.layout.params[i].spec, i, seed);
            graph.set_param(i, &values)?;
        }
        Ok(graph)
    }

    /// The loss reads plain rows of scores.
    fn check_scores(&self) -> Result<(), Error> {
        let (last, shape) = (self.memory_desc(self.net.nodes.len()), self.shapes[self.net.nodes.len()]);
        if shape.plane() != 1 || !last.is_plain() {
            let why = format!("a network must end in a vector of scores from a linear layer, not in {shape}");
            return Err(Error::Unsupported { op: self.net.name.clone(), why });
        }
        Ok(())
    }

    fn memory_desc(&self, tensor: usize) -> TensorDesc {
        self.descs[tensor]
    }

    /// Plans a smaller batch over the same memory and parameters; does nothing if there is such a plan.
    pub fn prepare(&mut self, batch: usize) -> Result<(), Error> {
        let largest = self.plans.keys().next_back().copied().unwrap_or(0);
        if batch > largest {
            let (expected, got) = (format!("at most {largest} rows"), batch.to_string());
            return Err(Error::Size { op: "a batch".into(), expected, got });
        }
        if batch > 0 && !self.plans.contains_key(&batch) {
            let formats: Vec<Vec<B::Format>> = (0..self.net.nodes.len()).map(|n| self.formats_of(n)).collect();
            let train = self.purpose != Purpose::Infer;
            let (plan, _) = make_plan(&self.backend, &self.net, &self.shapes, batch, Some(&formats), train)?;
            self.plans.insert(batch, plan);
        }
        Ok(())
    }

    fn formats_of(&self, node: usize) -> Vec<B::Format> {
        self.layout.params.iter().filter(|p| p.node == node).map(|p| p.format.clone()).collect()
    }

    /// Allocates room for the gradients of this rank's workers.
    pub fn prepare_accumulation(&mut self, workers: std::ops::Range<usize>, gather: Gather) -> Result<(), Error> {
        self.earlier.prepare(&self.backend, &self.layout.chunks, workers, gather)
    }

    /// Runs the network over a batch and gives the sums of loss and hits; no gradient, running statistics.
    pub fn evaluate(&mut self, batch: Batch<'_>, smoothing: f32) -> Result<LossSums, Error> {
        self.forward(&batch, false)?;
        self.loss(&batch, Loss { smoothing, scale: 0.0 }, false)
    }

    /// Runs the network over images without labels and gives the scores, (rows, classes).
    pub fn scores(&mut self, images: &[f32], rows: usize) -> Result<Vec<f32>, Error> {
        let ids = vec![0; rows];
        self.forward(&Batch { images, labels: &[], ids: &ids, epoch: 0 }, false)?;
        self.output(self.net.nodes.len())
    }

    /// A tensor of the last pass (0 is the input, i + 1 the output of node i) as plain NCHW.
    pub fn output(&self, tensor: usize) -> Result<Vec<f32>, Error> {
        let desc = TensorDesc { n: self.current, ..self.memory_desc(tensor) };
        self.backend.download(&desc, &self.buffers[self.memory.tensors[tensor]])
    }

    /// Forward, loss and backward of one worker's share of a step. At the last worker's turn the gradients of all of this rank's
    /// workers are summed (or gathered); with `ready`, each chunk is handed over as soon as backward has finished it: give it
    /// back with [`Self::put`]. Gradients that are kept apart need `ready`: without it, the last worker's alone stay here.
    pub fn train<E: From<Error>>(
        &mut self,
        batch: Batch<'_>,
        loss: Loss,
        turn: Turn,
        ready: Option<Ready<'_, B, E>>,
    ) -> Result<LossSums, E> {
        if turn.last {
            let sums = self.gradients(&batch, loss, true, ready)?;
            self.earlier.clear();
            return Ok(sums);
        }
        let own = self.earlier.take(&self.backend, &self.layout.chunks)?;
        let whole = std::mem::replace(&mut self.grads, own);
        let sums = self.gradients::<E>(&batch, loss, false, None);
        let own = std::mem::replace(&mut self.grads, whole);
        let sums = sums?;
        self.earlier.push(&self.backend, turn.worker, own)?;
        Ok(sums)
    }

    /// Multiplies the gradients of the step, which must all be back.
    pub fn scale_gradients(&mut self, factor: f32) -> Result<(), Error> {
        self.grads.chunks.iter_mut().try_for_each(|chunk| self.backend.scale(chunk, factor))
    }

    /// Leaves this batch's gradients in `grads`; at the last turn with those of earlier workers, chunk by chunk.
    fn gradients<E: From<Error>>(
        &mut self,
        batch: &Batch<'_>,
        loss: Loss,
        last: bool,
        mut ready: Option<Ready<'_, B, E>>,
    ) -> Result<LossSums, E> {
        if batch.labels.is_empty() {
            return self.no_samples(last, ready);
        }
        self.forward(batch, true)?;
        let sums = self.loss(batch, loss, true)?;
        let mut next = 0;
        let moves = std::mem::take(&mut self.memory.moves);
        let result = moves.iter().try_for_each(|step| {
            self.backward_move(step, batch)?;
            if let Move::Node { node, .. } = step {
                next = self.finish_chunks(next, *node, last, &mut ready)?;
            }
            Ok(())
        });
        self.memory.moves = moves;
        result.map(|()| sums)
    }

    /// A worker without samples adds nothing; where statistics span the ranks, it takes part in the others' sums in their order.
    fn no_samples<E: From<Error>>(&mut self, last: bool, mut ready: Option<Ready<'_, B, E>>) -> Result<LossSums, E> {
        self.grads = Arena::new(&self.backend, &self.layout.chunks)?;
        let mut next = 0;
        if let Some(across) = self.across.take() {
            self.norms.iter().try_for_each(|norm| across.no_statistics(norm.channels))?;
            for norm in self.norms.clone().iter().rev() {
                // what the layers above the norm have finished leaves before its own sum, as everywhere
                next = self.finish_chunks(next, norm.node + 1, last, &mut ready)?;
                across.no_gradients(norm.channels)?;
            }
            self.across = Some(across);
        }
        self.finish_chunks(next, 0, last, &mut ready)?;
        Ok(LossSums::default())
    }

    /// Completes and hands over the chunks from `next` on that backward has finished once `node` is done.
    fn finish_chunks<E: From<Error>>(
        &mut self,
        next: usize,
        node: usize,
        last: bool,
        ready: &mut Option<Ready<'_, B, E>>,
    ) -> Result<usize, E> {
        let finished = |c: &usize| self.layout.finished_by[*c] >= node;
        let end = (next..self.layout.chunks.len()).take_while(finished).count() + next;
        for chunk in (next..end).filter(|_| last) {
            let own = std::mem::take(&mut self.grads.chunks[chunk]);
            let finished = self.earlier.finish(&self.backend, chunk, own)?;
            match ready {
                Some(ready) => ready(chunk, finished)?,
                None => self.put(chunk, finished),
            }
        }
        Ok(end)
    }

    fn forward(&mut self, batch: &Batch<'_>, training: bool) -> Result<(), Error> {
        let rows = batch.ids.len();
        let expected = rows * self.net.input.elems();
        if batch.images.len() != expected {
            let (expected, got) = (format!("{expected} values for {rows} images"), batch.images.len().to_string());
            return Err(Error::Size { op: "a batch".into(), expected, got });
        }
        self.prepare(rows)?;
        self.current = rows;
        self.backend.upload(batch.images, &mut self.buffers[self.memory.tensors[0]])?;
        let mut plan = self.plans.remove(&rows).unwrap_or_default();
        let result = (0..plan.len()).try_for_each(|node| match &mut plan[node] {
            Some(op) => self.forward_node(node, op.as_mut(), batch, training),
            None => Ok(()),
        });
        self.plans.insert(rows, plan);
        result
    }

    fn forward_node(
        &mut self,
        node: usize,
        op: &mut dyn Planned<B>,
        batch: &Batch<'_>,
        training: bool,
    ) -> Result<(), Error> {
        let start = self.watched().then(Instant::now);
        let to = self.memory.tensors[node + 1];
        let mut y = std::mem::take(&mut self.buffers[to]);
        let x: Vec<&B::Buf> = self.inputs(node);
        let result = op.forward(&self.pass(node, batch, training), &x, &mut y);
        self.buffers[to] = y;
        self.clock(node, 0, start);
        result
    }

    fn loss(&mut self, batch: &Batch<'_>, loss: Loss, gradient: bool) -> Result<LossSums, Error> {
        let scores = self.memory.tensors[self.net.nodes.len()];
        let desc = TensorDesc::plain(self.current, self.shapes[self.net.nodes.len()]);
        let ask = CrossEntropy { labels: batch.labels, smoothing: loss.smoothing, scale: loss.scale };
        if !gradient {
            return self.backend.cross_entropy(&desc, ask, &self.buffers[scores], None);
        }
        let mut dx = std::mem::take(&mut self.buffers[self.memory.loss]);
        let result = self.backend.cross_entropy(&desc, ask, &self.buffers[scores], Some(&mut dx));
        self.buffers[self.memory.loss] = dx;
        result
    }

    fn backward_move(&mut self, step: &Move, batch: &Batch<'_>) -> Result<(), Error> {
        let (node, dy, second, dx) = match *step {
            Move::Add { to, from } => {
                let mut sum = std::mem::take(&mut self.buffers[to]);
                let result = self.backend.add(&mut sum, &self.buffers[from]);
                self.buffers[to] = sum;
                return result;
            }
            Move::Node { node, dy, second, dx } => (node, dy, second, dx),
        };
        let start = self.watched().then(Instant::now);
        let mut plan = self.plans.remove(&self.current).unwrap_or_default();
        let mut dparams = std::mem::replace(&mut self.grads, Arena { chunks: Vec::new() });
        let mut dy_buf = std::mem::take(&mut self.buffers[dy]);
        let mut dx_buf = dx.map(|b| std::mem::take(&mut self.buffers[b]));
        let x = self.inputs(node);
        let g = Gradients {
            x: &x,
            y: &self.buffers[self.memory.tensors[node + 1]],
            dy: &mut dy_buf,
            dy2: second.map(|b| &self.buffers[b]),
            dx: dx_buf.as_mut(),
            dparams: &mut dparams,
        };
        let result = match plan[node].as_mut() {
            Some(op) => op.backward(&self.pass(node, batch, true), g),
            None => Ok(()),
        };
        self.buffers[dy] = dy_buf;
        if let (Some(place), Some(buffer)) = (dx, dx_buf) {
            self.buffers[place] = buffer;
        }
        self.grads = dparams;
        self.plans.insert(self.current, plan);
        self.clock(node, 1, start);
        result
    }

    fn inputs(&self, node: usize) -> Vec<&B::Buf> {
        self.net.nodes[node].inputs.iter().map(|id| &self.buffers[self.memory.tensors[id.0]]).collect()
    }

    fn pass<'a>(&'a self, node: usize, batch: &Batch<'a>, training: bool) -> Pass<'a, B> {
        let running = self.norms.iter().find(|n| n.node == node).map_or(&[][..], |n| self.running_of(*n));
        let key = DrawKey { seed: self.seed, epoch: batch.epoch, ids: batch.ids };
        let across = self.across.as_deref();
        Pass { backend: &self.backend, params: &self.weights, slots: &self.slots[node], running, training, key, across }
    }
}
