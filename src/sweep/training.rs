//! Runs the trainings of a sweep one after another. Each is a process that resumes from its checkpoint, so that an
//! interrupted sweep can be continued.
//!
//! A signal ends the sweep. The sweep then sends SIGUSR1 to the current training, and launchers forward it to their
//! ranks. The signal is sent repeatedly, because the training may not have installed its handler yet. A second Ctrl-C
//! sends SIGINT to the training. Each training has its own process group, because otherwise Ctrl-C in a terminal would
//! end a launcher and its ranks at once.

use std::cell::Cell;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base::screen;
use recipe::{Changes, Recipe};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGINT, SIGQUIT};
use signal_hook::flag;
use training::train::save::saver::RESUMABLE;
use training::{Error, signals};

use super::Point;

/// Time between two checks of a training.
const PAUSE: Duration = Duration::from_millis(50);
/// Time between two requests to a training to stop.
const AGAIN: Duration = Duration::from_secs(1);

/// The arguments that each training gets in addition to [`Sweep::arguments`].
pub const RESUME: [&str; 2] = ["--resume", "auto"];

/// Settings that are common to all trainings of a sweep.
#[derive(Clone, Debug)]
pub struct Sweep {
    pub recipe: PathBuf,
    /// Changes to the recipe in all trainings.
    pub changes: Changes,
    /// The parent of the trainings' output folders.
    pub out: PathBuf,
    /// The command that starts a training, such as `mpirun -n 4`. Empty for one rank.
    pub launcher: Vec<String>,
    /// Further arguments of `trireme train`.
    pub more: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// The training stopped early and can be resumed.
    Stopped,
    Failed,
}

impl Sweep {
    /// Returns the output folder of a training.
    pub fn folder(&self, point: &Point) -> PathBuf {
        self.out.join(&point.name)
    }

    /// Checks a training's recipe and returns it. `changes` are all changes from its command line.
    ///
    /// # Errors
    ///
    /// Returns an error that names the combination and the problem: a key of the grid that another option sets, too, or an invalid recipe.
    pub fn check(&self, point: &Point, changes: &Changes) -> Result<Recipe, Error> {
        for own in point.sets() {
            if let Some(other) = other_set(&own, &changes.sets) {
                return Err(Error::Usage(format!(
                    "--grid {own}: the command line also has {other} (from --set, --data or --loader-threads), and only one of them can \
                     be used; give the key only once"
                )));
            }
        }
        let loaded = Recipe::load(&self.recipe, changes);
        loaded.map(|loaded| loaded.recipe).map_err(|e| Error::Usage(of_grid(point, &e.to_string())))
    }

    /// Returns the arguments of `trireme` for a training. A sweep adds `--resume auto` to them.
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

    /// Runs the trainings one after another and prints a line for each. Returns early if a training stopped early or a
    /// signal arrived. Returns the outcomes of the trainings that ran.
    ///
    /// # Errors
    ///
    /// Returns an error if a process cannot be started or waited for.
    pub fn train(&self, points: &[Point]) -> Result<Vec<Outcome>, Error> {
        let stop_requests = StopRequests::listen()?;
        let mut outcomes = Vec::new();
        for (number, point) in (1..).zip(points) {
            if stop_requests.to_stop() {
                break;
            }
            let (all, sets) = (points.len(), point.sets().join(" "));
            screen::say(&format!("training {number} of {all}: {sets} in {}", self.folder(point).display()));
            let outcome = self.one(point, &stop_requests)?;
            outcomes.push(outcome);
            if outcome == Outcome::Stopped {
                break;
            }
        }
        Ok(outcomes)
    }

