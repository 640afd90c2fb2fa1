//! An optimizer step, as in Goyal et al. 2017 (arXiv 1706.02677): the gradient of each worker, the sum over all ranks,
//! a single update.
//!
//! Steps are kept in a queue from their first pass until their sums are read. If the device computes asynchronously, the
//! update of a step can be enqueued before its sums are read. The host then enqueues the next step first, so the device
//! never waits for the host. Records, running statistics and the end of a run with a loss that is not finite come
//! later. Their values are the same as without working ahead. All ranks read the sums of the same steps in the same order.
//!
//! Ranks that step independently between synchronisations (see [`strategy`](super::strategy)) sum only over their own
//! workers. They do not communicate between two synchronisations. So the records of these steps are summed over the
//! ranks and returned together when the ranks synchronise.

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

/// Runs the steps of a training.
pub struct Stepper<'a, B: Backend> {
    session: &'a Session,
    batches: MicroBatches,
    /// Present for sharpness-aware minimisation, which computes two gradients per step.
    sam: Option<Sam<B>>,
    reduction: GradientSum<B>,
    layout: MetricsLayout,
    /// Precision of the recipe, for the message about a loss that is not finite.
    precision: Precision,
    /// This rank's times in the previous step.
    before: RankTiming,
    timing: EpochTiming,
    trace: Trace,
    /// Time in the sums of batch norm over all ranks.
    sync_bn: Waited,
    /// Number of passes that may be enqueued before the sums of an earlier one are read.
    passes_ahead: usize,
    /// Passes with unread sums, oldest first.
    unread: VecDeque<UnreadPass>,
    /// The steps of these passes, oldest first.
    in_flight: VecDeque<StepInFlight>,
    /// Time when the sums of the last step were read.
    read: Option<Instant>,
    /// Steps whose sums were read since the last synchronisation.
    pending: Vec<PendingStep>,
    agreed: Requests,
    notices: Notices,
    /// Loss scale after the last step.
    scale: Option<LossScale>,
    /// Statistics of the last step, if it was measured.
    layers: Option<report::Layers>,
}

/// A step with sums that were not all read yet.
struct StepInFlight {
    /// Metrics of the passes that were read.
    metrics: StepMetrics,
    /// The record, without the values that depend on the sums.
    record: StepRecord,
    start: Instant,
    /// Whether this rank has images in the step.
    has_images: bool,
    /// The summed image weights for each pass. Empty without class weights.
    weights: Vec<f64>,
    /// Result of an update that was enqueued before the sums were read: whether the parameters are finite. `None`
    /// without such an update.
    updated: Option<bool>,
}

/// Returns how many passes may be enqueued before the sums of an earlier one are read. Returns 0 if the host must do
/// something between a pass and the update. The number is the same on all ranks.
fn passes_ahead<B: Backend>(run: &Run<B>, ranks: usize, transport: &Transport<B>, traced: bool) -> usize {
    let backend = run.graph.backend();
    let ahead = backend.queue().map_or(0, Queue::passes_ahead);
    // with equal numbers of passes, all ranks sum a step's metrics between the same two passes
    let even = run.division.workers.is_multiple_of(ranks) && !(run.recipe.sync_bn && ranks > 1);
    // codes that MPI sums are read by the host
    let enqueued = run.reduction.gather() == Gather::Summed || matches!(transport, Transport::Nccl(_));
    // traced layers and measured gradients are read after each step
    let measured = run.recipe.log.histograms.is_some() || run.recipe.optimizer.sam_rho.is_some();
    if even && enqueued && run.strategy.sums_gradients() && !(traced || measured) { ahead } else { 0 }
}

