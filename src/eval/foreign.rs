//! A model file that another program made anew: rewritten by a child process, since libhdf5, which knows all of HDF5, crashes on files that
//! were made to harm.

use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Resource, Rlimit, setrlimit};

use crate::checkpoint::{ModelFile, Opened, rewrite};
use crate::error::Error;
use loaders::safe_create::NewFile;

/// Memory that reading a file may take beside a few times its size.
const MEMORY: u64 = 2 << 30;

/// Seconds of a processor that it may take.
const SECONDS: u64 = 300;

/// What the child writes to: its standard output, which the parent has made a file.
const OUTPUT: &str = "/proc/self/fd/1";

/// Opens a model file that another program made.
///
/// # Errors
/// What the child says, or that it was ended, and what is missing in the file.
pub fn open(path: &Path) -> Result<Opened, Error> {
    let refuse = |action, source| Error::File { action, path: path.to_path_buf(), source };
    let mut copy = NewFile::beside(&std::env::temp_dir().join("trireme-model.h5")).map_err(|e| refuse("rewrite", e))?;
    let output = copy.file().and_then(|file| file.try_clone()).map_err(|e| refuse("rewrite", e))?;
    let this = std::env::current_exe().map_err(|e| refuse("rewrite", e))?;
    let mut command = Command::new(this);
    command.arg("rewrite-model").arg(path).stdin(Stdio::null()).stdout(output).stderr(Stdio::piped());
    let ended = command.output().map_err(|e| refuse("rewrite", e))?;
    if !ended.status.success() {
        let said = String::from_utf8_lossy(&ended.stderr);
        let (path, status) = (path.display(), ended.status);
        let said = said.trim();
        return Err(Error::Failed(format!(
            "{path} was made anew by another program, and HDF5 cannot read it: {}. Take trireme's own file",
            if said.is_empty() { status.to_string() } else { said.to_string() }
        )));
    }
    Ok(ModelFile::open(&copy.name())?)
}

/// The child's part: rewrites `model` to standard output, within limits of memory and time.
///
/// # Errors
/// What HDF5 refuses.
pub fn serve(model: &Path) -> Result<(), Error> {
    let refuse = |source| Error::File { action: "read", path: model.to_path_buf(), source };
    let bytes = loaders::regular::open(model).and_then(|file| file.metadata()).map_err(refuse)?.len();
    let limit = |most: u64| Rlimit { current: Some(most), maximum: Some(most) };
    let limits = [(Resource::As, bytes.saturating_mul(6) + MEMORY), (Resource::Cpu, SECONDS), (Resource::Core, 0)];
    limits.into_iter().try_for_each(|(what, most)| setrlimit(what, limit(most))).map_err(|e| refuse(e.into()))?;
    Ok(rewrite(model, Path::new(OUTPUT))?)
}
