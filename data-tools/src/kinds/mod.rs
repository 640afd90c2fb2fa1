//! The catalogue of sources that can be converted. A new kind is one file that offers an `open`
//! function, and one line here.

mod cifar;
mod folder;
mod imagenet;
mod mnist;
pub(crate) mod reader;

use crate::error::Error;
use crate::options::ConvertOptions;
use crate::source::Source;
use std::path::Path;

/// A source, or why it cannot be read.
type Opened = Result<Box<dyn Source>, Error>;

/// Opens a source; everything that can be checked before the first sample is checked here.
enum Open {
    /// One whose images, classes and splits are as published.
    Fixed(fn(&Path) -> Opened),
    /// One of image files, to be made as the options say.
    Files(fn(&Path, &ConvertOptions) -> Opened),
}

struct Kind {
    name: &'static str,
    about: &'static str,
    open: Open,
}

#[rustfmt::skip]
const CATALOGUE: &[Kind] = &[
    Kind { name: "mnist", about: "folder with the four MNIST IDX files, plain or .gz; classes 0 to 9", open: Open::Fixed(mnist::open_digits) },
    Kind { name: "fashion-mnist", about: "folder with the four Fashion-MNIST IDX files, plain or .gz", open: Open::Fixed(mnist::open_fashion) },
    Kind { name: "cifar10", about: "CIFAR-10, binary version: folder, .tar or .tar.gz", open: Open::Fixed(cifar::open_10) },
    Kind { name: "cifar100", about: "CIFAR-100, binary version, fine labels: folder, .tar or .tar.gz", open: Open::Fixed(cifar::open_100) },
    Kind { name: "folder", about: "a folder for each class (ImageFolder), of JPEG and PNG files; below train, val, test or not", open: Open::Files(folder::open) },
    Kind { name: "imagenet", about: "ILSVRC2012 as published (tar files and devkit), or extracted", open: Open::Files(imagenet::open) },
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

/// Opens the source `src` of a kind named in [`KINDS`].
///
/// # Errors
/// An unknown kind, or whatever is wrong with the source.
pub fn open(kind: &str, src: &Path, options: &ConvertOptions) -> Result<Box<dyn Source>, Error> {
    match CATALOGUE.iter().find(|k| k.name == kind).map(|k| &k.open) {
        Some(Open::Fixed(open)) => {
            options.check_fixed(kind)?;
            open(src)
        }
        Some(Open::Files(open)) => open(src, options),
        None => {
            let known: Vec<&str> = CATALOGUE.iter().map(|k| k.name).collect();
            Err(Error::Usage(format!("unknown kind `{kind}`; known kinds: {}", known.join(", "))))
        }
    }
}
