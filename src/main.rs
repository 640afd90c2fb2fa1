//! Parses the command line, runs the command, and returns the exit code.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use base::{environment, screen};
use clap::Parser;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use training::signals;
use trireme::cli::{self, Cli, output};

/// How long other ranks wait before they exit, so that rank 0 can print the message for all of them.
const TIME_TO_SPEAK: Duration = Duration::from_secs(1);
const MOST_FILES: u64 = 65_536;

fn main() -> ExitCode {
    let started = Instant::now();
    environment::remember();
    raise_limit_of_open_files();
    comm::install_panic_hook();
    comm::explain_faults();
    if let Err(error) = signals::survive_file_size_limit() {
        screen::say(&format!(
            "warning: cannot install a handler for SIGXFSZ ({error}), so a write beyond the file size limit (ulimit -f) will end the \
             program"
        ));
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let line: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
            return usage(&cli::tip::without_misleading(error, &line), &line);
        }
    };
    match cli::run(cli, started) {
        Ok(()) => ExitCode::from(output::DONE),
        Err(failure) if failure.message.is_empty() => ExitCode::from(failure.code),
        Err(failure) => comm::die(i32::from(failure.code), &failure.message),
    }
}

/// Raises the soft limit of open files to the hard limit, but not above 65,536, because some programs that trireme starts
/// close every number below the limit. The usual soft limit, 1,024, is too low to keep all shards of a large data set
/// open. If the system refuses, the soft limit stays.
fn raise_limit_of_open_files() {
    let Rlimit { current: Some(soft), maximum } = getrlimit(Resource::Nofile) else { return };
    let wanted = maximum.map_or(MOST_FILES, |hard| hard.min(MOST_FILES));
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(soft.max(wanted)), maximum });
}

/// Prints help or a usage error once, even if there are other ranks.
fn usage(error: &clap::Error, line: &[String]) -> ExitCode {
    let prefix = comm::rank_prefix();
    if prefix.is_empty() || prefix.starts_with("rank 0:") {
        // If the terminal is gone, nothing more can be printed. But if the user asked for help and it could not be
        // written, that is a failure.
        let printed = error.print().and_then(|()| std::io::stdout().flush());
        if let Some(lost) = printed.err().filter(|lost| !error.use_stderr() && lost.kind() != ErrorKind::BrokenPipe) {
            screen::say(&format!("cannot write to stdout: {lost}"));
            return ExitCode::from(output::FAILED);
        }
        if let Some(tip) = cli::tip::for_error(error, line) {
            screen::say(&format!("\n{tip}"));
        }
    } else {
        // When the first rank exits, launchers end all ranks, so rank 0 needs time to print its message.
        std::thread::sleep(TIME_TO_SPEAK);
    }
    ExitCode::from(error.exit_code() as u8)
}
