//! An optimizer step, as in Goyal et al. 2017 (arXiv 1706.02677): each worker computes a gradient, the gradients are summed over all ranks,
//! and the optimizer updates the weights once.
//!
//! A step stays in a queue from its first pass until the sums of its last pass (loss and hits) are read. If the device
//! computes asynchronously, the host does not read the sums at once. It first enqueues the update of the step and the
//! passes of the next step. So the device never waits for the host. Records, running statistics, and the error about a
//! loss that is not finite then come some passes later, with unchanged values. All ranks read the sums of the same
//! steps in the same order.
//!
//! If ranks step independently between synchronisations (see [`strategy`](super::strategy)), each rank sums only over its own workers. The
//! ranks do not communicate in these steps. When they synchronise, the records of these steps are summed over the ranks and returned
//! together.

use std::collections::VecDeque;
use std::time::Instant;

use backend::{Backend, LossScale, LossSums, Precision, Queue};
use engine::{Gather, MicroBatch};
use formats::checkpoint::Progress;
use loaders::Loader;

use crate::error::Error;
use crate::train::agree::Session;
use crate::train::device_input::DeviceInput;
use crate::train::micro_batches::{self, MicroBatches, Observers, UnreadPass};
use crate::train::observe::notices;
use crate::train::observe::notices::{Notices, not_finite};
use crate::train::observe::timing::{EpochTiming, RankTiming, StepRecord};
use crate::train::observe::trace::{Lane, Trace};
use crate::train::page;
use crate::train::plan::run::Run;
use crate::train::plan::targets::Targets;
use crate::train::reduce::gradients::GradientSum;
use crate::train::reduce::metrics::{MetricsLayout, Requests, StepMetrics};
use crate::train::reduce::ranks::{AllRanks, MpiRanks, Waited};
use crate::train::reduce::transport::{Transport, TransportPlan};
use crate::train::sam::Sam;

pub struct Stepper<'a, B: Backend> {
    session: &'a Session,
    batches: MicroBatches,
    /// State for sharpness-aware minimisation, which computes two gradients per step. `None` without it.
    sam: Option<Sam<B>>,
    reduction: GradientSum<B>,
    layout: MetricsLayout,
    /// Precision of the recipe, for the message about a loss that is not finite.
    precision: Precision,
    /// This rank's times in the previous step.
    before: RankTiming,
    timing: EpochTiming,
    trace: Trace,
    /// Time that batch norm over all ranks has spent in its sums.
    sync_bn: Waited,
    /// Number of passes that may be enqueued before the sums (loss and hits) of an earlier pass are read.
    passes_ahead: usize,
    /// Passes whose sums are unread, oldest first.
    unread: VecDeque<UnreadPass>,
    /// The steps that the unread passes belong to, oldest first.
    in_flight: VecDeque<StepInFlight>,
    /// Time when the host finished reading the sums of the last step.
    read: Option<Instant>,
    /// Steps whose sums were read, but whose records were not yet returned.
    pending: Vec<PendingStep>,
    /// See [`take_finite`](Self::take_finite).
    finite: Vec<StepRecord>,
    agreed: Requests,
    notices: Notices,
    /// Loss scale after the last step.
    scale: Option<LossScale>,
    /// Statistics of the layers in the last step, if they were measured.
    layers: Option<report::Layers>,
}

/// A step in which the sums of at least one pass are unread.
struct StepInFlight {
    /// Metrics of the passes whose sums were read.
    metrics: StepMetrics,
    /// The record of the step. The values that depend on the sums are added later.
    record: StepRecord,
    start: Instant,
    /// True if this rank has images in the step.
    has_images: bool,
    /// The sum of the image weights in each pass. Empty without class weights.
    weights: Vec<f64>,
    /// Result of an update that was enqueued before the sums were read: false if a parameter is known not to be finite. `None` if the
    /// update was not enqueued yet.
    updated: Option<bool>,
}

