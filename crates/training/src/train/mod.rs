//! Training: the loop, and the modules that it uses.
//!
//! - [`start`] starts a run. [`plan`] plans it from a request, without communication. [`agree`] checks that all ranks
//!   are equal.
//! - `find_lr` searches a learning rate.
//! - `step` runs a step: `micro_batches` runs the passes, `sam` computes a second gradient if requested, [`reduce`] sums
//!   over the ranks, and [`strategy`] decides when ranks synchronise.
//! - [`init`] reads initial weights from a file. [`mod@evaluate`] computes scores, and `scoring` decides when to evaluate
//!   and what to do with the scores.
//! - [`save`] writes checkpoints and the final model. [`observe`] watches the run and reports.

pub mod agree;
mod define;
mod describe;
pub mod device_input;
pub mod evaluate;
pub mod find_lr;
mod lost_rank;
mod micro_batches;
mod page;
mod sam;
mod scoring;
pub mod start;
mod step;
pub mod strategy;
mod teacher;

/// `[init]`: starts a run from weights in a file instead of random ones. Only rank 0 reads the file, so it does not need
/// to exist on other nodes, and all ranks start from bit-identical weights. A resumed run does not read the file.
pub mod init {
    pub mod initial_weights;
    pub mod matching;
    pub mod positions;
    pub mod stem;
    pub mod table;
    pub mod whiten;
}

/// Observes a run: timing, trace, notices, watchdog and requests to stop. These modules do not change any
/// result and do not import other parts of `train`.
pub mod observe {
    pub mod notices;
    pub mod stop;
    pub mod timing;
    pub mod trace;
    pub mod watch;
}

/// Plans a run from a request. These modules do not communicate with other ranks.
pub mod plan {
    pub mod build;
    pub mod division;
    pub mod network;
    pub mod phases;
    pub mod request;
    pub mod run;
    pub mod settings;
    pub mod source;
    pub mod split_labels;
    pub mod targets;
}

/// The sums of a step over all ranks: gradients, bucket by bucket, and metrics.
pub mod reduce {
    pub mod bucket_sum;
    pub mod device;
    pub mod gradients;
    pub mod group;
    pub mod host;
    pub mod metrics;
    pub mod plan;
    pub mod ranks;
    pub mod transport;
}

/// A run's files in OUT: checkpoints and the final model. Also resuming from a checkpoint.
pub mod save {
    pub mod folder;
    mod hand_over;
    pub mod lock;
    pub mod model;
    pub mod output;
    pub mod resume;
    pub mod saver;
    pub mod snapshot;
}

use std::time::{Duration, Instant};

use agree::Session;
use backend::Backend;
use base::screen;
use device_input::DeviceInput;
use formats::checkpoint::{Progress, Sums};
use loaders::{Loader, LoaderStats};
use lost_rank::LostRankMessage;
use observe::stop::Stop;
use observe::timing::{self, EpochLoading};
use observe::trace::{Lane, Trace};
use observe::watch::Activity;
use page::PageData;
use plan::request::TrainRequest;
use plan::run::Run;
use recipe::ImageCache;
use reduce::ranks::MpiRanks;
use reduce::transport::TransportPlan;
use report::{End, Epoch, Exchange, Loading, Reporter, Step};
use save::lock::OutLock;
use save::resume::Logged;
use save::saver::{Moment, RESUMABLE, Saver};
use save::{output, snapshot};
use scoring::{Ending, ScoringResult};
use step::Stepper;

use crate::error::Error;

/// The context of a planned run: the ranks, the command line options, and requests to stop.
#[derive(Clone, Copy)]
pub struct RunContext<'a> {
    pub session: &'a Session,
    pub request: &'a TrainRequest,
    /// Requests to stop from signals and time limits.
    pub stop: &'a Stop,
    /// Start time of this process, not of the whole run.
    pub started: Instant,
    /// The lock on the output directory. Only rank 0 has it.
    pub lock: Option<&'a OutLock>,
    /// Which lines a resumed run need not write again, because its log already has them.
    pub logged: Logged,
}

