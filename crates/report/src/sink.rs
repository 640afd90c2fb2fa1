//! One way of showing or storing events.

use std::path::PathBuf;

use data_tools::Thumbnail;

use super::evaluation_file::EvaluationFile;
use super::event::Event;

/// A metrics file that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}; {}", path.display(), loaders::write_advice(source))]
pub struct Error {
    /// The file.
    pub path: PathBuf,
    /// The system's answer.
    pub source: std::io::Error,
}

/// One way of showing or storing events.
pub trait Sink {
    /// Takes one event.
    fn event(&mut self, event: &Event) -> Result<(), Error>;

    /// Takes what a scoring made of the images of a split; now and then, and at the end.
    fn evaluation(&mut self, _evaluation: &EvaluationFile) -> Result<(), Error> {
        Ok(())
    }

    /// Takes training images as the network sees them, known after so many steps.
    fn pictures(&mut self, _step: u64, _pictures: &[Thumbnail]) -> Result<(), Error> {
        Ok(())
    }

    /// Returns true if the run can continue without this sink. A failure is then only a warning.
    fn is_optional(&self) -> bool {
        false
    }

    /// Takes one line of plain text, such as a warning. Files of metrics ignore it.
    fn note(&mut self, _text: &str) {}

    /// Takes lines of plain text that few readers need: what the run stands on, and where its time goes.
    fn fact(&mut self, _text: &str) {}
}
