//! An optimizer step, as in Goyal et al. 2017 (arXiv 1706.02677): the gradient of each worker, the sum over all ranks,
//! a single update.
//!
//! Ranks that step independently between synchronisations (see [`strategy`](super::strategy)) sum only over their own
//! workers. They do not communicate between two synchronisations. So the records of these steps are summed over the
//! ranks and returned together when the ranks synchronise.

use std::collections::VecDeque;
use std::time::Instant;

use backend::update::{Normed, SgdRule, rates};
use backend::{Arena, Backend, Buffer, LossScale, Norms, Precision, Queue, Rule, Update};
use engine::Gather;
use formats::checkpoint::Progress;
use loaders::Loader;

use crate::error::Error;
use crate::train::agree::Session;
use crate::train::device_input::DeviceInput;
use crate::train::micro_batches::{MicroBatches, Observers};
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
use crate::train::reduce::transport::TransportPlan;

/// Runs the steps of a training.
pub struct Stepper<'a, B: Backend> {
    pub(super) session: &'a Session,
    pub(super) batches: MicroBatches,
    /// Present for sharpness-aware minimisation, which computes two gradients per step.
    sam: Option<Sam<B>>,
    pub(super) reduction: GradientSum<B>,
    pub(super) layout: MetricsLayout,
    /// Precision of the recipe, for the message about a loss that is not finite.
    precision: Precision,
    /// This rank's times in the previous step.
    pub(super) before: RankTiming,
    timing: EpochTiming,
    pub(super) trace: Trace,
    /// Time in the sums of batch norm over all ranks.
    sync_bn: Waited,
    /// Steps since the last synchronisation.
    pub(super) pending: Vec<PendingStep>,
    /// Steps that were enqueued but not read, if the host works ahead of the device.
    pub(super) unread: Option<Unread>,
    agreed: Requests,
    pub(super) notices: Notices,
    /// Loss scale after the last step.
    scale: Option<LossScale>,
    /// Statistics of the last step, if it was measured.
    layers: Option<report::Layers>,
}

/// Passes and steps that were enqueued but not read, if the host works [`ahead`](super::ahead) of the device.
#[derive(Default)]
pub struct Unread {
    /// In enqueue order.
    pub passes: VecDeque<OpenPass>,
    /// In enqueue order.
    pub steps: VecDeque<OpenStep>,
    /// Time when the sums of the last step were read.
    pub read: Option<Instant>,
}

/// A pass with sums that were not read yet.
pub struct OpenPass {
    /// Digest of the samples.
    pub digest: u64,
    /// True for the last pass of a step.
    pub last: bool,
}

/// A step with sums that were not all read yet.
pub struct OpenStep {
    /// Metrics of the passes that were read.
    pub metrics: StepMetrics,
    /// The record, without the values that depend on the sums.
    pub record: StepRecord,
    /// Index of the step in its epoch, starting at 0.
    pub of_epoch: u64,
    pub start: Instant,
    /// Whether the last pass includes the optimizer's step.
    pub updated: bool,
}

impl Unread {
    /// Returns the state if the host can work ahead. This requires that it has nothing to do between a pass and the
    /// update.
    pub fn of<B: Backend>(run: &Run<B>, ranks: usize, traced: bool) -> Option<Self> {
        let backend = run.graph.backend();
        let ahead = backend.queue().map_or(0, Queue::passes_ahead);
        let alone = ranks == 1 && run.strategy.sums_gradients() && run.reduction.gather() == Gather::Summed;
        // the loss scale, the norm of the gradients, traced layers and measured gradients are read after each step
        let measured = run.recipe.log.histograms.is_some() || run.recipe.optimizer.sam_rho.is_some();
        // gradients are divided by a sum of weights before the update
        let weighted = run.recipe.loss.class_weights.is_some();
        let read = backend.loss_scaling().is_some() || run.optimizer.limits_norm() || traced || measured || weighted;
        (ahead > 0 && alone && !read).then(Self::default)
    }
}

