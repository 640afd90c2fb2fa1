//! Command line options of `trireme eval`, `trireme import`, and other commands that read a model.

use std::path::PathBuf;

use data_tools::ContactSheet;
use loaders::overwrite::{self, Content};
use loaders::{Io, Limits};

use crate::device::DeviceChoice;
use crate::error::Error;
use crate::train::evaluate::TestTime;
use crate::train::observe::watch;

#[derive(Clone, Debug)]
pub struct ModelRequest {
    /// The model file, or the directory of a run.
    pub file: PathBuf,
    /// True if the best checkpoint of a run is used.
    pub best: bool,
    /// True if the averaged weights are used.
    pub ema: bool,
    /// True if a file that another program has written to is rejected.
    pub sealed: bool,
}

#[derive(Clone, Debug)]
pub struct EvalRequest {
    pub model: ModelRequest,
    /// True if classes are matched by name when the data set's classes differ from the model's.
    pub map_classes: bool,
    /// Which views of an image are scored and averaged.
    pub test_time: TestTime,
    /// The data set. `None` selects the data set in the model's recipe.
    pub data: Option<PathBuf>,
    /// True if no data set was given, so that it comes from the model's recipe. The output then has a note about it.
    pub recorded: bool,
    /// Name of the split. `None` selects the test split, or the validation split if the test split is missing or
    /// empty.
    pub split: Option<String>,
    pub batch: usize,
    pub device: DeviceChoice,
    pub share_gpu: bool,
    /// Compute threads. `None` uses all cores of this rank.
    pub threads: Option<usize>,
    /// Loader threads. `None` uses the remaining cores.
    pub loader_threads: Option<usize>,
    pub io: Io,
    /// Directory on each node's local disk, for a copy of the split. `None` reads the original.
    pub stage: Option<PathBuf>,
    /// The number of classes for the top-K score. `None` if it is not given.
    pub top: Option<usize>,
    /// How long to wait for files or other ranks before printing a warning and before ending the program.
    pub stall: watch::Limits,
    /// Files to write at the end, with their content types.
    pub outputs: Vec<(PathBuf, &'static Content)>,
    /// The sheet of mistakes among the outputs.
    pub sheet: Option<PathBuf>,
}

impl EvalRequest {
    /// Returns the options that must be equal on all ranks, one per line. They are compared before the contents of the files. `command` is
    /// the name of the command. Decide for each new option whether it belongs here.
    pub fn compared(&self, command: &str) -> String {
        let Self {
            // compare the contents, not the paths
            model: ModelRequest { file: _, best, ema, sealed },
            data: _,
            recorded: _,
            map_classes,
            test_time: TestTime { flip, corners, shift },
            split,
            batch,
            share_gpu,
            stage,
            // only rank 0 prints it
            top: _,
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
            sheet: _,
        } = self;
        let (split, stage) = (split.as_deref().unwrap_or("not given"), stage.is_some());
        format!(
            "trireme {command}\n--stage {stage}\n--split {split}\n--batch {batch}\n--best {best}\n--ema {ema}\n--sealed {sealed}\n\
             --map-classes {map_classes}\n--flip {flip}\n--corners {corners}\n--shift {shift}\n--share-gpu {share_gpu}"
        )
    }

    /// Returns an error if an output cannot be written or would overwrite another kind of file, or if the name of the
    /// sheet does not end in .png or .jpg. Only the rank that writes calls this.
    pub fn check_outputs(&self) -> Result<(), Error> {
        if let Some(sheet) = &self.sheet {
            ContactSheet::new(sheet, 0, Limits::default()).map_err(|error| Error::Usage(error.to_string()))?;
        }
        let mut outputs = self.outputs.iter();
        outputs
            .try_for_each(|(path, content)| overwrite::check(path, content, &[&self.model.file]))
            .map_err(Error::Usage)
    }
}

#[derive(Clone, Debug)]
pub struct ImportRequest {
    pub file: PathBuf,
    /// A recipe that provides `model`, `augment.eval`, `init.match` and `init.exclude` if they are not given.
    pub recipe: Option<PathBuf>,
    pub model: Option<String>,
    /// File with the class names, one per line.
    pub classes: Option<PathBuf>,
    /// Transforms from a picture to the input.
    pub transforms: Vec<String>,
    /// Regular expressions for names in the file, each with its replacement.
    pub rules: Vec<[String; 2]>,
    /// Patterns for tensors in the file to leave out.
    pub exclude: Vec<String>,
    /// Key of the dictionary in a .pth file.
    pub key: Option<String>,
    pub out: PathBuf,
    /// True if an existing file is replaced.
    pub force: bool,
}
