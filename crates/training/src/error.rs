//! How a run ends when it does not end well.

use std::io;
use std::path::PathBuf;

use formats::checkpoint;
use loaders::why;

/// An error of training or evaluation; [`Error::code`] is its exit code.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A request that makes no sense.
    #[error("{0}")]
    Usage(String),
    /// Something failed.
    #[error("{0}")]
    Failed(String),
    /// The ranks were started wrongly; the text holds the cure.
    #[error("{0}")]
    Launch(String),
    /// A file or folder.
    #[error("cannot {action} {}: {}", path.display(), why(path, source))]
    File {
        /// A verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// The handlers of signals.
    #[error("cannot listen to signals: {0}")]
    Signals(io::Error),
    /// A thread of ours that cannot be started.
    #[error("cannot start the thread that {task}: {source}")]
    Thread {
        /// What it would do.
        task: &'static str,
        /// What the operating system says.
        source: io::Error,
    },
    /// A thread of ours that has ended too early.
    #[error("the thread that {task} is gone")]
    ThreadGone {
        /// What it did.
        task: &'static str,
    },
    /// Two things that must be equal are not.
    #[error("{what}: expected {expected}, got {got}; {cure}")]
    Mismatch {
        /// Their name.
        what: String,
        /// What it must be.
        expected: String,
        /// What it is.
        got: String,
        /// What to try.
        cure: String,
    },
    /// A data set that cannot be trained on.
    #[error("data set {data}: {what}")]
    DataSet {
        /// Its folder.
        data: String,
        /// What is wrong, and what to try.
        what: String,
    },
    /// The loader's batches are not those of the step; a fault of this program.
    #[error("expected a batch of {expected}, got {got}")]
    Batch {
        /// Epoch, step and worker.
        expected: String,
        /// The same of the batch that came.
        got: String,
    },
    /// No room for the files of a run.
    #[error(
        "{}: {free} free on its file system, no space left for what the run writes ({sizes}); free some (`df -h`, `quota`), or \
         choose another place with --out", out.display()
    )]
    NoSpace {
        /// The output folder.
        out: PathBuf,
        /// Free space, for people.
        free: String,
        /// Sizes of the files, for people.
        sizes: String,
    },
    /// The output folder was removed during the run.
    #[error(
        "{source}; the output folder was removed, with the log and all checkpoints: start again, best with another --out"
    )]
    OutputGone {
        /// What could not be written.
        source: Box<Error>,
    },
    /// A loss, a parameter or a running statistic that is not finite.
    #[error(
        "the loss of step {step} is not finite, or a parameter or running statistic after it ({origin}; lr {lr:.4e}); the last good \
         checkpoint stands, if there is one. Try {}a smaller schedule.base_lr, a longer schedule.warmup_epochs, or check the data with \
         `trireme data stats`",
        if *f16 { "precision = \"bf16\" (f16 ends at 65,504), " } else { "" }
    )]
    NotFinite {
        /// The step, from 1.
        step: u64,
        /// Which ranks it comes from, for people.
        origin: String,
        /// Its learning rate.
        lr: f64,
        /// Whether activations are f16.
        f16: bool,
    },
    /// A parameter that no file may hold.
    #[error(
        "parameter {name} holds NaN or infinity, no model is written; the last good one stands. Try a smaller schedule.base_lr or a \
         longer warm-up"
    )]
    NotFiniteParameter {
        /// Its name.
        name: String,
    },
    /// Gradients that are not finite in f16, whatever the scale of the losses.
    #[error(
        "{steps} steps in a row had gradients with Inf or NaN and were left out, although the scale of the losses was halved each \
         time, down to {scale:e}: the values themselves are not finite in f16. The last good checkpoint stands, if there is one. Try \
         precision = \"bf16\", a smaller schedule.base_lr, or check the data with `trireme data stats`"
    )]
    Underflow {
        /// Steps left out in a row.
        steps: u32,
        /// The scale that is left.
        scale: f32,
    },
    /// Two ranks on one GPU.
    #[error(
        "ranks {} and {} on {host} have opened the same GPU ({gpu}): start one rank a GPU (sbatch --gpus-per-task=1 \
         --ntasks-per-node=<GPUs of a node>, or mpirun --map-by ppr:<GPUs of a node>:node), or --share-gpu to let them",
        ranks[0], ranks[1]
    )]
    SharedGpu {
        /// The ranks.
        ranks: [usize; 2],
        /// Their node.
        host: String,
        /// Name and id.
        gpu: String,
    },
    /// A GPU that is gone or has failed a call.
    #[error("on {place}: {source}")]
    Gpu {
        /// Node and GPU.
        place: String,
        /// The failure.
        source: backend::Error,
    },
    /// A transport of gradients that cannot be used.
    #[error("{transport}: {why}")]
    Transport {
        /// The key that requests it, or what was tried.
        transport: String,
        /// What is wrong, and what to try.
        why: String,
    },
    /// All ranks know of it, and end together.
    #[error("{text}")]
    Agreed {
        /// Exit code.
        code: u8,
        /// What happened, and to which rank if not to all.
        text: String,
    },
    /// Gradients that cannot be carried, because training has diverged; all ranks have met it, and end together.
    #[error("{text}")]
    Diverged {
        /// What happened, and to which rank if not to all.
        text: String,
    },
    /// Another rank failed and says why.
    #[error("another rank failed")]
    Elsewhere {
        /// Its exit code.
        code: u8,
    },
    /// The recipe.
    #[error(transparent)]
    Recipe(#[from] recipe::Error),
    /// The learning-rate schedule.
    #[error(transparent)]
    Schedule(#[from] engine::optim::schedule::ScheduleError),
    /// The optimizer.
    #[error(transparent)]
    Optimizer(#[from] engine::optim::OptimizerError),
    /// The data.
    #[error(transparent)]
    Data(#[from] loaders::Error),
    /// The network.
    #[error(transparent)]
    Build(#[from] engine::graph::BuildError),
    /// The device.
    #[error(transparent)]
    Backend(#[from] backend::Error),
    /// Communication.
    #[error(transparent)]
    Comm(#[from] comm::Error),
    /// A model file.
    #[error(transparent)]
    Checkpoint(#[from] formats::checkpoint::Error),
    /// A file of weights.
    #[error(transparent)]
    Weights(#[from] formats::interop::Error),
    /// A network for other programs.
    #[error(transparent)]
    Export(#[from] formats::interop::export::Error),
    /// The log.
    #[error(transparent)]
    Report(#[from] report::Error),
}

impl Error {
    /// Whether all ranks know of it already.
    pub fn is_agreed(&self) -> bool {
        matches!(self, Error::Agreed { .. } | Error::Diverged { .. } | Error::Elsewhere { .. })
    }

    /// 2 for requests that make no sense, else 1.
    pub fn code(&self) -> u8 {
        match self {
            Error::Usage(_) | Error::Recipe(_) | Error::Schedule(_) | Error::Optimizer(_) => 2,
            Error::Export(error) if error.is_usage() => 2,
            Error::Checkpoint(checkpoint::Error::NoCheckpoint { .. }) => 2,
            Error::Checkpoint(checkpoint::Error::Folder { source, .. }) if is_of_the_request(source) => 2,
            Error::Agreed { code, .. } | Error::Elsewhere { code } => *code,
            _ => 1,
        }
    }
}

/// Whether an output cannot be written for what the user asked, and not for want of space or a fault of the machine.
pub(crate) fn is_of_the_request(source: &io::Error) -> bool {
    use io::ErrorKind::{AlreadyExists, IsADirectory, NotADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem};
    let kinds = [AlreadyExists, IsADirectory, NotADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem];
    kinds.contains(&source.kind())
}
