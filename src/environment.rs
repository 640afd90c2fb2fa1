//! The environment as it was when the program started. MPI changes it from a thread of its own while it starts, and no other thread may
//! read it meanwhile: neither a variable nor, for a child process, all of them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::OnceLock;

static ENVIRONMENT: OnceLock<BTreeMap<OsString, OsString>> = OnceLock::new();

/// Keeps a copy of the environment; the first call counts, and has to come before MPI starts.
pub fn remember() -> &'static BTreeMap<OsString, OsString> {
    ENVIRONMENT.get_or_init(|| std::env::vars_os().collect())
}

/// An environment variable, as it was at the start.
pub fn variable(name: &str) -> Option<String> {
    remember().get(std::ffi::OsStr::new(name)).map(|value| value.to_string_lossy().into_owned())
}
