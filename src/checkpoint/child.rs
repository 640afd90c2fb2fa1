//! A child process that reads a file by libhdf5, which knows all of HDF5 and crashes on files that were made to harm.
//!
//! The child is `trireme rewrite-model`, within limits of memory and time; what it writes has the layout that `reader` knows.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};

use crate::environment;
use loaders::{regular, safe_create};

/// Memory that reading a file may take beside a few times its size.
const MEMORY: u64 = 2 << 30;

/// Seconds of a processor that it may take.
const SECONDS: u64 = 300;

/// What the child writes to: its standard output, which the parent has made a file.
pub const OUTPUT: &str = "/proc/self/fd/1";

/// Why there is no rewritten file.
#[derive(Debug)]
pub enum Failed {
    /// The operating system refused.
    Io(io::Error),
    /// What the child said, or how it was ended.
    Said(String),
}

/// A rewritten file. It has no name, so that it is gone when dropped or when this process dies, and no other user can open it: the original
/// may be for its owner alone.
pub struct Rewritten(File);

impl Rewritten {
    /// A path under which this process can open it.
    pub fn name(&self) -> PathBuf {
        safe_create::path_of(&self.0)
    }
}

/// What `trireme rewrite-model` with these options makes of a file.
///
/// # Errors
/// What the child says, or that it was ended.
pub fn rewritten(path: &Path, options: &[&str]) -> Result<Rewritten, Failed> {
    let folder = environment::variable("TMPDIR").filter(|folder| !folder.is_empty()).unwrap_or("/tmp".into());
    let copy = safe_create::unnamed(Path::new(&folder)).map_err(Failed::Io)?;
    let output = copy.try_clone().map_err(Failed::Io)?;
    let this = std::env::current_exe().map_err(Failed::Io)?;
    let mut command = Command::new(this);
    // MPI may change the environment of this process at any time
    command.env_clear().envs(environment::remember());
    command.arg("rewrite-model").args(options).arg(path).stdin(Stdio::null()).stdout(output).stderr(Stdio::piped());
    let ended = command.output().map_err(Failed::Io)?;
    if ended.status.success() {
        return Ok(Rewritten(copy));
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    let said = said.trim();
    Err(Failed::Said(if said.is_empty() { ended.status.to_string() } else { said.to_string() }))
}

/// Limits this process, the child, to what reading this file may take, and to the life of its parent.
///
/// # Errors
/// What the operating system refused.
pub fn limit(path: &Path) -> io::Result<()> {
    let bytes = regular::open(path)?.metadata()?.len();
    let limit = |most: u64| Rlimit { current: Some(most), maximum: Some(most) };
    let limits = [(Resource::As, bytes.saturating_mul(6) + MEMORY), (Resource::Cpu, SECONDS), (Resource::Core, 0)];
    set_parent_process_death_signal(Some(Signal::KILL))?;
    limits.into_iter().try_for_each(|(what, most)| Ok(setrlimit(what, limit(most))?))
}
