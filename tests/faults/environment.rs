//! While MPI starts on its own thread, it changes the environment. Calling glibc's getenv(3) at the same time is undefined
//! behaviour, so no other thread may read the environment during that time.
//!
//! The test preloads a library that logs all accesses.

use std::fs;
use std::path::Path;

use support::program::{PATIENCE, compile_c, start, trireme};
use support::small_run::SmallRun;

/// A line of the log: an access to an environment variable, or the start of MPI.
struct EnvironmentAccess {
    process: String,
    thread: String,
    what: String,
    name: String,
    /// The file that contains the caller: the program or a library.
    from: String,
}

impl EnvironmentAccess {
    /// Returns true if the access came from the main thread, from trireme's code, or from a library that trireme loads.
    /// Returns false for MPI's code on other threads.
    fn is_ours(&self) -> bool {
        let file = Path::new(&self.from).file_name().unwrap_or_default().to_string_lossy();
        self.thread == self.process
            || ["trireme", "libdnnl", "libhdf5", "libgomp"].iter().any(|ours| file.starts_with(ours))
    }
}

fn accesses(log: &str) -> Vec<EnvironmentAccess> {
    let access = |line: &str| {
        let mut words = line.splitn(5, ' ').map(String::from);
        let mut word = || words.next().unwrap_or_default();
        EnvironmentAccess { process: word(), thread: word(), what: word(), name: word(), from: word() }
    };
    fs::read_to_string(log).unwrap().lines().map(access).collect()
}

/// Returns each access to an environment variable by other threads while MPI starts, in all processes, and the number of
/// changes by any thread in that time.
fn read_meanwhile(accesses: &[EnvironmentAccess]) -> (Vec<String>, usize) {
    let (mut found, mut changes) = (Vec::new(), 0);
    for (at, begin) in accesses.iter().enumerate().filter(|(_, access)| access.what == "start") {
        let own = accesses[at..].iter().filter(|access| access.process == begin.process);
        for access in own.take_while(|access| access.what != "started") {
            changes += usize::from(access.what == "change");
            if access.thread != begin.thread && access.is_ours() {
                found.push(format!("{} {} by {}", access.what, access.name, access.from));
            }
        }
    }
    (found, changes)
}

#[test]
fn no_thread_reads_the_environment_while_mpi_starts() {
    let setting = SmallRun::new();
    let library = setting.folder.at("environment.so");
    compile_c("tests/support/environment.c", &library, &["-O1", "-shared", "-fPIC"]);
    for (ranks, more) in
        [(0, &["--max-steps", "1"][..]), (0, &["--resume", "auto", "--max-steps", "2"]), (2, &["--resume", "auto"])]
    {
        let log = setting.folder.at(&format!("log-{ranks}-{}", more.len()));
        let mut command = trireme(ranks, &setting.args(more));
        command.env("LD_PRELOAD", &library).env("ENVIRONMENT_LOG", &log);
        start(command).wait(PATIENCE).succeeded();
        let accesses = accesses(&log);
        assert_eq!(accesses.iter().filter(|access| access.what == "started").count(), ranks.max(1));
        assert!(accesses.iter().any(|access| access.name.contains("ONEDNN_VERBOSE")), "no calls of oneDNN");
        let (found, changes) = read_meanwhile(&accesses);
        assert!(changes > 0, "this MPI does not change the environment, so the test proves nothing");
        assert_eq!(found, [""; 0], "{ranks} ranks, {more:?}");
    }
}
