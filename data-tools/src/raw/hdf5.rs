//! Arrays in HDF5 and NetCDF-4 files. A separate process, `trireme read-arrays`, reads them because libhdf5 crashes on
//! some malicious files. See `crates/formats/src/arrays.rs` for the protocol.

use std::env;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;

use base::text::printable;
use loaders::stall::during;
use loaders::{Cost, Limits, regular};
use serde::Deserialize;

use super::layout::Axes;
use super::npy::StoredType;
use super::{RawImage, RawOptions};
use crate::error::Error;
use crate::pool::lock;

/// The size field in an answer that reports an error.
const FAILED: u64 = u64::MAX;
/// The reading process's memory for decompressed chunks.
const CHUNK_CACHE: u64 = 64 << 20;
/// Lower bound for decompression speed, in bytes per second.
const BYTES_PER_SECOND: f64 = 5e7;
/// The limit for a line that lists arrays, and for a message.
const MAX_TEXT: u64 = 16 << 20;

/// An array of a file, as the reading process describes it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Described {
    pub name: String,
    pub shape: Vec<usize>,
    /// Value type in NumPy notation.
    pub descr: String,
    /// Entries along the first axis that are stored together.
    pub chunk_rows: usize,
    /// Number of values in a compressed chunk. 0 if the values are not compressed.
    pub chunk_values: usize,
    /// Number of values to decompress for one entry along the first axis. They belong to `chunk_rows` entries.
    pub group_values: usize,
}

impl Described {
    /// Returns the size of `rows` entries along the first axis, in bytes.
    fn bytes(&self, rows: usize) -> u64 {
        let rest = self.shape.iter().skip(1).map(|&axis| axis as u64);
        rest.fold((rows as u64).saturating_mul(self.value_bytes()), u64::saturating_mul)
    }

    fn value_bytes(&self) -> u64 {
        self.descr.get(2..).and_then(|size| size.parse().ok()).unwrap_or(8)
    }
}

/// The first line that the reading process writes.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Opened {
    Arrays(Vec<Described>),
    Error(String),
}

/// An open HDF5 file. Each thread that reads at the same time has its own process.
#[derive(Debug)]
pub(crate) struct Hdf5File {
    path: PathBuf,
    pub arrays: Vec<Described>,
    idle: Mutex<Vec<Process>>,
}

impl Hdf5File {
    pub fn open(path: &Path) -> Result<Self, Error> {
        // Special files and missing files are reported as for other sources.
        drop(regular::open(path).map_err(|e| Error::io("open", path, e))?);
        let (process, arrays) = during("opening", path, || Process::start(path))?;
        Ok(Hdf5File { path: path.to_path_buf(), arrays, idle: Mutex::new(vec![process]) })
    }

    /// Returns the index of the array `name`. Without a name, returns the only array that `fits`.
    pub fn array(&self, name: Option<&str>, what: &str, fits: impl Fn(&Described) -> bool) -> Result<usize, Error> {
        let failed = |what: String| Error::input(&self.path, what);
        let list = || {
            let names: Vec<String> =
                self.arrays.iter().map(|array| format!("{} {:?}", array.name, array.shape)).collect();
            crate::text::first(&names)
        };
        if let Some(name) = name {
            let name = name.trim_start_matches('/');
            let found = self.arrays.iter().position(|array| array.name == name);
            return found.ok_or_else(|| {
                let what = "links to other files are not followed, and arrays with values in other files are left out";
                failed(format!("there is no array `{name}` in this file ({what}); it has {}", list()))
            });
        }
        let mut fitting = (0..self.arrays.len()).filter(|&number| fits(&self.arrays[number]));
        match (fitting.next(), fitting.next()) {
            (Some(number), None) => Ok(number),
            (None, _) => Err(failed(format!("there is no array of {what}; the file has {}", list()))),
            _ => Err(failed(format!(
                "several arrays could be the {what}; name one with --{what}: the file has {}",
                list()
            ))),
        }
    }

    /// Returns `count` entries along the first axis of an array, little-endian.
    pub fn read(&self, array: usize, first: usize, count: usize) -> Result<Vec<u8>, Error> {
        let idle = lock(&self.idle).pop();
        let mut process = match idle {
            Some(process) => process,
            None => Process::start(&self.path)?.0,
        };
        let expected = self.arrays[array].bytes(count);
        let answer = during("reading", &self.path, || process.ask(array, first, count, expected));
        let answer = answer.map_err(|e| process.ended(&self.path, &e))?;
        lock(&self.idle).push(process);
        answer.map_err(|what| {
            Error::input(
                &self.path,
                format!("`{}` cannot be read: {what}; copy the file again", self.arrays[array].name),
            )
        })
    }
}

