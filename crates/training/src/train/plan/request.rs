//! Command line options of `trireme train`.

use std::path::PathBuf;
use std::time::Duration;

use recipe::Changes;
use report::Verbosity;

use crate::device::DeviceChoice;
use crate::error::Error;
use crate::train::observe::watch;

/// The checkpoint from which a run resumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResumeFrom {
    /// Resumes from the newest checkpoint in the output folder. Starts a new run if the folder has no checkpoint.
    Newest,
    File(PathBuf),
}

impl From<&str> for ResumeFrom {
    /// Reads the value of `--resume`.
    fn from(text: &str) -> Self {
        if text.eq_ignore_ascii_case("auto") { Self::Newest } else { Self::File(text.into()) }
    }
}

#[derive(Clone, Debug)]
pub struct TrainRequest {
    pub recipe: PathBuf,
    /// Changes to the recipe from the command line.
    pub changes: Changes,
    pub out: PathBuf,
    /// `None` starts a new run.
    pub resume: Option<ResumeFrom>,
    /// True if a resumed run may have more epochs than before.
    pub extend_epochs: bool,
    /// True if the output directory may be taken from a run on another host that cannot be checked.
    pub steal_lock: bool,
    pub device: DeviceChoice,
    pub share_gpu: bool,
    /// Maximum duration of the run, from program start.
    pub time_limit: Option<Duration>,
    /// Compute threads. `None` uses all cores of this rank.
    pub threads: Option<usize>,
    /// Step at which the run ends early. `None` runs to the end.
    pub max_steps: Option<u64>,
    /// Number of steps for a learning rate search, which replaces the training.
    pub find_lr: Option<u64>,
    /// True if the program only prints the plan and then stops.
    pub dry_run: bool,
    /// Directory on each node's local disk, for a copy of the data set. `None` reads the original.
    pub stage: Option<PathBuf>,
    pub trace: Option<PathBuf>,
    pub trace_steps: u64,
    /// Amount of output on stderr.
    pub verbosity: Verbosity,
    /// How long to wait for files or other ranks before the watchdog prints a warning or ends the run.
    pub stall: watch::Limits,
}

impl TrainRequest {
    /// Returns the checkpoint that `--resume PATH` names.
    pub fn checkpoint(&self) -> Option<&PathBuf> {
        match &self.resume {
            Some(ResumeFrom::File(path)) => Some(path),
            _ => None,
        }
    }

    /// Returns true for `--resume auto`.
    pub fn resumes_newest(&self) -> bool {
        self.resume == Some(ResumeFrom::Newest)
    }

    /// Returns the options that must be equal on all ranks, one per line. Decide for each new option whether it belongs here.
    pub fn compared(&self) -> String {
        let Self {
            // the contents of the recipe are compared, not its path
            recipe: _,
            changes: _,
            // only rank 0 uses these
            out: _,
            steal_lock: _,
            verbosity: _,
            // compared after the device was detected
            device: _,
            share_gpu,
            resume,
            extend_epochs,
            max_steps,
            find_lr,
            dry_run,
            stage,
            trace,
            trace_steps,
            // may differ: if one rank reaches its time limit, all ranks stop, and nodes may have different numbers of cores
            time_limit: _,
            threads: _,
            stall: _,
        } = self;
        let given = |is_given: bool| if is_given { "given" } else { "not given" };
        // only whether they are given must be equal, because every node may use a different path
        let (stage, trace) = (given(stage.is_some()), given(trace.is_some()));
        let resume = match resume {
            Some(ResumeFrom::Newest) => "auto",
            Some(ResumeFrom::File(_)) => "a file",
            None => "not given",
        };
        let (dry_run, share_gpu) = (given(*dry_run), given(*share_gpu));
        let (extend, most, find) = (given(*extend_epochs), number(*max_steps), number(*find_lr));
        format!(
            "trireme train\n--stage {stage}\n--dry-run {dry_run}\n--find-lr {find}\n--max-steps {most}\n--resume {resume}\n\
             --extend-epochs {extend}\n--share-gpu {share_gpu}\n--trace {trace}\n--trace-steps {trace_steps}"
        )
    }

    /// Returns an error if a path is not valid UTF-8. metrics.jsonl and checkpoints contain these paths as UTF-8.
    pub fn check_names(&self) -> Result<(), Error> {
        let (out, resume, stage) = (Some(&self.out), self.checkpoint(), self.stage.as_ref());
        let named = [("--out", out), ("--resume", resume), ("--stage", stage), ("--trace", self.trace.as_ref())];
        match named
            .into_iter()
            .find_map(|(flag, path)| path.filter(|path| path.to_str().is_none()).map(|path| (flag, path)))
        {
            Some((flag, path)) => Err(Error::Usage(format!(
                "{flag} {path:?}: the name is not UTF-8, but files of the run must contain it; choose another name"
            ))),
            None => Ok(()),
        }
    }
}

fn number(value: Option<u64>) -> String {
    value.map_or_else(|| "not given".into(), |value| value.to_string())
}
