//! `trireme data`: arguments, and the calls into `data_tools`.

use std::fmt::Display;
use std::io::stdout;
use std::path::PathBuf;

use base::screen::fitted;
use clap::Subcommand;
use clap::builder::{PossibleValue, PossibleValuesParser};
use data_tools::raw::{self, RawOptions};
use data_tools::{ConvertOptions, OnBad, ShowOptions};
use loaders::overwrite;
use loaders::stall::StallLimits;
use serde_json::Value;

use super::output::{Failure, print};
use super::reshape;
use super::value::{Cost, Patience, bytes, fraction, natural, patience, percent, pixels, positive, thread_count};

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Example:
  trireme data convert cifar10 cifar-10-binary.tar.gz data/cifar10
  trireme data verify data/cifar10")]
pub struct Args {
    /// What to do
    #[command(subcommand)]
    pub what: What,
    /// Warn if the file system does not answer for this long, such as 90s or 1h30m. The warning names the file. `off`
    /// disables it
    #[arg(long, global = true, value_name = "TIME", env = "TRIREME_STALL_WARN", default_value = "60s", value_parser = patience)]
    pub stall_warn: Patience,
    /// End the command if the file system does not answer for this long
    #[arg(long, global = true, value_name = "TIME", env = "TRIREME_STALL_ABORT", default_value = "off", value_parser = patience)]
    pub stall_abort: Patience,
}

#[derive(Clone, Debug, Subcommand)]
pub enum What {
    /// Make a data set of TFRecord shards from files in another format
    Convert(Box<Convert>),
    /// Describe a data set: splits, shards, classes, image size
    #[command(after_help = "Example:\n  trireme data info data/cifar10")]
    Info(Folder),
    /// Check every record: checksums, lengths, counts, labels, images. Exit code 1 if anything is wrong. Also counts
    /// images that occur in more than one split
    #[command(
        allow_negative_numbers = true,
        after_help = "Example:\n  trireme data verify data/cifar10 --jobs 2\n  trireme data verify data/photos --duplicates copies.tsv"
    )]
    Verify(Verify),
    /// Measure mean and standard deviation of the pixels, and the sizes of images and classes. Bad records are listed
    /// and skipped
    #[command(
        allow_negative_numbers = true,
        after_help = "Example:\n  trireme data stats data/cifar10\n  trireme data stats data/cifar10 --split test --json"
    )]
    Stats(Stats),
    /// Draw a contact sheet of images with their classes, after any transforms
    Show(Show),
    /// Write one image as a picture file
    Extract(Extract),
    /// Make TFRecords from other programs readable: write dataset.json and correct .idx files
    #[command(
        after_help = "Example:\n  trireme data index /scratch/imagenet-tfrecords\n  trireme data index flowers --split-map a=none"
    )]
    Index(Index),
    /// Copy a data set, with another number of shards
    Reshard(reshape::Reshard),
    /// Combine data sets into one
    Merge(reshape::Merge),
    /// Draw a new split from an existing one
    Split(reshape::Split),
    /// Make a smaller data set with the same classes
    Sample(reshape::Sample),
    /// Write a data set in the format of another program
    Export(reshape::Export),
}

/// A data set, and the output format.
#[derive(Clone, Debug, clap::Args)]
pub struct Folder {
    /// Data set
    pub dir: PathBuf,
    /// Print one JSON object to stdout
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, clap::Args)]
pub struct Index {
    #[command(flatten)]
    pub folder: Folder,
    /// Assign shards named NAME to SPLIT. Needed if the name does not identify a split. NAME=none skips them. Can be
    /// repeated
    #[arg(long, value_name = "NAME=SPLIT", value_parser = data_tools::split_map)]
    pub split_map: Vec<(String, String)>,
    /// Action if another split has a class that is missing in train: stop, or continue with a warning
    #[arg(long, value_name = "fail|skip", default_value = "fail", value_parser = ["fail", "skip"])]
    pub on_bad: String,
}

#[derive(Clone, Debug, clap::Args)]
pub struct Verify {
    #[command(flatten)]
    pub folder: Folder,
    /// Write a table of the images that occur in more than one split. Its columns are numbers, classes and names,
    /// separated by tabs
    #[arg(long, value_name = "FILE")]
    pub duplicates: Option<PathBuf>,
    /// Number of threads [default: number of cores]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub jobs: Option<usize>,
}

#[derive(Clone, Debug, clap::Args)]
pub struct Stats {
    #[command(flatten)]
    pub folder: Folder,
    /// Split to measure
    #[arg(long, value_name = "NAME", default_value = "train")]
    pub split: String,
    /// Write the mean and the standard deviation into dataset.json
    #[arg(long)]
    pub write: bool,
    /// Number of threads [default: number of cores]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub jobs: Option<usize>,
}