/// Returns the number of passes that may be enqueued before the sums of an earlier pass are read. It is 0 if the host must do something
/// between a pass and the update. All ranks return the same number.
fn passes_ahead<B: Backend>(run: &Run<B>, ranks: usize, transport: &Transport<B>, traced: bool) -> usize {
    let backend = run.graph.backend();
    let ahead = backend.queue().map_or(0, Queue::passes_ahead);
    // all ranks must have the same number of passes, so that they sum a step's metrics between the same two passes
    let even = run.division.workers.is_multiple_of(ranks) && !(run.recipe.sync_bn && ranks > 1);
    // if MPI sums encoded gradients, the host must read them before the update
    let enqueued = run.reduction.gather() == Gather::Summed || matches!(transport, Transport::Nccl(_));
    // traced layer times and measured gradients are read after each step
    let measured = run.recipe.log.histograms.is_some() || run.recipe.optimizer.sam_rho.is_some();
    if even && enqueued && run.strategy.sums_gradients() && !(traced || measured) { ahead } else { 0 }
}

/// A step whose sums were read, but whose record was not yet returned.
struct PendingStep {
    /// The metrics, summed over the ranks that step together.
    metrics: StepMetrics,
    /// This rank's part of the loss, for the message about a loss that is not finite.
    own_loss: f64,
    /// The record of the step. The ranks' times are added when the metrics are summed over all ranks.
    record: StepRecord,
}

impl<'a, B: Backend> Stepper<'a, B> {
    /// Prepares the steps of a planned run.
    pub fn new(
        session: &'a Session,
        run: &mut Run<B>,
        input: DeviceInput,
        plan: TransportPlan<B>,
        trace: &Trace,
    ) -> Result<Self, Error> {
        let (sync_bn, ranks) = (Waited::default(), session.world.size);
        if run.recipe.sync_bn && ranks > 1 {
            run.graph.normalise_across(Box::new(AllRanks::new(session.comm.clone(), sync_bn.clone())))?;
        }
        run.graph.follow(trace.follows_steps());
        let layout = MetricsLayout::new(&run.graph, ranks, run.reduction.metrics_gather());
        let layout = layout.weighted(run.recipe.loss.class_weights.is_some());
        let together = if run.strategy.sums_gradients() { ranks } else { 1 };
        let mine = run.division.mine.clone();
        let passes_ahead = passes_ahead(run, ranks, &plan.transport, trace.follows_steps());
        let mut reduction = GradientSum::new(session.comm.clone(), together, plan, mine, &mut run.reduction);
        reduction.follow(trace);
        Ok(Self {
            session,
            batches: MicroBatches::new(input, run.recipe.label_smoothing as f32, Targets::from_run(run)),
            sam: None,
            reduction,
            layout,
            precision: run.recipe.precision,
            before: RankTiming::default(),
            timing: EpochTiming::default(),
            trace: trace.clone(),
            sync_bn,
            passes_ahead,
            unread: VecDeque::new(),
            in_flight: VecDeque::new(),
            read: None,
            pending: Vec::new(),
            finite: Vec::new(),
            agreed: Requests::default(),
            notices: Notices::default(),
            scale: run.graph.backend().loss_scaling().map(|scaling| scaling.scale()).transpose()?,
            layers: None,
        })
    }

