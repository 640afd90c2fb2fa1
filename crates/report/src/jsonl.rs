//! Writes metrics.jsonl for programs to read: one JSON object per line, never a partial line. If the file is removed during the run, it is
//! created again.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use base::screen;
use loaders::safe_create;
use serde::Serialize;

use super::history::LOCK;
use super::{Error, Event, Sink};

/// Writes events to a file.
///
/// Each line is written at once with a single system call. So no line is lost in a buffer if the process is killed, and
/// a reader that follows the file never sees a partial line. This costs microseconds per step.
pub struct Jsonl {
    file: LogFile,
    every: u64,
    line: Vec<u8>,
    started: Instant,
}

/// A line of the file: an event with its time.
#[derive(Serialize)]
struct TimedEvent<'a> {
    #[serde(flatten)]
    event: &'a Event,
    /// Seconds since the start of the process.
    t: f64,
    /// Date and time as in RFC 3339, with milliseconds.
    utc: String,
}

impl Jsonl {
    /// Creates the file or empties it. Step events are written only if the step is a multiple of `every` or its loss is not finite. All
    /// other events are always written.
    pub fn create(path: &Path, every: u64, started: Instant) -> Result<Self, Error> {
        let log = Self::append(path, every, started)?;
        log.file.file().set_len(0).map_err(|source| Error { path: path.into(), source })?;
        Ok(log)
    }

    /// Works like `create`, but keeps the lines of an existing file.
    pub fn append(path: &Path, every: u64, started: Instant) -> Result<Self, Error> {
        let file = LogFile::append(path).map_err(|source| Error { path: path.into(), source })?;
        Ok(Self::from_file(file, every, started))
    }

    pub(super) fn from_file(file: LogFile, every: u64, started: Instant) -> Self {
        Jsonl { file, every: every.max(1), line: Vec::new(), started }
    }

    fn write(&mut self, event: &Event) -> io::Result<()> {
        self.line.clear();
        // serde_json writes NaN and infinity as null, so every line is valid JSON.
        let utc = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        let t = (self.started.elapsed().as_secs_f64() * 1e3).round() / 1e3;
        serde_json::to_writer(&mut self.line, &TimedEvent { event, t, utc })?;
        self.line.push(b'\n');
        self.file.check();
        write_whole(self.file.file(), &self.line)?;
        match event {
            // A network file system may report a full disk only when the file is synced.
            Event::End(_) => sync(self.file.file()),
            _ => Ok(()),
        }
    }
}

/// Appends a line to a file with a single write. If that fails, for example because the disk is full, removes the part that was written.
pub fn write_whole(mut file: &File, line: &[u8]) -> io::Result<()> {
    let before = file.metadata()?;
    file.write_all(line).inspect_err(|_| {
        if before.is_file() {
            // Removes the partial line. The error of the write is the one to report.
            let _ = file.set_len(before.len());
        }
    })
}

/// Syncs a file to disk. Pipes and devices cannot be synced and are skipped.
fn sync(file: &File) -> io::Result<()> {
    if file.metadata()?.is_file() { file.sync_data() } else { Ok(()) }
}

impl Sink for Jsonl {
    fn event(&mut self, event: &Event) -> Result<(), Error> {
        // A step with a loss that is not finite is always written, because the run ends with it.
        if matches!(event, Event::Step(step) if step.loss.is_finite() && !step.step.is_multiple_of(self.every)) {
            return Ok(());
        }
        self.write(event).map_err(|source| Error { path: self.file.path().into(), source })
    }

    fn sync(&mut self) -> Result<(), Error> {
        sync(self.file.file()).map_err(|source| Error { path: self.file.path().into(), source })
    }
}

/// Minimum time between two checks that the file still exists.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// An open log. Each write is a single system call, so that lines are never split.
pub struct LogFile {
    file: File,
    path: PathBuf,
    last_check: Instant,
    /// Identity of the lock file in the folder when the log was opened.
    lock: Option<(u64, u64)>,
}

impl LogFile {
    /// Opens the file for appending, or creates it.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened or created.
    pub fn append(path: &Path) -> io::Result<Self> {
        Ok(Self::from_file(safe_create::to_append(path)?, path))
    }