/// A run in progress: the state of the training loop.
struct Training<'a, B: Backend> {
    context: RunContext<'a>,
    run: Run<B>,
    at: Progress,
    /// The progress when this process started: 0, or that of the checkpoint.
    begun: Progress,
    /// Number of the step at which this process ends the run. Lowered if a score ends the run early.
    last: u64,
    loader: Loader,
    stepper: Stepper<'a, B>,
    saver: Saver<'a, B>,
    trace: Trace,
    report: Reporter,
    page_data: PageData,
    /// Total time of the training steps in this process.
    training_time: Duration,
    /// Approximate time when this process read its first image.
    first_image: Instant,
    /// Number of the last step that was reported to the log.
    reported: u64,
    /// Scores on the split that is evaluated only at the end. `None` until then.
    score_at_end: Option<Sums>,
    /// The reason why the run ends early because of a score. `None` if it does not.
    ended: Option<Ending>,
    /// Seconds from the first image to the score that reached the target.
    seconds_to_target: Option<f64>,
}

/// Runs a planned training from `at` to its end, which is the last epoch, the requested step, or a request to stop on
/// any rank.
pub fn train<B: Backend>(
    context: RunContext<'_>,
    run: Run<B>,
    at: Progress,
    transport: TransportPlan<B>,
    report: Reporter,
) -> Result<(), Error> {
    let RunContext { session, request, .. } = context;
    let _lost_rank_message = (session.world.size > 1).then(|| LostRankMessage::prepare(&session.watch, &request.out));
    let mut training = Training::new(context, run, at, transport, report)?;
    let ended = training.run_to_end();
    let within = training.at.step_of_epoch < training.run.division.steps_per_epoch && training.at.step < training.last;
    // a score that is not finite is already in the log; if all steps of an epoch are reported, the error is about a score
    let in_step = within || training.reported < training.at.step;
    if let (Err(error @ (Error::NotFinite { .. } | Error::Diverged { .. })), true) = (&ended, in_step) {
        // the run has already failed with its own error, so errors of the log are ignored
        let _ = training.report_diverged(error);
    }
    // if there is no error or all ranks know it, all ranks get here, so this collective call cannot hang
    if ended.as_ref().err().is_none_or(Error::is_agreed) {
        training.stepper.reduction().retire()?;
    }
    // all ranks have the same code, so the trace can be gathered
    if ended.as_ref().err().is_none_or(|error| error.code() == RESUMABLE) {
        training.page_data.finish(&request.out, &training.run, &mut training.report);
        if let Some(path) = &request.trace {
            // an error of the trace must not replace the code of a stopped run
            let written = training.trace.write(&session.comm, &session.world, path, &mut training.report);
            return ended.and(written);
        }
    }
    ended
}

impl<'a, B: Backend> Training<'a, B> {
    fn new(
        context: RunContext<'a>,
        mut run: Run<B>,
        mut at: Progress,
        transport: TransportPlan<B>,
        mut report: Reporter,
    ) -> Result<Self, Error> {
        let RunContext { session, request, stop, lock, .. } = context;
        let first_image = Instant::now();
        run.schedule.set_drops(at.rules.plateau.map_or(0, |plateau| plateau.drops));
        let input = device_input(session, &run, at.epoch, &mut report)?;
        // the trace starts before the loader, to include its first batches
        let trace = match request.trace {
            Some(_) => Trace::start(&session.comm, request.trace_steps)?,
            None => Trace::default(),
        };
        let order = Box::new(run.order(at.epoch, at.step_of_epoch));
        session.watch.set_activity(Activity::Reading);
        let loader = input.start(&run.source.train, run.source.augment(at.epoch), order, run.options)?;
        session.watch.set_activity(Activity::Starting);
        let sam_input = input.clone();
        let mut stepper = Stepper::new(session, &mut run, input, transport, &trace)?;
        stepper.prepare_sam(&run, sam_input, (at.epoch, at.step_of_epoch))?;
        let saver = Saver::new(session, stop, lock, request, &run, &at)?;
        // scores before this part of the run must not end a later part that has the rule again
        at.rules.stop = at.rules.stop.filter(|_| run.recipe.stop.is_set());
        let ended = scoring::over(&run.recipe, &at);
        if let Some(ending) = &ended {
            report.note(&ending.text(at.step, None));
        }
        let seconds_to_target = at.rules.seconds.filter(|_| matches!(ended, Some(Ending::Target { .. })));
        let last = if ended.is_some() { at.step } else { run.last_step(request.max_steps) };
        let (begun, training_time) = (at.clone(), Duration::ZERO);
        let page_data = PageData::new(&run, session.is_root());
        Ok(Self {
            context,
            run,
            reported: at.step,
            at,
            begun,
            last,
            loader,
            stepper,
            saver,
            trace,
            report,
            page_data,
            training_time,
            first_image,
            score_at_end: None,
            ended,
            seconds_to_target,
        })
    }

