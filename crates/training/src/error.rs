//! Errors of training and evaluation.

use std::io;
use std::path::{Path, PathBuf};

use formats::checkpoint;
use loaders::why;

/// An error of training or evaluation. [`Error::code`] returns its exit code.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request cannot be carried out, for example because of a wrong option or recipe key. The exit code is 2.
    #[error("{0}")]
    Usage(String),
    /// Any other failure. The text is the whole message.
    #[error("{0}")]
    Failed(String),
    /// A failed operation on a file or directory.
    #[error("cannot {action} {}: {}", path.display(), why(path, source))]
    File {
        /// A verb that follows `cannot`, such as `read`.
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("cannot install a signal handler: {0}")]
    Signals(io::Error),
    /// Two values that must be equal differ.
    #[error("{what}: expected {expected}, got {got}; {cure}")]
    Mismatch {
        what: String,
        expected: String,
        got: String,
        /// What the user can do about it.
        cure: String,
    },
    /// The disk is too full for the files of a run.
    #[error(
        "{}: only {free} are free on this file system, so there is no space left for the files of the run ({sizes}). Free some space (`df \
         -h`, `quota`), or choose another folder with --out", out.display()
    )]
    NoSpace {
        out: PathBuf,
        free: String,
        /// Sizes of the files as text.
        sizes: String,
    },
    /// The output folder is no longer at its path.
    #[error("{source}. {}", explain_missing_output(moved.as_deref()))]
    OutputGone {
        source: Box<Error>,
        /// Where the folder is now. `None` if it was removed.
        moved: Option<PathBuf>,
    },
    #[error(
        "{} was taken over by another run, which was started with --steal-lock or after the lock file was removed: this run writes nothing \
         more there and ends", .0.display()
    )]
    TakenOver(PathBuf),
    /// A loss, a parameter or a running statistic is not finite.
    #[error(
        "{} ({origin}; lr {lr:.4e}). The last good \
         checkpoint is kept, if there is one. Try {}a smaller schedule.base_lr, a longer schedule.warmup_epochs, or check the data with \
         `trireme data stats`",
        if *in_loss { format!("the loss of step {step} is not finite") }
        else { format!("a parameter or running statistic is not finite after step {step}") },
        if *f16 { "precision = \"bf16\" (the largest f16 is 65,504), " } else { "" }
    )]
    NotFinite {
        /// Number of the step, starting at 1.
        step: u64,
        /// True if the loss is not finite, false if a parameter or a running statistic is not finite.
        in_loss: bool,
        /// The ranks with the value that is not finite, as text.
        origin: String,
        lr: f64,
        /// True if activations are f16.
        f16: bool,
    },
    #[error(
        "ranks {} and {} on {host} have opened the same GPU ({gpu}). Start one rank per GPU (sbatch --gpus-per-node=N --gpu-bind=none \
         --ntasks-per-node=<GPUs of a node>, or mpirun --map-by ppr:<GPUs of a node>:node), or allow sharing with --share-gpu",
        ranks[0], ranks[1]
    )]
    SharedGpu {
        ranks: [usize; 2],
        host: String,
        /// Name and id of the GPU, as text.
        gpu: String,
    },
    #[error("on {place}: {source}")]
    Gpu {
        /// The node and, if known, the GPU's name and id.
        place: String,
        source: backend::Error,
    },
    /// All ranks know this error and end together.
    #[error("{text}")]
    Agreed {
        code: u8,
        /// The failure, and the failed rank unless all ranks failed.
        text: String,
    },
    /// The codec cannot represent the gradients because training has diverged. All ranks know this error and end
    /// together.
    #[error("{text}")]
    Diverged {
        /// The failure, and the failed rank unless all ranks failed.
        text: String,
    },
    #[error("another rank failed")]
    OtherRank { code: u8 },
    #[error(transparent)]
    Recipe(#[from] recipe::Error),
    #[error(transparent)]
    Schedule(#[from] engine::optim::schedule::ScheduleError),
    #[error(transparent)]
    Data(#[from] loaders::Error),
    #[error(transparent)]
    Build(#[from] engine::graph::BuildError),
    #[error(transparent)]
    Backend(#[from] backend::Error),
    #[error(transparent)]
    Comm(#[from] comm::Error),
    #[error(transparent)]
    Checkpoint(#[from] formats::checkpoint::Error),
    #[error(transparent)]
    Weights(#[from] formats::interop::Error),
    #[error(transparent)]
    Export(#[from] formats::interop::export::Error),
    #[error(transparent)]
    Report(#[from] report::Error),
}

impl Error {
    /// Returns a conversion of I/O errors on the file or directory `path`. `action` is a verb that follows `cannot`.
    pub fn file<'a>(action: &'static str, path: &'a Path) -> impl Fn(io::Error) -> Self + Copy + use<'a> {
        move |source| Self::File { action, path: path.to_path_buf(), source }
    }

    /// Returns true if all ranks already know this error.
    pub fn is_agreed(&self) -> bool {
        matches!(self, Error::Agreed { .. } | Error::Diverged { .. } | Error::OtherRank { .. })
    }

    /// Returns true if the communication with other ranks failed, so that another rank may be the cause.
    pub fn is_of_communication(&self) -> bool {
        let of_device = |error: &backend::Error| {
            matches!(error, backend::Error::Across { .. } | backend::Error::Foreign { library: "NCCL", .. })
        };
        match self {
            Error::Comm(_) => true,
            Error::Backend(source) | Error::Gpu { source, .. } => of_device(source),
            _ => false,
        }
    }

    /// Returns the exit code: 2 for an invalid request, the agreed code for an error that all ranks know, otherwise 1.
    pub fn code(&self) -> u8 {
        match self {
            Error::Usage(_) | Error::Recipe(_) | Error::Schedule(_) => 2,
            Error::Export(error) if error.is_usage() => 2,
            Error::Checkpoint(checkpoint::Error::NotACheckpoint { .. }) => 2,
            Error::Checkpoint(checkpoint::Error::Folder { source, .. }) if is_caused_by_request(source) => 2,
            Error::Agreed { code, .. } | Error::OtherRank { code } => *code,
            _ => 1,
        }
    }
}

/// Says where the output folder is and how to continue. `moved` is its new path, or `None` if it was removed.
fn explain_missing_output(moved: Option<&Path>) -> String {
    match moved {
        Some(folder) => {
            let folder = folder.display();
            format!(
                "The output folder was renamed to {folder}. To continue from its last checkpoint, use the same command with --out {folder} \
                 --resume auto"
            )
        }
        None => "The output folder was removed, with the log and all checkpoints. Start again, preferably with another --out".into(),
    }
}

/// Returns true if an output cannot be written because of the user's request, not because of a full disk or a broken
/// machine.
pub(crate) fn is_caused_by_request(source: &io::Error) -> bool {
    use io::ErrorKind::{
        AlreadyExists, InvalidFilename, IsADirectory, NotADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem,
    };
    let kinds = [
        AlreadyExists,
        // a name that is too long
        InvalidFilename,
        IsADirectory,
        NotADirectory,
        NotFound,
        PermissionDenied,
        ReadOnlyFilesystem,
    ];
    kinds.contains(&source.kind())
}
