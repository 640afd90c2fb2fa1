//! Decides when to write checkpoints, which files to keep, and how a run stops early. All ranks make the same calls,
//! but only rank 0 writes.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use backend::Backend;
use formats::checkpoint::{Best, ModelFile, Progress, StateFile};
use loaders::folder_of;
use recipe::Every;
use report::Reporter;

use crate::error::Error;
use crate::train::agree::Session;
use crate::train::observe::stop::Stop;
use crate::train::observe::watch::Activity;
use crate::train::plan::request::TrainRequest;
use crate::train::plan::run::Run;
use crate::train::reduce::gradients::GradientSum;
use crate::train::reduce::metrics::Requests;
use crate::train::reduce::ranks::MpiRanks;
use crate::train::save::lock::OutLock;
use crate::train::save::output::{self, list, path_of};
use crate::train::save::resume::{ASIDE, Head};
use crate::train::save::snapshot::{CheckpointJob, Snapshot, Writer, WrittenCheckpoint};

/// Exit code of a run that stopped early and can be resumed.
pub const RESUMABLE: u8 = 75;

/// Assumed disk speed in bytes per second, used until a checkpoint was measured.
const DISK: f64 = 100e6;

/// Time between two checks of the output directory.
const FOLDER_CHECK_INTERVAL: Duration = Duration::from_secs(5);

pub struct Saver<'a, B: Backend> {
    session: &'a Session,
    stop: &'a Stop,
    /// The lock on the output directory, only on rank 0.
    lock: Option<&'a OutLock>,
    /// Time when the output directory was last checked.
    last_check: Instant,
    every: Every,
    keep: usize,
    folder: PathBuf,
    /// The thread that writes checkpoints, only on rank 0.
    writer: Option<Writer<B>>,
    head: ModelFile,
    last_snapshot: Instant,
    /// Step of the last snapshot that this process took.
    taken: Option<u64>,
    /// True if a checkpoint was due while the previous checkpoint was still being written.
    late: bool,
    /// True once the user was told about the late checkpoint.
    late_reported: bool,
    /// True if all ranks have agreed on a checkpoint that waits for the evaluation at the end of the epoch.
    due: bool,
    /// The best model whose checkpoint was written. There may be a better model whose checkpoint could not be written.
    best: Option<Best>,
    /// The error of the last write. `None` if it succeeded.
    last_error: Option<Error>,
}

/// The state of a run between two steps.
pub struct Moment<'a, B: Backend> {
    pub run: &'a mut Run<B>,
    /// The gradient sums. They have the residuals of error feedback.
    pub reduction: &'a mut GradientSum<B>,
    pub at: &'a mut Progress,
    /// The requests of the last step. A field is true if any rank made this request.
    pub agreed: Requests,
}

/// Returns the best model whose checkpoint exists once the current checkpoint is written. `before` is the best model
/// whose checkpoint exists now. It may be older than the best model in `at`, if that model's checkpoint could not be
/// written.
fn best_after_write(at: &Progress, before: Option<&Best>) -> Option<Best> {
    let best = at.best.as_ref()?;
    // ignore a best model that was chosen by another kind of score
    let before = before.filter(|before| before.by == best.by);
    Some(best).filter(|best| best.step == at.step).or(before).cloned()
}

/// Returns the first reason in `reasons` for rank 0's message. `reasons` has an entry for each rank.
fn first_reason(reasons: Vec<Option<String>>) -> String {
    let first = reasons.into_iter().enumerate().find_map(|(rank, reason)| Some((rank, reason?)));
    match first {
        Some((0, reason)) => reason,
        Some((rank, reason)) => format!("rank {rank}: {reason}"),
        None => "on request".into(),
    }
}