    /// Runs one training and waits until it ends. Passes requests to stop on to it.
    fn one(&self, point: &Point, stop_requests: &StopRequests) -> Result<Outcome, Error> {
        let failed = |what: &str, e: std::io::Error| Error::Failed(format!("cannot {what}: {e}"));
        let program =
            std::env::current_exe().map_err(|e| failed("find the file of this program to start the training", e))?;
        let mut words = self.launcher.iter().map(Into::into).chain([program.into_os_string()]);
        let first: OsString = words.next().unwrap_or_default();
        let mut command = Command::new(&first);
        command.args(words).args(self.arguments(point)).args(RESUME).process_group(0);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().map_err(|e| {
            let (out, first) = (self.folder(point), first.display());
            let out = out.display();
            Error::Failed(format!("cannot start the training in {out}: {first}: {e}"))
        })?;
        let mut told: Option<Instant> = None;
        loop {
            if let Some(status) = child.try_wait().map_err(|e| failed("wait for the training", e))? {
                return Ok(match outcome(status) {
                    // After a request to stop, any failure counts as stopped.
                    Outcome::Failed if stop_requests.to_stop() => Outcome::Stopped,
                    outcome => outcome,
                });
            }
            if stop_requests.to_stop_at_once() {
                send(&child, Signal::INT);
            } else if stop_requests.to_stop() && told.is_none_or(|told| told.elapsed() >= AGAIN) {
                told = Some(Instant::now());
                send(&child, Signal::USR1);
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Returns another `--set` argument in `sets` with the same key as `own`. `sets` must contain `own`.
fn other_set<'a>(own: &str, sets: &'a [String]) -> Option<&'a String> {
    let key = |set: &str| set.split_once('=').map(|(key, _)| key.trim().to_string());
    let place = sets.iter().position(|set| set == own);
    sets.iter().enumerate().find(|(at, set)| Some(*at) != place && key(set) == key(own)).map(|(_, set)| set)
}

/// Formats an error in the recipe of a combination. If the error names a `--set` of this combination, replaces it by
/// `--grid`, which is what the user gave.
fn of_grid(point: &Point, why: &str) -> String {
    let own =
        point.sets().into_iter().find_map(|set| Some((why.strip_prefix(&format!("--set {set}"))?.to_string(), set)));
    own.map_or_else(|| format!("{}: {why}", point.name), |(rest, set)| format!("--grid {set}{rest}"))
}

/// The requests to stop that signals have made so far.
struct StopRequests {
    signal: Arc<AtomicBool>,
    interrupt: Arc<AtomicBool>,
    /// Number of SIGINTs so far. Two signals between two checks count as one.
    interrupts: Cell<u32>,
}

impl StopRequests {
    fn listen() -> Result<Self, Error> {
        let stop_requests = Self { signal: Arc::default(), interrupt: Arc::default(), interrupts: Cell::new(0) };
        let listen = |number, flag: &Arc<AtomicBool>| flag::register(number, flag.clone()).map_err(Error::Signals);
        listen(SIGINT, &stop_requests.interrupt)?;
        // Without handlers, any of these signals would end the sweep but not its training (SIGHUP comes from a closed
        // terminal).
        signals::requests()
            .filter(|signal| *signal != SIGINT)
            .try_for_each(|signal| listen(signal, &stop_requests.signal).map(drop))?;
        // Ctrl-\ in a terminal sends SIGQUIT, which would also end the sweep but not its training.
        listen(SIGQUIT, &stop_requests.signal)?;
        Ok(stop_requests)
    }

    fn to_stop(&self) -> bool {
        self.look() > 0 || self.signal.load(Ordering::Relaxed)
    }

    fn to_stop_at_once(&self) -> bool {
        self.look() > 1
    }

    fn look(&self) -> u32 {
        let new = u32::from(self.interrupt.swap(false, Ordering::Relaxed));
        self.interrupts.set(self.interrupts.get().saturating_add(new));
        self.interrupts.get()
    }
}

/// Sends a signal to this process, but not to the other processes of its group. Ignores errors, because the process may
/// just have ended.
fn send(child: &Child, signal: Signal) {
    if let Some(process) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process(process, signal);
    }
}

fn outcome(status: ExitStatus) -> Outcome {
    match status.code() {
        Some(0) => Outcome::Done,
        Some(code) if code == i32::from(RESUMABLE) => Outcome::Stopped,
        _ => Outcome::Failed,
    }
}
