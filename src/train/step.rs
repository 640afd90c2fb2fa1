//! One optimizer step: this rank's workers one after another, the exchange, the update.

use std::time::Instant;

use crate::backend::{Backend, LossScale, Precision};
use crate::checkpoint::Progress;
use crate::error::Error;
use crate::nn::graph::Ready;
use crate::nn::{Batch, Loss, Turn};
use crate::report::{self, Step};
use crate::train::agree::session::Session;
use crate::train::device_input::Feed;
use crate::train::observe::diagnose::{self, not_finite};
use crate::train::observe::notices::Skips;
use crate::train::observe::timing::{self, Pace, spread};
use crate::train::observe::trace::{Lane, Trace};
use crate::train::observe::watch::Doing;
use crate::train::plan::prepare::Run;
use crate::train::reduce::exchange::Exchange;
use crate::train::reduce::metrics::{Flags, StepSums, SumsLayout};
use crate::train::reduce::path::Way;
use crate::train::reduce::sync_bn::{AllRanks, Waited};
use crate::train::strategy::local_sgd::Open;
use loaders::Loader;

/// Runs steps and keeps count.
pub struct Stepper<'a, B: Backend> {
    pub(super) session: &'a Session,
    pub(super) exchange: Exchange<B>,
    feed: Feed,
    /// A batch whose way to the device began early.
    next: Option<loaders::Batch>,
    pub(super) layout: SumsLayout,
    smoothing: f32,
    /// The recipe's, for what is to be said when a loss is lost.
    pub(super) precision: Precision,
    /// This rank in the step before.
    pub(super) before: Pace,
    /// All ranks since the last look.
    paces: timing::Epoch,
    pub(super) trace: Trace,
    /// Part of it in the middle of passes, for batch normalisation over all ranks.
    across: Waited,
    /// Steps whose sums over the ranks are still to be made.
    pub(super) open: Vec<Open>,
    /// What any rank asked for with the last step.
    pub(super) agreed: Flags,
    /// What is to be said of records and steps that were left out.
    pub skips: Skips,
    /// The scale of the losses of the last step, where a device scales them.
    pub(super) scale: Option<LossScale>,
}

impl<'a, B: Backend> Stepper<'a, B> {
    /// For a prepared run.
    pub fn new(session: &'a Session, run: &mut Run<B>, feed: Feed, how: (bool, Way<B>)) -> Result<Self, Error> {
        let across = Waited::default();
        if run.recipe.sync_bn && session.world.size > 1 {
            run.graph.normalise_across(Box::new(AllRanks::new(session.comm.clone(), across.clone())));
        }
        let smoothing = run.recipe.label_smoothing as f32;
        let precision = run.recipe.precision;
        let ranks = session.world.size;
        let gather = run.reduction.summed_numbers();
        let layout = SumsLayout::new(&run.graph, ranks, gather);
        let mine = run.division.mine.clone();
        let among = if run.rounds.is_some() { 1 } else { ranks };
        let exchange = Exchange::new(session.comm.clone(), among, how, mine, &mut run.reduction);
        Ok(Self {
            session,
            exchange,
            feed,
            next: None,
            layout,
            smoothing,
            precision,
            before: Pace::default(),
            paces: timing::Epoch::default(),
            trace: Trace::default(),
            across,
            open: Vec::new(),
            agreed: Flags::default(),
            skips: Skips::default(),
            scale: run.graph.backend().loss_scale()?,
        })
    }

    /// What any rank asked for with the last step.
    pub fn agreed(&self) -> Flags {
        self.agreed
    }

    /// What the ranks' workers carry over to the next step, one vector a rank, on rank 0; nothing without error feedback.
    /// Collective.
    pub fn gather_residuals(&mut self) -> Result<Vec<Vec<u8>>, Error> {
        self.exchange.gather_residuals()
    }

    /// After the last of the first steps: what the exchange of gradients costs.
    pub fn exchange_report(&mut self) -> Option<report::Exchange> {
        self.exchange.take_report()
    }

    /// Which rank was the slowest since the last call.
    pub fn take_slowest(&mut self) -> Option<String> {
        std::mem::take(&mut self.paces).slowest()
    }

