//! `trireme data reshard|merge|split|sample|export`: arguments, and the calls into `data_tools`.

use super::output::{Failure, print};
use super::value::{fraction, natural, positive, thread_count};
use data_tools::{ReshapeOptions, ReshapeSummary, Share};
use std::path::{Path, PathBuf};

/// Options for writing a data set, and the output format.
#[derive(Clone, Debug, clap::Args)]
pub struct WriteOptions {
    /// Number of training shards. Every other split gets a quarter as many
    #[arg(long, value_name = "N", default_value = "16", value_parser = positive)]
    pub shards: usize,
    /// Random seed
    #[arg(long, value_name = "N", default_value = "0", value_parser = natural::<u64>)]
    pub seed: u64,
    /// Number of threads [default: number of cores]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub jobs: Option<usize>,
    /// Print one JSON object to stdout
    #[arg(long)]
    pub json: bool,
}

/// How many images to take from each class.
#[derive(Clone, Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub struct Amount {
    /// Use this fraction of the images of each class
    #[arg(long, value_name = "F", value_parser = fraction)]
    pub fraction: Option<f64>,
    /// Use N images of each class, or all if a class has fewer
    #[arg(long, value_name = "N", value_parser = positive)]
    pub per_class: Option<usize>,
}

#[derive(Clone, Debug, clap::Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Example:
  trireme data reshard data/imagenet data/imagenet-1024 --shards 1024
  trireme data reshard data/sorted data/mixed --shuffle --seed 1"
)]
pub struct Reshard {
    /// Data set
    pub dir: PathBuf,
    /// Output folder, which must be empty or not exist
    pub out: PathBuf,
    /// Shuffle the samples over all shards. Without this option, their order is kept
    #[arg(long)]
    pub shuffle: bool,
    #[command(flatten)]
    pub how: WriteOptions,
}

#[derive(Clone, Debug, clap::Args)]
#[command(
    allow_negative_numbers = true,
    override_usage = "trireme data merge [OPTIONS] <DIR> <DIR>... <OUT>",
    after_help = "\
Example:
  trireme data merge data/photos-2024 data/photos-2025 data/photos

Splits with the same name are combined, and so are classes with the same name."
)]
pub struct Merge {
    /// Data sets, followed by the output folder, which must be empty or not exist
    #[arg(value_names = ["DIR", "DIR", "OUT"], required = true, num_args = 3..)]
    pub dirs: Vec<PathBuf>,
    #[command(flatten)]
    pub how: WriteOptions,
}

#[derive(Clone, Debug, clap::Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Example:
  trireme data split data/photos data/photos-val --fraction 0.1
  trireme data split data/photos data/photos-test --into test --per-class 50"
)]
pub struct Split {
    /// Data set
    pub dir: PathBuf,
    /// Output folder, which must be empty or not exist
    pub out: PathBuf,
    /// Split to draw images from
    #[arg(long, value_name = "NAME", default_value = "train")]
    pub from: String,
    /// Name of the new split
    #[arg(long, value_name = "NAME", default_value = "validation")]
    pub into: String,
    #[command(flatten)]
    pub amount: Amount,
    #[command(flatten)]
    pub how: WriteOptions,
}

#[derive(Clone, Debug, clap::Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Example:
  trireme data sample data/imagenet data/imagenet-10 --fraction 0.1
  trireme data sample data/imagenet data/tiny --per-class 20 --shards 4"
)]
pub struct Sample {
    /// Data set
    pub dir: PathBuf,
    /// Output folder, which must be empty or not exist
    pub out: PathBuf,
    #[command(flatten)]
    pub amount: Amount,
    #[command(flatten)]
    pub how: WriteOptions,
}

#[derive(Clone, Debug, clap::Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Example:
  trireme data export webdataset data/photos photos-wds

Each shard becomes SPLIT-000000.tar with KEY.jpg or KEY.png, KEY.cls (label from 0) and KEY.json for each image. \
classes.txt has the class names."
)]
pub struct Export {
    /// Output format
    #[arg(value_name = "KIND", value_parser = ["webdataset"])]
    pub kind: String,
    /// Data set
    pub dir: PathBuf,
    /// Output folder, which must be empty or not exist
    pub out: PathBuf,
    /// Number of threads [default: number of cores]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub jobs: Option<usize>,
    /// Print one JSON object to stdout
    #[arg(long)]
    pub json: bool,
}

impl WriteOptions {
    fn options(&self) -> ReshapeOptions {
        // For the library, 0 means one thread per core.
        ReshapeOptions { shards: self.shards, seed: self.seed, jobs: self.jobs.unwrap_or(0), progress: true }
    }
}

impl Amount {
    fn share(&self) -> Result<Share, Failure> {
        match (self.fraction, self.per_class) {
            (Some(share), _) => Ok(Share::Fraction(share)),
            (_, Some(most)) => Ok(Share::PerClass(most as u64)),
            (None, None) => Err(Failure::usage("give --fraction or --per-class")),
        }
    }
}

/// Runs `make`, which copies a data set, and prints its result. Records are read from mapped files, so this first
/// installs the handler for a shard that is truncated during the copy.
fn run_copy(
    how: &WriteOptions,
    make: impl FnOnce(&ReshapeOptions) -> Result<ReshapeSummary, data_tools::Error>,
) -> Result<(), Failure> {
    loaders::sigbus::install().map_err(Failure::failed)?;
    let made = make(&how.options())?;
    if how.json { print(made.to_json()) } else { print(made) }
}

pub fn reshard(args: &Reshard) -> Result<(), Failure> {
    run_copy(&args.how, |options| data_tools::reshard(&args.dir, &args.out, args.shuffle, options))
}

pub fn merge(args: &Merge) -> Result<(), Failure> {
    let Some((out, dirs)) = args.dirs.split_last() else { return Err(Failure::usage("give the data sets and OUT")) };
    let dirs: Vec<&Path> = dirs.iter().map(PathBuf::as_path).collect();
    run_copy(&args.how, |options| data_tools::merge(&dirs, out, options))
}

pub fn split(args: &Split) -> Result<(), Failure> {
    let share = args.amount.share()?;
    run_copy(&args.how, |options| data_tools::split(&args.dir, &args.out, &args.from, &args.into, share, options))
}

pub fn sample(args: &Sample) -> Result<(), Failure> {
    let share = args.amount.share()?;
    run_copy(&args.how, |options| data_tools::sample(&args.dir, &args.out, share, options))
}

pub fn export(args: &Export) -> Result<(), Failure> {
    loaders::sigbus::install().map_err(Failure::failed)?;
    let done = data_tools::export_webdataset(&args.dir, &args.out, args.jobs.unwrap_or(0), true)?;
    if args.json { print(done.to_json()) } else { print(done) }
}
