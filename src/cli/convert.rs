//! `trireme data convert`: arguments, and the call into `data_tools`.

use super::cost::Cost;
use super::exit::Failure;
use super::output::print;
use super::value::{bytes, fraction, natural, percent, pixels, positive, thread_count};
use clap::builder::{PossibleValue, PossibleValuesParser};
use data_tools::{ConvertOptions, OnBad};
use std::path::PathBuf;

/// Arguments of `trireme data convert`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Example:
  trireme data convert fashion-mnist /usr/share/datasets/fashion-mnist data/fashion-mnist --shards 16
  trireme data convert cifar10 cifar-10-binary.tar.gz data/cifar10 --jobs 4
  trireme data convert folder photos data/photos --resize 256 --validation-fraction 0.1
  trireme data convert folder photos data/photos --labels labels.csv
  trireme data convert folder photos data/photos --entry-points
  trireme data convert imagenet /scratch/ILSVRC2012 data/imagenet --resize 256 --shards 256

The same bytes come out for any number of jobs. OUT appears whole or not at all. A conversion of image files that was
stopped goes on where it was when the same command is given again."
)]
pub struct Convert {
    /// Format of SRC
    #[arg(value_name = "KIND", value_parser = kinds())]
    pub kind: String,
    /// Folder or archive to read
    pub src: PathBuf,
    /// Folder to make; it must be empty or not exist
    pub out: PathBuf,
    /// Shards of the training split; other splits get a quarter of it
    #[arg(long, value_name = "N", default_value = "16", value_parser = positive)]
    pub shards: usize,
    /// Scale images down so that the short side has PX pixels; smaller ones stay as they are
    #[arg(long, value_name = "PX", value_parser = pixels)]
    pub resize: Option<u32>,
    /// Quality of the JPEGs made, 1 to 100; also makes JPEGs of images that could stay as they are [default: 90]
    #[arg(long, value_name = "Q", value_parser = percent, conflicts_with = "raw")]
    pub quality: Option<u8>,
    /// Store pixels instead of JPEG or PNG files: larger, but nothing to decode in training
    #[arg(long)]
    pub raw: bool,
    /// Take images of 16 bits or of more than three bands, which are refused otherwise: values are divided by 257, or MIN and MAX
    /// become 0 and 255; further bands are dropped
    #[arg(long, value_name = "MIN,MAX", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    #[arg(value_parser = data_tools::to_8bit)]
    pub to_8bit: Option<data_tools::To8Bit>,
    /// Keep with each JPEG where decoding can begin in it, less than 2 % more bytes: training then decodes little but the crop.
    /// The files stay as they are; progressive ones, and those of four inks, have none
    #[arg(long, conflicts_with = "raw")]
    pub entry_points: bool,
    /// File with a class on each line: these classes, in this order, and no others
    #[arg(long, value_name = "FILE")]
    pub classes: Option<PathBuf>,
    /// folder: table or JSON file with the labels of each image, several or none, in place of a folder for each class
    #[arg(long, value_name = "FILE")]
    pub labels: Option<PathBuf>,
    /// csv, and folder with a table: what parts the labels of an image, which may be several or none [default: ; and | in a column labels]
    #[arg(long, value_name = "CHAR")]
    pub label_separator: Option<char>,
    /// Take images that a table or list names outside of its folder: absolute paths, and those with ..
    #[arg(long)]
    pub allow_outside: bool,
    /// Move this share of each class of train to the split validation; of images with several labels, of all of them
    #[arg(long, value_name = "F", value_parser = fraction)]
    pub validation_fraction: Option<f64>,
    /// Key of the shuffle and of the draw for --validation-fraction
    #[arg(long, value_name = "N", default_value = "0", value_parser = natural::<u64>)]
    pub seed: u64,
    /// Which split a file, folder, array, shard or value of this name is, where its name does not say; none leaves it out. Repeat it
    #[arg(long, value_name = "NAME=SPLIT", value_parser = data_tools::split_map)]
    pub split_map: Vec<(String, String)>,
    /// What to do with an image that cannot be used: stop, or leave it out and list it
    #[arg(long, value_name = "fail|skip", default_value = "fail", value_parser = ["fail", "skip"])]
    pub on_bad: String,
    /// What reading a file may cost
    #[command(flatten)]
    pub cost: Cost,
    /// The most bytes of OUT [default: 64 times those of SRC and 1 GiB]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub max_output: Option<usize>,
    /// Threads [default: one a core]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub jobs: Option<usize>,
    /// Print one JSON object to stdout
    #[arg(long)]
    pub json: bool,
}

fn kinds() -> PossibleValuesParser {
    data_tools::KINDS.iter().map(|(name, about)| PossibleValue::new(*name).help(*about)).collect::<Vec<_>>().into()
}

/// Converts as the arguments say.
pub fn run(args: &Convert) -> Result<(), Failure> {
    loaders::sigbus::install().map_err(Failure::failed)?;
    let options = ConvertOptions {
        shards: args.shards,
        jobs: args.jobs.unwrap_or(0),
        seed: args.seed,
        progress: true,
        resize: args.resize,
        quality: args.quality,
        raw: args.raw,
        to_8bit: args.to_8bit,
        entry_points: args.entry_points,
        classes: args.classes.clone(),
        labels: args.labels.clone(),
        label_separator: args.label_separator,
        allow_outside: args.allow_outside,
        validation_fraction: args.validation_fraction,
        split_map: args.split_map.clone(),
        on_bad: if args.on_bad == "skip" { OnBad::Skip } else { OnBad::Fail },
        limits: args.cost.limits(),
        max_output: args.max_output.map(|size| size as u64),
    };
    let converted = data_tools::convert(&args.kind, &args.src, &args.out, &options)
        .map_err(|error| if error.is_usage() { Failure::usage(error) } else { Failure::failed(error) })?;
    if args.json { print(converted.to_json()) } else { print(converted) }
}