/// A step with a record that was not returned yet.
struct PendingStep {
    /// Summed over the ranks that step together.
    metrics: StepMetrics,
    /// This rank's part of the loss.
    own_loss: f64,
    /// The times are added when the metrics have been summed over all ranks.
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
            agreed: Requests::default(),
            notices: Notices::default(),
            scale: run.graph.backend().loss_scaling().map(|scaling| scaling.scale()).transpose()?,
            layers: None,
        })
    }

    /// Runs or enqueues the step after `at` and advances `at`. Returns the record of each step whose metrics are summed over
    /// all ranks by now. This is a single record unless steps are in flight or ranks step independently. `requests` are
    /// this rank's requests.
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
        // a checkpoint must include the whole step, and the first step is reported when it is done
        self.run_passes(run, loader, at, self.read.is_none() || requests.stop || requests.save)?;
        let records = if run.strategy.synchronises(at.step) { self.synchronise(run, at)? } else { Vec::new() };
        self.before.step = start.elapsed().as_secs_f64() * 1e3;
        (at.step, at.step_of_epoch) = (at.step + 1, at.step_of_epoch + 1);
        Ok(records)
    }

    /// Runs the passes of this rank's workers, and starts the sums of their gradients. Leaves the sums of passes unread as
    /// far as the host may work ahead. Reads all of them if the step `waits` for its sums on any rank.
    fn run_passes(
        &mut self,
        run: &mut Run<B>,
        loader: &mut Loader,
        at: &Progress,
        mut waits: bool,
    ) -> Result<(), Error> {
        let (waited, mine, travels) = (loader.stats().wait, run.division.mine.clone(), self.reduction.travels());
        // the host must do something between the last pass and the update: enqueue sums, or divide by summed weights
        let apart = travels || run.recipe.loss.class_weights.is_some();
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
                // if records were skipped, the gradients must be rescaled before the update
                updates = images == run.samples(at.step_of_epoch) && (travels || !batch.is_empty());
            }
            let data = (loader.stats().wait - waited).as_secs_f64() * 1e3 + self.before.data;
            let timing = RankTiming { data, ..self.before };
            if let Some(step) = self.in_flight.back_mut() {
                step.metrics.set_timing(self.session.world.rank, timing);
            }
            let pass = match updates && !apart {
                true => self.start_with_update(run, &batch, at, turn)?,
                false => {
                    // a rank without images has no pass that could bring the numbers
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
            if updates && apart {
                // the first update copies its lists to the device and waits for that, so wait for the pass by name before
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

    /// Returns the number of images in a step of all ranks, and whether any rank waits for its sums. Collective.
    fn over_ranks(&self, images: usize, waits: bool) -> Result<(usize, bool), Error> {
        let mut sums = [images as u64, u64::from(waits)];
        if self.session.world.size > 1 {
            self.session.comm.run("sum of images", |world| world.sum_u64(&mut sums))?;
        }
        Ok((sums[0] as usize, sums[1] > 0))
    }

    /// Starts the last pass of a step whose gradients stay on this rank, together with the optimizer's step.
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

    /// Finishes the gradients in the step after `at` and enqueues its update, before the host reads its passes' sums.
    fn update_early(&mut self, run: &mut Run<B>, at: &Progress) -> Result<(), Error> {
        let Some(step) = self.in_flight.back_mut() else { return Ok(()) };
        self.reduction.finish_gradients(&mut run.graph, step.metrics.own_loss())?;
        if run.recipe.loss.class_weights.is_some() {
            run.rescale(at.step_of_epoch, self.reduction.sum_weights(&step.weights)?)?;
        }
        step.updated = Some(optimize(run, &step.record)?);
        Ok(())
    }

    /// Reads the sums of passes until only `stays` passes are unread, and finishes complete steps. The newest step may
    /// be the one after `at`.
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

    /// Finishes a step after its last sums were read. Sums metrics over the ranks that step together. Updates the
    /// parameters, unless that was done early, and the running statistics. The gradients are already means, because
    /// each loss was multiplied by 1 / images.
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
        self.trace_layers(run, step.record.step);
        let now = Instant::now();
        let begin = self.read.replace(now).map_or(start, |read| read.max(start));
        step.record.seconds = (now - begin).as_secs_f64();
        self.pending.push(step);
        Ok(())
    }

    /// Does everything between the gradients of the step after `at` and its update: rescaling, the second gradient of
    /// sharpness-aware minimisation, measurements, and the strategy's part.
    fn before_update(&mut self, run: &mut Run<B>, at: &Progress, step: &PendingStep) -> Result<(), Error> {
        run.rescale(at.step_of_epoch, step.metrics.total())?;
        self.step_up(run, at)?;
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

    /// Switches to images from `input`, starting at the given epoch and step of the epoch.
    pub fn feed(&mut self, run: &Run<B>, input: DeviceInput, at: (u32, u64)) -> Result<(), Error> {
        self.batches = MicroBatches::new(input.clone(), run.recipe.label_smoothing as f32, Targets::from_run(run));
        self.look_twice(run, input, at)
    }

    /// Prepares the second pass of each step, if the recipe requests it, starting at the given epoch and step of the
    /// epoch.
    pub fn look_twice(&mut self, run: &Run<B>, input: DeviceInput, at: (u32, u64)) -> Result<(), Error> {
        self.sam = Sam::new(run, input, at)?;
        self.batches.send_early(self.sam.is_none());
        Ok(())
    }

    /// For sharpness-aware minimisation, replaces the gradients by gradients of the same images at the moved
    /// parameters.
    fn step_up(&mut self, run: &mut Run<B>, at: &Progress) -> Result<(), Error> {
        let Some(mut sam) = self.sam.take() else { return Ok(()) };
        sam.climb(run)?;
        self.reduction.begin_again();
        let (mut metrics, mut seen) = (self.layout.zero(), Notices::default());
        let mut observers = Observers { notices: &mut seen, trace: &self.trace, session: self.session };
        let waited = sam.loader.stats().wait;
        sam.passes(run, at, &mut self.reduction, &mut metrics, &mut observers)?;
        // counted in the next step, like its communication
        self.before.data = (sam.loader.stats().wait - waited).as_secs_f64() * 1e3;
        self.reduction.finish_gradients(&mut run.graph, metrics.own_loss())?;
        let metrics = self.reduction.sum_metrics(&metrics)?;
        run.rescale(at.step_of_epoch, metrics.total())?;
        sam.descend(run)?;
        self.sam = Some(sam);
        Ok(())
    }

    /// Reads the loss scale as it was after step `done`. Updates for `later` more steps are already enqueued. Adds a
    /// notice if the device skipped step `done`. Returns an error if halving the scale has not helped.
    fn check_loss_scale(&mut self, run: &Run<B>, done: u64, later: u64, has_images: bool) -> Result<(), Error> {
        let Some(scaling) = run.graph.backend().loss_scaling() else { return Ok(()) };
        // with images, the host has already read a pass that follows the update in step `done`
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

    /// Runs the optimizer unless that was done early, and updates running statistics and averages. If a loss, parameter
    /// or statistic is not finite, sets the loss in the metrics to NaN, which informs all ranks.
    fn update(&mut self, run: &mut Run<B>, step: &mut PendingStep, updated: Option<bool>) -> Result<(), Error> {
        let together = run.strategy.sums_gradients();
        // A loss that is not finite ends the run in `records`, on all ranks together. A rank without samples in a short
        // batch has no gradient.
        if (together && !step.metrics.loss().is_finite()) || (!together && step.record.loss.count == 0) {
            // the step counts anyway, because the slots will be averaged with other ranks' slots
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

    /// Returns the records of all pending steps, and synchronises the ranks' models.
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

    /// Counts the time since `begin` as a wait for other ranks, if they synchronise their models.
    fn synchronised(&mut self, run: &Run<B>, begin: Instant) {
        if !run.strategy.sums_gradients() {
            self.before.comm += begin.elapsed().as_secs_f64() * 1e3;
            self.trace.part("wait", "synchronisation of the ranks", Lane::Compute, begin, begin.elapsed());
        }
    }

    /// Returns the remaining records, at the end of an epoch or run. Adds their sums to `at`.
    pub fn finish_pending(&mut self, run: &mut Run<B>, at: &mut Progress) -> Result<Vec<StepRecord>, Error> {
        self.read_passes(run, at, 0)?;
        self.records(run, at)
    }

    /// Returns the records of all pending steps, summed over all ranks.
    fn records(&mut self, run: &Run<B>, at: &mut Progress) -> Result<Vec<StepRecord>, Error> {
        let mut pending = std::mem::take(&mut self.pending);
        if !run.strategy.sums_gradients() {
            self.sum_over_ranks(&mut pending)?;
        }
        let mut records = Vec::new();
        for PendingStep { metrics, own_loss, record } in pending {
            // all ranks have the same sums, so all of them return here together
            if !metrics.loss().is_finite() {
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

    /// Sums the metrics of steps that each rank made independently.
    fn sum_over_ranks(&self, pending: &mut [PendingStep]) -> Result<(), Error> {
        let own: Vec<Vec<f64>> = pending.iter().map(|step| step.metrics.to_vectors().concat()).collect();
        let Some(each) = own.first().map(Vec::len) else { return Ok(()) };
        let mut all = own.concat();
        self.session.comm.run("sum of losses", |world| world.sum_f64(&mut all))?;
        for (step, sums) in pending.iter_mut().zip(all.chunks(each)) {
            step.metrics = StepMetrics::from_values(self.layout, sums);
        }
        Ok(())
    }

    fn ranks(&self) -> MpiRanks {
        MpiRanks::new(self.session)
    }

    /// Passes the layers' times in step `done` to the trace.
    fn trace_layers(&self, run: &mut Run<B>, done: u64) {
        if !self.trace.follows_steps() {
            return;
        }
        for span in run.graph.take_spans() {
            let name = &run.graph.net().nodes[span.node].name;
            let kind = if span.backward { "backward" } else { "forward" };
            self.trace.part(kind, format!("{name} {kind}"), Lane::Compute, span.start, span.took);
        }
        self.trace.done(done);
        if !self.trace.follows_steps() {
            run.graph.follow(false);
        }
    }

    /// Returns the requests of any rank, as known after the last step.
    pub fn agreed(&self) -> Requests {
        self.agreed
    }

    /// Returns the gradient sums, which have the residuals.
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

    /// Returns which rank was the slowest since the last call.
    pub fn take_slowest(&mut self) -> Option<report::Advice> {
        std::mem::take(&mut self.timing).slowest()
    }

    /// Returns notices since the last call: skipped records, skipped steps, notes from the device.
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