    /// Uses a file that is already open.
    pub fn from_file(file: File, path: &Path) -> Self {
        Self { file, path: path.into(), last_check: Instant::now(), lock: identity(&path.with_file_name(LOCK)) }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    /// At most once per second, checks that the path still refers to the open file. If the file was removed, creates a new file and copies
    /// all lines into it. If another file has its name, writes later lines to that file. Does nothing if the folder was removed or taken
    /// over by another run, because other code then ends this run.
    pub fn check(&mut self) {
        if self.last_check.elapsed() >= CHECK_INTERVAL {
            self.last_check = Instant::now();
            self.restore();
        }
    }

    fn restore(&mut self) {
        let Ok(open) = self.file.metadata() else { return };
        let removed = match fs::symlink_metadata(&self.path) {
            Ok(there) if (there.dev(), there.ino()) == (open.dev(), open.ino()) => return,
            Ok(_) => false,
            Err(error) if error.kind() == ErrorKind::NotFound => true,
            Err(_) => return,
        };
        // A run that takes over the folder replaces the lock file. The log then belongs to that run.
        let lock = identity(&self.path.with_file_name(LOCK));
        if !open.is_file() || (lock.is_some() && self.lock.is_some() && lock != self.lock) {
            return;
        }
        let Ok(file) = safe_create::to_append(&self.path) else { return };
        let mut old = std::mem::replace(&mut self.file, file);
        let copied = match removed {
            true => old.rewind().and_then(|()| io::copy(&mut old, &mut self.file)).map(drop),
            false => Ok(()),
        };
        let path = base::text::printable(&self.path.to_string_lossy()).into_owned();
        screen::say(&match (removed, copied) {
            (true, Ok(())) => format!("warning: {path} was removed and has been restored with all lines so far"),
            (true, Err(error)) => format!("warning: {path} was removed, and its earlier lines are lost: {error}"),
            (false, _) => format!("warning: {path} was replaced by another file; later lines are written to that file"),
        });
    }
}

/// Returns device and inode number of a file, or `None` if it does not exist.
fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.check();
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Checkpoint, End, Epoch, Eval, Start, Step};
    use super::*;
    use serde_json::Value;

    fn written(every: u64, events: &[Event]) -> Vec<Value> {
        let name = format!("trireme-jsonl-{}-{every}-{}", std::process::id(), events.len());
        let path = std::env::temp_dir().join(name);
        let mut sink = Jsonl::create(&path, every, Instant::now()).unwrap();
        events.iter().for_each(|event| sink.event(event).unwrap());
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(text.ends_with('\n'));
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn keys(value: &Value) -> Vec<&str> {
        value.as_object().unwrap().keys().map(String::as_str).collect()
    }

    #[test]
    fn each_event_has_its_name_and_its_keys() {
        let lines = written(
            1,
            &[
                Start { model: "lenet".into(), ..Start::default() }.into(),
                Step { step: 1, loss: 2.3, top1: 0.125, lr: 0.05, ..Step::default() }.into(),
                Epoch::default().into(),
                Eval { split: "test".into(), count: 10_000, ..Eval::default() }.into(),
                Checkpoint { path: "checkpoints/epoch-1.h5".into(), ..Checkpoint::default() }.into(),
                End::default().into(),
            ],
        );
        let names: Vec<&str> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
        assert_eq!(names, ["start", "step", "epoch", "eval", "checkpoint", "end"]);
        assert!(lines.iter().all(|line| line["step"].is_u64() && line["epoch"].is_u64()));
        let step = "comm_wait_ms comm_wait_ranks data_wait_ms data_wait_ranks epoch event img_per_s loss lr samples step step_ms \
                    step_ranks t top1 utc";
        assert_eq!(keys(&lines[1]), step.split(' ').collect::<Vec<_>>());
        assert_eq!((lines[1]["loss"].as_f64(), lines[1]["top1"].as_f64()), (Some(2.3), Some(0.125)));
        assert_eq!(keys(&lines[3]), ["count", "epoch", "event", "loss", "split", "step", "t", "top1", "top5", "utc"]);
        assert_eq!(lines[4]["path"], "checkpoints/epoch-1.h5");
    }

    #[test]
    fn nan_and_infinity_become_null() {
        let lines = written(1, &[Step { loss: f64::NAN, lr: f64::INFINITY, ..Step::default() }.into()]);
        assert!(lines[0]["loss"].is_null() && lines[0]["lr"].is_null());
    }

    #[test]
    fn only_step_events_are_thinned_out() {
        let mut events: Vec<Event> = (1..=10).map(|step| Step { step, ..Step::default() }.into()).collect();
        events.push(Epoch { step: 10, ..Epoch::default() }.into());
        let lines = written(4, &events);
        let steps: Vec<u64> = lines.iter().map(|line| line["step"].as_u64().unwrap()).collect();
        assert_eq!(steps, [4, 8, 10]);
    }

    #[test]
    fn a_file_that_cannot_be_created_is_named() {
        let path = Path::new("/no/such/metrics.jsonl");
        let error = Jsonl::create(path, 1, Instant::now()).err().unwrap();
        assert_eq!((error.path.as_path(), error.source.kind()), (path, std::io::ErrorKind::NotFound));
    }

    #[test]
    fn a_removed_log_file_is_written_again_in_full() {
        let folder = std::env::temp_dir().join(format!("trireme-kept-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("log");
        let mut log = LogFile::append(&path).unwrap();
        log.write_all(b"one\n").unwrap();
        fs::remove_file(&path).unwrap();
        log.restore();
        log.write_all(b"two\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one\ntwo\n");
        fs::rename(&path, folder.join("old")).unwrap();
        fs::write(&path, "edited\n").unwrap();
        log.restore();
        log.write_all(b"three\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"edited\nthree\n");
        fs::remove_dir_all(&folder).unwrap();
        log.restore();
        log.write_all(b"four\n").unwrap();
    }

    #[test]
    fn the_log_of_a_run_that_took_over_the_folder_is_left_alone() {
        let folder = std::env::temp_dir().join(format!("trireme-taken-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("log");
        fs::write(folder.join(LOCK), "").unwrap();
        let mut log = LogFile::append(&path).unwrap();
        for (name, text) in [(LOCK, ""), ("log", "other\n")] {
            fs::write(folder.join("new"), text).unwrap();
            fs::rename(folder.join("new"), folder.join(name)).unwrap();
        }
        log.restore();
        log.write_all(b"mine\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"other\n");
        fs::remove_dir_all(&folder).unwrap();
    }
}
