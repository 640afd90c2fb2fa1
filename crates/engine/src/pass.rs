//! Passes over a planned network: forward, loss, backward, and the hand-over of finished gradients. On an asynchronous
//! device, which has a queue, the whole pass is enqueued before anything is handed over or read, and equal passes are
//! replayed.

use backend::{
    Across, Arena, Backend, CrossEntropy, Error, Gradients, Input, Keeps, LossSums, Pass, PassInput, Planned,
    TensorDesc,
};

use super::accumulate::MicroBatch;
use super::graph::{CurrentPass, Graph, UnreadPass};
use super::memory::BackwardStep;
use super::params::{NormPlace, Parameters};
use super::plan::{NetworkPlan, SizePlans};
use super::request::{Batch, Kind, Loss, PassGradients, Ready};
use super::tensors::{Tensors, ValueGuards};

impl<B: Backend> Graph<B> {
    /// Evaluates a batch. Batch normalisation uses its running statistics. Returns the sum of the losses and the
    /// numbers of correct predictions.
    pub fn evaluate(&mut self, batch: Batch<'_>, smoothing: f32) -> Result<LossSums, Error> {
        let loss = Loss { smoothing, scale: 0.0 };
        self.begin(&batch, Some(loss), false, false)?;
        self.enqueue(Kind::Loss, &mut |graph| {
            graph.forward(&batch, false)?;
            graph.loss(&batch, loss, false)
        })?;
        self.sums()
    }

    /// Runs the network over images without labels and returns the scores as (rows, classes).
    pub fn scores(&mut self, images: &[f32], rows: usize) -> Result<Vec<f32>, Error> {
        let ids = vec![0; rows];
        let batch = Batch { images: Input::Values(images), labels: &[], ids: &ids, epoch: 0 };
        self.begin(&batch, None, false, false)?;
        self.enqueue(Kind::Scores, &mut |graph| graph.forward(&batch, false))?;
        self.output(self.net().nodes.len())
    }

    /// Runs [`Graph::start`] and returns the sums of the pass.
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

    /// Runs forward, loss and backward for one worker's part of a step. With the last micro-batch, the gradients of all
    /// of this rank's workers are summed, or gathered per worker.
    ///
    /// In the pass of the last micro-batch, `ready` receives each trained bucket as soon as backward has finished it.
    /// On a device with a queue, it receives these buckets after the whole pass is enqueued. The caller must return
    /// each of them with [`Self::put`]. Gradients per worker need `ready`, because without it only the last worker's
    /// gradients stay in the graph. [`Graph::sums`] must be called once for each pass. Its comment states the number of
    /// passes that may begin before the call.
    pub fn start<E: From<Error>>(
        &mut self,
        batch: Batch<'_>,
        loss: Loss,
        micro_batch: MicroBatch,
        ready: Option<Ready<'_, B, E>>,
    ) -> Result<(), E> {
        if micro_batch.last {
            self.gradients(&batch, loss, PassGradients::Sum, ready)?;
            self.parameters.earlier.clear();
            return Ok(());
        }
        let own = self.parameters.earlier.take(&self.backend, &self.plan.layout.buckets)?;
        let whole = std::mem::replace(&mut self.parameters.gradients, own);
        let result = self.gradients::<E>(&batch, loss, PassGradients::Own, None);
        let Parameters { gradients, earlier, frozen, .. } = &mut self.parameters;
        let own = std::mem::replace(gradients, whole);
        result?;
        let trains = |bucket: usize| !(*frozen && self.plan.layout.frozen[bucket]);
        Ok(earlier.push(&self.backend, micro_batch.worker, own, trains)?)
    }

