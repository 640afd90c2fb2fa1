//! Runs the forward and backward passes of this rank's workers, one after the other.

use std::time::Instant;

use backend::Backend;
use engine::Ready;
use engine::{Batch, Loss, MicroBatch};
use formats::checkpoint::Progress;
use loaders::{Filling, Loader};

use crate::error::Error;
use crate::train::agree::Session;
use crate::train::device_input::DeviceInput;
use crate::train::observe::notices::Notices;
use crate::train::observe::trace::{Lane, Trace};
use crate::train::observe::watch::Activity;
use crate::train::plan::run::Run;
use crate::train::plan::targets::Targets;
use crate::train::reduce::gradients::GradientSum;
use crate::train::reduce::metrics::{StepMetrics, digest};

/// Provides this rank's batches to the device and starts the passes.
pub struct MicroBatches {
    input: DeviceInput,
    /// The batch whose copy to the device has already begun.
    next: Option<loaders::Batch>,
    smoothing: f32,
    /// The target probabilities, if labels alone are not enough for the loss.
    targets: Option<Targets>,
    /// True if the copy of the next batch may begin while the device still computes.
    early: bool,
}

/// An enqueued pass whose loss and hits were not read yet.
pub struct UnreadPass {
    digest: u64,
    /// Sum of the weights of the images. `None` without class weights.
    pub weight: Option<f64>,
    /// True if this is the last pass of this rank in the step.
    pub last: bool,
}

impl UnreadPass {
    /// Waits for loss and hits of the graph's oldest unread pass, which must be this pass, and adds them to `metrics`. The pass belongs to
    /// the step with number `step`.
    pub fn read<B: Backend>(
        &self,
        run: &mut Run<B>,
        step: u64,
        metrics: &mut StepMetrics,
        session: &Session,
    ) -> Result<(), Error> {
        wait_for_pass(run, step, session)?;
        let sums = run.graph.sums()?;
        session.watch.set_activity(Activity::Computing { step });
        metrics.add(&run.graph, sums, self.digest);
        metrics.add_weight(self.weight);
        Ok(())
    }
}

/// If the device has a queue, waits until it has computed the oldest unread pass, which belongs to the step with number `step`. If there is
/// more than one rank, then tells the watchdog that this rank now waits for the sums over the ranks.
pub fn wait_for_pass<B: Backend>(run: &Run<B>, step: u64, session: &Session) -> Result<(), Error> {
    if run.graph.backend().queue().is_some() {
        session.watch.set_activity(Activity::Device { step });
        run.graph.wait_for_pass()?;
        if session.world.size > 1 {
            session.watch.set_activity(Activity::DeviceSums { step });
        }
    }
    Ok(())
}

/// The observers of the passes: notices of skipped records, the trace, and the watchdog.
pub struct Observers<'a> {
    pub notices: &'a mut Notices,
    pub trace: &'a Trace,
    /// This rank and its watchdog.
    pub session: &'a Session,
}

impl MicroBatches {
    /// Creates the passes of this rank's workers. `input` converts batches to the device's input. The loss uses `smoothing` or, if present,
    /// `targets`.
    pub fn new(input: DeviceInput, smoothing: f32, targets: Option<Targets>) -> Self {
        Self { input, next: None, smoothing, targets, early: true }
    }

    /// Sets whether the next batch may be copied early. This must be false if another pass may run before that batch, as in sharpness-aware
    /// minimisation.
    pub fn send_early(&mut self, early: bool) {
        self.early = early;
    }

    /// Starts the forward and backward pass of one worker in the step after `at`. In the last worker's pass, `reduction` receives each
    /// bucket of gradients as soon as backward has finished it.
    pub fn start<B: Backend>(
        &mut self,
        run: &mut Run<B>,
        batch: &loaders::Batch,
        at: &Progress,
        turn: MicroBatch,
        reduction: &mut GradientSum<B>,
        session: &Session,
    ) -> Result<UnreadPass, Error> {
        let loss = self.loss(run, at);
        let pass = self.begin(run, batch, at, session)?;
        let mut hand_over = |bucket, gradients| reduction.ready(bucket, gradients);
        let ready: Option<Ready<'_, B, Error>> = if turn.last { Some(&mut hand_over) } else { None };
        run.graph.start(pass, loss, turn, ready)?;
        Ok(self.unread(batch, turn))
    }

