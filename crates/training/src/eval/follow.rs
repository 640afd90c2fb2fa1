//! `trireme eval --follow`: scores each checkpoint and model of a run as it appears, until the final model is scored.
//! It runs as a separate job.
//!
//! The scores are appended to RUN/metrics-eval.jsonl. They cannot be in the trainer's metrics.jsonl, because a resumed
//! trainer truncates it. Each score is one line, written by one call, so several followers of different splits may use
//! the same file. A follower does not score again what the file already contains. It recognises a file by its name and its
//! checksum, because a run that is resumed from an earlier step writes other checkpoints with the same names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base::screen;
use comm::Comm;
use formats::checkpoint::ModelFile;
use loaders::{regular, safe_create};
use report::{Eval, Event, write_whole};
use serde::{Deserialize, Serialize};

use crate::device::Device;
use crate::error::Error;
use crate::eval::request::{EvalRequest, ModelRequest};
use crate::eval::score::SplitScore;
use crate::eval::{find_model, model, score};
use crate::signals;
use crate::train::agree::Session;
use crate::train::evaluate::TestTime;
use crate::train::observe::watch::Activity;

/// Time between two searches for new files in the directory.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Time between two checks for an interrupt while waiting.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The next action of all ranks, chosen by rank 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Next {
    Wait,
    Over,
    /// Score this file. `last` is true if no other file follows.
    Score {
        file: PathBuf,
        last: bool,
    },
}

/// Scores files as they appear. `request.model.file` is the output directory of a run or a model file, and does not need to
/// exist yet. With `once` set, scores only the newest file, which must exist. Rank 0 calls `show` for each score.
pub fn follow<D: Device>(
    device: &D,
    request: &EvalRequest,
    once: bool,
    mut show: impl FnMut(&Path, &SplitScore) -> Result<(), Error>,
) -> Result<(), Error> {
    let interrupted = listen()?;
    let comm = Comm::launch();
    let watch = score::start_watchdog(&comm, request);
    watch.set_activity(Activity::Starting);
    let mut session = Session::join(comm, watch)?;
    let result = score_all(device, &mut session, request, once, &interrupted, &mut show);
    session.conclude(result)
}

fn score_all<D: Device>(
    device: &D,
    session: &mut Session,
    request: &EvalRequest,
    once: bool,
    interrupted: &AtomicBool,
    show: &mut dyn FnMut(&Path, &SplitScore) -> Result<(), Error>,
) -> Result<(), Error> {
    let command = if once { "eval --follow --once" } else { "eval --follow" };
    session.same_start((D::NAME, device.why_chosen()), &request.compared(command))?;
    let named = || {
        let data = request.data.clone().map_or_else(|| model::data(&request.model), Ok)?;
        score::split_name(request, &data, &score::open_data(request, &data)?.manifest)
    };
    let split = session.agree(named())?;
    let cores = score::divide_cores(device, session)?;
    let mut retries = Retries::default();
    let mut log = Log::open(&request.model.file, (&split, request.model.ema, request.test_time));
    loop {
        // the ranks have not read and planned the next model yet
        session.watch.set_ready(false);
        let (file, last) = match next(session, request, once, &mut log, interrupted)? {
            Next::Over => return Ok(()),
            Next::Wait => {
                nap(interrupted);
                continue;
            }
            Next::Score { file, last } => (file, last),
        };
        if !once && is_late(session, &file)? && retries.allow(&file, FileState::Late) {
            nap(interrupted);
            continue;
        }
        let scored_file = FileId::of(&file);
        log.seen.insert(scored_file.clone());
        let model = ModelRequest { file, ..request.model.clone() };
        let this = EvalRequest { model, ..request.clone() };
        match score::score_with(device, session, cores, &this) {
            Ok(scored) if session.is_root() => {
                Log::write(&path(&request.model.file), &this, &scored_file, &scored)?;
                show(&this.model.file, &scored)?;
            }
            Ok(_) => {}
            Err(error) if once || (session.world.size > 1 && !error.is_agreed()) => return Err(error),
            Err(error) => match file_state(session, &error, &this.model, last)? {
                FileState::Skipped => {
                    // a resumed run renames its old final model and later writes a new one with the old name
                    log.seen.retain(|seen| !last || *seen != scored_file);
                    if session.is_root() {
                        screen::say(&format!(
                            "skipped {}, because it cannot be evaluated: {error}",
                            this.model.file.display()
                        ));
                    }
                    if last {
                        nap(interrupted);
                    }
                }
                state if error.is_agreed() && retries.allow(&this.model.file, state) => {
                    log.seen.remove(&scored_file);
                    nap(interrupted);
                    continue;
                }
                _ => return Err(error),
            },
        }
        if once || last && log.seen.contains(&scored_file) {
            return Ok(());
        }
    }
}