impl<'a, B: Backend> Saver<'a, B> {
    /// Creates the saver for a run at progress `at`.
    pub fn new(
        session: &'a Session,
        stop: &'a Stop,
        lock: Option<&'a OutLock>,
        request: &TrainRequest,
        run: &Run<B>,
        at: &Progress,
    ) -> Result<Self, Error> {
        let root = session.is_root();
        stop.note_checkpoint(Duration::from_secs_f64(Snapshot::bytes_of(run) as f64 / DISK));
        // ranks synchronise at the end of an epoch, even if that is sooner
        stop.note_apart(run.strategy.steps_apart().min(run.division.steps_per_epoch));
        Ok(Self {
            session,
            stop,
            lock,
            last_check: Instant::now(),
            every: run.recipe.checkpoint.every(),
            keep: run.recipe.checkpoint.keep,
            folder: request.out.join("checkpoints"),
            writer: root.then(|| Writer::start(run)).transpose()?,
            head: output::head(run)?,
            last_snapshot: Instant::now(),
            taken: None,
            late: false,
            late_reported: false,
            due: false,
            best: at.best.clone(),
            last_error: None,
        })
    }

    /// Returns the best model whose checkpoint was written. Correct only on rank 0.
    pub fn best(&self) -> Option<&Best> {
        self.best.as_ref()
    }

    /// Returns this rank's requests for the step after `at`.
    pub fn requests(&mut self, at: &Progress) -> Requests {
        self.check_folder();
        Requests { stop: self.stop.requested(), save: self.wants(at.step + 1) }
    }

    /// Requests a stop if the output directory is gone or belongs to another run, because no results could be stored there.
    fn check_folder(&mut self) {
        if let Some(lock) = self.lock
            && self.last_check.elapsed() >= FOLDER_CHECK_INTERVAL
        {
            self.last_check = Instant::now();
            self.stop.note_folder(lock.is_gone() || lock.check().is_err());
        }
    }

    fn wants(&mut self, step: u64) -> bool {
        let Some(writer) = &self.writer else { return false };
        let due = match self.every {
            Every::Time(time) => self.last_snapshot.elapsed() >= time,
            Every::Steps(n) => self.late || step.is_multiple_of(n),
            Every::Epochs(_) => false,
        };
        self.late = due && writer.is_busy();
        due && !writer.is_busy()
    }

    /// Called after each step, which took `took`. Writes a checkpoint or stops the run if the ranks have agreed to do
    /// so. After the last step of an epoch, the caller stops the run instead.
    pub fn step_done(&mut self, now: &mut Moment<'_, B>, took: Duration, report: &mut Reporter) -> Result<(), Error> {
        self.stop.note_step(took);
        self.poll(false, report)?;
        if self.late && !self.late_reported {
            self.late_reported = true;
            report.note(&format!(
                "note: a checkpoint was due at step {}, but the previous one is still being written, so it is delayed. If this happens \
                 often, set a larger checkpoint.every. Further delays are not reported",
                now.at.step
            ));
        }
        self.due |= now.agreed.save;
        // at the end of an epoch, a run stops after the epoch's line in the log, and a checkpoint is written after the
        // evaluation
        if now.run.ends_epoch(now.at) {
            return Ok(());
        }
        if now.agreed.stop {
            return self.stop(now, report);
        }
        if self.due { self.save(now, report) } else { Ok(()) }
    }

    /// Called after an epoch was trained and scored. Moves the progress to the next epoch and writes a checkpoint if it
    /// is due. If the run ended in the middle of the epoch, only makes sure that [`Saver::finish`] writes a checkpoint
    /// with the score. `best` is true if no earlier score was better.
    pub fn epoch_done(&mut self, now: &mut Moment<'_, B>, best: bool, report: &mut Reporter) -> Result<(), Error> {
        let Moment { run, at, agreed, .. } = now;
        if !run.ends_epoch(at) {
            // a checkpoint that was written at this step lacks the score
            self.taken = None;
            return Ok(());
        }
        (at.epoch, at.step_of_epoch, at.epoch_sums) = (at.epoch + 1, 0, Default::default());
        self.due |= agreed.save;
        let whole = matches!(self.every, Every::Epochs(n) if at.epoch.is_multiple_of(n));
        if best || whole || self.due { self.save(now, report) } else { Ok(()) }
    }

    /// Writes the last checkpoint of a finished run.
    pub fn finish(&mut self, now: &mut Moment<'_, B>, report: &mut Reporter) -> Result<(), Error> {
        if self.taken != Some(now.at.step) {
            self.save(now, report)?;
        }
        self.poll(true, report)
    }