    /// Runs the remaining epochs and then finishes the run.
    fn run_to_end(&mut self) -> Result<(), Error> {
        if self.ends_unscored() {
            self.score_or_stop()?;
        }
        while self.continues() {
            self.epoch()?;
            if self.at.step == self.last {
                break;
            }
        }
        self.finish()
    }

    /// Returns true if an epoch must be trained or scored. A run that resumes at its last step may still have to score
    /// that epoch.
    fn continues(&self) -> bool {
        self.at.epoch < self.run.epochs() && (self.at.step < self.last || self.at.step_of_epoch > 0)
    }

    /// Returns true if a resumed run ends at its checkpoint, and this epoch has no scores yet because no evaluation was planned after it.
    /// The end of a run is always scored.
    fn ends_unscored(&self) -> bool {
        let at = &self.at;
        let is_over = !self.continues() && at.epoch > 0 && at.step < self.run.schedule.total_steps();
        is_over && !self.run.recipe.eval.scores(at.epoch) && !self.context.logged.scores
    }

    /// Trains to the end of the epoch, evaluates and saves.
    fn epoch(&mut self) -> Result<(), Error> {
        self.resize()?;
        let (start, before, loaded) = (Instant::now(), (self.at.samples, self.at.step), self.loader.stats());
        while self.at.step_of_epoch < self.run.division.steps_per_epoch && self.at.step < self.last {
            self.step()?;
        }
        let records = self.stepper.finish_pending(&mut self.run, &mut self.at)?;
        self.report_steps(records.iter().map(|record| record.event()).collect())?;
        let time = start.elapsed();
        self.training_time += time;
        // if a resumed run only has to score the epoch, the log may already have the line about its training
        if self.at.step > before.1 || !self.context.logged.epoch {
            self.report_epoch(before, loaded, time)?;
        }
        let mut ranks = MpiRanks::new(self.context.session);
        self.run.swap_in(&mut ranks)?;
        if let Some(slowest) = self.stepper.take_slowest() {
            self.report.advice(&slowest);
        }
        // a request to stop in the last step of the epoch. The resumed run scores the epoch
        if self.stepper.agreed().stop {
            let (saver, mut now, report) = self.between_steps();
            saver.stop(&mut now, report)?;
        }
        let scored = self.score_or_stop()?;
        let begin = Instant::now();
        let (saver, mut now, report) = self.between_steps();
        saver.epoch_done(&mut now, scored == ScoringResult::Best, report)?;
        self.trace.span("files", "checkpoint", Lane::Compute, begin, begin.elapsed());
        // the final model must contain the synchronised weights, not those of this rank
        if self.at.step < self.last {
            self.run.swap_out();
        }
        Ok(())
    }

    /// Evaluates, if that is due. If a rank requests a stop, writes a checkpoint and returns the error that ends the run. The resumed run
    /// then repeats the evaluation.
    fn score_or_stop(&mut self) -> Result<ScoringResult, Error> {
        self.run.resize_for_scoring()?;
        let begin = Instant::now();
        let scored = self.score()?;
        if scored == ScoringResult::Stopped {
            let (saver, mut now, report) = self.between_steps();
            saver.stop(&mut now, report)?;
        }
        self.trace.span("eval", "evaluation", Lane::Compute, begin, begin.elapsed());
        self.print_notices();
        Ok(scored)
    }

    /// Returns true if predictions can be correct, which numbers never are.
    fn has_classes(&self) -> bool {
        self.run.source.manifest.targets.is_empty()
    }

    fn report_steps(&mut self, steps: Vec<Step>) -> Result<(), Error> {
        for step in steps {
            self.reported = step.step;
            let top1 = if self.has_classes() { step.top1 } else { f64::NAN };
            self.report.event(Step { top1, ..step })?;
        }
        Ok(())
    }