/// What the follower does with a file that could not be scored, in the order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum FileState {
    /// The trainer has removed or renamed it, or it is a checkpoint that a rank cannot read.
    Skipped,
    /// A rank does not see it yet.
    Late,
    /// Any other error. Ranks may have read different versions of the file, so it is tried once more.
    Other,
}

/// Returns true if a rank does not see a file that rank 0 sees. Does not read the file, which may take long. Collective.
fn is_late(session: &Session, file: &Path) -> Result<bool, Error> {
    if session.world.size == 1 {
        return Ok(false);
    }
    let seen = session.comm.gather_all("whether the ranks see a file", &file.exists())?;
    // if rank 0 does not see it any more, the trainer has removed it
    Ok(seen[0] && seen.contains(&false))
}

/// Returns the state of a file after this error. The trainer may remove old checkpoints at any time, and a resumed run
/// renames its final model (`last`). Collective.
fn file_state(session: &Session, error: &Error, request: &ModelRequest, last: bool) -> Result<FileState, Error> {
    let unreadable = |error: &Error| matches!(error, Error::Checkpoint(_));
    // an error that all ranks know is only a text, so each rank reads the file again
    let again = || error.is_agreed() && model::read(request).is_err_and(|error| unreadable(&error));
    let own = match request.file.exists() {
        // rank 0 has found the file, so only rank 0 knows that it is gone
        false if session.is_root() => FileState::Skipped,
        // on a network file system, a rank may see a new file later than rank 0
        false => FileState::Late,
        true if !last && (unreadable(error) || again()) => FileState::Skipped,
        true => FileState::Other,
    };
    Ok(session.comm.gather_all("state of a checkpoint", &own)?.into_iter().min().unwrap_or(own))
}

/// How often the last file was tried again. Counts attempts instead of seconds, so that all ranks decide alike.
#[derive(Default)]
struct Retries {
    file: PathBuf,
    late: u32,
    other: u32,
}

impl Retries {
    /// Returns true if the file may be tried again after a [`nap`]. A network file system may show a new file up to a
    /// minute late.
    fn allow(&mut self, file: &Path, state: FileState) -> bool {
        if self.file != file {
            *self = Self { file: file.to_path_buf(), ..Self::default() };
        }
        // separate counts, because a late file may appear between the failure and the question for its state
        let (count, most) = if state == FileState::Late { (&mut self.late, 90) } else { (&mut self.other, 1) };
        *count += 1;
        *count <= most
    }
}

/// Returns a flag that the first request to end sets. A second request ends the process at once.
fn listen() -> Result<Arc<AtomicBool>, Error> {
    let (requested, before) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    for signal in signals::requests() {
        // this handler is the first one, because a signal that arrives before the second one is installed must count, too
        signal_hook::flag::register(signal, Arc::clone(&requested)).map_err(Error::Signals)?;
        signals::end_on_second(signal, &before).map_err(Error::Signals)?;
    }
    Ok(requested)
}

fn nap(interrupted: &AtomicBool) {
    let until = Instant::now() + POLL_INTERVAL;
    while Instant::now() < until && !interrupted.load(Ordering::Relaxed) {
        std::thread::sleep(CHECK_INTERVAL);
    }
}

/// Chooses the next action on rank 0 and broadcasts it. An interrupt on any rank ends all ranks.
fn next(session: &Session, request: &EvalRequest, once: bool, log: &mut Log, stop: &AtomicBool) -> Result<Next, Error> {
    let local = match session.is_root() {
        true => find_unscored(&request.model.file, once, log),
        false => Ok(Next::Wait),
    };
    let next = session.agree(local)?;
    let stops = session.comm.gather_all("interrupts of the ranks", &stop.load(Ordering::Relaxed))?;
    if stops.contains(&true) {
        return Ok(Next::Over);
    }
    Ok(session.comm.broadcast("choice of the next file", session.is_root().then_some(&next))?)
}