    /// Runs or enqueues the step after `at` and advances `at`. Returns the records of the steps whose metrics are now summed over all
    /// ranks. This is one record per call, unless the device works ahead or ranks step independently. `requests` are this rank's requests.
    pub fn step(
        &mut self,
        run: &mut Run<B>,
        loader: &mut Loader,
        at: &mut Progress,
        requests: Requests,
    ) -> Result<Vec<StepRecord>, Error> {
        let start = Instant::now();
        self.agreed = Requests::default();
        run.begin_step(at.epoch);
        self.reduction.begin(at.step, page::due(run, at));
        let mut metrics = self.layout.zero();
        metrics.set_requests(requests);
        let record = StepRecord {
            epoch: at.epoch,
            step: at.step + 1,
            lr: run.schedule.lr(at.step),
            seconds: 0.0,
            loss: LossSums::default(),
            samples: 0,
            grad_norm: None,
            scale: None,
            timings: Vec::new(),
        };
        self.in_flight.push_back(StepInFlight {
            metrics,
            record,
            start,
            has_images: false,
            weights: Vec::new(),
            updated: None,
        });
        // wait for the sums if a checkpoint must include this step, or if it is the first step, whose time is reported
        self.run_passes(run, loader, at, self.read.is_none() || requests.stop || requests.save)?;
        let records = if run.strategy.synchronises(at.step) { self.synchronise(run, at)? } else { Vec::new() };
        self.before.step = start.elapsed().as_secs_f64() * 1e3;
        (at.step, at.step_of_epoch) = (at.step + 1, at.step_of_epoch + 1);
        Ok(records)
    }

    /// Runs the passes of this rank's workers and starts the sums of their gradients. Up to `passes_ahead` passes stay unread. Reads the
    /// sums of all passes if `waits` is set on any rank.
    fn run_passes(
        &mut self,
        run: &mut Run<B>,
        loader: &mut Loader,
        at: &Progress,
        mut waits: bool,
    ) -> Result<(), Error> {
        let (waited, mine, must_sum) =
            (loader.stats().wait, run.division.mine.clone(), self.reduction.must_sum_buckets());
        // the host enqueues sums, or divides by summed weights, between the last pass and the update
        let host_acts_before_update = must_sum || run.recipe.loss.class_weights.is_some();
        let (mut images, mut updates) = (0, false);
        for worker in mine.clone() {
            let mut observers = Observers { notices: &mut self.notices, trace: &self.trace, session: self.session };
            let batch = self.batches.take(loader, at, worker, &mut observers)?;
            images += batch.len();
            if let Some(step) = self.in_flight.back_mut() {
                step.has_images |= !batch.is_empty();
            }
            let turn = MicroBatch { worker, last: worker + 1 == mine.end };
            if turn.last && self.passes_ahead > 0 {
                (images, waits) = self.over_ranks(images, waits)?;
                // enqueue the update early only if no record was skipped, because otherwise the gradients must be rescaled first
                updates = images == run.samples(at.step_of_epoch) && (must_sum || !batch.is_empty());
            }
            let data = (loader.stats().wait - waited).as_secs_f64() * 1e3 + self.before.data;
            let timing = RankTiming { data, ..self.before };
            if let Some(step) = self.in_flight.back_mut() {
                step.metrics.set_timing(self.session.world.rank, timing);
            }
            let pass = match updates && !host_acts_before_update {
                true => self.start_with_update(run, &batch, at, turn)?,
                false => {
                    // send the update's numbers, such as the rate, together with the pass's inputs; without images there is no pass
                    if updates && !batch.is_empty() {
                        run.optimizer.set_momentum(run.schedule.momentum(at.step));
                        run.optimizer.announce(&run.graph, run.schedule.lr(at.step), run.ema.as_ref())?;
                    }
                    self.batches.start(run, &batch, at, turn, &mut self.reduction, self.session)?
                }
            };
            if let Some(step) = self.in_flight.back_mut() {
                step.weights.extend(pass.weight);
            }
            self.unread.push_back(pass);
            self.batches.send_ahead(run, loader, at, turn)?;
            if updates && host_acts_before_update {
                // the first update waits until its lists are copied to the device. Wait for the pass before it, so that the watchdog
                // reports the right reason
                if self.read.is_none() {
                    micro_batches::wait_for_pass(run, at.step + 1, self.session)?;
                }
                self.update_early(run, at)?;
            }
            let stays = if turn.last && (waits || !updates) { 0 } else { self.passes_ahead };
            self.read_passes(run, at, stays)?;
        }
        Ok(())
    }

