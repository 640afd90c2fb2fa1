//! The catalogue of source formats. To add a kind, write a file that defines a [`Kind`] and add it to the catalogue
//! here.

mod csv;
mod folder;
#[cfg(fuzzing)]
pub mod fuzzing;
mod imagenet;
mod mnist;
mod npz;
mod parquet;
mod reader;
mod recordio;
mod webdataset;

use crate::error::Error;
use crate::options::ConvertOptions;
use crate::source::Source;
use loaders::guarded_with;
use std::path::Path;

/// The result of opening a source.
type Opened = Result<Box<dyn Source>, Error>;

/// How to open a source. The function checks everything that can be checked before the first sample is read.
enum Open {
    /// A published data set with fixed images, classes and splits.
    Fixed(fn(&Path, &ConvertOptions) -> Opened),
    /// A source of pixel arrays. Options may name its classes and splits, but not change its images.
    Pixels(fn(&Path, &ConvertOptions) -> Opened),
    /// TFRecords, which are copied unchanged, shard by shard.
    Records,
    /// A source of image files, which are converted according to the options.
    Files(fn(&Path, &ConvertOptions) -> Opened),
}

struct Kind {
    /// The word for this kind on the command line.
    pub name: &'static str,
    /// The line that `--help` prints for this kind.
    pub about: &'static str,
    pub open: Open,
}

/// TFRecords, plain or compressed with GZIP or ZLIB, as written by TensorFlow's scripts or TensorFlow Datasets. The
/// records are copied unchanged.
const TFRECORD: Kind = Kind {
    name: "tfrecord",
    about: "TFRecords of tf.Example, also from TensorFlow Datasets; plain or compressed with GZIP or ZLIB",
    open: Open::Records,
};

const CATALOGUE: &[Kind] = &[
    mnist::DIGITS,
    mnist::FASHION,
    mnist::CIFAR10,
    mnist::CIFAR100,
    folder::FOLDER,
    csv::CSV,
    imagenet::IMAGENET,
    webdataset::WEBDATASET,
    recordio::RECORDIO,
    parquet::PARQUET,
    TFRECORD,
    npz::NPZ,
    npz::HDF5,
];

/// Name and one-line description of every kind that [`crate::convert()`] accepts.
pub const KINDS: &[(&str, &str)] = &{
    let mut kinds = [("", ""); CATALOGUE.len()];
    let mut i = 0;
    while i < kinds.len() {
        kinds[i] = (CATALOGUE[i].name, CATALOGUE[i].about);
        i += 1;
    }
    kinds
};

/// Returns true if a source of this kind treats every folder in it as a class or split. The output must then not be
/// inside the source.
pub fn reads_folders(kind: &str) -> bool {
    kind == "folder"
}

/// Opens the source `src` of a kind in [`KINDS`]. Returns `None` if the records of this kind are copied unchanged.
/// Returns an error if the kind is unknown, an option does not apply to it, or the source is invalid.
pub fn open(kind: &str, src: &Path, options: &ConvertOptions) -> Result<Option<Box<dyn Source>>, Error> {
    let opened = || match CATALOGUE.iter().find(|k| k.name == kind).map(|k| &k.open) {
        Some(Open::Fixed(open)) => {
            options.check_fixed(kind)?;
            open(src, options).map(Some)
        }
        Some(Open::Pixels(open)) => {
            options.check_pixels(kind)?;
            open(src, options).map(Some)
        }
        Some(Open::Files(open)) => {
            options.check_labels(kind)?;
            open(src, options).map(Some)
        }
        Some(Open::Records) => options.check_records(kind).map(|()| None),
        None => {
            let known: Vec<&str> = CATALOGUE.iter().map(|k| k.name).collect();
            Err(Error::Usage(format!("unknown kind `{kind}`; known kinds: {}", known.join(", "))))
        }
    };
    guarded_with(opened, |panic| {
        Error::input(src, format!("the reader failed on this source ({panic}); it may be damaged, fetch it again"))
    })
}