/// Reads the array that the options name, or else the only array that can be an image.
pub(crate) fn read_image(path: &Path, options: &RawOptions, limits: &Limits) -> Result<RawImage, Error> {
    let used = ["bands", "nodata", "nan", "layout", "images"];
    options.refuse_except(&used).map_err(|what| Error::input(path, what))?;
    let file = Hdf5File::open(path)?;
    let is_image = |array: &Described| (2..=3).contains(&array.shape.len()) && StoredType::parse(&array.descr).is_ok();
    let number = file.array(options.images.as_deref(), "images", is_image)?;
    let array = &file.arrays[number];
    let failed = |what: String| Error::input(path, format!("`{}`: {what}", array.name));
    let stored = StoredType::parse(&array.descr).map_err(failed)?;
    let axes = Axes::find(&array.shape, options.layout).map_err(failed)?;
    check(path, array, axes, array.shape[0], limits)?;
    let bytes = axes.interleave(file.read(number, 0, array.shape[0])?, stored.dtype.bytes());
    Ok(RawImage::new(stored.dtype, axes.spec(), bytes))
}

/// Returns an error if reading images with this shape, `rows` entries at a time, would exceed the limits.
pub(crate) fn check(path: &Path, array: &Described, axes: Axes, rows: usize, limits: &Limits) -> Result<(), Error> {
    let length = path.metadata().map_or(0, |file| file.len());
    let [chunk, group] =
        [array.chunk_values, array.group_values].map(|values| array.value_bytes().saturating_mul(values as u64));
    let memory = array.bytes(rows).saturating_mul(2).saturating_add(chunk);
    let seconds = group.saturating_mul(rows.div_ceil(array.chunk_rows.max(1)) as u64) as f64 / BYTES_PER_SECOND;
    let cost = Cost { spec: axes.spec(), memory, scans: 1, seconds };
    let failed = |what: String| Error::input(path, format!("`{}`: {what}", array.name));
    limits.check("HDF5 array", length, &cost).map_err(|fault| failed(fault.to_string()))?;
    if rows < array.chunk_rows.min(array.shape[0]) && group > CHUNK_CACHE {
        return Err(failed(format!(
            "{} entries are compressed together ({} in all), so all of them would be decompressed to read one; store the array in \
             smaller chunks (h5repack -l CHUNK=...)",
            array.chunk_rows,
            crate::text::bytes(group)
        )));
    }
    Ok(())
}

#[derive(Debug)]
struct Process {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    messages: ChildStderr,
}

impl Process {
    fn start(path: &Path) -> Result<(Self, Vec<Described>), Error> {
        let failed = |e| Error::io("read", path, e);
        let this = env::current_exe().map_err(failed)?;
        let mut command = Command::new(this);
        // The name of the file may begin with a dash.
        command.arg("read-arrays").arg("--").arg(path);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(requests), Some(answers), Some(messages)) = pipes else {
            return Err(failed(io::ErrorKind::BrokenPipe.into()));
        };
        let mut process = Process { child, requests, answers: BufReader::new(answers), messages };
        let mut line = String::new();
        let read = (&mut process.answers).take(MAX_TEXT).read_line(&mut line);
        let is_cut = line.len() as u64 == MAX_TEXT || line.ends_with('\n');
        match (read, serde_json::from_str(&line)) {
            (Ok(_), Ok(Opened::Arrays(arrays))) => Ok((process, arrays)),
            (Ok(_), Ok(Opened::Error(what))) => {
                Err(Error::input(path, format!("the file cannot be read as HDF5: {}", printable(&what))))
            }
            (Err(error), _) => Err(process.ended(path, &error)),
            (Ok(_), Err(_)) if is_cut => Err(process.ended(path, &io::ErrorKind::InvalidData.into())),
            (Ok(_), Err(_)) => Err(process.ended(path, &io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// Returns the values, or the process's error message.
    fn ask(&mut self, array: usize, first: usize, count: usize, expected: u64) -> io::Result<Result<Vec<u8>, String>> {
        writeln!(self.requests, "{array} {first} {count}")?;
        let mut number = || {
            let mut bytes = [0; 8];
            self.answers.read_exact(&mut bytes).map(|()| u64::from_le_bytes(bytes))
        };
        let (length, is_error) = match number()? {
            FAILED => (number()?.min(MAX_TEXT), true),
            length if length == expected => (length, false),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        let mut bytes = vec![0; length as usize];
        self.answers.read_exact(&mut bytes)?;
        Ok(if is_error { Err(printable(&String::from_utf8_lossy(&bytes)).into_owned()) } else { Ok(bytes) })
    }

    /// Ends a process that no longer answers, and returns the error.
    fn ended(&mut self, path: &Path, error: &io::Error) -> Error {
        // If its output has ended, the process is about to exit, and its status says why. Otherwise it may wait forever
        // until its output is read.
        if error.kind() != io::ErrorKind::UnexpectedEof {
            let _ = self.child.kill();
        }
        let mut said = Vec::new();
        let _ = (&mut self.messages).take(MAX_TEXT).read_to_end(&mut said);
        let said = String::from_utf8_lossy(&said);
        let _ = self.child.kill();
        let status = self.child.wait().map_or_else(|e| e.to_string(), |status| status.to_string());
        let said = if said.trim().is_empty() { format!("{status}, {error}") } else { said.trim().to_string() };
        let what = format!("libhdf5 failed on this file ({}); it may be damaged: copy it again", printable(&said));
        Error::input(path, what)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process only reads, so it can be killed at any time.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
