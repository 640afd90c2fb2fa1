//! One pass over a planned network: forward, loss, backward, and the hand-over of finished gradients. On a device with a queue the
//! whole pass is enqueued before anything is handed over or read, and equal passes are replayed.

use backend::{
    Arena, Backend, CrossEntropy, DrawKey, Error, Gradients, Input, Keeps, LossSums, Objective, Pass, PassInput,
    Planned, SoftLoss, SoftTargets, TensorDesc,
};

use super::accumulate::{Gather, MicroBatch};
use super::graph::{Batch, Graph, Loss, Ready, Soft, UnreadPass};
use super::memory::Move;
use super::params::NormPlace;
use super::replay::{Kind, PassGradients};
use super::tensors::TakenAll;

impl<B: Backend> Graph<B> {
    /// Runs the network over a batch with running statistics and returns the sums of loss and hits.
    pub fn evaluate(&mut self, batch: Batch<'_>, smoothing: f32) -> Result<LossSums, Error> {
        let loss = Loss { smoothing, scale: 0.0 };
        self.begin(&batch, Some(loss), false)?;
        self.enqueue(Kind::Loss, &mut |graph| {
            graph.forward(&batch, false)?;
            graph.loss(&batch, loss, false)
        })?;
        self.sums()
    }

    /// Runs the network over images without labels and returns the scores, (rows, classes).
    pub fn scores(&mut self, images: &[f32], rows: usize) -> Result<Vec<f32>, Error> {
        let ids = vec![0; rows];
        let batch = Batch { images: Input::Values(images), labels: &[], ids: &ids, epoch: 0 };
        self.begin(&batch, None, false)?;
        self.enqueue(Kind::Scores, &mut |graph| graph.forward(&batch, false))?;
        self.output(self.net.nodes.len())
    }

    /// [`Graph::start`], and the sums of the pass.
    pub fn train<E: From<Error>>(
        &mut self,
        batch: Batch<'_>,
        loss: Loss,
        micro_batch: MicroBatch,
        ready: Option<Ready<'_, B, E>>,
    ) -> Result<LossSums, E> {
        self.start(batch, loss, micro_batch, ready)?;
        Ok(self.sums()?)
    }

    /// Forward, loss and backward of one worker's share of a step. At the last micro-batch the gradients of all of this rank's
    /// workers are summed (or gathered); with `ready`, each chunk is handed over as soon as backward has finished it, or, on a
    /// device with a queue, as soon as the pass is enqueued: give it back with [`Self::put`]. Gradients per worker need
    /// `ready`: without it, the last worker's alone stay here. [`Graph::sums`] must come before the next pass.
    pub fn start<E: From<Error>>(
        &mut self,
        batch: Batch<'_>,
        loss: Loss,
        micro_batch: MicroBatch,
        ready: Option<Ready<'_, B, E>>,
    ) -> Result<(), E> {
        if micro_batch.last {
            self.gradients(&batch, loss, PassGradients::Sum, ready)?;
            self.earlier.clear();
            return Ok(());
        }
        let own = self.earlier.take(&self.backend, &self.layout.chunks)?;
        let whole = std::mem::replace(&mut self.grads, own);
        let result = self.gradients::<E>(&batch, loss, PassGradients::Own, None);
        let own = std::mem::replace(&mut self.grads, whole);
        result?;
        let (on, frozen) = (self.freeze.on, &self.layout.frozen);
        self.earlier.push(&self.backend, micro_batch.worker, own, |chunk| !(on && frozen[chunk]))?;
        Ok(())
    }

    /// Loss and hits of the oldest pass whose sums were not read; waits for it. At most
    /// [`Queue::passes_ahead`](backend::Queue::passes_ahead) passes may be unread when the next one begins.
    pub fn sums(&mut self) -> Result<LossSums, Error> {
        let UnreadPass { rows, sums } =
            self.unread.pop_front().unwrap_or(UnreadPass { rows: self.current, sums: None });
        self.read = rows;
        let sums = match sums {
            Some(sums) => sums,
            None => self.backend.queue().ok_or_else(no_sums)?.loss_sums()?,
        };
        self.read_clock()?;
        Ok(sums)
    }