    /// Reports the step that `error` is about, and the steps before it that are not in the log yet. Programs that read metrics.jsonl
    /// recognize a diverged run by a last step whose loss is null.
    fn report_diverged(&mut self, error: &Error) -> Result<(), Error> {
        let finite = self.stepper.take_finite();
        self.report_steps(finite.iter().map(|record| record.event()).collect())?;
        let step = match error {
            Error::NotFinite { step, .. } => *step,
            // the device may already compute a later step, so use the last reported one
            _ => self.reported + 1,
        };
        let (epoch, lr) = (self.at.epoch, self.run.schedule.lr(step - 1));
        Ok(self.report.event(Step { step, epoch, lr, loss: f64::NAN, top1: f64::NAN, ..Step::default() })?)
    }

    /// Runs and reports a step, and writes a checkpoint if it is due.
    fn step(&mut self) -> Result<(), Error> {
        let begin = Instant::now();
        let requests = self.saver.requests(&self.at);
        let records = self.stepper.step(&mut self.run, &mut self.loader, &mut self.at, requests)?;
        self.report_steps(records.iter().map(|record| record.event()).collect())?;
        let epoch = self.at.epoch;
        self.stepper.take_costs().into_iter().try_for_each(|costs| self.report.event(Exchange { epoch, ..costs }))?;
        self.stepper.take_layers().into_iter().try_for_each(|layers| self.report.event(layers))?;
        self.print_notices();
        if self.at.step == self.begun.step + 1 {
            self.context.session.watch.stepped();
            let seconds = self.context.started.elapsed().as_secs_f64();
            self.report.fact(&format!("first step done {seconds:.2} s after the start of the program"));
        }
        let (saver, mut now, report) = self.between_steps();
        saver.step_done(&mut now, begin.elapsed(), report)
    }

    /// Prints the notices that were added since the last call.
    fn print_notices(&mut self) {
        for notice in self.stepper.take_notices(&self.run) {
            // the reporters of other ranks are silent, so these ranks print their notices directly
            if self.context.session.is_root() { self.report.note(&notice) } else { screen::say(&notice) }
        }
    }

    /// Reports the end of an epoch. If this process trained only a part of the epoch, reports this part. `before` has the image and step
    /// counts from the time when this process began with the epoch, and `time` is the time since then.
    fn report_epoch(&mut self, before: (u64, u64), loaded: LoaderStats, time: Duration) -> Result<(), Error> {
        let (at, d) = (&self.at, &self.run.division);
        let (images, steps) = (at.samples - before.0, at.step - before.1);
        // the number of skipped images is computed from the epoch's sums, because a checkpoint contains these
        let skipped = (at.step_of_epoch * d.batch as u64).min(d.images).saturating_sub(at.epoch_sums.count);
        let (session, threads) = (self.context.session, self.run.options.threads);
        let (stats, local) = (self.loader.stats() - loaded, self.loader.maps_local_files());
        let loading = EpochLoading { stats, skipped, time, threads, steps, local };
        let (loader, advice) = timing::gather(&session.comm, &session.world, loading)?;
        let lr = self.run.schedule.lr(at.step.saturating_sub(1));
        let part = (at.step_of_epoch < d.steps_per_epoch).then_some((at.step_of_epoch, d.steps_per_epoch));
        let epoch = epoch_event(at, lr, images, time, loader);
        let top1 = if self.has_classes() { epoch.top1 } else { f64::NAN };
        self.report.event(Epoch { part, top1, ..epoch })?;
        advice.iter().for_each(|advice| self.report.advice(advice));
        Ok(())
    }

    /// Returns the seconds from the first image until now. After a resume this includes the time before the checkpoint.
    /// Returns `None` unless all parts of the run had a target.
    fn seconds_so_far(&self) -> Option<f64> {
        // if the part of the run before the checkpoint had no target, its time is unknown
        let before = if self.begun.step == 0 { 0.0 } else { self.begun.rules.seconds? };
        self.run.recipe.stop.target.map(|_| before + self.first_image.elapsed().as_secs_f64())
    }