    /// Waits for the oldest pass with unread sums and returns its loss and numbers of correct predictions. When a pass
    /// begins, at most [`Queue::passes_ahead`](backend::Queue::passes_ahead) earlier passes may be unread.
    pub fn sums(&mut self) -> Result<LossSums, Error> {
        let oldest = self.pass.unread.pop_front();
        self.pass.rows_read = oldest.as_ref().map_or(self.pass.rows, |pass| pass.rows);
        let sums = match oldest.and_then(|pass| pass.sums) {
            Some(sums) => sums,
            None => self.backend.queue().ok_or_else(no_sums)?.loss_sums()?,
        };
        self.pass.clock.read(&*self.backend)?;
        Ok(sums)
    }

    /// Waits until the oldest pass with unread sums has computed its gradients. In contrast to [`Graph::sums`], does
    /// not wait for the sums over the ranks and the update that were enqueued after the pass. Does nothing if the
    /// device has no queue.
    pub fn wait_for_pass(&self) -> Result<(), Error> {
        let computes = self.pass.unread.front().is_some_and(|pass| pass.sums.is_none());
        self.backend.queue().filter(|_| computes).map_or(Ok(()), |queue| queue.wait_for_pass())
    }

    /// Starts to copy the images of the next pass to the device, if the device has a queue.
    pub fn prefetch(&self, images: Input<'_>) -> Result<(), Error> {
        self.backend.queue().map_or(Ok(()), |queue| queue.prefetch(&images))
    }

    /// Returns new log lines about passes that could not be run as planned, since the last call.
    pub fn take_notes(&self) -> Vec<String> {
        self.backend.queue().map_or_else(Vec::new, |queue| queue.take_notes())
    }

    /// Multiplies the gradients of the step by `factor`. All buckets must have been returned before.
    pub fn scale_gradients(&mut self, factor: f32) -> Result<(), Error> {
        self.parameters.gradients.buckets.iter_mut().try_for_each(|bucket| self.backend.scale(bucket, factor))
    }

    /// Computes the gradients of this batch and hands the trained buckets to `ready`. They are 0 if the batch has no
    /// labels, which means that the worker has no samples.
    fn gradients<E: From<Error>>(
        &mut self,
        batch: &Batch<'_>,
        loss: Loss,
        wanted: PassGradients,
        mut ready: Option<Ready<'_, B, E>>,
    ) -> Result<(), E> {
        if batch.labels.is_empty() {
            return self.no_samples(wanted, ready);
        }
        self.begin(batch, Some(loss), true, false)?;
        if self.backend.queue().is_none() {
            return self.forward_and_backward(batch, loss, wanted, &mut ready);
        }
        self.enqueue(Kind::Gradients(wanted), &mut |graph| {
            graph.forward_and_backward::<Error>(batch, loss, wanted, &mut None)
        })?;
        self.backend.queue().map_or(Ok(()), |queue| queue.mark_pass())?;
        if wanted.last() { self.parameters.hand_over_all(&self.plan.layout, &mut ready) } else { Ok(()) }
    }

    /// Runs forward, loss and backward. For the last micro-batch on a device without a queue, `ready` receives each
    /// bucket when it is finished.
    pub(super) fn forward_and_backward<E: From<Error>>(
        &mut self,
        batch: &Batch<'_>,
        loss: Loss,
        wanted: PassGradients,
        ready: &mut Option<Ready<'_, B, E>>,
    ) -> Result<(), E> {
        self.forward(batch, true)?;
        self.loss(batch, loss, true)?;
        let (backend, plan, parameters) = (&*self.backend, &self.plan, &mut self.parameters);
        let CurrentPass { tensors, rows, clock, .. } = &mut self.pass;
        let SizePlans { descs, operations, .. } = &mut self.current_size;
        let (operations, mut next) = (operations.get_mut(rows).map_or(&mut [][..], Vec::as_mut_slice), 0);
        for step in plan.backward_steps(parameters.frozen) {
            match *step {
                BackwardStep::Add { tensor, to, from } => {
                    let [mut to, from] = [tensors.take(to)?, tensors.take(from)?];
                    backend.add_tensors(&TensorDesc { n: *rows, ..descs[tensor] }, &mut to, &from)?;
                }
                BackwardStep::Recompute { node, .. } | BackwardStep::Node { node, .. } => {
                    let Parameters { weights, running, gradients, frozen, .. } = &mut *parameters;
                    let (across, frozen, training) = (self.across.as_deref(), *frozen, true);
                    let context = Context { backend, plan, weights, running, frozen, tensors, across, batch, training };
                    let start = clock.start(backend)?;
                    if let Some(op) = &mut operations[node] {
                        context.step_back(step, op.as_mut(), gradients)?;
                    }
                    clock.stop(backend, node, 1, start)?;
                }
            }
            if let BackwardStep::Node { node, .. } = *step {
                next = parameters.finish_buckets((backend, &plan.layout), next, node, wanted, ready)?;
            }
        }
        Ok(())
    }

