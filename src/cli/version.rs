//! `trireme --version`, with `--verbose` also the libraries that the program is made of.

use super::exit::Failure;
use super::output::print;
use crate::libraries;

/// Prints the version; nothing is started.
pub fn run(verbose: bool) -> Result<(), Failure> {
    print(format!("trireme {}", env!("CARGO_PKG_VERSION")))?;
    if verbose { libraries::lines().into_iter().try_for_each(print) } else { Ok(()) }
}