    /// Sums the numbers of images in a step over all ranks. Also returns whether any rank must wait for the step's sums. Collective.
    fn over_ranks(&self, images: usize, waits: bool) -> Result<(usize, bool), Error> {
        let mut sums = [images as u64, u64::from(waits)];
        if self.session.world.size > 1 {
            self.session.comm.run("sum of images", |world| world.sum_u64(&mut sums))?;
        }
        Ok((sums[0] as usize, sums[1] > 0))
    }

    /// Starts the last pass of a step together with the optimizer's update, for a step whose gradients do not leave this rank.
    fn start_with_update(
        &mut self,
        run: &mut Run<B>,
        batch: &loaders::Batch,
        at: &Progress,
        turn: MicroBatch,
    ) -> Result<UnreadPass, Error> {
        let (loss, lr) = (self.batches.loss(run, at), run.schedule.lr(at.step));
        let pass = self.batches.begin(run, batch, at, self.session)?;
        run.optimizer.set_momentum(run.schedule.momentum(at.step));
        run.optimizer.step_with_pass(&mut run.graph, pass, loss, lr, run.ema.as_mut())?;
        if let Some(step) = self.in_flight.back_mut() {
            step.updated = Some(true);
        }
        Ok(self.batches.unread(batch, turn))
    }

    /// Enqueues the gradient sums and the update of the step after `at` before the host reads the sums of its passes.
    fn update_early(&mut self, run: &mut Run<B>, at: &Progress) -> Result<(), Error> {
        let Some(step) = self.in_flight.back_mut() else { return Ok(()) };
        self.reduction.finish_gradients(&mut run.graph, step.metrics.own_loss())?;
        if run.recipe.loss.class_weights.is_some() {
            run.rescale(at.step_of_epoch, self.reduction.sum_weights(&step.weights)?)?;
        }
        step.updated = Some(optimize(run, &step.record)?);
        Ok(())
    }

    /// Reads the sums of passes until only `stays` passes are unread. Finishes each step whose last pass was read. The newest step in
    /// flight may be the one after `at`.
    fn read_passes(&mut self, run: &mut Run<B>, at: &Progress, stays: usize) -> Result<(), Error> {
        while self.unread.len() > stays
            && let (Some(pass), Some(step)) = (self.unread.pop_front(), self.in_flight.front_mut())
        {
            pass.read(run, step.record.step, &mut step.metrics, self.session)?;
            if pass.last
                && let Some(step) = self.in_flight.pop_front()
            {
                self.finish_step(run, at, step)?;
            }
        }
        Ok(())
    }

    /// Finishes a step after the sums of its last pass were read. Sums the metrics over the ranks that step together. Updates the running
    /// statistics, and the parameters unless their update was enqueued early. The gradients are already means, because each loss was
    /// multiplied by 1 / images.
    fn finish_step(&mut self, run: &mut Run<B>, at: &Progress, step: StepInFlight) -> Result<(), Error> {
        let StepInFlight { metrics, record, start, has_images, updated, .. } = step;
        let later = [updated].into_iter().chain(self.in_flight.iter().map(|step| step.updated)).flatten().count();
        self.check_loss_scale(run, record.step - 1, later as u64, has_images)?;
        let own_loss = metrics.own_loss();
        if updated.is_none() {
            self.reduction.finish_gradients(&mut run.graph, own_loss)?;
        }
        self.reduction.check(record.step - 1, own_loss)?;
        let metrics = self.reduction.sum_metrics(&metrics)?;
        self.before.comm = (self.reduction.take_wait() + self.sync_bn.take()).as_secs_f64() * 1e3;
        let (loss, samples, scale) = (metrics.loss_sums(), metrics.samples(), self.scale);
        let mut step = PendingStep { metrics, own_loss, record: StepRecord { loss, samples, scale, ..record } };
        if updated.is_none() {
            self.before_update(run, at, &step)?;
        }
        self.update(run, &mut step, updated)?;
        if !run.strategy.sums_gradients() {
            // the metrics stay in memory until the ranks synchronise, and are then sent
            step.metrics.drop_statistics();
        }
        self.trace_layers(run);
        let now = Instant::now();
        let begin = self.read.replace(now).map_or(start, |read| read.max(start));
        step.record.seconds = (now - begin).as_secs_f64();
        self.pending.push(step);
        Ok(())
    }

