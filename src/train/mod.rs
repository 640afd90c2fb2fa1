//! Training: the loop on one screen, and what it is made of.
//!
//! [`prepare`] settles everything before the first step, [`session`] makes the ranks agree on it, `step` runs one step and
//! `exchange` sums it over the ranks by the codec that [`reduction`] planned (`apart` and `rounds`: ranks that meet only now and
//! then), [`evaluate`] scores, [`model`] turns parameters into files.

mod across;
mod apart;
pub mod bench;
pub mod cores;
mod costs;
pub mod device;
mod digest;
pub mod doctor;
mod error;
pub mod evaluate;
mod exchange;
mod loading;
pub mod model;
mod output;
mod pace;
pub mod prepare;
pub mod reduction;
mod rounds;
pub mod scoring;
pub mod session;
mod skips;
mod staging;
mod step;
mod sums;
mod trace;

pub use error::Error;
pub use prepare::Request;

use std::time::{Duration, Instant};

use crate::backend::Backend;
use crate::report::{End, Epoch, Eval, Reporter};
use apart::Everyone;
use evaluate::Score;
use loaders::Loader;
use output::Output;
use prepare::Run;
use session::Session;
use step::Stepper;
use trace::{Lane, Trace};

/// Runs a prepared training to its end: all epochs, or the step that was asked for.
fn train<B: Backend>(
    session: &Session,
    mut run: Run<B>,
    request: &Request,
    overlap: bool,
    started: Instant,
    mut report: Reporter,
) -> Result<(), Error> {
    let d = run.division.clone();
    let (train, augment) = (run.source.train.clone(), run.source.augment.clone());
    let mut loader = Loader::start(train, augment, Box::new(run.order()), run.options)?;
    let mut stepper = Stepper::new(session, &mut run, overlap);
    let trace = if request.trace.is_some() { Trace::start(session, request.trace_steps)? } else { Trace::default() };
    stepper.follow(&mut run, &trace);
    let mut output = Output::new(session, request, &run);
    let last = request.max_steps.unwrap_or(u64::MAX).min(run.schedule.total_steps());
    let (mut done, mut trained, mut score) = (0, Duration::ZERO, None);
    for epoch in 0..run.recipe.epochs {
        let (start, first, loaded) = (Instant::now(), done, loader.stats());
        for step in 0..d.steps_per_epoch.min(last - done) {
            let lr = run.schedule.lr(done);
            let lines = stepper.steps(&mut run, &mut loader, epoch, step, done, lr)?;
            done += 1;
            lines.into_iter().try_for_each(|line| report.event(line))?;
            stepper.exchange_report().into_iter().try_for_each(|costs| report.event(costs))?;
            // other ranks' reporters are silent, and what they have to say is theirs alone
            let say = |line: String| if session.is_root() { report.note(&line) } else { eprintln!("{line}") };
            stepper.skips.take().into_iter().for_each(say);
            if done == 1 {
                report.note(&format!(
                    "first step done {:.2} s after the start of the program",
                    started.elapsed().as_secs_f64()
                ));
            }
        }
        stepper.rest()?.into_iter().try_for_each(|line| report.event(line))?;
        let time = start.elapsed();
        trained += time;
        let (loading, advice) = loading::gather(session, loader.stats() - loaded, time, run.options.threads)?;
        let lr = run.schedule.lr(done.saturating_sub(1));
        report.event(Epoch { loader: loading, ..stepper.epoch(epoch, done, lr, done - first, time) })?;
        report.note(&advice);
        if let Some(rounds) = &mut run.rounds {
            rounds.put_on(&mut run.graph, &mut Everyone::of(session))?;
        }
        if let Some(slowest) = stepper.take_slowest() {
            report.note(&slowest);
        }
        let begin = Instant::now();
        score = evaluate(session, &mut run, epoch + 1, done, &mut report)?;
        trace.span("eval", "evaluation", Lane::Compute, begin, begin.elapsed());
        let begin = Instant::now();
        output.checkpoint(&mut run, epoch + 1, done, score, &mut report)?;
        trace.span("files", "checkpoint", Lane::Compute, begin, begin.elapsed());
        if done == last {
            break;
        }
        if let Some(rounds) = &mut run.rounds {
            rounds.take_off(&mut run.graph);
        }
    }
    output.model(&mut run, done, score)?;
    if let Some(path) = &request.trace {
        trace.write(session, path, &mut report)?;
    }
    let img_per_s = stepper.images() as f64 / trained.as_secs_f64();
    let epoch = done.div_ceil(d.steps_per_epoch) as u32;
    let model = output.model_path();
    let digest = if session.is_root() { digest::state(&run)? } else { String::new() };
    report.event(End { step: done, epoch, seconds: started.elapsed().as_secs_f64(), img_per_s, model, digest })?;
    Ok(())
}

/// Scores the data set's test or validation split, if it has one.
fn evaluate<B: Backend>(
    session: &Session,
    run: &mut Run<B>,
    epoch: u32,
    step: u64,
    report: &mut Reporter,
) -> Result<Option<Score>, Error> {
    let Some(evaluation) = &run.evaluation else { return Ok(None) };
    let score = evaluation.run(session, &mut run.graph)?;
    let split = evaluation.split.name().to_string();
    let Score { top1, top5, loss, count } = score;
    report.event(Eval { step, epoch, split, top1, top5, loss, count })?;
    Ok(Some(score))
}

impl<B: Backend> Stepper<'_, B> {
    /// The line of an epoch that ended.
    fn epoch(&mut self, epoch: u32, step: u64, lr: f64, steps: u64, time: Duration) -> Epoch {
        let sums = self.take_epoch();
        let count = sums.count.max(1) as f64;
        let seconds = time.as_secs_f64();
        let img_per_s = if steps == 0 { 0.0 } else { sums.count as f64 / seconds };
        Epoch {
            step,
            epoch,
            loss: sums.loss / count,
            top1: sums.top1 as f64 / count,
            lr,
            img_per_s,
            seconds,
            loader: Default::default(),
        }
    }
}