#[derive(Clone, Debug, clap::Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Example:
  trireme data show data/cifar10 -o sheet.png
  trireme data show data/cifar10 -o sheet.png \\
      --transform 'pad_crop(4)' --transform flip --epochs 6 --count 12
  trireme data show data/tiles -o sheet.png --bands 4,3,2

With transforms, each picture shows what the network sees in epochs 0, 1, ... of a recipe with the same seed and list, \
scaled back to 0 to 255."
)]
pub struct Show {
    #[command(flatten)]
    pub folder: Folder,
    /// File to write: .png or .jpg
    #[arg(short, long, value_name = "FILE")]
    pub out: PathBuf,
    /// Split to show [default: train, or the only split]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub split: String,
    /// Number of samples, evenly spread over the split
    #[arg(long, value_name = "N", default_value = "48", value_parser = positive)]
    pub count: usize,
    /// A transform, as in augment.train of a recipe. Repeat the option for a list
    #[arg(long = "transform", value_name = "T")]
    pub transforms: Vec<String>,
    /// Show each sample K times next to each other, as in K epochs
    #[arg(long, value_name = "K", default_value = "1", value_parser = clap::value_parser!(u32).range(1..))]
    pub epochs: u32,
    /// Seed of the random draws, as in a recipe
    #[arg(long, value_name = "N", default_value = "1", value_parser = natural::<u64>)]
    pub seed: u64,
    /// Bands to show as red, green and blue, or a single band to show as grey, counted from 1 [default: the first
    /// three]
    #[arg(long, value_name = "R,G,B", value_parser = bands)]
    pub bands: Option<Bands>,
}

#[derive(Clone, Debug, clap::Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Example:
  trireme data extract data/fashion-mnist 0 --split test -o boot.png
  trireme data extract data/tiles 0 -o tile.npy"
)]
pub struct Extract {
    #[command(flatten)]
    pub folder: Folder,
    /// Index of the image in its split, from 0
    #[arg(value_name = "N", value_parser = natural::<u64>)]
    pub sample: u64,
    /// File to write: .png or .jpg, or .npy with the exact values. If the record has this format, its bytes are copied unchanged
    #[arg(short, long, value_name = "FILE")]
    pub out: PathBuf,
    /// Split of the image [default: train, or the only split]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub split: String,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let _watch = data_tools::watch(StallLimits { warn: args.stall_warn.0, abort: args.stall_abort.0 });
    match &args.what {
        What::Convert(args) => convert(args),
        What::Info(args) => {
            let info = data_tools::info(&args.dir)?;
            show(args.json, info.to_json(), info)
        }
        What::Verify(args) => verify(args),
        What::Stats(args) => {
            let stats = data_tools::stats(&args.folder.dir, &args.split, jobs(args.jobs))?;
            if args.write {
                stats.write()?;
            }
            show(args.folder.json, stats.to_json(), stats)
        }
        What::Show(args) => {
            let options = ShowOptions {
                split: args.split.clone(),
                count: args.count as u64,
                transforms: args.transforms.clone(),
                epochs: args.epochs,
                seed: args.seed,
                bands: band_numbers(args.bands.as_ref()),
            };
            loaders::sigbus::install().map_err(Failure::failed)?;
            let shown = data_tools::show(&args.folder.dir, &args.out, &options)?;
            show(args.folder.json, shown.to_json(), shown)
        }
        What::Extract(args) => {
            loaders::sigbus::install().map_err(Failure::failed)?;
            let extracted = data_tools::extract(&args.folder.dir, &args.split, args.sample, &args.out)?;
            show(args.folder.json, extracted.to_json(), extracted)
        }
        What::Index(args) => {
            let indexed = data_tools::index(&args.folder.dir, &args.split_map, on_bad(&args.on_bad))?;
            show(args.folder.json, indexed.to_json(), indexed)
        }
        What::Reshard(args) => reshape::reshard(args),
        What::Merge(args) => reshape::merge(args),
        What::Split(args) => reshape::split(args),
        What::Sample(args) => reshape::sample(args),
        What::Export(args) => reshape::export(args),
    }
}