    /// Completes the summed gradients of the step after `at` before its update. Rescales them and, with sharpness-aware
    /// minimisation, computes the second gradient. If they are due, measures the layers and runs the first part of the
    /// strategy's synchronisation.
    fn before_update(&mut self, run: &mut Run<B>, at: &Progress, step: &PendingStep) -> Result<(), Error> {
        run.rescale(at.step_of_epoch, step.metrics.total())?;
        self.replace_by_sam_gradient(run, at)?;
        if page::due(run, at) {
            self.layers = page::measure(self.session, run, at, &mut self.reduction, self.scale)?;
        }
        if run.strategy.synchronises(at.step) {
            let begin = Instant::now();
            run.strategy.before_update(run.graph.weights(), &mut self.ranks())?;
            self.synchronised(run, begin);
        }
        Ok(())
    }

    /// Sets the source of the images for the next steps, which begin at the given epoch and step of the epoch.
    pub fn feed(&mut self, run: &Run<B>, input: DeviceInput, at: (u32, u64)) -> Result<(), Error> {
        self.batches = MicroBatches::new(input.clone(), run.recipe.label_smoothing as f32, Targets::from_run(run));
        self.prepare_sam(run, input, at)
    }

    /// Prepares sharpness-aware minimisation, if the recipe requests it, starting at the given epoch and step of the
    /// epoch.
    pub fn prepare_sam(&mut self, run: &Run<B>, input: DeviceInput, at: (u32, u64)) -> Result<(), Error> {
        // frees the memory and the loader threads of the old pass first
        self.sam = None;
        self.sam = Sam::new(run, input, at)?;
        self.batches.send_early(self.sam.is_none());
        Ok(())
    }

    /// With sharpness-aware minimisation, replaces the gradients by the gradients of the same images at the moved parameters. Otherwise
    /// does nothing.
    fn replace_by_sam_gradient(&mut self, run: &mut Run<B>, at: &Progress) -> Result<(), Error> {
        let Some(mut sam) = self.sam.take() else { return Ok(()) };
        sam.climb(run)?;
        self.reduction.begin_second_gradient();
        let (mut metrics, mut seen) = (self.layout.zero(), Notices::default());
        let mut observers = Observers { notices: &mut seen, trace: &self.trace, session: self.session };
        let waited = sam.loader.stats().wait;
        sam.passes(run, at, &mut self.reduction, &mut metrics, &mut observers)?;
        // the time is reported with the next step, as is the time for communication
        self.before.data = (sam.loader.stats().wait - waited).as_secs_f64() * 1e3;
        self.reduction.finish_gradients(&mut run.graph, metrics.own_loss())?;
        let metrics = self.reduction.sum_metrics(&metrics)?;
        run.rescale(at.step_of_epoch, metrics.total())?;
        sam.descend(run)?;
        self.sam = Some(sam);
        Ok(())
    }

