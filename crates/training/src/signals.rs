//! Signals that ask a program to end. Also handles SIGXFSZ, which must not end it. docs/cluster.md lists all signals.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use libc::SIGPWR;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ};
use signal_hook::{flag, low_level};

/// Signals that schedulers, launchers and people send to end a program soon. LSF sends SIGUSR2 at the run limit, as do Grid Engine with
/// `-notify` and submitit. SIGXCPU reports a soft limit of CPU time. SIGPWR reports that the host or container is shutting down.
const REQUESTS: [i32; 6] = [SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU, SIGPWR];

/// Returns the signals that ask this process to end soon.
pub fn requests() -> impl Iterator<Item = i32> {
    REQUESTS.into_iter().chain((!hangups_are_ignored()).then_some(SIGHUP))
}

/// Returns the name of a signal, such as `SIGUSR1`.
pub fn name(signal: i32) -> String {
    match signal {
        SIGPWR => "SIGPWR".into(),
        _ => low_level::signal_name(signal).map_or_else(|| format!("signal {signal}"), Into::into),
    }
}

/// Exit code after a second signal. Shells report it for a process that SIGINT ended.
const INTERRUPTED: i32 = 130;

/// Sets `flag` when `signal` arrives. A second signal ends the process at once with exit code 130.
pub fn end_on_second(signal: i32, flag: &Arc<AtomicBool>) -> io::Result<()> {
    // the order matters: the first handler ends the process only if the flag is already set, the second one sets it
    flag::register_conditional_shutdown(signal, INTERRUPTED, Arc::clone(flag))?;
    flag::register(signal, Arc::clone(flag)).map(drop)
}

/// Returns true if this process was started with SIGHUP ignored, as by `nohup`.
fn hangups_are_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| (mask >> (SIGHUP - 1)) & 1 == 1)
}

/// Makes a write beyond the file size limit (`ulimit -f`) fail with an error instead of ending the process. The handler
/// does nothing. SIGXFSZ is not ignored instead, because child processes would inherit that. Fails if the operating
/// system refuses the handler.
pub fn survive_file_size_limit() -> io::Result<()> {
    flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))).map(drop)
}