    /// Stops the run early: writes a checkpoint and returns the error that all ranks end with.
    pub fn stop(&mut self, now: &mut Moment<'_, B>, report: &mut Reporter) -> Result<(), Error> {
        self.session.watch.set_stopping();
        self.save(now, report)?;
        self.poll(true, report)?;
        let written = match self.last_error.take() {
            Some(error) => Err(error),
            None => Ok(()),
        };
        // all ranks wait until the file is complete, because launchers kill all ranks when one of them exits
        self.session.agree(written)?;
        let reasons = self.session.comm.gather_all("reasons for the stop", &self.stop.reason())?;
        if !self.session.is_root() {
            return Err(Error::OtherRank { code: RESUMABLE });
        }
        let (reason, path) = (first_reason(reasons), path_of(&self.folder, now.at.step));
        let text = format!(
            "stopped after step {}: {reason}. The checkpoint is {}; to continue, use the same command with --resume auto",
            now.at.step,
            path.display()
        );
        Err(Error::Agreed { code: RESUMABLE, text })
    }

    /// Takes a snapshot and hands it to the writer thread. Collective.
    fn save(&mut self, now: &mut Moment<'_, B>, report: &mut Reporter) -> Result<(), Error> {
        let begin = Instant::now();
        self.session.watch.set_activity(Activity::Writing { step: now.at.step });
        (self.due, self.taken) = (false, Some(now.at.step));
        let residuals = now.reduction.gather_residuals()?;
        // if the previous write is still in progress, wait for it: a checkpoint at an end or at the end of an epoch
        // cannot be delayed
        self.poll(true, report)?;
        // rank 0 has measured that write, and all ranks must leave time for the next write before a limit
        let took = self.session.is_root().then(|| self.stop.checkpoint());
        self.stop.note_checkpoint(self.session.comm.broadcast("time of a checkpoint", took.as_ref())?);
        // save the synchronised model, which is up to date here even if ranks step independently
        let mut ranks = MpiRanks::new(self.session);
        let run = &mut *now.run;
        self.keep_folder(report);
        // after a crash of the node, the log must not lack lines from before the checkpoint
        if !self.is_out_gone() {
            report.sync()?;
        }
        let swapped_in = run.swap_in(&mut ranks)?;
        let handed = self.hand_over(run, now.at, residuals, begin);
        if swapped_in {
            run.swap_out();
        }
        handed
    }

    /// Creates the directory for checkpoints again if only this directory was removed.
    fn keep_folder(&self, report: &mut Reporter) {
        let is_lost = self.writer.is_some() && !self.folder.exists() && !self.is_out_gone();
        if is_lost && std::fs::create_dir(&self.folder).is_ok() {
            let folder = self.folder.display();
            report.note(&format!(
                "warning: the folder {folder} was removed with all its checkpoints; it has been created again"
            ));
        }
    }

    fn is_out_gone(&self) -> bool {
        self.lock.is_some_and(OutLock::is_gone)
    }

    /// Takes the snapshot and starts to write it, on rank 0.
    fn hand_over(&mut self, run: &Run<B>, at: &Progress, residuals: Vec<Vec<u8>>, begin: Instant) -> Result<(), Error> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        self.lock.map_or(Ok(()), OutLock::check)?;
        let mut snapshot = writer.snapshot()?;
        snapshot.take(run)?;
        let head = ModelFile {
            epoch: at.step.div_ceil(run.division.steps_per_epoch),
            step: at.step,
            scores: output::scores(run, at),
            ..self.head.clone()
        };
        let path = path_of(&self.folder, at.step);
        let backend = run.graph.backend();
        let loss_scale = backend.loss_scaling().map(|scaling| scaling.scale()).transpose()?;
        let progress = Progress {
            loss_scale,
            algorithms: backend.algorithm_choice().map_or(String::new(), |choice| choice.used().to_string()),
            best: best_after_write(at, self.best.as_ref()),
            ..at.clone()
        };
        let waited = begin.elapsed();
        self.last_snapshot = Instant::now();
        writer.write(CheckpointJob { snapshot, head, progress, residuals, path, waited })
    }

    /// Reports a finished write. With `wait` set, waits for the current write.
    fn poll(&mut self, wait: bool, report: &mut Reporter) -> Result<(), Error> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let Some(WrittenCheckpoint { snapshot, progress, path, waited, result, took }) = writer.poll(wait) else {
            return Ok(());
        };
        writer.give_back(snapshot);
        let event = report::Checkpoint {
            step: progress.step,
            epoch: progress.epoch + u32::from(progress.step_of_epoch > 0),
            path,
            wait_ms: waited.as_secs_f64() * 1e3,
            write_ms: took.as_secs_f64() * 1e3,
            ..Default::default()
        };
        match result {
            Ok(bytes) => {
                self.stop.note_checkpoint(waited + took);
                (self.best, self.last_error) = (progress.best.clone(), None);
                report.event(report::Checkpoint { bytes, ..event })?;
                self.prune(&progress, report);
            }
            // without the output directory, all later writes would fail too
            Err(error) if self.is_out_gone() => {
                let moved = self.lock.and_then(OutLock::current_folder);
                return Err(Error::OutputGone { source: Box::new(error), moved });
            }
            Err(error) => {
                report.event(report::Checkpoint { error: Some(error.to_string()), ..event })?;
                self.last_error = Some(error);
            }
        }
        Ok(())
    }

    /// Removes old checkpoints. Keeps the newest ones and the best one.
    fn prune(&self, progress: &Progress, report: &mut Reporter) {
        let best = progress.best.as_ref().map(|best| best.step);
        let old = list(&self.folder).unwrap_or_default().into_iter().skip(self.keep);
        for (_, path) in old.filter(|(step, _)| Some(*step) != best) {
            if let Err(error) = std::fs::remove_file(&path) {
                report.note(&format!("warning: cannot remove the old checkpoint {}: {error}", path.display()));
            }
        }
    }
}