    /// Starts copying the images of the next pass to the device, where it has a queue.
    pub fn prefetch(&self, images: Input<'_>) -> Result<(), Error> {
        self.backend.queue().map_or(Ok(()), |queue| queue.prefetch(&images))
    }

    /// Lines for the log since the last call: what the device does otherwise than planned.
    pub fn take_notes(&self) -> Vec<String> {
        self.backend.queue().map_or_else(Vec::new, |queue| queue.take_notes())
    }

    /// Multiplies the gradients of the step; all chunks must have been given back.
    pub fn scale_gradients(&mut self, factor: f32) -> Result<(), Error> {
        self.grads.chunks.iter_mut().try_for_each(|chunk| self.backend.scale(chunk, factor))
    }

    /// Leaves this batch's gradients in `grads`, chunk by chunk.
    fn gradients<E: From<Error>>(
        &mut self,
        batch: &Batch<'_>,
        loss: Loss,
        leaves: PassGradients,
        mut ready: Option<Ready<'_, B, E>>,
    ) -> Result<(), E> {
        if batch.labels.is_empty() {
            return self.no_samples(leaves, ready);
        }
        self.begin(batch, Some(loss), true)?;
        if self.backend.queue().is_none() {
            return self.forward_and_backward(batch, loss, leaves, &mut ready);
        }
        self.enqueue(Kind::Gradients(leaves), &mut |graph| {
            graph.forward_and_backward::<Error>(batch, loss, leaves, &mut None)
        })?;
        if leaves.last() { self.hand_over_all(&mut ready) } else { Ok(()) }
    }

    /// Forward, loss and backward; chunks are handed over as they finish unless the device has a queue.
    pub(super) fn forward_and_backward<E: From<Error>>(
        &mut self,
        batch: &Batch<'_>,
        loss: Loss,
        leaves: PassGradients,
        ready: &mut Option<Ready<'_, B, E>>,
    ) -> Result<(), E> {
        self.forward(batch, true)?;
        self.loss(batch, loss, true)?;
        self.backward(batch, leaves, ready)
    }

    fn backward<E: From<Error>>(
        &mut self,
        batch: &Batch<'_>,
        leaves: PassGradients,
        ready: &mut Option<Ready<'_, B, E>>,
    ) -> Result<(), E> {
        let mut next = 0;
        let moves = std::mem::take(self.moves_mut());
        let result = moves.iter().try_for_each(|step| {
            self.step_back(step, batch)?;
            if let Move::Node { node, .. } = step {
                next = self.finish_chunks(next, *node, leaves, ready)?;
            }
            Ok(())
        });
        *self.moves_mut() = moves;
        result
    }

    fn moves_mut(&mut self) -> &mut Vec<Move> {
        if self.freeze.on { &mut self.freeze.moves } else { &mut self.memory.moves }
    }

    /// A worker without samples: zero gradients; where batch normalisation spans the ranks, it joins their sums in their order.
    fn no_samples<E: From<Error>>(
        &mut self,
        leaves: PassGradients,
        mut ready: Option<Ready<'_, B, E>>,
    ) -> Result<(), E> {
        self.grads.chunks.iter_mut().try_for_each(|chunk| self.backend.zero(chunk))?;
        self.unread.push_back(UnreadPass { rows: self.current, sums: Some(LossSums::default()) });
        let mut next = 0;
        if let Some(across) = self.across.take() {
            let norms: Vec<NormPlace> = self.norms.iter().filter(|n| !self.freeze.holds(n.node)).copied().collect();
            norms.iter().try_for_each(|norm| across.no_statistics(norm.channels))?;
            for norm in norms.iter().rev() {
                // as on other ranks, finished chunks of the layers above the norm leave before its own sum
                next = self.finish_chunks(next, norm.node + 1, leaves, &mut ready)?;
                across.no_gradients(norm.channels)?;
            }
            self.across = Some(across);
        }
        self.finish_chunks(next, 0, leaves, &mut ready)?;
        if leaves.last() && self.backend.queue().is_some() { self.hand_over_all(&mut ready) } else { Ok(()) }
    }

