//! What `trireme eval` is given on the command line.

use std::path::PathBuf;

use crate::device::DeviceChoice;
use loaders::Io;

/// The arguments of `trireme eval`.
#[derive(Clone, Debug)]
pub struct EvalRequest {
    /// The model file, or a run's folder.
    pub file: PathBuf,
    /// Whether to score the averaged weights.
    pub ema: bool,
    /// Whether classes are matched by name where the data set's are not the model's.
    pub map_classes: bool,
    /// Folder of the data set.
    pub data: PathBuf,
    /// The split; `None`: test, else validation.
    pub split: Option<String>,
    /// Images a batch.
    pub batch: usize,
    /// What to compute on.
    pub device: DeviceChoice,
    /// Whether several ranks may compute on one GPU.
    pub share_gpu: bool,
    /// Compute threads; `None` = this rank's cores.
    pub threads: Option<usize>,
    /// Loader threads; `None` = the cores that are left.
    pub loader_threads: Option<usize>,
    /// How records are read.
    pub io: Io,
    /// Folder on each node's own disk for a copy of the split.
    pub stage: Option<PathBuf>,
}
