//! The catalogue of sources that can be converted. A new kind is one file that offers a [`Kind`], and its entry here.

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

/// A source, or why it cannot be read.
type Opened = Result<Box<dyn Source>, Error>;

/// How a source is opened; everything that can be checked before the first sample is checked here.
enum Open {
    /// A source whose images, classes and splits are as published.
    Fixed(fn(&Path, &ConvertOptions) -> Opened),
    /// A source of pixels, whose classes may be named; images and splits are as they are.
    Pixels(fn(&Path, &ConvertOptions) -> Opened),
    /// Records that are copied as they are, shard by shard.
    Records,
    /// A source of image files, converted as the options say.
    Files(fn(&Path, &ConvertOptions) -> Opened),
}

/// A format of source data sets.
struct Kind {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line for `--help`.
    pub about: &'static str,
    pub open: Open,
}

/// Plain or compressed by GZIP or ZLIB, of TensorFlow's scripts or of TensorFlow Datasets. The records are copied as they are, shard
/// by shard.
const TFRECORD: Kind = Kind {
    name: "tfrecord",
    about: "TFRecords of tf.Example, also GZIP- or ZLIB-compressed ones and those of TensorFlow Datasets",
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
];

/// Every kind that [`crate::convert()`] knows: its name and one line about it.
pub const KINDS: &[(&str, &str)] = &{
    let mut kinds = [("", ""); CATALOGUE.len()];
    let mut i = 0;
    while i < kinds.len() {
        kinds[i] = (CATALOGUE[i].name, CATALOGUE[i].about);
        i += 1;
    }
    kinds
};

/// Whether a source of the kind named is a folder in which any other folder means something.
pub fn reads_folders(kind: &str) -> bool {
    kind == "folder"
}

/// Opens the source `src` of a kind named in [`KINDS`]; `None` for a kind whose records are copied as they are.
///
/// # Errors
/// An unknown kind, or whatever is wrong with the source.
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
    guarded_with(opened, |panic| Error::input(src, format!("a reader failed at it ({panic}): damaged? fetch it again")))
}