    /// Completes the chunks from `next` on that are finished once backward has done `node`, and hands them over unless the device has
    /// a queue.
    fn finish_chunks<E: From<Error>>(
        &mut self,
        next: usize,
        node: usize,
        leaves: PassGradients,
        ready: &mut Option<Ready<'_, B, E>>,
    ) -> Result<usize, E> {
        let finished = |c: &usize| self.layout.finished_by[*c] >= node;
        let end = (next..self.layout.chunks.len()).take_while(finished).count() + next;
        for chunk in next..end {
            if !self.trains(chunk) {
                continue;
            }
            let own = &mut self.grads.chunks[chunk];
            // where earlier workers' are added, the update is not the only one to read them
            if leaves != PassGradients::ForUpdate || self.earlier.alive().next().is_some() {
                self.backend.gradients_done(chunk, own)?;
            }
            if leaves.last() {
                self.earlier.add_to(&self.backend, chunk, own)?;
            }
            let departs = leaves.last() || self.earlier.gather() == Gather::PerWorker;
            match self.backend.queue() {
                Some(queue) if departs => queue.mark(own)?,
                None if leaves.last() => self.hand_over(chunk, ready)?,
                _ => {}
            }
        }
        Ok(end)
    }

    pub(super) fn hand_over_all<E: From<Error>>(&mut self, ready: &mut Option<Ready<'_, B, E>>) -> Result<(), E> {
        (0..self.layout.chunks.len())
            .try_for_each(|chunk| if self.trains(chunk) { self.hand_over(chunk, ready) } else { Ok(()) })
    }

    fn hand_over<E: From<Error>>(&mut self, chunk: usize, ready: &mut Option<Ready<'_, B, E>>) -> Result<(), E> {
        let own = std::mem::take(&mut self.grads.chunks[chunk]);
        let finished = self.earlier.collect(chunk, own);
        match ready {
            Some(ready) => ready(chunk, finished)?,
            None => self.put(chunk, finished),
        }
        Ok(())
    }

    /// Checks the batch, plans it if its size is new, and gives the device the pass's inputs.
    pub(super) fn begin(&mut self, batch: &Batch<'_>, loss: Option<Loss>, training: bool) -> Result<(), Error> {
        let rows = batch.ids.len();
        let (each, per_image) = match batch.images {
            Input::Values(values) => (values.len(), self.input().elems()),
            Input::Bytes { pixels, .. } => (pixels.len(), self.input().elems()),
            Input::Kept { views, .. } => (views.len(), 1),
            Input::Held(rows) => (rows, 1),
        };
        if each != rows * per_image {
            let (expected, got) = (format!("{} values for {rows} images", rows * per_image), each.to_string());
            return Err(Error::Size { op: "a batch".into(), expected, got });
        }
        self.prepare(rows)?;
        self.current = rows;
        if self.changed {
            match self.beside {
                true => self.backend.weights_kept(&self.weights)?,
                false => self.backend.weights_changed(&self.weights)?,
            }
            self.changed = false;
        }
        if let Some(soft) = self.soft.as_mut().filter(|_| training) {
            soft.consult(batch)?;
        }
        if loss.is_some() {
            // the device keeps the sums of so many older passes
            let kept = self.backend.queue().map_or(0, |queue| queue.passes_ahead());
            self.unread.drain(..self.unread.len().saturating_sub(kept));
            self.unread.push_back(UnreadPass { rows, sums: None });
        }
        let soft = self.soft.as_ref().filter(|_| training && loss.is_some());
        let targets = soft.map(|soft| soft.targets(batch.labels));
        targets.map_or(Ok(()), |targets| targets.check(self.classes()))?;
        let start = PassInput {
            images: batch.images,
            key: self.key(batch),
            loss: loss.map(|loss| ask(batch, loss)),
            targets,
            running: &self.running,
            training: training && !self.norms.iter().any(|norm| self.freeze.holds(norm.node)),
        };
        let desc = TensorDesc { n: rows, ..self.memory_desc(0) };
        self.backend.begin(&start, &desc, &mut *self.tensors.take(self.value_of(0))?)
    }