    /// Returns the data about a pass with this batch that the metrics need when the loss is read.
    pub fn unread(&self, batch: &loaders::Batch, turn: MicroBatch) -> UnreadPass {
        let weight = self.targets.as_ref().and_then(Targets::weight);
        UnreadPass { digest: digest(turn.worker, batch.ids()), weight, last: turn.last }
    }

    /// Returns the arguments of the loss in the step after `at`. Gradients are means over the planned images of the
    /// step.
    pub fn loss<B: Backend>(&self, run: &Run<B>, at: &Progress) -> Loss {
        Loss { smoothing: self.smoothing, scale: 1.0 / run.samples(at.step_of_epoch) as f32 }
    }

    /// Begins a pass and returns its input.
    pub fn begin<'a, B: Backend>(
        &'a mut self,
        run: &mut Run<B>,
        batch: &'a loaders::Batch,
        at: &Progress,
        session: &Session,
    ) -> Result<Batch<'a>, Error> {
        // all regular batch sizes are already planned, so this plans only if records were skipped
        run.graph.prepare(batch.len())?;
        // the host only enqueues the pass. If this takes long, the host waits for the device
        let step = at.step + 1;
        let queues = run.graph.backend().queue().is_some();
        session.watch.set_activity(if queues { Activity::Device { step } } else { Activity::Computing { step } });
        let Self { input, targets, .. } = self;
        let labels = match (targets, run.graph.targets_mut()) {
            (Some(targets), Some(table)) => match (batch.label_sets(), batch.targets()) {
                (Some(sets), _) => targets.fill_sets(sets, batch.mix(), table),
                (None, Some(numbers)) => targets.fill_numbers(numbers, batch.mix(), table),
                (None, None) => targets.fill(batch.labels(), batch.mix(), table),
            },
            _ => batch.labels(),
        };
        Ok(Batch { images: input.input(batch), labels, ids: batch.keys(), epoch: at.epoch })
    }

    /// Returns the loader's next batch, which must belong to `worker`.
    pub fn take(
        &mut self,
        loader: &mut Loader,
        at: &Progress,
        worker: usize,
        observers: &mut Observers<'_>,
    ) -> Result<loaders::Batch, Error> {
        let start = Instant::now();
        let (epoch, step, session) = (at.epoch, at.step_of_epoch, observers.session);
        session.watch.set_activity(Activity::Data { step: at.step + 1, worker });
        let batch = match self.next.take() {
            Some(batch) => Some(batch),
            None => loader.next()?,
        };
        let place = |epoch, step, worker| format!("epoch {epoch}, step {step}, worker {worker}");
        let other = |got: String| {
            Error::Failed(format!(
                "the loader returned a wrong batch: expected {}, got {got}; this is a bug in trireme, please report it",
                place(epoch, step, worker)
            ))
        };
        let batch = batch.ok_or_else(|| other("none".into()))?;
        if (batch.epoch(), batch.step(), batch.worker()) != (epoch, step, worker) {
            return Err(other(place(batch.epoch(), batch.step(), batch.worker())));
        }
        observers.trace.part("data", "data wait", Lane::Compute, start, start.elapsed());
        for &Filling { thread, start, took } in batch.fillings() {
            observers.trace.part("load", format!("batch of worker {worker}"), Lane::Loader(thread), start, took);
        }
        observers.notices.records(batch.skipped(), &session.world);
        Ok(batch)
    }

    /// If the batch after the current one (`turn`) is ready, starts to copy it to the device while the device still computes.
    pub fn send_ahead<B: Backend>(
        &mut self,
        run: &Run<B>,
        loader: &mut Loader,
        at: &Progress,
        turn: MicroBatch,
    ) -> Result<(), Error> {
        // not after the last step of an epoch, because an evaluation may use the device before the next batch
        let follows = !turn.last || at.step_of_epoch + 1 < run.division.steps_per_epoch;
        let sends = self.early && run.graph.backend().queue().is_some() && self.input.is_copied_to_device();
        if follows && sends && loader.is_ready() {
            self.next = loader.next()?;
            let next = self.next.as_ref().filter(|batch| !batch.is_empty());
            next.map_or(Ok(()), |batch| run.graph.prefetch(self.input.input(batch)))?;
        }
        Ok(())
    }
}
