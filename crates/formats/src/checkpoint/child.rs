//! A child process that reads a file by libhdf5, which knows all of HDF5 and crashes on files that were made to harm.
//!
//! The child is `trireme rewrite-model`, within limits of memory and time; what it writes has the layout that `reader` knows.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use base::environment;
use loaders::regular;
use loaders::safe_create::NewFile;
use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};

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

/// Runs `trireme rewrite-model` with these options on a file and returns the new file. Only this user may read it, because the original may
/// be private. The child removes the file's name as soon as it has opened it ([`drop_name`]). So no file is left if this process dies.
///
/// # Errors
/// Fails with the child's message, or with the way it was ended.
pub fn rewritten(path: &Path, options: &[&str]) -> Result<NewFile, Failed> {
    let folder = environment::variable("TMPDIR").filter(|folder| !folder.is_empty()).unwrap_or("/tmp".into());
    let mut copy = NewFile::private(&Path::new(&folder).join("trireme-model.h5")).map_err(Failed::Io)?;
    let output = copy.file().and_then(|file| file.try_clone()).map_err(Failed::Io)?;
    let this = std::env::current_exe().map_err(Failed::Io)?;
    let mut command = Command::new(this);
    // passes on the copy of the environment, because MPI may change the original at any time
    command.env_clear().envs(environment::remember());
    command.arg("rewrite-model").args(options).arg(path).stdin(Stdio::null()).stdout(output).stderr(Stdio::piped());
    let ended = command.output().map_err(Failed::Io)?;
    if ended.status.success() {
        return Ok(copy);
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    let said = said.trim();
    Err(Failed::Said(if said.is_empty() { ended.status.to_string() } else { said.to_string() }))
}

/// Limits this process, the child, to what reading this file may take.
///
/// # Errors
/// What the operating system refused.
pub fn limit(path: &Path) -> io::Result<()> {
    let bytes = regular::open(path)?.metadata()?.len();
    let limit = |most: u64| Rlimit { current: Some(most), maximum: Some(most) };
    let limits = [(Resource::As, bytes.saturating_mul(6) + MEMORY), (Resource::Cpu, SECONDS), (Resource::Core, 0)];
    limits.into_iter().try_for_each(|(what, most)| Ok(setrlimit(what, limit(most))?))
}

/// Removes the name of the file `to` if it is the child's output. libhdf5 has opened the file by now and no longer needs the name. From
/// then on, the child is killed if its parent dies.
pub fn drop_name(to: &Path) {
    if to == Path::new(OUTPUT) {
        // if this fails, the parent removes the file, which only this user may read
        let _ = fs::read_link(to).and_then(fs::remove_file);
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
    }
}