    pub(super) fn forward<E: From<Error>>(&mut self, batch: &Batch<'_>, training: bool) -> Result<(), E> {
        let rows = self.current;
        let mut plan = self.now.plans.remove(&rows).unwrap_or_default();
        let result = (0..plan.len()).try_for_each(|node| match &mut plan[node] {
            Some(op) if training || self.serving[node] => self.forward_node(node, op.as_mut(), batch, training),
            _ => Ok(()),
        });
        self.now.plans.insert(rows, plan);
        Ok(result?)
    }

    fn forward_node(
        &mut self,
        node: usize,
        op: &mut dyn Planned<B>,
        batch: &Batch<'_>,
        training: bool,
    ) -> Result<(), Error> {
        let start = self.clock()?;
        let x = self.inputs(node, &self.memory.tensors, usize::MAX)?;
        let mut y = op.writes().then(|| self.tensors.take(self.value_of(node + 1))).transpose()?;
        let mut nothing = B::Buf::default();
        op.forward(&self.pass(node, batch, training), &x.refs(), y.as_deref_mut().unwrap_or(&mut nothing))?;
        drop((x, y));
        self.clocked(node, 0, start)
    }

    /// The loss of the scores; with `gradient`, also those of the auxiliary classifiers, whose sums nobody reads.
    fn loss<E: From<Error>>(&mut self, batch: &Batch<'_>, loss: Loss, gradient: bool) -> Result<(), E> {
        if gradient {
            for (head, at) in self.net.heads.clone().into_iter().zip(1..) {
                self.loss_of(head.output.0, CrossEntropy { weight: head.weight, ..ask(batch, loss) }, Some(at))?;
            }
        }
        // the last one's sums count
        let sums = self.loss_of(self.net.nodes.len(), ask(batch, loss), gradient.then_some(0))?;
        self.unread.back_mut().into_iter().for_each(|pass| pass.sums = sums);
        Ok(())
    }

    /// The loss of a tensor of scores, and its gradient in one of the buffers for these.
    fn loss_of(&mut self, scores: usize, ask: CrossEntropy<'_>, at: Option<usize>) -> Result<Option<LossSums>, Error> {
        let desc = TensorDesc { n: self.current, ..self.memory_desc(scores) };
        let mut dx = at.map(|at| self.tensors.take(self.memory.losses[at])).transpose()?;
        let (x, dx) = (self.tensors.take(self.value_of(scores))?, dx.as_deref_mut());
        match self.soft.as_ref().filter(|_| at.is_some()) {
            Some(soft) => soft.loss(&self.backend, &desc, ask, &x, dx),
            None => self.backend.cross_entropy(&desc, ask, &x, dx),
        }
    }

    fn key<'a>(&self, batch: &Batch<'a>) -> DrawKey<'a> {
        DrawKey { seed: self.seed, epoch: batch.epoch, ids: batch.ids }
    }

    pub(super) fn pass<'a>(&'a self, node: usize, batch: &Batch<'a>, training: bool) -> Pass<'a, B> {
        let place = self.norms.iter().find(|n| n.node == node);
        let place = place.copied().unwrap_or(NormPlace { node, channels: 0, offset: 0 });
        Pass {
            backend: &self.backend,
            params: &self.weights,
            slots: &self.slots[node],
            running: self.running_of(place),
            running_at: place.offset,
            training,
            key: self.key(batch),
            across: self.across.as_deref().filter(|_| !self.freeze.holds(node)),
            frozen: self.freeze.holds(node),
        }
    }
}

