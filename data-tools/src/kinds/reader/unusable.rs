//! Handles samples that cannot be used: the first is an error, or all are skipped and listed.

use crate::error::Error;
use crate::options::OnBad;
use std::path::Path;

/// The skipped samples in a source.
#[derive(Debug)]
pub(crate) struct Unusable {
    on_bad: OnBad,
    /// A message for each sample.
    pub lines: Vec<String>,
}

impl Unusable {
    pub(crate) fn new(on_bad: OnBad) -> Self {
        Unusable { on_bad, lines: Vec::new() }
    }

    /// Skips a sample in `path`. `what` identifies the sample and describes the problem.
    ///
    /// # Errors
    /// Returns an error unless bad samples should be skipped.
    pub(crate) fn add(&mut self, path: &Path, what: &str) -> Result<(), Error> {
        if self.on_bad == OnBad::Fail {
            return Err(Error::input(path, format!("{what}; `--on-bad skip` leaves such images out")));
        }
        self.lines.push(format!("{}: {what}", path.display()));
        Ok(())
    }
}