    /// Produces zero gradients for a worker without samples. If batch normalisation spans the ranks, takes part in the
    /// sums of the other ranks in the same order.
    fn no_samples<E: From<Error>>(
        &mut self,
        wanted: PassGradients,
        mut ready: Option<Ready<'_, B, E>>,
    ) -> Result<(), E> {
        let (backend, plan, parameters) = (&*self.backend, &self.plan, &mut self.parameters);
        parameters.gradients.buckets.iter_mut().try_for_each(|bucket| backend.zero(bucket))?;
        self.pass.unread.push_back(UnreadPass { rows: self.pass.rows, sums: Some(LossSums::default()) });
        let (device, mut next) = ((backend, &plan.layout), 0);
        if let Some(across) = &self.across {
            let held = |norm: &&NormPlace| parameters.frozen && plan.freeze.freezes_node(norm.node);
            let norms: Vec<&NormPlace> = plan.norms.iter().filter(|norm| !held(norm)).collect();
            norms.iter().try_for_each(|norm| across.no_statistics(norm.channels))?;
            for norm in norms.iter().rev() {
                // Before the sum for this norm, hand over the finished buckets of the layers after the norm, as the
                // other ranks do.
                next = parameters.finish_buckets(device, next, norm.node + 1, wanted, &mut ready)?;
                across.no_gradients(norm.channels)?;
            }
        }
        parameters.finish_buckets(device, next, 0, wanted, &mut ready)?;
        let queued = wanted.last() && backend.queue().is_some();
        if queued { parameters.hand_over_all(&plan.layout, &mut ready) } else { Ok(()) }
    }

    /// Prepares a pass. Checks the batch, and plans its size if it is new. Updates the device's copies of the
    /// parameters if these have changed. In training, runs the teacher. Then passes the inputs to the device. With
    /// `images_again`, the device's next pass must read the same images.
    pub(super) fn begin(
        &mut self,
        batch: &Batch<'_>,
        loss: Option<Loss>,
        training: bool,
        images_again: bool,
    ) -> Result<(), Error> {
        let rows = batch.ids.len();
        let (each, per_image) = match batch.images {
            Input::Values(values) => (values.len(), self.input().elems()),
            Input::Bytes { pixels, .. } => (pixels.len(), self.input().elems()),
            Input::Stored { pixels, dtype, .. } => (pixels.len() / dtype.bytes(), self.input().elems()),
            Input::Kept { views, .. } => (views.len(), 1),
            Input::Held(rows) => (rows, 1),
        };
        if each != rows * per_image {
            let (expected, got) = (format!("{} values for {rows} images", rows * per_image), each.to_string());
            return Err(Error::Size { op: "a batch".into(), expected, got });
        }
        self.prepare(rows)?;
        self.pass.rows = rows;
        if self.parameters.changed {
            match self.shares_device {
                true => self.backend.untrained_weights_changed(&self.parameters.weights)?,
                false => self.backend.weights_changed(&self.parameters.weights)?,
            }
            self.parameters.changed = false;
        }
        if let Some(soft) = self.soft.as_mut().filter(|_| training) {
            soft.run_teacher(batch)?;
        }
        if loss.is_some() {
            // the device keeps the sums of only `kept` earlier passes
            let kept = self.backend.queue().map_or(0, |queue| queue.passes_ahead());
            self.pass.unread.drain(..self.pass.unread.len().saturating_sub(kept));
            self.pass.unread.push_back(UnreadPass { rows, sums: None });
        }
        let soft = self.soft.as_ref().filter(|_| training && loss.is_some());
        let targets = soft.map(|soft| soft.targets(batch.labels));
        targets.map_or(Ok(()), |targets| targets.check(self.classes()))?;
        let start = PassInput {
            images: batch.images,
            images_again,
            key: self.plan.key(batch),
            loss: loss.map(|loss| cross_entropy_args(batch, loss)),
            targets,
            running: &self.parameters.running,
            training: training && !self.norms().iter().any(|norm| self.is_node_frozen(norm.node)),
        };
        self.backend.begin(
            &start,
            &self.current_size.desc(0, rows),
            &mut *self.pass.tensors.take(self.plan.value_of(0))?,
        )
    }