fn ask<'a>(batch: &Batch<'a>, loss: Loss) -> CrossEntropy<'a> {
    CrossEntropy { labels: batch.labels, smoothing: loss.smoothing, scale: loss.scale, weight: 1.0 }
}

fn no_sums() -> Error {
    Error::Unsupported { op: "cross-entropy".into(), why: "no loss was computed since its sums were taken".into() }
}

// Training against targets over all classes instead of labels: what is compared, the targets of the next pass, the teacher.

impl<B: Backend> Soft<B> {
    /// Of a batch with these labels.
    pub(super) fn targets<'a>(&'a self, labels: &'a [u32]) -> SoftTargets<'a> {
        SoftTargets { labels, table: &self.table }
    }

    /// The loss of a tensor of scores, with the labels and factors of `ask`.
    pub(super) fn loss(
        &self,
        backend: &B,
        desc: &TensorDesc,
        ask: CrossEntropy<'_>,
        x: &B::Buf,
        dx: Option<&mut B::Buf>,
    ) -> Result<Option<LossSums>, Error> {
        let CrossEntropy { labels, scale, weight, .. } = ask;
        let soft = SoftLoss { targets: self.targets(labels), objective: self.objective, scale, weight };
        let scores =
            self.teacher.as_ref().map(|teacher| teacher.tensors.take(teacher.value_of(teacher.net.nodes.len())));
        let scores = scores.transpose()?;
        backend.soft_loss(desc, soft, x, scores.as_deref(), dx)
    }

    /// Has the teacher score the batch that a pass begins with.
    pub(super) fn consult(&mut self, batch: &Batch<'_>) -> Result<(), Error> {
        let Some(teacher) = &mut self.teacher else { return Ok(()) };
        teacher.begin(batch, None, false)?;
        teacher.enqueue(Kind::Scores, &mut |teacher| teacher.forward(batch, false))
    }
}

impl<B: Backend> Graph<B> {
    /// From now on training passes compare the scores with the targets that [`Graph::targets_mut`] was given before each of them. Scoring
    /// goes on with labels.
    pub fn train_against(&mut self, objective: Objective) {
        self.soft = Some(Soft { objective, table: Vec::new(), teacher: None });
    }

    /// Gives the objective its teacher: a network that was made by [`Graph::beside`], for the same images.
    ///
    /// # Errors
    /// For another number of scores, and where training is against labels alone.
    pub fn teach(&mut self, teacher: Graph<B>) -> Result<(), Error> {
        let wrong = |expected: String, got: String| Err(Error::Size { op: "the teacher".into(), expected, got });
        if teacher.classes() != self.classes() || teacher.net.input != self.net.input {
            let text = |graph: &Graph<B>| format!("{} scores of images of {}", graph.classes(), graph.net.input);
            return wrong(text(self), text(&teacher));
        }
        match &mut self.soft {
            Some(soft) => soft.teacher = Some(Box::new(teacher)),
            None => return wrong("training against targets".into(), "labels".into()),
        }
        Ok(())
    }

    /// Bytes of the teacher's parameters and activations.
    pub fn teacher_bytes(&self) -> usize {
        let teacher = self.soft.as_ref().and_then(|soft| soft.teacher.as_ref());
        teacher.map_or(0, |t| 4 * (t.memory.elems + t.layout.chunks.iter().sum::<usize>()) + t.state_bytes())
    }

    /// The targets of the next training pass, as [`SoftTargets::table`]; none where training is against labels.
    pub fn targets_mut(&mut self) -> Option<&mut Vec<f32>> {
        self.soft.as_mut().map(|soft| &mut soft.table)
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