    /// Reads the loss scale after step `done`, although the updates of `later` more steps may already be enqueued. Adds a notice if the
    /// device skipped that step. Returns an error if the scale has reached its minimum and gradients are still not finite.
    fn check_loss_scale(&mut self, run: &Run<B>, done: u64, later: u64, has_images: bool) -> Result<(), Error> {
        let Some(scaling) = run.graph.backend().loss_scaling() else { return Ok(()) };
        // with images, the host has read a pass that was enqueued after the update of step `done`, so the scale is already known
        if !has_images {
            scaling.scale()?;
        }
        let now = scaling.scale_before(later);
        if self.session.is_root() && self.scale.is_some_and(|before| now.lost > before.lost) {
            self.notices.step(done, &now);
        }
        self.scale = Some(now);
        notices::underflow(&self.session.world, &now, !run.strategy.sums_gradients()).map_or(Ok(()), Err)
    }

    /// Runs the optimizer, unless its update was enqueued early. Then updates the running statistics and their average. If a parameter or a
    /// statistic is not finite, sets the loss in the metrics to NaN, which informs all ranks.
    fn update(&mut self, run: &mut Run<B>, step: &mut PendingStep, updated: Option<bool>) -> Result<(), Error> {
        let together = run.strategy.sums_gradients();
        // If the loss is not finite, do not update: `records` then ends the run on all ranks together. A rank that steps independently and
        // has no samples in a short batch has no gradient to apply.
        if (together && !step.metrics.loss().is_finite()) || (!together && step.record.loss.count == 0) {
            // count the step anyway, because all ranks must have the same step count when their optimizer state is averaged
            run.optimizer.set_steps(step.record.step);
            return Ok(());
        }
        let begin = Instant::now();
        let finite = updated.map_or_else(|| optimize(run, &step.record), Ok)?;
        step.record.grad_norm = run.optimizer.grad_norm(step.record.step)?.filter(|_| together);
        if !(step.metrics.update_running(&mut run.graph) && finite) {
            step.metrics.spoil();
            if !together {
                step.own_loss = f64::NAN;
            }
        }
        if let Some(ema) = &mut run.ema {
            ema.update_running(run.graph.running_mut(), step.record.step);
        }
        self.trace.part("update", "optimizer", Lane::Compute, begin, begin.elapsed());
        Ok(())
    }

    /// Returns the records of all pending steps. If ranks step independently, also synchronises their models.
    fn synchronise(&mut self, run: &mut Run<B>, at: &mut Progress) -> Result<Vec<StepRecord>, Error> {
        let begin = Instant::now();
        let records = self.records(run, at)?;
        if !run.strategy.sums_gradients() {
            let mut slots = run.optimizer.slots_mut().map(|slot| slot.1);
            run.strategy.after_update(run.graph.weights_mut().1, &mut slots, &mut self.ranks())?;
        }
        self.synchronised(run, begin);
        Ok(records)
    }

    /// If ranks step independently, counts the time since `begin` as a wait for other ranks.
    fn synchronised(&mut self, run: &Run<B>, begin: Instant) {
        if !run.strategy.sums_gradients() {
            self.before.comm += begin.elapsed().as_secs_f64() * 1e3;
            self.trace.part("wait", "synchronisation of the ranks", Lane::Compute, begin, begin.elapsed());
        }
    }

    /// Reads all unread passes and returns the remaining records, at the end of an epoch or run. Adds their sums to `at`.
    pub fn finish_pending(&mut self, run: &mut Run<B>, at: &mut Progress) -> Result<Vec<StepRecord>, Error> {
        self.read_passes(run, at, 0)?;
        self.records(run, at)
    }

    /// Returns the records of all pending steps, summed over all ranks. Adds their sums to `at`. After an error,
    /// [`take_finite`](Self::take_finite) has the records of the steps before it.
    fn records(&mut self, run: &Run<B>, at: &mut Progress) -> Result<Vec<StepRecord>, Error> {
        let mut pending = std::mem::take(&mut self.pending);
        if !run.strategy.sums_gradients() {
            self.sum_over_ranks(&mut pending)?;
        }
        let mut records = Vec::new();
        for PendingStep { metrics, own_loss, record } in pending {
            // all ranks have the same sums, so all of them return the error together
            if !metrics.loss().is_finite() {
                self.finite = records;
                return Err(not_finite(&self.session.comm, self.precision, record.step - 1, record.lr, own_loss));
            }
            self.agreed = self.agreed.or(metrics.requests());
            let record = StepRecord {
                loss: metrics.loss_sums(),
                samples: metrics.samples(),
                timings: metrics.timings().to_vec(),
                ..record
            };
            self.timing.add(&record.timings);
            add(at, &record);
            records.push(record);
        }
        Ok(records)
    }

