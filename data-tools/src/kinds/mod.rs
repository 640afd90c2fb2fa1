//! The catalogue of sources that can be converted. A new kind is one file that offers an `open`
//! function, and one line here.

mod cifar;
mod mnist;
mod names;

use crate::error::Error;
use crate::source::Source;
use std::path::Path;

/// Opens a source; everything that can be checked before the first sample is checked here.
type Open = fn(&Path) -> Result<Box<dyn Source>, Error>;

struct Kind {
    name: &'static str,
    about: &'static str,
    open: Open,
}

#[rustfmt::skip]
const CATALOGUE: &[Kind] = &[
    Kind { name: "mnist", about: "folder with the four MNIST IDX files, plain or .gz; classes 0 to 9", open: mnist::open_digits },
    Kind { name: "fashion-mnist", about: "folder with the four Fashion-MNIST IDX files, plain or .gz", open: mnist::open_fashion },
    Kind { name: "cifar10", about: "CIFAR-10, binary version: folder, .tar or .tar.gz", open: cifar::open_10 },
    Kind { name: "cifar100", about: "CIFAR-100, binary version, fine labels: folder, .tar or .tar.gz", open: cifar::open_100 },
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
pub fn open(kind: &str, src: &Path) -> Result<Box<dyn Source>, Error> {
    match CATALOGUE.iter().find(|k| k.name == kind) {
        Some(found) => (found.open)(src),
        None => {
            let known: Vec<&str> = CATALOGUE.iter().map(|k| k.name).collect();
            Err(Error::Usage(format!("unknown kind `{kind}`; known kinds: {}", known.join(", "))))
        }
    }
}