fn verify(args: &Verify) -> Result<(), Failure> {
    let list = args.duplicates.as_deref();
    list.map_or(Ok(()), |file| overwrite::check(file, &data_tools::COPIES, &[])).map_err(Failure::usage)?;
    let report = data_tools::verify(&args.folder.dir, jobs(args.jobs))?;
    let (dir, bad) = (args.folder.dir.display().to_string(), report.bad.len());
    if let Some(file) = &args.duplicates {
        data_tools::write_duplicates(&args.folder.dir, &report.copies, file)?;
    }
    show(args.folder.json, report.to_json(), report)?;
    if bad == 0 {
        return Ok(());
    }
    let faults = if bad == 1 { "fault" } else { "faults" };
    Err(Failure::failed(format!("{dir}: {bad} {faults}; convert it again from its source, or restore the files")))
}

fn on_bad(given: &str) -> OnBad {
    if given == "skip" { OnBad::Skip } else { OnBad::Fail }
}

/// Returns the number of threads for the library, where 0 means one per core.
fn jobs(given: Option<usize>) -> usize {
    given.unwrap_or(0)
}

fn show(json: bool, object: Value, text: impl Display) -> Result<(), Failure> {
    if json { print(object) } else { print(fitted(text.to_string().trim_end(), &stdout())) }
}

#[derive(Clone, Debug, clap::Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Example:
  trireme data convert fashion-mnist /usr/share/datasets/fashion-mnist \\
      data/fashion-mnist --shards 16
  trireme data convert cifar10 cifar-10-binary.tar.gz data/cifar10 --jobs 4
  trireme data convert folder photos data/photos \\
      --resize 256 --validation-fraction 0.1
  trireme data convert folder photos data/photos --labels labels.csv
  trireme data convert folder photos data/photos --entry-points
  trireme data convert csv hands.csv data/hands --targets x,y,size
  trireme data convert imagenet /scratch/ILSVRC2012 data/imagenet \\
      --resize 256 --shards 256
  trireme data convert folder tiles data/tiles --bands 4,3,2 --nodata 0
  trireme data convert hdf5 scans.h5 data/scans --images scans --labels kinds

The output is the same for any number of jobs. OUT appears only when it is complete. To continue a stopped conversion of \
image files, run the same command again."
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
    /// Convert images with 16 bits per value or more than three bands to 8-bit RGB images. Values are divided by 257,
    /// or the range MIN,MAX is mapped to 0..255. Additional bands are dropped. Without this option, such images keep
    /// their bands and values
    #[arg(long, value_name = "MIN,MAX", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    #[arg(value_parser = data_tools::to_8bit)]
    pub to_8bit: Option<data_tools::To8Bit>,
    /// Bands to keep in TIFF, PNG with 16 bits, .npy and HDF5, counted from 1 as GDAL does, in this order
    #[arg(long, value_name = "N,N,...", value_parser = bands, conflicts_with = "to_8bit")]
    pub bands: Option<Bands>,
    /// Names for the kept bands, in order
    #[arg(long, value_name = "NAME,NAME,...", value_delimiter = ',')]
    pub band_names: Vec<String>,
    /// Value that marks pixels without data. The statistics skip these pixels, and the band's mean replaces them
    /// [default: the value that GDAL has stored in a GeoTIFF]
    #[arg(long, value_name = "V", conflicts_with = "to_8bit")]
    pub nodata: Option<f64>,
    /// Replace NaN and infinite values by zero. Otherwise they are an error
    #[arg(long, value_name = "zero", value_parser = ["zero"])]
    pub nan: Option<String>,
    /// TIFF page, counted from 1, or all: all pages become bands in one image [default: 1]
    #[arg(long, value_name = "N|all", value_parser = raw::page, conflicts_with = "to_8bit")]
    pub page: Option<raw::Page>,
    /// Axis order in arrays [default: the bands are the axis with length 1 or 3, or an axis three times shorter than
    /// the other two]
    #[arg(long, value_name = "NHWC|NCHW|NHW", value_parser = raw::layout)]
    pub layout: Option<raw::Layout>,
    /// HDF5: name of the image array, such as /data/images. `--labels` then names the label array
    #[arg(long, value_name = "NAME")]
    pub images: Option<String>,
    /// Store with each JPEG the positions at which decoding can start. Training then decodes little more than the crop, and the data set
    /// grows by less than 2 %. The JPEG files are not changed. Progressive and CMYK JPEGs get no entry points
    #[arg(long, conflicts_with = "raw")]
    pub entry_points: bool,
    /// File with a class name on each line. Only these classes are used, in this order
    #[arg(long, value_name = "FILE")]
    pub classes: Option<PathBuf>,
    /// csv, parquet, and folder with --labels: the columns with the numbers to predict (regression). Images then have these
    /// numbers instead of classes. webdataset: keys in KEY.json. npz and hdf5: names for the columns of the label array
    #[arg(long, value_name = "NAME,NAME,...", value_delimiter = ',', conflicts_with_all = ["classes", "label_separator"])]
    pub targets: Vec<String>,
    /// folder: read labels from this table or JSON file instead of folder names. An image can have any number of
    /// labels. hdf5: name of the label array
    #[arg(long, value_name = "FILE")]
    pub labels: Option<PathBuf>,
    /// csv, and folder with --labels: separator of an image's labels [default: ; and | in a column named labels]
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
    /// Assign the file, folder, array, shard or value NAME to SPLIT. Needed if its name does not identify a split.
    /// NAME=none skips it. Can be repeated
    #[arg(long, value_name = "NAME=SPLIT", value_parser = data_tools::split_map)]
    pub split_map: Vec<(String, String)>,
    /// Action for an unusable image: stop, or skip it and list it
    #[arg(long, value_name = "fail|skip", default_value = "fail", value_parser = ["fail", "skip"])]
    pub on_bad: String,
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