/// Returns the oldest file that is not scored yet. With `once` set, returns the newest file even if it was scored.
fn find_unscored(run: &Path, once: bool, log: &mut Log) -> Result<Next, Error> {
    let files = files(run);
    if once {
        let newest = files.into_iter().next_back().map(|file| Next::Score { file, last: true });
        return newest.ok_or_else(|| {
            Error::Failed(format!(
                "{}: no model and no checkpoint there yet; --follow without --once waits for one",
                run.display()
            ))
        });
    }
    let last = |file: &PathBuf| file == run || name(file) == "model.h5";
    // the trainer may have removed a file since it was listed
    let fresh = files.iter().find(|file| !log.has_seen(file) && file.exists());
    Ok(match fresh {
        Some(file) => Next::Score { file: file.clone(), last: last(file) },
        // the final model was already scored by an earlier follower
        None if files.iter().any(last) => Next::Over,
        None => Next::Wait,
    })
}

/// Waits until a run has written its recipe, a checkpoint or its model, and returns the data set that this file names.
/// Fails if the given file exists but is not a model, or if the recipe has no data set.
pub fn awaited_data(request: &ModelRequest) -> Result<PathBuf, Error> {
    let mut has_reported = false;
    loop {
        if !files(&request.file).is_empty() {
            return model::data(request);
        }
        if let Some(data) = find_model::data_of_run(&request.file) {
            return Ok(data);
        }
        if !std::mem::replace(&mut has_reported, true) {
            let file = request.file.display();
            screen::say(&format!(
                "waiting for the recipe of the run in {file}, which names the data set. Use --data to name it now"
            ));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Returns the files that can be scored, oldest first, with the final model at the end. Leaves out unfinished files,
/// which have hidden names, and files that a resumed run has renamed.
fn files(run: &Path) -> Vec<PathBuf> {
    if run.is_file() {
        return vec![run.to_path_buf()];
    }
    // a run writes its model after its last checkpoint. In the other order, the list could have the model without that checkpoint
    let model = Some(run.join("model.h5")).filter(|model| model.is_file());
    let entries = fs::read_dir(run.join("checkpoints")).into_iter().flatten().flatten();
    let number = |path: &Path| -> Option<u64> {
        let stem = path.file_name()?.to_str()?.strip_suffix(".h5")?;
        (!stem.starts_with('.') && !stem.starts_with("aside-")).then(|| stem.rsplit('-').next()?.parse().ok()).flatten()
    };
    let mut found: Vec<(u64, PathBuf)> = entries.filter_map(|e| Some((number(&e.path())?, e.path()))).collect();
    found.sort();
    found.into_iter().map(|(_, path)| path).chain(model).collect()
}

/// Returns the training step of a model file, or `None` if the file cannot be read.
fn step_of(model: &Path) -> Option<u64> {
    ModelFile::read(model).ok().map(|model| model.step)
}

fn name(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns the path of metrics-eval.jsonl. `run` is the run's directory or a file in it. Do not cache the result,
/// because the directory may not exist yet.
fn path(run: &Path) -> PathBuf {
    let folder = if run.is_file() { run.parent().unwrap_or(Path::new("")) } else { run };
    folder.join("metrics-eval.jsonl")
}

/// Identifies the content of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FileId {
    name: String,
    /// The checksum that trireme writes at the end of the file. `None` if it cannot be read.
    crc: Option<u32>,
}

impl FileId {
    fn of(file: &Path) -> Self {
        let read = || {
            let file = regular::open(file).ok()?;
            let mut bytes = [0; 4];
            let at = file.metadata().ok()?.len().checked_sub(bytes.len() as u64)?;
            file.read_exact_at(&mut bytes, at).ok()?;
            Some(u32::from_le_bytes(bytes))
        };
        Self { name: name(file), crc: read() }
    }
}

/// Inode, time of the last change in seconds and nanoseconds, and length of a file.
type Stamp = (u64, i64, i64, u64);

fn stamp(file: &Path) -> Option<Stamp> {
    let metadata = fs::metadata(file).ok()?;
    Some((metadata.ino(), metadata.mtime(), metadata.mtime_nsec(), metadata.len()))
}

/// The scores in metrics-eval.jsonl.
#[derive(Default)]
struct Log {
    /// The files that do not need to be scored any more.
    seen: BTreeSet<FileId>,
    /// The files whose checksum is known, by name.
    known: BTreeMap<String, (Stamp, FileId)>,
}

/// A line of the file: the event, the scored file and the averaged views.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    event: Event,
    file: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_crc: Option<u32>,
    ema: bool,
    #[serde(flatten)]
    views: TestTime,
}

/// The fields of a line that identify the scored file.
#[derive(Deserialize)]
struct Scored {
    split: String,
    file: String,
    /// `None` in lines of older versions.
    file_crc: Option<u32>,
    step: Option<u64>,
    ema: bool,
    /// Plain images in lines of older versions.
    #[serde(flatten)]
    views: TestTime,
}

impl Log {
    /// Reads the scores that earlier followers have written for the same split, weights and views. A line of an older
    /// version, without a checksum, is about the file that has its name now. But a score of the final model then counts only
    /// if the model still has the same step, because a resumed run writes a new model under the same name.
    fn open(run: &Path, wanted: (&str, bool, TestTime)) -> Self {
        let text = fs::read_to_string(path(run)).unwrap_or_default();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Scored>(line).ok());
        let same = lines.filter(|line| (line.split.as_str(), line.ema, line.views) == wanted);
        let (with_crc, older): (Vec<Scored>, Vec<Scored>) = same.partition(|line| line.file_crc.is_some());
        let older: BTreeMap<String, Option<u64>> = older.into_iter().map(|line| (line.file, line.step)).collect();
        let model = if run.is_file() { run.to_path_buf() } else { run.join("model.h5") };
        let is_other = |file: &str, step: Option<u64>| file == name(&model) && step != step_of(&model);
        let place = |file: &str| if file == name(&model) { model.clone() } else { run.join("checkpoints").join(file) };
        let older = older.into_iter().filter(|(file, step)| !is_other(file, *step));
        let older = older.map(|(file, _)| FileId::of(&place(&file)));
        let with_crc = with_crc.into_iter().map(|line| FileId { name: line.file, crc: line.file_crc });
        Self { seen: with_crc.chain(older).collect(), ..Self::default() }
    }

    /// Returns true if the file does not need to be scored any more. Opens it only if it has changed since the last call, because a run may
    /// keep hundreds of checkpoints on a slow file system.
    fn has_seen(&mut self, file: &Path) -> bool {
        let stamp = stamp(file);
        if let Some((_, id)) = self.known.get(&name(file)).filter(|(known, _)| Some(*known) == stamp) {
            return self.seen.contains(id);
        }
        let id = FileId::of(file);
        let seen = self.seen.contains(&id);
        if let Some(stamp) = stamp.filter(|_| id.crc.is_some()) {
            self.known.insert(id.name.clone(), (stamp, id));
        }
        seen
    }

    /// Appends a line to the file at `path` with a single write.
    fn write(path: &Path, request: &EvalRequest, file: &FileId, scored: &SplitScore) -> Result<(), Error> {
        let event =
            Eval { step: scored.step, epoch: scored.epoch, split: scored.split.clone(), ..scored.result.event() };
        let refuse = Error::file("write", path);
        let line = Line {
            event: event.into(),
            file: &file.name,
            file_crc: file.crc,
            ema: request.model.ema,
            views: request.test_time,
        };
        let mut text = serde_json::to_string(&line).map_err(|e| refuse(e.into()))?;
        text.push('\n');
        let log = safe_create::to_append(path).map_err(refuse)?;
        write_whole(&log, text.as_bytes()).map_err(refuse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_a_rank_does_not_see_yet_is_tried_for_longer() {
        let mut retries = Retries::default();
        let [a, b] = [Path::new("a.h5"), Path::new("b.h5")];
        assert!((0..90).all(|_| retries.allow(a, FileState::Late)) && !retries.allow(a, FileState::Late));
        assert!(retries.allow(a, FileState::Other));
        assert!(retries.allow(b, FileState::Other) && !retries.allow(b, FileState::Other));
    }

    fn run(files: &[&str]) -> PathBuf {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let run = std::env::temp_dir().join(format!("trireme-follow-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&run);
        fs::create_dir_all(run.join("checkpoints")).unwrap();
        files.iter().for_each(|file| fs::write(run.join(file), "").unwrap());
        run
    }

    fn log(seen: &[&str]) -> Log {
        let seen = seen.iter().map(|name| FileId { name: name.to_string(), crc: None }).collect();
        Log { seen, ..Log::default() }
    }

    #[test]
    fn files_come_oldest_first_and_half_written_ones_not_at_all() {
        let files = [
            "checkpoints/epoch-0010.h5",
            "checkpoints/epoch-0009.h5",
            "checkpoints/.epoch-0011.h5.tmp",
            "checkpoints/aside-epoch-0008.h5",
            "checkpoints/notes",
        ];
        let run = run(&files);
        let next = |seen: &[&str], once| find_unscored(&run, once, &mut log(seen)).unwrap();
        let score = |file: &str, last| Next::Score { file: run.join(file), last };
        assert_eq!(next(&[], false), score(files[1], false));
        assert_eq!(next(&["epoch-0009.h5"], false), score(files[0], false));
        assert_eq!(next(&["epoch-0009.h5", "epoch-0010.h5"], false), Next::Wait);
        assert_eq!(next(&[], true), score(files[0], true));
        fs::write(run.join("model.h5"), "").unwrap();
        assert_eq!(next(&["epoch-0009.h5", "epoch-0010.h5"], false), score("model.h5", true));
        assert_eq!(next(&["epoch-0009.h5", "epoch-0010.h5", "model.h5"], false), Next::Over);
        assert_eq!(next(&["model.h5"], true), score("model.h5", true));
        fs::remove_dir_all(&run).unwrap();
    }

    #[test]
    fn a_run_without_files_is_waited_for_unless_once() {
        let run = run(&[]);
        assert_eq!(find_unscored(&run, false, &mut log(&[])).unwrap(), Next::Wait);
        assert_eq!(find_unscored(&run.join("model.h5"), false, &mut log(&[])).unwrap(), Next::Wait);
        let error = find_unscored(&run, true, &mut log(&[])).unwrap_err();
        support::mentions(error, &[&run.display().to_string(), "no checkpoint", "--follow", "--once"]);
        fs::remove_dir_all(&run).unwrap();
    }

    #[test]
    fn scores_of_other_splits_weights_and_views_do_not_count() {
        let run = run(&[]);
        let line = |file: &str, more: &str| {
            format!("{{\"split\":\"test\",\"file\":\"{file}\",\"step\":9,\"ema\":false{more}}}\n")
        };
        let text = [
            line("old", ""),
            line("plain", ",\"flip\":false,\"corners\":false,\"shift\":0"),
            line("flip", ",\"flip\":true,\"corners\":false,\"shift\":0"),
            line("validation", "").replace("test", "validation"),
            line("ema", "").replace("false", "true"),
        ];
        fs::write(path(&run), text.concat()).unwrap();
        let seen = |views: TestTime| {
            let seen = Log::open(&run, ("test", false, views)).seen;
            seen.into_iter().map(|file| file.name).collect::<Vec<_>>()
        };
        assert_eq!(seen(TestTime::default()), ["old", "plain"]);
        assert_eq!(seen(TestTime { flip: true, ..TestTime::default() }), ["flip"]);
        fs::remove_dir_all(&run).unwrap();
    }

    #[test]
    fn another_file_with_the_name_of_a_scored_one_is_scored() {
        let names = ["checkpoints/step-00000700.h5", "checkpoints/step-00000800.h5"];
        let run = run(&[]);
        names.iter().for_each(|name| fs::write(run.join(name), "first").unwrap());
        let [older, scored] = names.map(|name| FileId::of(&run.join(name)));
        let line = |file: &FileId, more: &str| {
            format!("{{\"split\":\"test\",\"file\":\"{}\",\"step\":9,\"ema\":false{more}}}\n", file.name)
        };
        let crc = format!(",\"file_crc\":{}", scored.crc.unwrap());
        fs::write(path(&run), line(&older, "") + &line(&scored, &crc)).unwrap();
        let next = || {
            let mut log = Log::open(&run, ("test", false, TestTime::default()));
            find_unscored(&run, false, &mut log).unwrap()
        };
        assert_eq!(next(), Next::Wait);
        fs::write(run.join(names[1]), "second").unwrap();
        assert_eq!(next(), Next::Score { file: run.join(names[1]), last: false });
        // the file may also appear while a follower is running
        let seen = names.map(|name| FileId::of(&run.join(name))).into_iter().collect();
        let mut log = Log { seen, ..Log::default() };
        assert_eq!(find_unscored(&run, false, &mut log).unwrap(), Next::Wait);
        fs::write(run.join(names[0]), "another one").unwrap();
        let score = Next::Score { file: run.join(names[0]), last: false };
        assert_eq!(find_unscored(&run, false, &mut log).unwrap(), score);
        // the checksum of a file that has not changed is remembered
        log.seen.insert(FileId::of(&run.join(names[0])));
        assert_eq!((find_unscored(&run, false, &mut log).unwrap(), log.known.len()), (Next::Wait, 2));
        fs::remove_dir_all(&run).unwrap();
    }
}
