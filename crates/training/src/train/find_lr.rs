//! Learning rate range test (Smith 2017, arXiv 1506.01186): trains for some steps with an exponentially rising rate.
//! Writes a plot of the losses next to the output directory, which stays unchanged.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use backend::Backend;
use engine::optim::schedule::{Exponential, ScheduleKind};
use engine::optim::{Schedule, ScheduleSpec};
use formats::checkpoint::Progress;
use loaders::safe_create::NewFile;
use loaders::{Loader, folder_of, replace, why};
use report::{RateSearch, Reporter, Suggestion};

use super::step::Stepper;
use super::{RunContext, device_input};
use crate::error::{Error, is_caused_by_request};
use crate::train::agree::Session;
use crate::train::observe::trace::Trace;
use crate::train::plan::run::Run;
use crate::train::reduce::metrics::Requests;
use crate::train::reduce::transport::TransportPlan;

/// The lowest and the highest learning rate. fastai uses the same range.
const RATES: [f64; 2] = [1e-7, 10.0];

/// Tries at most `steps` rates and returns the text to print. Collective.
pub fn find<B: Backend>(
    context: RunContext<'_>,
    mut run: Run<B>,
    steps: u64,
    transport: TransportPlan<B>,
) -> Result<String, Error> {
    let session = context.session;
    let picture = beside(&context.request.out);
    // after the search, an error would lose its result
    let checked = if session.is_root() { check_writable(&picture) } else { Ok(()) };
    session.agree(checked.map_err(|source| lost(&picture, source)))?;
    run.schedule = ramp(&run, steps)?;
    let mut report = Reporter::silent();
    run.source.phases.keep_first();
    run.resize(0)?;
    let input = device_input(session, &run, 0, &mut report)?;
    let loader = input.start(&run.source.train, run.source.augment(0), Box::new(run.order(0, 0)), run.options)?;
    let sam_input = input.clone();
    let mut stepper = Stepper::new(session, &mut run, input, transport, &Trace::default())?;
    stepper.prepare_sam(&run, sam_input, (0, 0))?;
    let at = Progress { seed: run.recipe.seed, ..Progress::default() };
    let mut search = Search { context, run, stepper, loader, at, found: RateSearch::default() };
    session.watch.set_ready(true);
    search.run_to(steps)?;
    let (run, found) = (&search.run, &search.found);
    let written = match session.is_root() {
        true => replace::replace(&picture, found.picture().as_bytes()).map_err(cause),
        false => Ok(()),
    };
    session.agree(written.map_err(|source| lost(&picture, source)))?;
    session.agree(result_text(run, found, &picture))
}

/// Creates the folder of the picture if it does not exist, and checks that the picture can be written there.
fn check_writable(picture: &Path) -> io::Result<()> {
    fs::create_dir_all(folder_of(picture))?;
    // a temporary file has another name, so it can be created even if the picture is a folder or its name is too long
    match fs::symlink_metadata(picture) {
        Ok(about) if about.is_dir() => return Err(ErrorKind::IsADirectory.into()),
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    NewFile::beside(picture).map(drop)
}

/// Returns the operating system's error inside a loader error.
fn cause(error: loaders::Error) -> io::Error {
    match error {
        loaders::Error::Io { source, .. } => source,
        error => io::Error::other(error),
    }
}

/// Returns the error for a picture that cannot be written.
fn lost(picture: &Path, source: io::Error) -> Error {
    match is_caused_by_request(&source) {
        true => Error::Usage(format!(
            "cannot write {}: {}. --find-lr writes its picture next to OUT, so choose another --out",
            picture.display(),
            why(picture, &source)
        )),
        false => Error::File { action: "write", path: picture.to_path_buf(), source },
    }
}

/// The state of a running search.
struct Search<'a, B: Backend> {
    context: RunContext<'a>,
    run: Run<B>,
    stepper: Stepper<'a, B>,
    loader: Loader,
    at: Progress,
    found: RateSearch,
}