    /// Sums the metrics of steps over all ranks, if the ranks made these steps independently.
    fn sum_over_ranks(&self, pending: &mut [PendingStep]) -> Result<(), Error> {
        let own: Vec<Vec<f64>> = pending.iter().map(|step| step.metrics.to_vectors().concat()).collect();
        let Some(each) = own.first().map(Vec::len) else { return Ok(()) };
        let mut all = own.concat();
        self.session.comm.run("sum of losses", |world| world.sum_f64(&mut all))?;
        for (step, sums) in pending.iter_mut().zip(all.chunks(each)) {
            step.metrics = StepMetrics::from_values(step.metrics.layout(), sums);
        }
        Ok(())
    }

    fn ranks(&self) -> MpiRanks {
        MpiRanks::new(self.session)
    }

    /// Adds the layers' times in a step to the trace.
    fn trace_layers(&self, run: &mut Run<B>) {
        if !self.trace.follows_steps() {
            return;
        }
        for span in run.graph.take_spans() {
            let name = &run.graph.net().nodes[span.node].name;
            let kind = if span.backward { "backward" } else { "forward" };
            self.trace.part(kind, format!("{name} {kind}"), Lane::Compute, span.start, span.took);
        }
        self.trace.step_done();
        if !self.trace.follows_steps() {
            run.graph.follow(false);
        }
    }

    /// Returns the records of the steps that were read together with a later step whose loss is not finite.
    pub fn take_finite(&mut self) -> Vec<StepRecord> {
        std::mem::take(&mut self.finite)
    }

    /// Returns the requests of all ranks together, as known after the last step.
    pub fn agreed(&self) -> Requests {
        self.agreed
    }

    /// Returns the gradient sums. They have the residuals of error feedback.
    pub fn reduction(&mut self) -> &mut GradientSum<B> {
        &mut self.reduction
    }

    /// Returns what the gradient sums cost, once all measured steps are done.
    pub fn take_costs(&mut self) -> Option<report::Exchange> {
        self.reduction.take_report()
    }

    /// Returns statistics of the layers if the last step was measured. Only on rank 0.
    pub fn take_layers(&mut self) -> Option<report::Layers> {
        self.layers.take()
    }

    /// Returns advice about the rank that was the slowest since the last call.
    pub fn take_slowest(&mut self) -> Option<report::Advice> {
        std::mem::take(&mut self.timing).slowest()
    }

    /// Returns the notices since the last call: skipped records, skipped steps, and notes from the device.
    pub fn take_notices(&mut self, run: &Run<B>) -> Vec<String> {
        self.notices.device(run.graph.take_notes(), &self.session.world);
        self.notices.take()
    }
}

/// Enqueues the optimizer's step. Returns false if a parameter is known not to be finite.
fn optimize<B: Backend>(run: &mut Run<B>, record: &StepRecord) -> Result<bool, Error> {
    run.optimizer.set_momentum(run.schedule.momentum(record.step - 1));
    Ok(run.optimizer.start_step(&mut run.graph, record.lr, run.ema.as_mut())?)
}

fn add(at: &mut Progress, record: &StepRecord) {
    let sums = record.loss;
    at.samples += sums.count;
    at.epoch_sums.loss += sums.loss;
    at.epoch_sums.top1 += sums.top1 as f64;
    at.epoch_sums.top5 += sums.top5 as f64;
    at.epoch_sums.count += sums.count;
}