    pub(super) fn forward<E: From<Error>>(&mut self, batch: &Batch<'_>, training: bool) -> Result<(), E> {
        let Self { plan, parameters: Parameters { weights, running, frozen, .. }, .. } = self;
        let CurrentPass { tensors, rows, clock, .. } = &mut self.pass;
        let (backend, across, frozen) = (&*self.backend, self.across.as_deref(), *frozen);
        let context = Context { backend, plan, weights, running, frozen, tensors, across, batch, training };
        let operations = self.current_size.operations.get_mut(rows).into_iter().flatten().enumerate();
        for (node, op) in operations.filter(|(node, _)| training || plan.serving[*node]) {
            if let Some(op) = op {
                let start = clock.start(backend)?;
                context.forward(node, op.as_mut())?;
                clock.stop(backend, node, 0, start)?;
            }
        }
        Ok(())
    }

    /// Computes the loss of the scores. With `gradient`, also computes the losses of the auxiliary classifiers, but
    /// only for their gradients.
    fn loss<E: From<Error>>(&mut self, batch: &Batch<'_>, loss: Loss, gradient: bool) -> Result<(), E> {
        if gradient {
            for (head, at) in self.plan.net.heads.clone().into_iter().zip(1..) {
                self.loss_of(
                    head.output.0,
                    CrossEntropy { weight: head.weight, ..cross_entropy_args(batch, loss) },
                    Some(at),
                )?;
            }
        }
        // The sums of this loss are the result of the pass. It comes last because a device with a queue keeps only the
        // sums of the last loss of a pass.
        let sums = self.loss_of(self.net().nodes.len(), cross_entropy_args(batch, loss), gradient.then_some(0))?;
        self.pass.unread.back_mut().into_iter().for_each(|pass| pass.sums = sums);
        Ok(())
    }

    /// Computes the loss of a tensor of scores. `at` is the index of the buffer for its gradient, or `None` if no
    /// gradient is needed.
    fn loss_of(&mut self, scores: usize, args: CrossEntropy<'_>, at: Option<usize>) -> Result<Option<LossSums>, Error> {
        let (desc, tensors) = (self.current_size.desc(scores, self.pass.rows), &self.pass.tensors);
        let mut dx = at.map(|at| tensors.take(self.plan.memory.losses[at])).transpose()?;
        let (x, dx) = (tensors.take(self.plan.value_of(scores))?, dx.as_deref_mut());
        match self.soft.as_ref().filter(|_| at.is_some()) {
            Some(soft) => soft.loss(&self.backend, &desc, args, &x, dx),
            None => self.backend.cross_entropy(&desc, args, &x, dx),
        }
    }
}

