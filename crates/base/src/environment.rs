//! A copy of the environment from the start of the program. While MPI starts, one of its threads changes the environment. Other threads
//! must not read it during that time, not even to start a child process.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::OnceLock;

static ENVIRONMENT: OnceLock<BTreeMap<OsString, OsString>> = OnceLock::new();

/// Copies the environment on the first call, which must come before MPI starts. Later calls return the same copy.
pub fn remember() -> &'static BTreeMap<OsString, OsString> {
    ENVIRONMENT.get_or_init(|| std::env::vars_os().collect())
}

/// Returns the value that a variable had at the start of the program.
pub fn variable(name: &str) -> Option<String> {
    remember().get(std::ffi::OsStr::new(name)).map(|value| value.to_string_lossy().into_owned())
}
