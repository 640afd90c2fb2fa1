//! What `trireme train` is given on the command line.

use std::path::PathBuf;
use std::time::Duration;

use recipe::Changes;
use report::Verbosity;

use crate::device::DeviceChoice;
use crate::error::Error;
use crate::train::observe::watch;

/// The arguments of `trireme train`.
#[derive(Clone, Debug)]
pub struct TrainRequest {
    /// The recipe's file.
    pub recipe: PathBuf,
    /// Changes to it.
    pub changes: Changes,
    /// Output folder.
    pub out: PathBuf,
    /// Whether to resume from the newest checkpoint, if there is one.
    pub resume: bool,
    /// The checkpoint to resume from instead.
    pub resume_from: Option<PathBuf>,
    /// Whether a run that is resumed may have more epochs than before.
    pub extend_epochs: bool,
    /// Whether to take the output folder from a run on another host that cannot be asked.
    pub steal_lock: bool,
    /// What to compute on.
    pub device: DeviceChoice,
    /// Whether several ranks may compute on one GPU.
    pub share_gpu: bool,
    /// How long the run may take, from the start of the program.
    pub time_limit: Option<Duration>,
    /// Compute threads; `None` = this rank's cores.
    pub threads: Option<usize>,
    /// Optimizer step at which the run ends early.
    pub max_steps: Option<u64>,
    /// Steps of a search for a learning rate, in place of a training.
    pub find_lr: Option<u64>,
    /// Print the plan and stop.
    pub dry_run: bool,
    /// Folder on each node's own disk for a copy of the data set.
    pub stage: Option<PathBuf>,
    /// File for the trace of what all ranks do when.
    pub trace: Option<PathBuf>,
    /// Steps of which it holds every part.
    pub trace_steps: u64,
    /// How much is shown on stderr.
    pub verbosity: Verbosity,
    /// When the watchdog speaks, and when it ends the run.
    pub stall: watch::Limits,
}

impl TrainRequest {
    /// Returns the options that must be equal on all ranks, one per line. Decide for each new option whether it belongs here.
    pub fn compared(&self) -> String {
        let Self {
            // the contents are compared, not the path
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
            resume_from,
            extend_epochs,
            max_steps,
            find_lr,
            dry_run,
            stage,
            trace,
            trace_steps,
            // may differ: a rank that reaches its time limit tells the others, and nodes may have different numbers of cores
            time_limit: _,
            threads: _,
            stall: _,
        } = self;
        let given = |is_given: bool| if is_given { "given" } else { "not given" };
        // every node may use a different folder or file
        let (stage, trace) = (given(stage.is_some()), given(trace.is_some()));
        let (resume, dry_run, share_gpu) =
            (given(*resume || resume_from.is_some()), given(*dry_run), given(*share_gpu));
        let (extend, most, find) = (given(*extend_epochs), number(*max_steps), number(*find_lr));
        format!(
            "trireme train\n--stage {stage}\n--dry-run {dry_run}\n--find-lr {find}\n--max-steps {most}\n--resume {resume}\n\
             --extend-epochs {extend}\n--share-gpu {share_gpu}\n--trace {trace}\n--trace-steps {trace_steps}"
        )
    }

    /// Fails for names of files and folders that are not UTF-8: metrics.jsonl and checkpoints are, and name them.
    pub fn check_names(&self) -> Result<(), Error> {
        let (out, resume, stage) = (Some(&self.out), self.resume_from.as_ref(), self.stage.as_ref());
        let named = [("--out", out), ("--resume", resume), ("--stage", stage), ("--trace", self.trace.as_ref())];
        match named
            .into_iter()
            .find_map(|(flag, path)| path.filter(|path| path.to_str().is_none()).map(|path| (flag, path)))
        {
            Some((flag, path)) => Err(Error::Usage(format!(
                "{flag} {path:?}: the name is not UTF-8, and cannot stand in the files of the run; choose another"
            ))),
            None => Ok(()),
        }
    }
}

fn number(value: Option<u64>) -> String {
    value.map_or_else(|| "not given".into(), |value| value.to_string())
}