    /// Records what the steps to come are made of.
    pub fn follow(&mut self, run: &mut Run<B>, trace: &Trace) {
        run.graph.follow(trace.follows_steps());
        self.trace = trace.clone();
        self.exchange.follow(trace);
    }

    /// The step that comes after `at`; `asks` is what this rank asks for.
    pub fn step(
        &mut self,
        run: &mut Run<B>,
        loader: &mut Loader,
        at: &mut Progress,
        lr: f64,
        asks: Flags,
    ) -> Result<Step, Error> {
        let (epoch, step, done) = (at.epoch, at.step_of_epoch, at.step);
        let start = Instant::now();
        let sums = self.own_part(run, loader, at, asks)?;
        let own = sums.own_loss();
        let sums = self.exchange.finish(&mut run.graph, sums.into_shares())?;
        let sums = StepSums::from_values(self.layout, sums);
        self.agreed = sums.flags();
        self.before.comm = (self.exchange.take_wait() + self.across.take()).as_secs_f64() * 1e3;
        run.make_up_for_skips(step, sums.loss_sums().count)?;
        let update = Instant::now();
        // every rank has the same sums and the same parameters, so all stop here together
        if !sums.loss().is_finite() {
            return Err(not_finite(self.session, self.precision, done, lr, own));
        }
        let stepped = run.optimizer.step(&mut run.graph, lr, run.ema.as_mut())?;
        if !stepped.finite {
            return Err(not_finite(self.session, self.precision, done, lr, own));
        }
        sums.update_running(&mut run.graph);
        if let Some(ema) = &mut run.ema {
            ema.update_running(run.graph.running(), done + 1);
        }
        self.trace.part("update", "optimizer", Lane::Compute, update, update.elapsed());
        self.trace_layers(run, done);
        self.before.step = start.elapsed().as_secs_f64() * 1e3;
        let event = self.event(at, sums, epoch, done + 1, lr, start.elapsed().as_secs_f64());
        Ok(Step { grad_norm: stepped.grad_norm, ..event })
    }

    /// Hands the layers' times of step `done` to the trace.
    pub(super) fn trace_layers(&self, run: &mut Run<B>, done: u64) {
        if !self.trace.follows_steps() {
            return;
        }
        for span in run.graph.take_spans() {
            let name = &run.graph.net().nodes[span.node].name;
            let kind = if span.backward { "backward" } else { "forward" };
            self.trace.part(kind, format!("{name} {kind}"), Lane::Compute, span.start, span.took);
        }
        self.trace.done(done + 1);
        if !self.trace.follows_steps() {
            run.graph.follow(false);
        }
    }

    /// This rank's part of the step that comes after `at`, before any word from the others.
    pub(super) fn own_part(
        &mut self,
        run: &mut Run<B>,
        loader: &mut Loader,
        at: &Progress,
        asks: Flags,
    ) -> Result<StepSums, Error> {
        let waited = loader.stats().wait;
        self.exchange.begin(at.step);
        let mut sums = self.gradients(run, loader, at.epoch, at.step_of_epoch)?;
        self.look_at_scale(run, at.step)?;
        let data = (loader.stats().wait - waited).as_secs_f64() * 1e3;
        sums.set_pace(self.session.world.rank, Pace { data, ..self.before });
        sums.set_flags(asks);
        Ok(sums)
    }

    /// What became of the scale of the losses by the last of the steps that are `done`, which the device is through with now.
    fn look_at_scale(&mut self, run: &Run<B>, done: u64) -> Result<(), Error> {
        let Some(now) = run.graph.backend().loss_scale()? else { return Ok(()) };
        if self.session.is_root() && self.scale.is_some_and(|before| now.lost > before.lost) {
            self.skips.step(done, &now);
        }
        self.scale = Some(now);
        diagnose::underflow(self.session, &now, run.rounds.is_some()).map_or(Ok(()), Err)
    }

