//! Training: the loop on one screen, and what it is made of.
//!
//! [`device`] picks the kind of device, [`start`] brings the ranks up, [`prepare`] settles everything before the first step, [`session`] makes the ranks agree on it
//! and `algorithms` has their devices compute alike, `step` runs one step and `exchange` sums it over the ranks by the codec that [`reduction`] planned, on the way that `path` chose (`apart` and `rounds`: ranks that meet only now and
//! then), [`evaluate`] scores, `saver` keeps checkpoints (`snapshot`, `plain`: how memory becomes a file
//! beside training), `resume` goes on from one, `stop` listens to signals.

pub mod agree;
mod device_input;
pub mod evaluate;
pub mod observe;
pub mod plan;
pub mod reduce;
pub mod save;
pub mod start;
mod step;
pub mod strategy;

pub use crate::error::Error;
pub use plan::prepare::Request;

use std::time::{Duration, Instant};

use crate::backend::Backend;
use crate::checkpoint::{Progress, Sums};
use crate::recipe::ImageCache;
use crate::report::{End, Epoch, Eval, Loading, Reporter};
use agree::session::Session;
use device_input::Feed;
use evaluate::Score;
use observe::stop::Stop;
use observe::trace::{Lane, Trace};
use observe::watch::Doing;
use plan::prepare::Run;
use reduce::path::Way;
use save::saver::Saver;
use step::Stepper;
use strategy::local_sgd::Everyone;

/// What a run was asked for, and what may end it.
#[derive(Clone, Copy)]
struct How<'a> {
    request: &'a Request,
    stop: &'a Stop,
    /// When the process began.
    started: Instant,
}

/// Runs a prepared training from `at` to its end: all epochs, or the step that was asked for, or until it is told to stop.
fn train<B: Backend>(
    session: &Session,
    mut run: Run<B>,
    mut at: Progress,
    (overlap, way): (bool, Way<B>),
    how: &How<'_>,
    mut report: Reporter,
) -> Result<(), Error> {
    let How { request, stop, started } = *how;
    let (d, begun) = (run.division.clone(), at.clone());
    let (train, augment) = (run.source.train.clone(), run.source.augment.clone());
    let feed = feed(session, &run, &mut report)?;
    let order = run.order((at.epoch, at.step_of_epoch));
    let mut loader = feed.start(&train, &augment, Box::new(order), run.options)?;
    let mut stepper = Stepper::new(session, &mut run, feed, (overlap, way))?;
    let trace = if request.trace.is_some() { Trace::start(session, request.trace_steps)? } else { Trace::default() };
    stepper.follow(&mut run, &trace);
    let mut saver = Saver::new(session, stop, request, &run)?;
    let last = request.max_steps.unwrap_or(u64::MAX).min(run.schedule.total_steps());
    let mut trained = Duration::ZERO;
    // a checkpoint of the last step may be one in the middle of an epoch, which still has to be scored
    while at.epoch < run.recipe.epochs && (at.step < last || at.step_of_epoch > 0) {
        let (start, before, loaded) = (Instant::now(), at.samples, loader.stats());
        while at.step_of_epoch < d.steps_per_epoch && at.step < last {
            let (begin, lr, asks) = (Instant::now(), run.schedule.lr(at.step), saver.asks(&at));
            let lines = stepper.steps(&mut run, &mut loader, &mut at, lr, asks)?;
            lines.into_iter().try_for_each(|line| report.event(line))?;
            stepper.exchange_report().into_iter().try_for_each(|costs| report.event(costs))?;
            // other ranks' reporters are silent, and what they have to say is theirs alone
            let say = |line: String| if session.is_root() { report.note(&line) } else { eprintln!("{line}") };
            stepper.skips.take().into_iter().for_each(say);
            if at.step == begun.step + 1 {
                report.note(&first_step(started));
            }
            saver.step_done(&mut run, &mut stepper, &at, begin.elapsed(), &mut report)?;
        }
        stepper.rest(&mut at)?.into_iter().try_for_each(|line| report.event(line))?;
        let time = start.elapsed();
        trained += time;
        // counted from the epoch's sums, which a checkpoint keeps
        let skipped = (at.step_of_epoch * d.batch as u64).min(d.images).saturating_sub(at.epoch_sums.count);
        let (loader, advice) =
            observe::loading::gather(session, loader.stats() - loaded, skipped, time, run.options.threads)?;
        report.event(epoch_line(&at, run.schedule.lr(at.step.saturating_sub(1)), at.samples - before, time, loader))?;
        report.note(&advice);
        if let Some(rounds) = &mut run.rounds {
            rounds.put_on(&mut run.graph, &mut Everyone::of(session))?;
        }
        if let Some(slowest) = stepper.take_slowest() {
            report.note(&slowest);
        }
        let begin = Instant::now();
        if !evaluate(session, &mut run, &mut at, stop, &mut report)? {
            saver.stop(&mut run, &mut stepper, &at, &mut report)?;
        }
        trace.span("eval", "evaluation", Lane::Compute, begin, begin.elapsed());
        let begin = Instant::now();
        saver.epoch_done(&mut run, &mut stepper, &mut at, &mut report)?;
        trace.span("files", "checkpoint", Lane::Compute, begin, begin.elapsed());
        if at.step == last {
            break;
        }
        if let Some(rounds) = &mut run.rounds {
            rounds.take_off(&mut run.graph);
        }
    }
    session.watch.doing(Doing::Writing { step: at.step });
    saver.finish(&mut run, &mut stepper, &at, &mut report)?;
    let model = save::output::model_path(&request.out);
    save::output::model(session, &mut run, &at, &model)?;
    if let Some(path) = &request.trace {
        trace.write(session, path, &mut report)?;
    }
    let img_per_s = (at.samples - begun.samples) as f64 / trained.as_secs_f64().max(f64::MIN_POSITIVE);
    let epoch = at.step.div_ceil(d.steps_per_epoch) as u32;
    let digest = if session.is_root() { agree::digest::state(&run)? } else { String::new() };
    report.event(End { step: at.step, epoch, seconds: started.elapsed().as_secs_f64(), img_per_s, model, digest })?;
    Ok(())
}

