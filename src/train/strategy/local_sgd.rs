//! The steps of ranks that train by themselves between meetings ([`rounds`](crate::train::strategy::rounds)): no word passes between two meetings, so
//! the lines of the steps come out together, with the sums over all ranks, when the ranks have met.

use std::time::Instant;

use crate::backend::{self, Backend, LossScale};
use crate::checkpoint::Progress;
use crate::comm::Comm;
use crate::error::Error;
use crate::report::Step;
use crate::train::agree::session::Session;
use crate::train::observe::diagnose::not_finite;
use crate::train::observe::timing::Pace;
use crate::train::observe::trace::Lane;
use crate::train::plan::prepare::Run;
use crate::train::reduce::metrics::{Flags, StepSums};
use crate::train::step::Stepper;
use crate::train::strategy::rounds::Sum;
use loaders::Loader;

/// A step whose sums are still this rank's own.
pub struct Open {
    epoch: u32,
    /// Steps done, this one included.
    step: u64,
    lr: f64,
    sums: Vec<f64>,
    seconds: f64,
    scale: Option<LossScale>,
}

/// All ranks, as [`rounds`](crate::train::strategy::rounds) sees them.
pub struct Everyone {
    comm: Comm,
    ranks: usize,
}

impl Everyone {
    /// Those of the session.
    pub fn of(session: &Session) -> Self {
        Self { comm: session.comm.clone(), ranks: session.world.size }
    }
}

impl Sum for Everyone {
    fn sum(&mut self, values: &mut [f32]) -> Result<(), backend::Error> {
        self.comm.run("sum of parameters", |world| world.sum_f32(values)).map_err(across)
    }

    fn sum_f64(&mut self, values: &mut [f64]) -> Result<(), backend::Error> {
        self.comm.run("sum of statistics", |world| world.sum_f64(values)).map_err(across)
    }

    fn ranks(&self) -> usize {
        self.ranks
    }
}

fn across(error: crate::comm::Error) -> backend::Error {
    backend::Error::Across { why: error.to_string() }
}

impl<B: Backend> Stepper<'_, B> {
    /// Step `step` of `epoch` by this rank alone, and the meeting if it is due; then the lines of all steps since the last one.
    fn step_apart(
        &mut self,
        run: &mut Run<B>,
        loader: &mut Loader,
        at: &mut Progress,
        lr: f64,
        asks: Flags,
    ) -> Result<Vec<Step>, Error> {
        let (epoch, step, done) = (at.epoch, at.step_of_epoch, at.step);
        let start = Instant::now();
        let sums = self.own_part(run, loader, at, asks)?;
        self.agreed = Flags::default();
        // its exchange is planned for one rank: nothing travels
        let sums = self.exchange.finish(&mut run.graph, sums.into_shares())?;
        let mut sums = StepSums::from_values(self.layout, sums);
        run.make_up_for_skips(step, sums.loss_sums().count)?;
        let meets = run.rounds.as_ref().is_some_and(|rounds| rounds.meets(done));
        let mut everyone = Everyone::of(self.session);
        let begin = Instant::now();
        if let (true, Some(rounds)) = (meets, &mut run.rounds) {
            rounds.before(run.graph.weights_mut().1, &mut everyone)?;
        }
        let mut met = begin.elapsed();
        // a rank without samples in a short batch has nothing to step by
        if sums.loss_sums().count > 0 {
            if !run.optimizer.step(&mut run.graph, lr, None)?.finite {
                sums.spoil();
            }
            sums.update_running(&mut run.graph);
        }
        self.trace_layers(run, done);
        let seconds = start.elapsed().as_secs_f64();
        self.before = Pace { comm: 0.0, step: seconds * 1e3, ..Pace::default() };
        self.open.push(Open {
            epoch,
            step: done + 1,
            lr,
            sums: sums.into_shares().concat(),
            seconds,
            scale: self.scale,
        });
        if !meets {
            return Ok(Vec::new());
        }
        let begin = Instant::now();
        let lines = self.rest(at)?;
        if let Some(rounds) = &mut run.rounds {
            rounds.after(run.graph.weights_mut().1, run.optimizer.slots_mut().map(|slot| slot.1), &mut everyone)?;
        }
        met += begin.elapsed();
        self.trace.part("wait", "meeting of the ranks", Lane::Compute, begin, begin.elapsed());
        self.before.comm = met.as_secs_f64() * 1e3;
        self.before.step = start.elapsed().as_secs_f64() * 1e3;
        Ok(lines)
    }

    /// The step that comes after `at`, which moves on, however the ranks keep one model; with the lines of the steps that all ranks
    /// know of. `asks` is what this rank asks for: ranks that meet only now and then learn of it when they meet.
    pub fn steps(
        &mut self,
        run: &mut Run<B>,
        loader: &mut Loader,
        at: &mut Progress,
        lr: f64,
        asks: Flags,
    ) -> Result<Vec<Step>, Error> {
        let lines = match run.rounds {
            Some(_) => self.step_apart(run, loader, at, lr, asks)?,
            None => vec![self.step(run, loader, at, lr, asks)?],
        };
        (at.step, at.step_of_epoch) = (at.step + 1, at.step_of_epoch + 1);
        Ok(lines)
    }

    /// The lines that are still out, all steps summed over all ranks: when the ranks meet, and at the end of an epoch.
    pub fn rest(&mut self, at: &mut Progress) -> Result<Vec<Step>, Error> {
        let open = std::mem::take(&mut self.open);
        let Some(each) = open.first().map(|o| o.sums.len()) else { return Ok(Vec::new()) };
        let mut all: Vec<f64> = open.iter().flat_map(|o| o.sums.iter().copied()).collect();
        self.session.comm.run("sum of losses", |world| world.sum_f64(&mut all))?;
        let mut lines = Vec::new();
        for (open, sums) in open.into_iter().zip(all.chunks(each)) {
            let sums = StepSums::from_values(self.layout, sums.to_vec());
            // all ranks have the same sums, so all stop here together
            if !sums.loss().is_finite() {
                return Err(not_finite(self.session, self.precision, open.step - 1, open.lr, open.sums[0]));
            }
            let Flags { stop, save } = sums.flags();
            self.agreed = Flags { stop: self.agreed.stop | stop, save: self.agreed.save | save };
            let line = self.event(at, sums, open.epoch, open.step, open.lr, open.seconds);
            let (loss_scale, lost_steps) = (open.scale.map(|s| s.scale), open.scale.map(|s| s.lost));
            lines.push(Step { loss_scale, lost_steps, ..line });
        }
        Ok(lines)
    }
}
