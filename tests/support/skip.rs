//! Reports tests that cannot run on this machine.
//!
//! libtest counts a test that returns early as passed, so `make test` prints these reports after all results. Unit tests
//! of other crates include this file, so it uses nothing but std.

use std::fs::File;
use std::io::Write;
use std::panic::Location;

/// Reports that the calling test, or a part of it, cannot run on this machine.
///
/// Writes to stderr directly, because libtest captures printed output. Also appends a line to the file that the
/// environment variable `TRIREME_SKIPPED` names. `tests/skipped.sh` counts these lines.
#[track_caller]
pub fn skip(why: &str) {
    let (thread, line) = (std::thread::current(), Location::caller().to_string());
    // with one thread, libtest runs tests in the main thread, which does not have the test's name
    let test = thread.name().filter(|name| *name != "main").unwrap_or(&line);
    // if the report cannot be printed, the test must still pass
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}");
    if let Some(list) = std::env::var_os("TRIREME_SKIPPED") {
        let mut list = File::options().append(true).open(list).expect("the list of skipped tests");
        // a single write, so that lines of several processes do not mix
        list.write_all(format!("{test}\t{}\n", why.replace(['\n', '\t'], " ")).as_bytes()).expect("a line is appended");
    }
}