/// Everything that the operations of a pass need.
struct Context<'a, B: Backend> {
    backend: &'a B,
    plan: &'a NetworkPlan<B>,
    weights: &'a Arena<B>,
    running: &'a [f32],
    frozen: bool,
    tensors: &'a Tensors<B>,
    across: Option<&'a dyn Across>,
    batch: &'a Batch<'a>,
    training: bool,
}

impl<B: Backend> Context<'_, B> {
    fn pass(&self, node: usize) -> Pass<'_, B> {
        let place = self.plan.norms.iter().find(|n| n.node == node);
        let NormPlace { channels, offset, .. } = place.copied().unwrap_or(NormPlace { node, channels: 0, offset: 0 });
        let frozen = self.frozen && self.plan.freeze.freezes_node(node);
        Pass {
            backend: self.backend,
            params: self.weights,
            slots: &self.plan.slots[node],
            running: &self.running[offset..offset + 2 * channels],
            running_at: offset,
            training: self.training,
            key: self.plan.key(self.batch),
            across: self.across.filter(|_| !frozen),
            frozen,
        }
    }

    /// Takes the buffers of the first `count` inputs of a node. `values` maps tensors to values. For the remaining
    /// inputs, the buffers are empty.
    fn inputs(&self, node: usize, values: &[usize], count: usize) -> Result<ValueGuards<'_, B>, Error> {
        let inputs = self.plan.net.nodes[node].inputs.iter().enumerate();
        self.tensors.take_all(inputs.map(|(i, id)| (i < count).then(|| values[id.0])))
    }

    fn forward(&self, node: usize, op: &mut dyn Planned<B>) -> Result<(), Error> {
        let x = self.inputs(node, &self.plan.memory.tensors, usize::MAX)?;
        let mut y = op.writes_output().then(|| self.tensors.take(self.plan.value_of(node + 1))).transpose()?;
        let mut nothing = B::Buf::default();
        op.forward(&self.pass(node), &x.refs(), y.as_deref_mut().unwrap_or(&mut nothing))
    }

    /// Runs one step of the backward pass. Sums of gradients are handled by the caller.
    fn step_back(&self, step: &BackwardStep, op: &mut dyn Planned<B>, gradients: &mut Arena<B>) -> Result<(), Error> {
        let (tensors, kept) = (self.tensors, &self.plan.memory.kept);
        match *step {
            BackwardStep::Add { .. } => Ok(()),
            BackwardStep::Recompute { node, to } => {
                let x = self.inputs(node, kept, usize::MAX)?;
                op.recompute(&self.pass(node), &x.refs(), &mut *tensors.take(to)?)
            }
            BackwardStep::Node { node, dy, second, ref dx } => {
                let Keeps { inputs, output } = op.tensors_for_backward();
                let x = self.inputs(node, kept, inputs)?;
                let y = tensors.take_all([output.then_some(kept[node + 1])].into_iter())?;
                let mut dy = tensors.take(dy)?;
                let second = second.map(|second| tensors.take(second)).transpose()?;
                let take = |to: &Option<usize>| to.map(|to| tensors.take(to)).transpose();
                let mut dx = dx.iter().map(take).collect::<Result<Vec<_>, _>>()?;
                let g = Gradients {
                    x: &x.refs(),
                    y: y.refs()[0],
                    dy: &mut *dy,
                    dy2: second.as_deref(),
                    dx: dx.iter_mut().map(Option::as_deref_mut).collect(),
                    dparams: gradients,
                };
                op.backward(&self.pass(node), g)
            }
        }
    }
}

fn cross_entropy_args<'a>(batch: &Batch<'a>, loss: Loss) -> CrossEntropy<'a> {
    CrossEntropy { labels: batch.labels, smoothing: loss.smoothing, scale: loss.scale, weight: 1.0 }
}

fn no_sums() -> Error {
    Error::Unsupported { op: "cross-entropy".into(), why: "no sums to read; a pass with a loss must come first".into() }
}