/// The band numbers in one option value, such as `3,2,1`.
#[derive(Clone, Debug)]
pub struct Bands(Vec<u32>);

fn bands(text: &str) -> Result<Bands, String> {
    raw::bands(text).map(Bands)
}

/// Returns the given band numbers. Empty if there are none.
fn band_numbers(given: Option<&Bands>) -> Vec<u32> {
    given.map_or(Vec::new(), |Bands(bands)| bands.clone())
}

/// Removes spaces around names, as in `--targets 'x, y'`.
fn trimmed(names: &[String]) -> Vec<String> {
    names.iter().map(|name| name.trim().to_string()).collect()
}

fn kinds() -> PossibleValuesParser {
    data_tools::KINDS.iter().map(|(name, about)| PossibleValue::new(*name).help(*about)).collect::<Vec<_>>().into()
}

pub fn convert(args: &Convert) -> Result<(), Failure> {
    loaders::sigbus::install().map_err(Failure::failed)?;
    let options = ConvertOptions {
        shards: args.shards,
        jobs: jobs(args.jobs),
        seed: args.seed,
        progress: true,
        resize: args.resize,
        quality: args.quality,
        raw: args.raw,
        to_8bit: args.to_8bit,
        bands: RawOptions {
            bands: band_numbers(args.bands.as_ref()),
            nodata: args.nodata,
            nan_as_zero: args.nan.is_some(),
            page: args.page.unwrap_or_default(),
            layout: args.layout,
            images: args.images.clone(),
        },
        band_names: trimmed(&args.band_names),
        entry_points: args.entry_points,
        classes: args.classes.clone(),
        targets: trimmed(&args.targets),
        labels: args.labels.clone(),
        label_separator: args.label_separator,
        allow_outside: args.allow_outside,
        validation_fraction: args.validation_fraction,
        split_map: args.split_map.clone(),
        on_bad: on_bad(&args.on_bad),
        limits: args.cost.limits(),
        max_output: args.max_output.map(|size| size as u64),
    };
    let converted = data_tools::convert(&args.kind, &args.src, &args.out, &options)?;
    if args.json { print(converted.to_json()) } else { print(converted) }
}

#[cfg(test)]
mod tests {
    use super::super::output::{FAILED, USAGE};
    use super::super::{Cli, Command};
    use super::*;
    use clap::Parser;
    use std::{env, fs, process};

    /// Returns the exit code of `trireme data` with these arguments.
    fn code(arguments: &str) -> u8 {
        let words = ["trireme", "data"].into_iter().chain(arguments.split(' '));
        match Cli::try_parse_from(words).unwrap().command {
            Some(Command::Data(args)) => run(&args).expect_err(arguments).code,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_bad_request_and_bad_data_have_codes_of_their_own() {
        let dir = env::temp_dir().join(format!("trireme-data-cli-{}", process::id()));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("taken"), "x").unwrap();
        let folder = dir.display();
        assert_eq!(code(&format!("info {folder}/missing")), FAILED);
        assert_eq!(code(&format!("verify {folder}")), FAILED);
        // this error comes before anything is read
        assert_eq!(code(&format!("verify {folder} --duplicates {folder}/taken")), USAGE);
        assert_eq!(code(&format!("stats {folder}")), FAILED);
        assert_eq!(code(&format!("index {folder}")), FAILED);
        assert_eq!(code(&format!("convert mnist {folder}/missing {folder}/out")), FAILED);
        assert_eq!(code(&format!("convert mnist {folder} {folder}")), USAGE);
        let left: Vec<_> = fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["taken"]);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn every_kind_of_the_library_is_offered() {
        for (kind, _) in data_tools::KINDS {
            assert!(Cli::try_parse_from(["trireme", "data", "convert", kind, "a", "b"]).is_ok(), "{kind}");
        }
    }
}