    /// Forward and backward of this rank's workers; finished gradients go to the exchange.
    fn gradients(&mut self, run: &mut Run<B>, loader: &mut Loader, epoch: u32, step: u64) -> Result<StepSums, Error> {
        let mut sums = self.layout.zero();
        let loss = Loss { smoothing: self.smoothing, scale: 1.0 / run.samples(step) as f32 };
        let mine = run.division.mine.clone();
        let number = u64::from(epoch) * run.division.steps_per_epoch + step + 1;
        for worker in mine.clone() {
            let start = Instant::now();
            self.session.watch.doing(Doing::Data { step: number, worker });
            let batch = match self.next.take() {
                Some(batch) => Some(batch),
                None => loader.next()?,
            };
            let batch = batch.ok_or_else(|| Error::Failed(format!("no batch for step {step} of epoch {epoch}")))?;
            if (batch.epoch(), batch.step(), batch.worker()) != (epoch, step, worker) {
                let got = format!("epoch {}, step {}, worker {}", batch.epoch(), batch.step(), batch.worker());
                return Err(Error::Failed(format!(
                    "expected a batch of epoch {epoch}, step {step}, worker {worker}, got {got}"
                )));
            }
            self.trace.part("data", "data wait", Lane::Compute, start, start.elapsed());
            let world = &self.session.world;
            self.skips.note(batch.skipped(), (world.rank, world.size));
            // nothing to do unless records were left out
            run.graph.prepare(batch.len())?;
            self.session.watch.doing(Doing::Computing { step: number });
            let one = Batch { images: self.feed.input(&batch), labels: batch.labels(), ids: batch.ids(), epoch };
            let turn = Turn { worker, last: worker + 1 == mine.end };
            let mut hand_over = |chunk, gradients| self.exchange.ready(chunk, gradients);
            let ready: Option<Ready<'_, B, Error>> = if turn.last { Some(&mut hand_over) } else { None };
            run.graph.start(one, loss, turn, ready)?;
            // not across the end of an epoch, where other images come first
            if !turn.last || step + 1 < run.division.steps_per_epoch {
                self.send_ahead(run, loader)?;
            }
            let worker_sums = run.graph.sums()?;
            sums.add(&run.graph, worker_sums, worker, batch.ids());
        }
        Ok(sums)
    }

    /// Starts the way of the next batch to a device that computes the last one meanwhile, if the batch is there.
    fn send_ahead(&mut self, run: &Run<B>, loader: &mut Loader) -> Result<(), Error> {
        if run.graph.backend().queues() && self.feed.travels() && loader.is_ready() {
            self.next = loader.next()?;
            let next = self.next.as_ref().filter(|batch| !batch.is_empty());
            next.map_or(Ok(()), |batch| run.graph.prefetch(self.feed.input(batch)))?;
        }
        Ok(())
    }

    /// The line of a step, which `at` takes into its sums.
    pub(super) fn event(
        &mut self,
        at: &mut Progress,
        sums: StepSums,
        epoch: u32,
        step: u64,
        lr: f64,
        seconds: f64,
    ) -> Step {
        let paces = sums.paces();
        self.paces.add(&paces);
        let data_wait_ranks = spread(paces.iter().map(|p| p.data));
        let comm_wait_ranks = spread(paces.iter().map(|p| p.comm));
        let step_ranks = spread(paces.iter().map(|p| p.step));
        let s = sums.loss_sums();
        at.samples += s.count;
        at.epoch_sums.loss += s.loss;
        at.epoch_sums.top1 += s.top1 as f64;
        at.epoch_sums.top5 += s.top5 as f64;
        at.epoch_sums.count += s.count;
        let count = s.count.max(1) as f64;
        Step {
            step,
            epoch,
            loss: s.loss / count,
            top1: s.top1 as f64 / count,
            lr,
            img_per_s: s.count as f64 / seconds,
            data_wait_ms: data_wait_ranks[2],
            comm_wait_ms: comm_wait_ranks[2],
            step_ms: seconds * 1e3,
            data_wait_ranks,
            comm_wait_ranks,
            step_ranks,
            samples: sums.samples(),
            grad_norm: None,
            loss_scale: self.scale.map(|scale| scale.scale),
            lost_steps: self.scale.map(|scale| scale.lost),
        }
    }
}
