//! Exchange of models with other programs. `trireme export` writes a model in the format of another program. `trireme
//! import` makes a model from the weights of another program. These commands start `trireme rewrite-model` as a child
//! process to read a file with libhdf5. The help does not list it.

use std::io;
use std::path::PathBuf;

use base::screen;
use clap::ValueEnum;
use clap::builder::PossibleValue;
use formats::arrays;
use formats::checkpoint::foreign;
use formats::interop::export::{Format, Settings};
use training::eval::request::{ImportRequest, ModelRequest};
use training::eval::{self, import, model};

use super::output::{Failure, print};

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Example:
  trireme import lite0.pth --recipe recipes/photos-efficientnet-lite0.toml \\
      --classes recipes/imagenet-classes.txt -o lite0.h5
  trireme import net.safetensors --model lenet -o lenet.h5 \\
      --transform 'normalize(0.1307,0.3081)' --match 'module\\.(.*)' '$1'
  trireme import net.onnx --transform 'resize(256)' \\
      --transform 'center_crop(224)' --transform 'normalize(0.5,0.5)' -o net.h5

The file must contain every tensor of the network, with the same name and shape. docs/weights.md lists the \
formats. A run can also start directly from such a file, with init.from in its recipe.")]
pub struct ImportArgs {
    /// File with weights: .safetensors, PyTorch's .pth, Keras's .h5 or .weights.h5, ONNX, or a model or checkpoint of
    /// trireme
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Network in the catalogue [default: the recipe's network, the graph of an ONNX file, or the network that a file of
    /// trireme names]
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Read model, augment.eval, init.key, init.match and init.exclude from this recipe. Other options take precedence
    #[arg(long, value_name = "RECIPE")]
    pub recipe: Option<PathBuf>,
    /// File with the class names in the order of their labels, one per line [default: the names in a file of trireme,
    /// otherwise numbers]
    #[arg(long, value_name = "FILE")]
    pub classes: Option<PathBuf>,
    /// Transform from an image to the network's input, as in augment.eval of a recipe. Repeat the option for a list
    /// [default: those in the recipe or in a file of trireme]
    #[arg(long = "transform", value_name = "T")]
    pub transforms: Vec<String>,
    /// Rename tensors of the file. REGEX must match a whole name, and $1 in NAME is its first group
    #[arg(long = "match", num_args = 2, value_names = ["REGEX", "NAME"], allow_hyphen_values = true)]
    pub rules: Vec<String>,
    /// Ignore tensors of the file that match a pattern such as 'head.*'
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    /// Dictionary to read from a .pth file, such as state_dict_ema [default: init.key of the recipe, or the weights
    /// themselves]
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// Model file to write
    #[arg(short, long, value_name = "FILE")]
    pub out: PathBuf,
    /// Overwrite an existing file
    #[arg(long)]
    pub force: bool,
}

/// Imports a model, and prints notes and the name of the written file.
pub fn import(args: &ImportArgs) -> Result<(), Failure> {
    let notes = import::import(&ImportRequest {
        file: args.file.clone(),
        recipe: args.recipe.clone(),
        model: args.model.clone(),
        classes: args.classes.clone(),
        transforms: args.transforms.clone(),
        rules: args.rules.as_chunks::<2>().0.to_vec(),
        exclude: args.exclude.clone(),
        key: args.key.clone(),
        out: args.out.clone(),
        force: args.force,
    })?;
    notes.iter().for_each(|note| screen::say(note));
    print(args.out.display())
}

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Example:
  trireme export runs/r20/model.h5 --to onnx -o r20.onnx
  trireme export runs/r20 --to safetensors -o r20.safetensors --fold-batch-norm
  trireme export runs/r20 --to keras -o r20.keras --half

--to safetensors also writes a Python file such as r20.py. It needs only torch, builds the same torch.nn.Module and loads the weights.
Inputs are normalised images. ONNX and PyTorch return scores before softmax, Keras returns probabilities.")]
pub struct ExportArgs {
    /// Model file written by `trireme train`, or the output folder of a run
    #[arg(value_name = "MODEL|RUN")]
    pub model: PathBuf,
    /// Format of the file
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub to: Target,
    /// File to write
    #[arg(short, long, value_name = "FILE")]
    pub out: PathBuf,
    /// Overwrite an existing file
    #[arg(long)]
    pub force: bool,
    /// Use the best checkpoint of a run, selected by `checkpoint.best_by` of the recipe
    #[arg(long)]
    pub best: bool,
    /// Use the averaged weights (if the recipe has ema.decay or ema.swa_start)
    #[arg(long)]
    pub ema: bool,
    /// Store weights with 16 bits. Computations still use 32 bits
    #[arg(long)]
    pub half: bool,
    /// Merge batch norms into the preceding convolutions and linear layers. This gives fewer layers for prediction, but
    /// cannot be trained
    #[arg(long)]
    pub fold_batch_norm: bool,
    /// With --to onnx: add the normalisation to the graph, so that the input is stored pixels (N, H, W, C)
    #[arg(long)]
    pub preprocess: bool,
    /// Reject a model file that another program has written to
    #[arg(long)]
    pub sealed: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Target(Format);

impl ValueEnum for Target {
    fn value_variants<'a>() -> &'a [Self] {
        const { &[Target(Format::Onnx), Target(Format::Safetensors), Target(Format::Keras)] }
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0.name()).help(self.0.about()))
    }
}

/// Exports a model and prints the names of the written files.
pub fn export(args: &ExportArgs) -> Result<(), Failure> {
    if args.preprocess && args.to.0 != Format::Onnx {
        return Err(Failure::usage(
            "--preprocess is only for ONNX, because other formats cannot store image transforms. Leave it out, or use --to onnx",
        ));
    }
    let request = ModelRequest { file: args.model.clone(), best: args.best, ema: args.ema, sealed: args.sealed };
    let settings = Settings {
        format: args.to.0,
        half: args.half,
        fold: args.fold_batch_norm,
        preprocess: args.preprocess,
        force: args.force,
    };
    let exported = eval::export(&request, &args.out, &settings)?;
    exported.notes.iter().for_each(|note| screen::say(note));
    exported.files.iter().try_for_each(|file| print(file.display()))
}

// `trireme rewrite-model`: a child process that reads a file with libhdf5, for commands that read models and weights.
// The help does not list it.

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Example:
  trireme rewrite-model model.h5")]
pub struct RewriteArgs {
    /// Read the weights of a Keras file instead of a model
    #[arg(long)]
    pub weights: bool,
    /// File written by another program
    #[arg(value_name = "MODEL")]
    pub model: PathBuf,
}

/// Writes the model to standard output, which must be a file.
pub fn rewrite(args: &RewriteArgs) -> Result<(), Failure> {
    model::serve(&args.model, args.weights).map_err(Failure::failed)
}

// `trireme read-arrays`: a child process that reads arrays of images with libhdf5, for `trireme data convert`. The help
// does not list it.

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Example:
  trireme read-arrays images.h5")]
pub struct ArraysArgs {
    /// HDF5 file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// Answers requests for array values on standard input.
pub fn read_arrays(args: &ArraysArgs) -> Result<(), Failure> {
    let serve = || {
        foreign::limit_memory(&args.file)?;
        arrays::serve(&args.file, io::stdin().lock(), io::BufWriter::new(io::stdout().lock()))
    };
    serve().map_err(|error| Failure::failed(format!("{}: {error}", args.file.display())))
}