/// How training images come to the device.
fn feed<B: Backend>(session: &Session, run: &Run<B>, report: &mut Reporter) -> Result<Feed, Error> {
    let (backend, augment) = (run.graph.backend(), &run.source.augment);
    if run.recipe.loader.cache == ImageCache::None {
        return Ok(Feed::new(backend, augment));
    }
    let (feed, note) = session.agree(Feed::kept(backend, augment, &run.source.train, &run.options))?;
    let note = note.unwrap_or_else(|| format!("images: {}", feed.describe()));
    report.note(&note);
    Ok(feed)
}

fn first_step(started: Instant) -> String {
    format!("first step done {:.2} s after the start of the program", started.elapsed().as_secs_f64())
}

/// Scores the data set's test or validation split, if it has one; false if it was told to stop before the end.
fn evaluate<B: Backend>(
    session: &Session,
    run: &mut Run<B>,
    at: &mut Progress,
    stop: &Stop,
    report: &mut Reporter,
) -> Result<bool, Error> {
    let Some(evaluation) = &run.evaluation else { return Ok(true) };
    let Some(score) = evaluation.run(session, &mut run.graph, stop)? else { return Ok(false) };
    let split = evaluation.split.name().to_string();
    let Score { top1, top5, loss, count } = score;
    at.score = Some(Sums { loss, top1, top5, count });
    report.event(Eval { step: at.step, epoch: at.epoch + 1, split, top1, top5, loss, count })?;
    Ok(true)
}

/// The line of an epoch that ended, or with which the run ends; `images` were trained on in `time` by this process.
fn epoch_line(at: &Progress, lr: f64, images: u64, time: Duration, loader: Loading) -> Epoch {
    let (sums, seconds) = (&at.epoch_sums, time.as_secs_f64());
    let count = sums.count.max(1) as f64;
    let img_per_s = if images == 0 { 0.0 } else { images as f64 / seconds };
    let (loss, top1) = (sums.loss / count, sums.top1 / count);
    Epoch { step: at.step, epoch: at.epoch, loss, top1, lr, img_per_s, seconds, loader }
}