/// A step with a record that was not returned yet.
pub struct PendingStep {
    /// Summed over the ranks that step together.
    pub metrics: StepMetrics,
    /// This rank's part of the loss.
    pub own_loss: f64,
    /// The times are added when the metrics have been summed over all ranks.
    pub record: StepRecord,
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
            run.graph.normalise_across(Box::new(AllRanks::new(session.comm.clone(), sync_bn.clone())));
        }
        run.graph.follow(trace.follows_steps());
        let layout = MetricsLayout::new(&run.graph, ranks, run.reduction.metrics_gather());
        let layout = layout.weighted(run.recipe.loss.class_weights.is_some());
        let together = if run.strategy.sums_gradients() { ranks } else { 1 };
        let mine = run.division.mine.clone();
        let unread = Unread::of(run, ranks, trace.follows_steps());
        let mut reduction = GradientSum::new(session.comm.clone(), together, plan, mine, &mut run.reduction);
        reduction.follow(trace);
        Ok(Self {
            session,
            batches: MicroBatches::new(input, run.recipe.label_smoothing as f32, Targets::of(run)),
            sam: None,
            reduction,
            layout,
            precision: run.recipe.precision,
            before: RankTiming::default(),
            timing: EpochTiming::default(),
            trace: trace.clone(),
            sync_bn,
            pending: Vec::new(),
            unread,
            agreed: Requests::default(),
            notices: Notices::default(),
            scale: run.graph.backend().loss_scaling().map(|scaling| scaling.scale()).transpose()?,
            layers: None,
        })
    }

    /// Runs the step after `at` and advances `at`. Returns the record of each step whose metrics are summed over all
    /// ranks by now. This is a single record unless ranks step independently. `requests` are this rank's requests.
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
        if self.unread.is_some() {
            return self.step_ahead(run, loader, at, requests);
        }
        let metrics = self.forward_backward(run, loader, at, requests)?;
        let mut step = self.reduce(run, at, metrics)?;
        run.rescale(at.step_of_epoch, step.metrics.total())?;
        self.step_up(run, at)?;
        if page::due(run, at) {
            self.layers = page::measure(self.session, run, at, &mut self.reduction, self.scale)?;
        }
        let synchronises = run.strategy.synchronises(at.step);
        if synchronises {
            let begin = Instant::now();
            run.strategy.before_update(run.graph.weights(), &mut self.ranks())?;
            self.synchronised(run, begin);
        }
        self.update(run, &mut step)?;
        self.trace_layers(run, step.record.step);
        step.record.seconds = start.elapsed().as_secs_f64();
        self.pending.push(step);
        let records = if synchronises { self.synchronise(run, at)? } else { Vec::new() };
        self.before.step = start.elapsed().as_secs_f64() * 1e3;
        (at.step, at.step_of_epoch) = (at.step + 1, at.step_of_epoch + 1);
        Ok(records)
    }

    /// Switches to images from `input`, starting at the given epoch and step of the epoch.
    pub fn feed(&mut self, run: &Run<B>, input: DeviceInput, at: (u32, u64)) -> Result<(), Error> {
        self.batches = MicroBatches::new(input.clone(), run.recipe.label_smoothing as f32, Targets::of(run));
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
        sam.batches.run(run, &mut sam.loader, at, &mut self.reduction, &mut metrics, &mut observers)?;
        // counted in the next step, like its communication
        self.before.data = (sam.loader.stats().wait - waited).as_secs_f64() * 1e3;
        let metrics = self.reduction.finish(&mut run.graph, &metrics)?;
        run.rescale(at.step_of_epoch, metrics.total())?;
        sam.descend(run)?;
        self.sam = Some(sam);
        Ok(())
    }

    /// Runs the passes of this rank's workers, and starts the sums of their gradients.
    fn forward_backward(
        &mut self,
        run: &mut Run<B>,
        loader: &mut Loader,
        at: &Progress,
        requests: Requests,
    ) -> Result<StepMetrics, Error> {
        let waited = loader.stats().wait;
        let mut metrics = self.layout.zero();
        self.reduction.begin(at.step, page::due(run, at));
        let mut observers = Observers { notices: &mut self.notices, trace: &self.trace, session: self.session };
        self.batches.run(run, loader, at, &mut self.reduction, &mut metrics, &mut observers)?;
        self.check_loss_scale(run, at.step)?;
        let data = (loader.stats().wait - waited).as_secs_f64() * 1e3 + self.before.data;
        metrics.set_timing(self.session.world.rank, RankTiming { data, ..self.before });
        metrics.set_requests(requests);
        Ok(metrics)
    }

    /// Reads the loss scale after the last of the `done` steps, which the device has finished. Adds a notice if it
    /// skipped a step. Returns an error if halving the scale has not helped.
    fn check_loss_scale(&mut self, run: &Run<B>, done: u64) -> Result<(), Error> {
        let Some(scaling) = run.graph.backend().loss_scaling() else { return Ok(()) };
        let now = scaling.scale()?;
        if self.session.is_root() && self.scale.is_some_and(|before| now.lost > before.lost) {
            self.notices.step(done, &now);
        }
        self.scale = Some(now);
        notices::underflow(&self.session.world, &now, !run.strategy.sums_gradients()).map_or(Ok(()), Err)
    }

    /// Sums gradients and metrics over the ranks that step together. The sums are means, because each loss was
    /// multiplied by 1 / images before.
    fn reduce(&mut self, run: &mut Run<B>, at: &Progress, metrics: StepMetrics) -> Result<PendingStep, Error> {
        let own_loss = metrics.own_loss();
        let metrics = self.reduction.finish(&mut run.graph, &metrics)?;
        self.before.comm = (self.reduction.take_wait() + self.sync_bn.take()).as_secs_f64() * 1e3;
        let record = StepRecord {
            epoch: at.epoch,
            step: at.step + 1,
            lr: run.schedule.lr(at.step),
            seconds: 0.0,
            loss: metrics.loss_sums(),
            samples: metrics.samples(),
            grad_norm: None,
            scale: self.scale,
            timings: Vec::new(),
        };
        Ok(PendingStep { metrics, own_loss, record })
    }

    /// Runs the optimizer and updates running statistics and averages. If a loss, parameter or statistic is not finite,
    /// sets the loss in the metrics to NaN, which informs all ranks.
    fn update(&mut self, run: &mut Run<B>, step: &mut PendingStep) -> Result<(), Error> {
        let together = run.strategy.sums_gradients();
        // A loss that is not finite ends the run in `records`, on all ranks together. A rank without samples in a short
        // batch has no gradient.
        if (together && !step.metrics.loss().is_finite()) || (!together && step.record.loss.count == 0) {
            // the step counts anyway, because the slots will be averaged with other ranks' slots
            run.optimizer.set_steps(step.record.step);
            return Ok(());
        }
        let begin = Instant::now();
        run.optimizer.set_momentum(run.schedule.momentum(step.record.step - 1));
        let stepped = run.optimizer.step(&mut run.graph, step.record.lr, run.ema.as_mut())?;
        if !(step.metrics.update_running(&mut run.graph) && stepped.finite) {
            step.metrics.spoil();
            if !together {
                step.own_loss = f64::NAN;
            }
        }
        step.record.grad_norm = stepped.grad_norm.filter(|_| together);
        if let Some(ema) = &mut run.ema {
            ema.update_running(run.graph.running(), step.record.step);
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
        self.read_passes(run, 0)?;
        self.records(run, at)
    }

    /// Returns the records of all pending steps, summed over all ranks.
    pub(super) fn records(&mut self, run: &Run<B>, at: &mut Progress) -> Result<Vec<StepRecord>, Error> {
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
        MpiRanks::of(self.session)
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

fn add(at: &mut Progress, record: &StepRecord) {
    let sums = record.loss;
    at.samples += sums.count;
    at.epoch_sums.loss += sums.loss;
    at.epoch_sums.top1 += sums.top1 as f64;
    at.epoch_sums.top5 += sums.top5 as f64;
    at.epoch_sums.count += sums.count;
}

// Sharpness-aware minimisation (Foret et al. 2021, arXiv 2010.01412). Each step moves the parameters along the gradient that is summed
// over all ranks, scaled to a norm of rho, computes the gradient of the same images there, and applies it at the original parameters. The
// move is the same on all ranks, so the step is the same on any number of ranks. A second loader reads the images of the second pass.

/// Added to the norm before rho is divided by it.
const TINY: f64 = 1e-12;

/// State for the second pass of each step.
pub struct Sam<B: Backend> {
    rho: f64,
    /// Moves the batches of the second pass to the device.
    pub batches: MicroBatches,
    /// Reads the same images in the same order.
    pub loader: Loader,
    /// The parameters before the move.
    before: Arena<B>,
    norms: Norms,
    rates: B::Buf,
}

impl<B: Backend> Sam<B> {
    /// Prepares the second pass for a run at the given epoch and step of the epoch. Returns `None` if the recipe has no
    /// `sam_rho`.
    pub fn new(run: &Run<B>, input: DeviceInput, at: (u32, u64)) -> Result<Option<Self>, Error> {
        let Some(rho) = run.recipe.optimizer.sam_rho else { return Ok(None) };
        let (backend, layout) = (run.graph.backend(), run.graph.layout());
        let tensor = |range| Normed { range, weight_decay: 0.0, adapts: false, factor: 1.0 };
        let of_chunk = |chunk| layout.of_chunk(chunk).into_iter().map(|p| tensor(p.slot.range())).collect();
        let tensors: Vec<Vec<Normed>> = (0..layout.chunks.len()).map(of_chunk).collect();
        let rates = backend.alloc(rates::FIRST + tensors.iter().flatten().count())?;
        let order = Box::new(run.order(at.0, at.1));
        let loader = input.start(&run.source.train, run.source.augment(at.0), order, run.options)?;
        let mut batches = MicroBatches::new(input, run.recipe.label_smoothing as f32, Targets::of(run));
        batches.send_early(false);
        let norms = Norms { tensors, limit: Some(rho) };
        Ok(Some(Self { rho, batches, loader, before: Arena::new(backend, &layout.chunks)?, norms, rates }))
    }

    /// Moves the parameters along the gradients in the graph. The gradients are overwritten.
    pub fn climb(&mut self, run: &mut Run<B>) -> Result<(), Error> {
        let (backend, weights, gradients) = run.graph.arenas();
        let update = Update { rule: Rule::Sgd(SgdRule { momentum: 0.0, nesterov: false }), lr: 0.0 };
        backend.queue().map_or(Ok(()), |queue| queue.begin_update(&update, 0.0))?;
        backend.rates(&self.norms, &update, weights, gradients, &mut self.rates)?;
        let mut norm = [0.0];
        self.rates.read(rates::NORM, &mut norm)?;
        let factor = (self.rho / (f64::from(norm[0]) + TINY)) as f32;
        for (before, (w, g)) in self.before.chunks.iter_mut().zip(weights.chunks.iter_mut().zip(&mut gradients.chunks))
        {
            backend.copy(before, w)?;
            backend.scale(g, factor)?;
            backend.add(w, g)?;
        }
        Ok(())
    }

    /// Restores the parameters.
    pub fn descend(&mut self, run: &mut Run<B>) -> Result<(), Error> {
        let (backend, weights, _) = run.graph.arenas();
        let mut pairs = weights.chunks.iter_mut().zip(&self.before.chunks);
        Ok(pairs.try_for_each(|(w, before)| backend.copy(w, before))?)
    }
}