    /// Returns the saver and the state that it needs.
    fn between_steps(&mut self) -> (&mut Saver<'a, B>, Moment<'_, B>, &mut Reporter) {
        self.at.rules.seconds = self.seconds_so_far();
        let Self { run, stepper, saver, at, report, .. } = self;
        let agreed = stepper.agreed();
        (saver, Moment { run, reduction: stepper.reduction(), at, agreed }, report)
    }

    /// Writes the last checkpoint, the model and the end event.
    fn finish(&mut self) -> Result<(), Error> {
        let RunContext { session, request, started, .. } = self.context;
        session.watch.set_activity(Activity::Writing { step: self.at.step });
        let (saver, mut now, report) = self.between_steps();
        saver.finish(&mut now, report)?;
        if !self.score_at_end()? {
            let (saver, mut now, report) = self.between_steps();
            saver.stop(&mut now, report)?;
        }
        session.watch.set_activity(Activity::Writing { step: self.at.step });
        self.context.lock.map_or(Ok(()), OutLock::check)?;
        let model = output::model_path(&request.out);
        output::last_model(session, &mut self.run, &self.at, self.score_at_end.as_ref(), &model)?;
        let images = self.at.samples - self.begun.samples;
        let img_per_s = images as f64 / self.training_time.as_secs_f64().max(f64::MIN_POSITIVE);
        let (step, epoch) = (self.at.step, self.at.step.div_ceil(self.run.division.steps_per_epoch) as u32);
        let digest = if session.is_root() { snapshot::state(&self.run)? } else { String::new() };
        let seconds = started.elapsed().as_secs_f64();
        let ended = self.ended.as_ref().map(|ending| ending.word().to_string());
        let seconds_to_target = self.seconds_to_target;
        let before = self.begun.step;
        let best = self.saver.best().cloned().map(|best| (best.by, best.score, best.step));
        self.report.event(End {
            step,
            before,
            epoch,
            seconds,
            img_per_s,
            model,
            best,
            digest,
            ended,
            seconds_to_target,
        })?;
        Ok(())
    }

    /// Sets the graph to the image size of the current epoch (progressive resizing). Restarts the loader if the size changes at this epoch.
    fn resize(&mut self) -> Result<(), Error> {
        let epoch = self.at.epoch;
        self.run.resize(epoch)?;
        // this process already started with the image size of the epoch in which it began
        if epoch == self.begun.epoch || !self.run.source.phases.begins(epoch) {
            return Ok(());
        }
        let input = device_input(self.context.session, &self.run, epoch, &mut self.report)?;
        let order = Box::new(self.run.order(epoch, 0));
        let run = &self.run;
        self.loader = input.start(&run.source.train, run.source.augment(epoch), order, run.options)?;
        self.report.note(&format!("sizes: images of {} from epoch {epoch} on", run.source.augment(epoch).output()));
        self.stepper.feed(run, input, (epoch, 0))
    }
}

/// Returns the form in which training images reach the device in this epoch.
fn device_input<B: Backend>(
    session: &Session,
    run: &Run<B>,
    epoch: u32,
    report: &mut Reporter,
) -> Result<DeviceInput, Error> {
    let (backend, augment) = (run.graph.backend(), run.source.augment(epoch));
    if run.recipe.loader.cache == ImageCache::None {
        return Ok(DeviceInput::new(backend, augment));
    }
    let (input, note) = session.agree(DeviceInput::kept(backend, augment, &run.source.train, &run.options))?;
    let first = session.comm.broadcast("note about the images on the device", session.is_root().then_some(&note))?;
    match note {
        // the reporters of other ranks are silent, and their devices may have less free memory
        Some(note) if first.as_ref() != Some(&note) => screen::say(&format!("{}{note}", session.world.who())),
        Some(note) => report.note(&note),
        None => report.fact(&format!("images: {}", input.describe())),
    }
    Ok(input)
}

fn epoch_event(at: &Progress, lr: f64, images: u64, time: Duration, loader: Loading) -> Epoch {
    let (sums, seconds) = (&at.epoch_sums, time.as_secs_f64());
    let count = sums.count.max(1) as f64;
    let img_per_s = if images == 0 { 0.0 } else { images as f64 / seconds };
    let (loss, top1) = (sums.loss / count, sums.top1 / count);
    Epoch { step: at.step, epoch: at.epoch, part: None, loss, top1, lr, img_per_s, seconds, loader }
}
