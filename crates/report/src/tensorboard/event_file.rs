//! A file of events: TFRecords of `tensorflow.Event` (tensorflow/core/util/event.proto).

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use loaders::record::RecordWriter;
use loaders::safe_create;

use super::super::message::Message;

/// An event file of a folder, which is made when it is opened.
pub(super) struct EventFile {
    out: PathBuf,
    file: Option<(RecordWriter<File>, PathBuf)>,
}

impl EventFile {
    /// In this folder; nothing is written before it is opened.
    pub fn new(out: &Path) -> Self {
        Self { out: out.into(), file: None }
    }

    /// Makes a new file, whose first event says what it is.
    pub fn open(&mut self) -> io::Result<()> {
        let digits = safe_create::random_digits();
        let path = self.out.join(format!("events.out.tfevents.{:010}.trireme.{digits}", now() as u64));
        let file = safe_create::create_new(&path)?;
        self.file = Some((RecordWriter::new(file), path));
        self.write(0, Message::new().text(3, "brain.Event:2"))
    }

    /// One event: wall time (1), step (2) and what happened.
    pub fn write(&mut self, step: u64, what: Message) -> io::Result<()> {
        let Some((file, _)) = &mut self.file else { return Ok(()) };
        let event = Message::new().double(1, now()).number(2, step).append(what);
        file.write(event.bytes()).map(drop)
    }

    /// Values (1) of a summary (5).
    pub fn summary(&mut self, step: u64, values: impl IntoIterator<Item = Message>) -> io::Result<()> {
        let summary = values.into_iter().fold(Message::new(), |summary, value| summary.message(1, value));
        self.write(step, Message::new().message(5, summary))
    }

    /// The file, or what its name begins with.
    pub fn path(&self) -> PathBuf {
        self.file.as_ref().map_or_else(|| self.out.join("events.out.tfevents"), |(_, path)| path.clone())
    }
}

/// Seconds since 1970.
pub(super) fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