/// Returns the best model of the resumed run if its checkpoint is in OUT. If it is only next to the checkpoint that the
/// run resumes from, rank 0 copies it to OUT. Otherwise returns `None` and a note, and the next score counts as the
/// best. Collective.
pub fn carry_best(session: &Session, out: &Path, head: &Head) -> Result<(Option<Best>, Option<String>), Error> {
    let Some(best) = &head.progress.best else { return Ok((None, None)) };
    let taken = match session.is_root() {
        true => {
            session.watch.set_activity(Activity::Reading);
            let taken = copy_best(out, head, best);
            session.watch.set_activity(Activity::Starting);
            taken
        }
        false => Ok(()),
    };
    let why =
        session.comm.broadcast("whether the best checkpoint is there", session.is_root().then_some(&taken.err()))?;
    let note = why.map(|why| {
        format!(
            "note: the checkpoint with the best {} so far ({:.4}, step {}) is not available: {why}; the next score counts as the best",
            best.by, best.score, best.step
        )
    });
    Ok((note.is_none().then(|| best.clone()), note))
}

/// Makes sure that the checkpoint of the best model is in OUT. The error says why it is not.
fn copy_best(out: &Path, head: &Head, best: &Best) -> Result<(), String> {
    // the checkpoint that the run resumes from is already in OUT
    if best.step == head.progress.step {
        return Ok(());
    }
    let folder = out.join("checkpoints");
    let path = path_of(&folder, best.step);
    let candidates = match path.exists() {
        // reading a checkpoint takes long, and only a run that was resumed from an earlier step can have another one
        true if !has_aside(&folder) => return Ok(()),
        true => vec![path.clone()],
        false => branches(folder_of(&head.path), best.step),
    };
    let same =
        |found: &Best| (&found.by, found.score.to_bits(), found.step) == (&best.by, best.score.to_bits(), best.step);
    let mut why = None;
    for from in candidates {
        match StateFile::read_progress(&from) {
            Ok(found) if found.best.as_ref().is_some_and(same) => {
                let cannot = |error| format!("cannot copy {} into the output folder: {error}", from.display());
                return if from == path { Ok(()) } else { output::copy(&from, &path).map_err(cannot) };
            }
            Ok(_) => why.get_or_insert(format!(
                "{} has another score, because the run was resumed from an earlier step and wrote it again",
                from.display()
            )),
            Err(error) => why.get_or_insert(error.to_string()),
        };
    }
    Err(why.unwrap_or_else(|| format!("it is neither in the output folder nor next to {}", head.path.display())))
}

fn has_aside(folder: &Path) -> bool {
    names(folder).any(|name| name.starts_with(ASIDE))
}

