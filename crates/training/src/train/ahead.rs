//! Steps of a single rank on a device that computes asynchronously. The update is part of the enqueued pass, and the
//! host enqueues the next step before it reads the sums of the previous one, so the device never waits for the host.
//! Records, running statistics and the end of a run with a loss that is not finite come one step later. Their values
//! are the same as without working ahead.

use std::time::Instant;

use backend::Backend;
use engine::{Loss, MicroBatch};
use formats::checkpoint::Progress;
use loaders::Loader;

use crate::error::Error;
use crate::train::micro_batches::Observers;
use crate::train::observe::timing::{RankTiming, StepRecord};
use crate::train::plan::run::Run;
use crate::train::reduce::metrics::{Requests, digest};
use crate::train::step::{OpenPass, OpenStep, PendingStep, Stepper, Unread};

impl<B: Backend> Stepper<'_, B> {
    /// Enqueues the step after `at`, and returns the records of earlier steps.
    pub(super) fn step_ahead(
        &mut self,
        run: &mut Run<B>,
        loader: &mut Loader,
        at: &mut Progress,
        requests: Requests,
    ) -> Result<Vec<StepRecord>, Error> {
        let (start, first) = (Instant::now(), self.unread.as_ref().is_some_and(|unread| unread.read.is_none()));
        let waited = loader.stats().wait;
        self.reduction.begin(at.step, false);
        let (planned, mine) = (run.samples(at.step_of_epoch), run.division.mine.clone());
        let mut open = self.open_step(run, at, start);
        open.metrics.set_requests(requests);
        self.unread().steps.push_back(open);
        let mut rows = 0;
        for worker in mine.clone() {
            let mut observers = Observers { notices: &mut self.notices, trace: &self.trace, session: self.session };
            let batch = self.batches.take(loader, at, worker, &mut observers)?;
            rows += batch.len();
            let turn = MicroBatch { worker, last: worker + 1 == mine.end };
            // an empty pass has its sums immediately, so read the earlier ones first
            if batch.is_empty() {
                self.read_passes(run, 0)?;
            }
            // if records were skipped, the gradients must be rescaled before the update
            let updates = turn.last && rows == planned && !batch.is_empty();
            let data = (loader.stats().wait - waited).as_secs_f64() * 1e3;
            self.note_step(data, updates);
            self.enqueue(run, &batch, at, turn, updates)?;
            self.unread().passes.push_back(OpenPass { digest: digest(worker, batch.ids()), last: turn.last });
            if !turn.last || at.step_of_epoch + 1 < run.division.steps_per_epoch {
                self.batches.send_ahead(run, loader)?;
            }
            let stays = usize::from(!batch.is_empty() && (updates || !turn.last));
            self.read_passes(run, stays)?;
        }
        // a checkpoint must include the whole step, and the first step is reported when it is done
        if first || requests.stop || requests.save {
            self.read_passes(run, 0)?;
        }
        let records = self.records(run, at)?;
        self.before.step = start.elapsed().as_secs_f64() * 1e3;
        (at.step, at.step_of_epoch) = (at.step + 1, at.step_of_epoch + 1);
        Ok(records)
    }

    fn unread(&mut self) -> &mut Unread {
        self.unread.get_or_insert_default()
    }

    fn open_step(&self, run: &Run<B>, at: &Progress, start: Instant) -> OpenStep {
        let record = StepRecord {
            epoch: at.epoch,
            step: at.step + 1,
            lr: run.schedule.lr(at.step),
            seconds: 0.0,
            loss: Default::default(),
            samples: 0,
            grad_norm: None,
            scale: None,
            timings: Vec::new(),
        };
        OpenStep { metrics: self.layout.zero(), record, of_epoch: at.step_of_epoch, start, updated: false }
    }

    /// Records the wait for data of the step that is being enqueued, and whether its last pass updates the parameters.
    fn note_step(&mut self, data: f64, updated: bool) {
        let (rank, timing) = (self.session.world.rank, RankTiming { data, ..self.before });
        if let Some(open) = self.unread().steps.back_mut() {
            open.metrics.set_timing(rank, timing);
            open.updated = updated;
        }
    }

    /// Enqueues a worker's pass, and with `updates` also the optimizer's step.
    fn enqueue(
        &mut self,
        run: &mut Run<B>,
        batch: &loaders::Batch,
        at: &Progress,
        turn: MicroBatch,
        updates: bool,
    ) -> Result<(), Error> {
        let loss = Loss { smoothing: self.batches.smoothing(), scale: 1.0 / run.samples(at.step_of_epoch) as f32 };
        let one = self.batches.begin(run, batch, at, self.session)?;
        if updates {
            let lr = run.schedule.lr(at.step);
            run.optimizer.set_momentum(run.schedule.momentum(at.step));
            return Ok(run.optimizer.step_with_pass(&mut run.graph, one, loss, lr, run.ema.as_mut())?);
        }
        let reduction = &mut self.reduction;
        let mut hand_over = |bucket, gradients| reduction.ready(bucket, gradients);
        run.graph.start(one, loss, turn, if turn.last { Some(&mut hand_over) } else { None })
    }

    /// Reads the sums of passes until only `stays` are left, and finishes steps that are complete.
    pub(super) fn read_passes(&mut self, run: &mut Run<B>, stays: usize) -> Result<(), Error> {
        while let Some(unread) = self.unread.as_mut().filter(|unread| unread.passes.len() > stays) {
            let (Some(pass), Some(open)) = (unread.passes.pop_front(), unread.steps.front_mut()) else { return Ok(()) };
            let sums = run.graph.sums()?;
            open.metrics.add(&run.graph, sums, pass.digest);
            if let Some(step) = if pass.last { unread.steps.pop_front() } else { None } {
                self.finish_step(run, step)?;
            }
        }
        Ok(())
    }

    /// Finishes a step after its last sums: updates the parameters if that was not enqueued, and the running
    /// statistics.
    fn finish_step(&mut self, run: &mut Run<B>, step: OpenStep) -> Result<(), Error> {
        let OpenStep { metrics, mut record, of_epoch, start, updated } = step;
        let own_loss = metrics.own_loss();
        let mut metrics = self.reduction.finish(&mut run.graph, &metrics)?;
        self.before.comm = self.reduction.take_wait().as_secs_f64() * 1e3;
        (record.loss, record.samples) = (metrics.loss_sums(), metrics.samples());
        // if the loss is not finite, `records` ends the run
        if metrics.loss().is_finite() {
            if !updated {
                run.rescale(of_epoch, metrics.total())?;
                run.optimizer.set_momentum(run.schedule.momentum(record.step - 1));
                run.optimizer.step(&mut run.graph, record.lr, run.ema.as_mut())?;
            }
            if !metrics.update_running(&mut run.graph) {
                metrics.spoil();
            }
            if let Some(ema) = &mut run.ema {
                ema.update_running(run.graph.running(), record.step);
            }
        }
        let now = Instant::now();
        let before = self.unread().read.replace(now).map_or(start, |read| read.max(start));
        record.seconds = (now - before).as_secs_f64();
        self.pending.push(PendingStep { metrics, own_loss, record });
        Ok(())
    }
}
