//! One optimizer step: this rank's workers one after another, the exchange, the update.

use std::time::Instant;

use super::Error;
use super::exchange::Exchange;
use super::prepare::Run;
use super::session::Session;
use super::skips::Skips;
use super::sums::{StepSums, SumsLayout};
use crate::backend::{Backend, LossSums};
use crate::nn::graph::Ready;
use crate::nn::{Batch, Loss, Turn};
use crate::report::{self, Step};
use loaders::Loader;

/// Runs steps and keeps count.
pub struct Stepper<'a, B: Backend> {
    session: &'a Session,
    exchange: Exchange<B>,
    layout: SumsLayout,
    smoothing: f32,
    /// Milliseconds that this rank waited for the others in the step before.
    comm_wait_ms: f64,
    epoch: LossSums,
    images: u64,
    /// What is to be said of records that were left out.
    pub skips: Skips,
}

impl<'a, B: Backend> Stepper<'a, B> {
    /// For a prepared run.
    pub fn new(session: &'a Session, run: &mut Run<B>, overlap: bool) -> Self {
        let smoothing = run.recipe.label_smoothing as f32;
        let (rank, ranks) = (session.world.rank, session.world.size);
        let gather = run.reduction.summed_numbers();
        let layout = SumsLayout::new(&run.graph, ranks, gather);
        let mine = run.division.mine.clone();
        let exchange = Exchange::new(session.comm.clone(), (rank, ranks), overlap, mine, &mut run.reduction);
        Self {
            session,
            exchange,
            layout,
            smoothing,
            comm_wait_ms: 0.0,
            epoch: LossSums::default(),
            images: 0,
            skips: Skips::default(),
        }
    }

    /// Images that all ranks have trained on.
    pub fn images(&self) -> u64 {
        self.images
    }

    /// After the last of the first steps: what the exchange of gradients costs.
    pub fn exchange_report(&mut self) -> Option<report::Exchange> {
        self.exchange.take_report()
    }

    /// Loss and hits since the last call.
    pub fn take_epoch(&mut self) -> LossSums {
        std::mem::take(&mut self.epoch)
    }

    /// Step `step` of `epoch`, after `done` optimizer steps.
    pub fn step(
        &mut self,
        run: &mut Run<B>,
        loader: &mut Loader,
        epoch: u32,
        step: u64,
        done: u64,
        lr: f64,
    ) -> Result<Step, Error> {
        let (start, waited) = (Instant::now(), loader.stats().wait);
        self.exchange.begin(done);
        let mut sums = self.gradients(run, loader, epoch, step)?;
        let data_ms = (loader.stats().wait - waited).as_secs_f64() * 1e3;
        sums.set_waits(self.session.world.rank, data_ms, self.comm_wait_ms);
        let sums = self.exchange.finish(&mut run.graph, sums.into_shares())?;
        let sums = StepSums::from_values(self.layout, sums);
        self.comm_wait_ms = self.exchange.take_wait().as_secs_f64() * 1e3;
        // records may have been left out, which only now all ranks know
        let (planned, count) = (run.division.images_of(step) as u64, sums.loss_sums().count);
        if count != planned && count > 0 {
            run.graph.scale_gradients((planned as f64 / count as f64) as f32)?;
        }
        // every rank has the same sums and the same parameters, so all stop here together
        if !sums.loss().is_finite() {
            return Err(not_finite(self.session, done, lr));
        }
        let stepped = run.optimizer.step(&mut run.graph, lr)?;
        if !stepped.finite {
            return Err(not_finite(self.session, done, lr));
        }
        sums.update_running(&mut run.graph);
        if let Some(ema) = &mut run.ema {
            ema.update(&run.graph, done + 1)?;
        }
        Ok(Step { grad_norm: stepped.grad_norm, ..self.event(sums, epoch, done + 1, lr, start) })
    }

    /// Forward and backward of this rank's workers; finished gradients go to the exchange.
    fn gradients(&mut self, run: &mut Run<B>, loader: &mut Loader, epoch: u32, step: u64) -> Result<StepSums, Error> {
        let mut sums = self.layout.zero();
        let loss = Loss { smoothing: self.smoothing, scale: 1.0 / run.division.images_of(step) as f32 };
        let mine = run.division.mine.clone();
        for worker in mine.clone() {
            let batch =
                loader.next()?.ok_or_else(|| Error::Failed(format!("no batch for step {step} of epoch {epoch}")))?;
            if (batch.epoch(), batch.step(), batch.worker()) != (epoch, step, worker) {
                let got = format!("epoch {}, step {}, worker {}", batch.epoch(), batch.step(), batch.worker());
                return Err(Error::Failed(format!(
                    "expected a batch of epoch {epoch}, step {step}, worker {worker}, got {got}"
                )));
            }
            let world = &self.session.world;
            self.skips.note(batch.skipped(), (world.rank, world.size));
            // nothing to do unless records were left out
            run.graph.prepare(batch.len())?;
            let one = Batch { images: batch.images(), labels: batch.labels(), ids: batch.ids(), epoch };
            let turn = Turn { worker, last: worker + 1 == mine.end };
            let mut hand_over = |chunk, gradients| self.exchange.ready(chunk, gradients);
            let ready: Option<Ready<'_, B, Error>> = if turn.last { Some(&mut hand_over) } else { None };
            let worker_sums = run.graph.train(one, loss, turn, ready)?;
            sums.add(&run.graph, worker_sums, worker, batch.ids());
        }
        Ok(sums)
    }

    fn event(&mut self, sums: StepSums, epoch: u32, step: u64, lr: f64, start: Instant) -> Step {
        let (data_wait_ms, comm_wait_ms) = sums.waits();
        let s = sums.loss_sums();
        self.epoch.loss += s.loss;
        self.epoch.top1 += s.top1;
        self.epoch.count += s.count;
        self.images += s.count;
        let (count, seconds) = (s.count.max(1) as f64, start.elapsed().as_secs_f64());
        Step {
            step,
            epoch,
            loss: s.loss / count,
            top1: s.top1 as f64 / count,
            lr,
            img_per_s: s.count as f64 / seconds,
            data_wait_ms,
            comm_wait_ms,
            step_ms: seconds * 1e3,
            samples: sums.samples(),
            grad_norm: None,
        }
    }
}

/// The loss became NaN or infinite: rank 0 says so, all ranks end.
fn not_finite(session: &Session, done: u64, lr: f64) -> Error {
    if !session.is_root() {
        return Error::Elsewhere { code: 1 };
    }
    Error::Failed(format!(
        "the loss of step {} is not finite, or a parameter after it (lr {lr:.4e}); the last good checkpoint stands, if there is one. Try a smaller schedule.base_lr, a longer \
         schedule.warmup_epochs, or check the data with `trireme data stats`",
        done + 1
    ))
}