/// Returns the checkpoints of a step in a directory: first the run's own, then the files that resumed runs have put aside.
fn branches(folder: &Path, step: u64) -> Vec<PathBuf> {
    let path = path_of(folder, step);
    let own = path.file_name().unwrap_or_default().to_string_lossy();
    let end = format!("-{own}");
    let mut found: Vec<String> =
        names(folder).filter(|name| *name == own || name.starts_with(ASIDE) && name.ends_with(&end)).collect();
    found.sort_by_key(|name| name.starts_with(ASIDE));
    found.into_iter().map(|name| folder.join(name)).collect()
}

fn names(folder: &Path) -> impl Iterator<Item = String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    use formats::checkpoint::Progress;

    #[test]
    fn a_best_that_was_not_written_leaves_the_one_before() {
        let scored = |step| Some(Best { by: "loss".into(), score: 1.0 / step as f64, step });
        let mut before = None;
        let mut there = Vec::new();
        // a best model that was chosen by another kind of score is ignored
        let other = Best { by: "top1".into(), score: 0.9, step: 2 };
        assert_eq!(best_after_write(&Progress { step: 9, best: scored(6), ..Progress::default() }, Some(&other)), None);
        // in order: no best model, the first one, a better one whose write fails, no better one, another better one
        for (step, best, written) in
            [(3, None, true), (6, Some(6), true), (12, Some(12), false), (18, Some(12), true), (24, Some(24), true)]
        {
            let at = Progress { step, best: best.and_then(scored), ..Progress::default() };
            let now = best_after_write(&at, before.as_ref());
            if written {
                before = now.clone();
                there.push(now.map(|best| best.step));
            }
        }
        assert_eq!(there, [None, Some(6), Some(6), Some(24)]);
    }

    #[test]
    fn the_reason_of_another_rank_names_it() {
        let all = |reasons: &[Option<&str>]| first_reason(reasons.iter().map(|r| r.map(String::from)).collect());
        assert_eq!(all(&[Some("SIGTERM"), Some("SIGUSR1")]), "SIGTERM");
        assert_eq!(all(&[None, None, Some("SIGUSR1")]), "rank 2: SIGUSR1");
    }

    #[test]
    fn the_best_checkpoint_is_copied_from_the_old_run() {
        let root = std::env::temp_dir().join(format!("trireme-best-{}", std::process::id()));
        let (old, new) = (root.join("old/checkpoints"), root.join("new/checkpoints"));
        [&old, &new].into_iter().for_each(|folder| std::fs::create_dir_all(folder).unwrap());
        let scored = |step, score| Best { by: "top1".into(), score, step };
        let best = scored(10, 0.5);
        let progress = Progress { step: 10, best: Some(best.clone()), ..Progress::default() };
        let state = StateFile { model: ModelFile::default(), slots: Vec::new(), residuals: Vec::new(), progress };
        // a run was resumed from an earlier step, and the step of its best checkpoint then had another score
        let mut other = state.clone();
        other.progress.best = Some(scored(10, 0.7));
        other.write(&path_of(&old, 10)).unwrap();
        state.write(&old.join("aside-2-step-00000010.h5")).unwrap();
        let head = Head::at(path_of(&old, 20), Progress { step: 20, ..Progress::default() });
        let take = |out: &str, best: &Best| copy_best(&root.join(out), &head, best);
        let is_there = |step| path_of(&new, step).exists();
        assert!(take("new", &scored(15, 0.5)).unwrap_err().starts_with("it is neither ") && !is_there(15));
        // the checkpoint of this step names another best score
        let why = take("new", &scored(10, 0.6)).unwrap_err();
        assert!(why.contains("resumed from an earlier step") && !is_there(10), "{why}");
        // a file has the name of the directory that would have to be created
        std::fs::write(root.join("file"), "").unwrap();
        let why = take("file", &best).unwrap_err();
        assert!(why.starts_with("cannot copy "), "{why}");
        take("new", &best).unwrap();
        assert!(is_there(10));
        std::fs::remove_dir_all(&old).unwrap();
        take("new", &best).unwrap();
        std::fs::write(new.join("aside-step-00000012.h5"), "").unwrap();
        take("new", &best).unwrap();
        assert!(take("new", &scored(10, 0.6)).is_err(), "the copy exists, but has another score");
        std::fs::remove_dir_all(&root).unwrap();
    }
}