impl<B: Backend> Search<'_, B> {
    /// Trains until step `last`, until the loss has become too large, or until a rank requests a stop. All ranks see
    /// the same loss and requests, so they stop together.
    fn run_to(&mut self, last: u64) -> Result<(), Error> {
        while self.at.step < last {
            let Self { context, run, stepper, loader, at, found } = self;
            let requests = Requests { stop: context.stop.requested(), save: false };
            let ends = at.step_of_epoch + 1 == run.division.steps_per_epoch || at.step + 1 == last;
            let stepped = stepper.step(run, loader, at, requests).and_then(|mut records| {
                records.extend(if ends { stepper.finish_pending(run, at)? } else { Vec::new() });
                Ok(records)
            });
            let records = match stepped {
                Ok(records) => records,
                Err(error) => return diverged(context.session, error),
            };
            if at.step == 1 {
                context.session.watch.stepped();
            }
            if at.step_of_epoch == run.division.steps_per_epoch {
                (at.epoch, at.step_of_epoch) = (at.epoch + 1, 0);
            }
            let goes_on = records.iter().map(|record| record.event()).all(|step| found.add(step.lr, step.loss));
            if !goes_on || stepper.agreed().stop {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Returns `Ok` if training has diverged (a loss, parameter or gradient is no longer finite), which ends a search
/// normally. Otherwise returns the error. Rank 0 decides, because the other ranks cannot distinguish divergence from
/// other failures.
fn diverged(session: &Session, error: Error) -> Result<(), Error> {
    let lost = matches!(error, Error::NotFinite { .. } | Error::Diverged { .. });
    if !lost && !error.is_agreed() {
        return Err(error);
    }
    match session.comm.broadcast("reason for the end of the search", session.is_root().then_some(&lost))? {
        true => Ok(()),
        false => Err(error),
    }
}

/// Returns a schedule with rates that grow by a constant factor per step.
fn ramp<B: Backend>(run: &Run<B>, steps: u64) -> Result<Schedule, Error> {
    let [from, to] = RATES;
    let each = run.division.steps_per_epoch;
    let decay_epochs = Some((steps.max(2) - 1) as f64 / each as f64);
    let kind = ScheduleKind::Exponential(Exponential { gamma: Some(to / from), decay_epochs, staircase: None });
    let spec = ScheduleSpec { kind, ..ScheduleSpec::constant(from) };
    Ok(Schedule::over(&spec, run.division.batch, steps, each)?)
}

/// Returns the path of the picture: `runs/r20.find-lr.svg` for `runs/r20`.
fn beside(out: &Path) -> PathBuf {
    let mut name = out.file_name().unwrap_or("run".as_ref()).to_os_string();
    name.push(".find-lr.svg");
    out.with_file_name(name)
}

/// Formats the result for the user. The last line can be used with `--set`.
fn result_text<B: Backend>(run: &Run<B>, found: &RateSearch, picture: &Path) -> Result<String, Error> {
    let (steps, picture) = (found.steps(), picture.display());
    let Some(Suggestion { steepest, tenth }) = found.suggestion() else {
        return Err(Error::Failed(format!(
            "--find-lr: the loss did not fall at any of the {steps} rates that were tried; see {picture}, and try more rates, such as \
             --find-lr=300"
        )));
    };
    // the recipe's rate applies to a batch of reference_batch images
    let scale = run.recipe.schedule.reference_batch.map_or(1.0, |reference| run.recipe.batch as f64 / reference as f64);
    let short = |lr: f64| format!("{lr:.1e}").parse::<f64>().unwrap_or(lr);
    Ok(format!(
        "# {steps} rates tried, picture: {picture}\n# the loss falls fastest at {}, and a tenth of the rate with the lowest loss is {}, \
         for a batch of {}\nschedule.base_lr = {}",
        short(steepest),
        short(tenth),
        run.recipe.batch,
        short(steepest / scale)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_is_next_to_the_run() {
        assert_eq!(beside(Path::new("runs/r20")), PathBuf::from("runs/r20.find-lr.svg"));
        assert_eq!(beside(Path::new("r20")), PathBuf::from("r20.find-lr.svg"));
    }
}
