//! `trireme data convert`: defines its arguments and calls `data_tools`.

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
    /// Output folder, which must be empty or not exist
    pub out: PathBuf,
    /// Number of training shards. Every other split gets a quarter as many
    #[arg(long, value_name = "N", default_value = "16", value_parser = positive)]
    pub shards: usize,
    /// Scale images down so that the short side has PX pixels. Smaller images are not changed
    #[arg(long, value_name = "PX", value_parser = pixels)]
    pub resize: Option<u32>,
    /// JPEG quality, 1 to 100. This also re-encodes images that could be copied unchanged [default: 90]
    #[arg(long, value_name = "Q", value_parser = percent, conflicts_with = "raw")]
    pub quality: Option<u8>,
    /// Store pixels instead of JPEG or PNG files: larger, but training decodes nothing
    #[arg(long)]
    pub raw: bool,
    /// Accept images with 16 bits per value or more than three bands. Values are divided by 257, or the range MIN,MAX is mapped to
    /// 0..255. Additional bands are dropped
    #[arg(long, value_name = "MIN,MAX", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    #[arg(value_parser = data_tools::to_8bit)]
    pub to_8bit: Option<data_tools::To8Bit>,
    /// Store with each JPEG the positions at which decoding can start. Training then decodes little more than the crop, and the data set
    /// grows by less than 2 %. The JPEG files are not changed. Progressive and CMYK JPEGs get no entry points
    #[arg(long, conflicts_with = "raw")]
    pub entry_points: bool,
    /// File with a class name on each line. Only these classes are used, in this order
    #[arg(long, value_name = "FILE")]
    pub classes: Option<PathBuf>,
    /// folder: read the labels of each image from this table or JSON file instead of from folder names. An image can have any number of
    /// labels
    #[arg(long, value_name = "FILE")]
    pub labels: Option<PathBuf>,
    /// csv, and folder with a table: character that separates the labels of an image [default: ; and | in a column named labels]
    #[arg(long, value_name = "CHAR")]
    pub label_separator: Option<char>,
    /// Accept images outside the table's or list's folder: absolute paths and paths with ..
    #[arg(long)]
    pub allow_outside: bool,
    /// Move this fraction of each class from train to validation. For multi-label data, move this fraction of all images
    #[arg(long, value_name = "F", value_parser = fraction)]
    pub validation_fraction: Option<f64>,
    /// Random seed for the shuffle and for --validation-fraction
    #[arg(long, value_name = "N", default_value = "0", value_parser = natural::<u64>)]
    pub seed: u64,
    /// Assign a file, folder, array, shard or value to a split if its name does not identify a split. NAME=none skips it. Can be repeated
    #[arg(long, value_name = "NAME=SPLIT", value_parser = data_tools::split_map)]
    pub split_map: Vec<(String, String)>,
    /// Action for an unusable image: stop, or skip it and list it
    #[arg(long, value_name = "fail|skip", default_value = "fail", value_parser = ["fail", "skip"])]
    pub on_bad: String,
    /// Limits for reading a file
    #[command(flatten)]
    pub cost: Cost,
    /// Maximum size of OUT in bytes [default: 64 times the size of SRC plus 1 GiB]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub max_output: Option<usize>,
    /// Number of threads [default: number of cores]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub jobs: Option<usize>,
    /// Print one JSON object to stdout
    #[arg(long)]
    pub json: bool,
}

fn kinds() -> PossibleValuesParser {
    data_tools::KINDS.iter().map(|(name, about)| PossibleValue::new(*name).help(*about)).collect::<Vec<_>>().into()
}

/// Runs the conversion.
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
