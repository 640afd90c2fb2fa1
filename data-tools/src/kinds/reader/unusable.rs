//! Samples that a source cannot use: the first one is an error, or all are left out and listed.

use crate::error::Error;
use crate::options::OnBad;
use std::path::Path;

/// The samples of a source that are left out.
#[derive(Debug)]
pub(crate) struct Unusable {
    on_bad: OnBad,
    /// A line for each of them.
    pub lines: Vec<String>,
}

impl Unusable {
    pub(crate) fn new(on_bad: OnBad) -> Self {
        Unusable { on_bad, lines: Vec::new() }
    }

    /// Leaves out a sample of `path`; `what` says which one, and what is wrong with it.
    ///
    /// # Errors
    /// Unless bad samples are to be left out.
    pub(crate) fn add(&mut self, path: &Path, what: &str) -> Result<(), Error> {
        if self.on_bad == OnBad::Fail {
            return Err(Error::input(path, format!("{what}; `--on-bad skip` leaves such images out")));
        }
        self.lines.push(format!("{}: {what}", path.display()));
        Ok(())
    }
}
