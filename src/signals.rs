//! The signals that ask a program to end, and the one that it must not die of. docs/cluster.md has the table of all signals.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use libc::SIGPWR;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ};
use signal_hook::{flag, low_level};

/// Signals by which schedulers, launchers and people ask a program to end soon. SIGUSR2 comes from LSF at the run limit, from Grid Engine
/// with `-notify` and from submitit, SIGXCPU from a soft limit of processor time, SIGPWR from a host or container that is shut down.
const REQUESTS: [i32; 6] = [SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU, SIGPWR];

/// The signals that ask this process to end soon.
pub fn requests() -> impl Iterator<Item = i32> {
    REQUESTS.into_iter().chain((!hangups_are_ignored()).then_some(SIGHUP))
}

/// The name of a signal, such as `SIGUSR1`.
pub fn name(signal: i32) -> String {
    match signal {
        SIGPWR => "SIGPWR".into(),
        _ => low_level::signal_name(signal).map_or_else(|| format!("signal {signal}"), Into::into),
    }
}

/// Whether this process was started so that SIGHUP does not end it.
fn hangups_are_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| (mask >> (SIGHUP - 1)) & 1 == 1)
}

/// Makes a write beyond the limit of the file size (`ulimit -f`) fail with an error instead of ending the process. The handler does
/// nothing: a signal that is ignored would stay ignored in programs that this one starts.
///
/// # Errors
/// If the operating system refuses the handler.
pub fn survive_file_size_limit() -> io::Result<()> {
    flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))).map(drop)
}
