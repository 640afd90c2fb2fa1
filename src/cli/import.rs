//! `trireme import`: weights of another program as a model file.

use std::path::PathBuf;

use base::screen;
use training::eval::import::import;
use training::eval::request::ImportRequest;

use super::exit::Failure;
use super::output::print;

/// Arguments of `trireme import`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Example:
  trireme import lite0.pth --recipe recipes/photos-efficientnet-lite0.toml --classes recipes/imagenet-classes.txt -o lite0.h5
  trireme import net.safetensors --model lenet --transform 'normalize(0.1307,0.3081)' --match 'module\\.(.*)' '$1' -o lenet.h5
  trireme import net.onnx --transform 'resize(256)' --transform 'center_crop(224)' --transform 'normalize(0.5,0.5)' -o net.h5

Every tensor of the network must be in the file, with its name and shape. What is read: docs/formats.md, \"Weights of other programs\". A
run starts from such a file without this command, by init.from in its recipe.")]
pub struct Args {
    /// File of weights: .safetensors, PyTorch's .pth, Keras's .h5 or .weights.h5, or ONNX
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Network of the catalogue [default: the recipe's network, or an ONNX file's graph]
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Take model, augment.eval, init.match and init.exclude of this recipe, where nothing else is given
    #[arg(long, value_name = "RECIPE")]
    pub recipe: Option<PathBuf>,
    /// Names of the classes in order of their labels, one a line [default: their numbers]
    #[arg(long, value_name = "FILE")]
    pub classes: Option<PathBuf>,
    /// Transform from a picture to the network's input, in this order; as in augment.eval of a recipe
    #[arg(long = "transform", value_name = "T")]
    pub transforms: Vec<String>,
    /// Rename tensors: a regular expression for whole names in the file, and what they become, with $1 for its first group
    #[arg(long = "match", num_args = 2, value_names = ["REGEX", "NAME"], allow_hyphen_values = true)]
    pub rules: Vec<String>,
    /// Leave out tensors of the file, as patterns such as 'head.*'
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    /// Dictionary to read from a .pth, such as state_dict_ema [default: the recipe's init.key, or the weights themselves]
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// Model file to write
    #[arg(short, long, value_name = "FILE")]
    pub out: PathBuf,
    /// Replace a file that is there
    #[arg(long)]
    pub force: bool,
}

/// Imports, says what was taken, and prints the name of the file.
pub fn run(args: &Args) -> Result<(), Failure> {
    let notes = import(&ImportRequest {
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
