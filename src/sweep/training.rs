//! The trainings of a sweep, one after another: each a process that goes on from its checkpoint, so that a sweep goes on, too.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};

use super::grid::Point;
use crate::error::Error;
use crate::models;
use crate::recipe::{Changes, Known, Recipe};
use crate::screen;
use crate::train::plan::source::transform_names;
use crate::train::save::saver::RESUMABLE;

/// Between two looks at a training.
const PAUSE: Duration = Duration::from_millis(50);

/// What all trainings of a sweep have in common.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The recipe's file.
    pub recipe: PathBuf,
    /// Changes to it that all of them have.
    pub changes: Changes,
    /// Folder of their folders.
    pub out: PathBuf,
    /// What starts each of them, such as `mpirun -n 4`; nothing for one rank.
    pub launcher: Vec<String>,
    /// Further arguments of `trireme train`.
    pub more: Vec<String>,
}

/// How a training ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It came to its end.
    Done,
    /// It stopped, and can go on.
    Stopped,
    /// It failed.
    Failed,
}

impl Sweep {
    /// Where a training writes.
    pub fn folder(&self, point: &Point) -> PathBuf {
        self.out.join(&point.name)
    }

    /// Refuses a sweep of which one recipe is wrong, before anything is trained.
    ///
    /// # Errors
    /// What is wrong, with the combination.
    pub fn check(&self, points: &[Point]) -> Result<(), Error> {
        let (models, transforms) = (models::names(), transform_names());
        let known = Known { models: &models, transforms: &transforms };
        points.iter().try_for_each(|point| {
            let sets = self.changes.sets.iter().cloned().chain(point.sets()).collect();
            let changes = Changes { sets, unsets: self.changes.unsets.clone() };
            let loaded = Recipe::load(&self.recipe, &changes, &known);
            loaded.map(drop).map_err(|e| Error::Usage(format!("{}: {e}", point.name)))
        })
    }

    /// The arguments of `trireme` for a training.
    pub fn arguments(&self, point: &Point) -> Vec<String> {
        let path = |path: &Path| path.display().to_string();
        let sets = self.changes.sets.iter().cloned().chain(point.sets());
        let unsets = self.changes.unsets.iter().flat_map(|key| ["--unset".to_string(), key.clone()]);
        let mut words = vec!["train".to_string(), path(&self.recipe), "--out".into(), path(&self.folder(point))];
        words.extend(unsets);
        words.extend(sets.flat_map(|set| ["--set".to_string(), set]));
        words.extend(self.more.iter().cloned());
        words
    }

    /// Trains, and tells of each in one line; ends with the first that was stopped. The outcomes are those of the first trainings.
    ///
    /// # Errors
    /// A process that cannot be started or waited for.
    pub fn train(&self, points: &[Point]) -> Result<Vec<Outcome>, Error> {
        let signal = Arc::new(AtomicBool::new(false));
        for number in [SIGINT, SIGTERM, SIGUSR1] {
            signal_hook::flag::register(number, signal.clone()).map_err(Error::Signals)?;
        }
        let mut outcomes = Vec::new();
        for (number, point) in (1..).zip(points) {
            let (all, sets) = (points.len(), point.sets().join(" "));
            screen::say(&format!("training {number} of {all}: {sets} in {}", self.folder(point).display()));
            let outcome = self.one(point, &signal)?;
            outcomes.push(outcome);
            if outcome == Outcome::Stopped {
                break;
            }
        }
        Ok(outcomes)
    }

    /// One training to its end.
    fn one(&self, point: &Point, signal: &AtomicBool) -> Result<Outcome, Error> {
        let failed = |what: &str, e: std::io::Error| Error::Failed(format!("cannot {what} the training: {e}"));
        let program = std::env::current_exe().map_err(|e| failed("find the program of", e))?;
        let mut words = self.launcher.iter().map(Into::into).chain([program.into_os_string()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).args(self.arguments(point)).args(["--resume", "auto"]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().map_err(|e| failed("start", e))?;
        loop {
            if let Some(status) = child.try_wait().map_err(|e| failed("wait for", e))? {
                return Ok(outcome(status));
            }
            // Ctrl-C reaches the training, too, which takes USR1 beside it for the same
            if signal.swap(false, Ordering::Relaxed)
                && let Some(process) = i32::try_from(child.id()).ok().and_then(Pid::from_raw)
            {
                // one that has just ended needs none
                let _ = kill_process(process, Signal::USR1);
            }
            std::thread::sleep(PAUSE);
        }
    }
}

fn outcome(status: ExitStatus) -> Outcome {
    match status.code() {
        Some(0) => Outcome::Done,
        Some(code) if code == i32::from(RESUMABLE) => Outcome::Stopped,
        _ => Outcome::Failed,
    }
}
