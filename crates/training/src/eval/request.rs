//! What `trireme eval`, `trireme import`, and what asks for a model, is given on the command line.

use std::path::PathBuf;

use loaders::Io;
use loaders::overwrite::{self, Content};

use crate::device::DeviceChoice;
use crate::error::Error;
use crate::train::evaluate::TestTime;
use crate::train::observe::watch;

/// A model.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    /// The model file, or a run's folder.
    pub file: PathBuf,
    /// Of a run, whether its best checkpoint is meant.
    pub best: bool,
    /// Whether the averaged weights are meant.
    pub ema: bool,
    /// Whether a file that another program wrote into is refused.
    pub sealed: bool,
}

/// The arguments of `trireme eval`.
#[derive(Clone, Debug)]
pub struct EvalRequest {
    /// The model file, or a run's folder.
    pub file: PathBuf,
    /// Of a run, whether to score its best checkpoint.
    pub best: bool,
    /// Whether to score the averaged weights.
    pub ema: bool,
    /// Whether a file that another program wrote into is refused.
    pub sealed: bool,
    /// Whether classes are matched by name where the data set's are not the model's.
    pub map_classes: bool,
    /// Views of each image.
    pub test_time: TestTime,
    /// Folder of the data set.
    pub data: PathBuf,
    /// Whether that is the one of the model's recipe, which is said.
    pub recorded: bool,
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
    /// When a wait for files or other ranks is reported, and when it ends the program.
    pub stall: watch::Limits,
    /// Files that are written in the end, each with what it will hold.
    pub outputs: Vec<(PathBuf, &'static Content)>,
}

impl EvalRequest {
    /// Returns the options that must be equal on all ranks, one per line. They are compared before the contents of the files. `command` is
    /// the name of the command. Decide for each new option whether it belongs here.
    pub fn compared(&self, command: &str) -> String {
        let Self {
            best,
            ema,
            sealed,
            map_classes,
            test_time: TestTime { flip, corners },
            split,
            batch,
            share_gpu,
            stage,
            // the contents are compared, not the paths
            file: _,
            data: _,
            recorded: _,
            // compared after the device was detected
            device: _,
            // nodes may have different numbers of cores and different file systems
            threads: _,
            loader_threads: _,
            io: _,
            // each rank watches itself
            stall: _,
            // only rank 0 writes them
            outputs: _,
        } = self;
        let (split, stage) = (split.as_deref().unwrap_or("not given"), stage.is_some());
        format!(
            "trireme {command}\n--stage {stage}\n--split {split}\n--batch {batch}\n--best {best}\n--ema {ema}\n--sealed {sealed}\n\
             --map-classes {map_classes}\n--flip {flip}\n--corners {corners}\n--share-gpu {share_gpu}"
        )
    }

    /// Refuses files that cannot be written, or would cost another file; for the rank that writes them.
    pub fn check_outputs(&self) -> Result<(), Error> {
        let mut outputs = self.outputs.iter();
        outputs.try_for_each(|(path, content)| overwrite::check(path, content, &[&self.file])).map_err(Error::Usage)
    }

    /// The model that is scored.
    pub fn model(&self) -> ModelRequest {
        ModelRequest { file: self.file.clone(), best: self.best, ema: self.ema, sealed: self.sealed }
    }
}

/// What `trireme import` is given.
#[derive(Clone, Debug)]
pub struct ImportRequest {
    /// The file of weights.
    pub file: PathBuf,
    /// A recipe whose `model`, `augment.eval`, `init.match` and `init.exclude` hold where nothing else is given.
    pub recipe: Option<PathBuf>,
    /// The network.
    pub model: Option<String>,
    /// File with the names of the classes, one a line.
    pub classes: Option<PathBuf>,
    /// Transforms from a picture to the input.
    pub transforms: Vec<String>,
    /// Regular expressions for names in the file, each with its replacement.
    pub rules: Vec<[String; 2]>,
    /// Patterns of tensors of the file that are left out.
    pub exclude: Vec<String>,
    /// Key of the dictionary to read from a .pth.
    pub key: Option<String>,
    /// The model file.
    pub out: PathBuf,
    /// Whether a file that is there is replaced.
    pub force: bool,
}
