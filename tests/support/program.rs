//! Runs the real binary, directly or under `mpirun`, for tests that look at it from outside: they start it, send
//! signals, wait for its end and read its output folder.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Time limit for a program. A program that runs longer is considered to hang.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A new temporary folder. It is removed when dropped.
pub struct Folder(PathBuf);

impl Folder {
    /// Creates an empty folder with a unique name.
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("trireme-test-{}-{number}", std::process::id()));
        // a killed test with the same process id may have left a folder
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn at(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Writes a file in the folder and returns its path as an argument.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        fs::write(self.0.join(name), content).unwrap_or_else(|e| panic!("{}: {e}", self.at(name)));
        self.at(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// How a program ended, and its output.
pub struct ProgramOutput {
    pub status: ExitStatus,
    pub stdout: String,
    /// The stderr of all ranks and of mpirun.
    pub stderr: String,
    pub took: Duration,
}

impl ProgramOutput {
    /// Panics with the whole output unless the exit code is 0.
    #[track_caller]
    pub fn succeeded(self) -> Self {
        assert!(self.status.success(), "{}\n{}{}", self.status, self.stdout, self.stderr);
        self
    }

    /// Panics unless the exit code is `code` and exactly one line of stderr contains all of `parts`.
    #[track_caller]
    pub fn failed(self, code: i32, parts: &[&str]) -> Self {
        assert_eq!(self.status.code(), Some(code), "{}\n{}{}", self.status, self.stdout, self.stderr);
        self.says(parts);
        self
    }

    /// Panics unless exactly one stderr line contains all `parts`, such as paths, keys or numbers.
    #[track_caller]
    pub fn says(&self, parts: &[&str]) {
        let lines = self.stderr.lines().filter(|line| parts.iter().all(|part| line.contains(part))).count();
        assert_eq!(lines, 1, "lines with all of {parts:?} in:\n{}", self.stderr);
    }

    /// Parses each line of stdout as JSON.
    #[track_caller]
    pub fn json_lines(&self) -> Vec<Value> {
        let lines = self.stdout.lines();
        lines.map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {}", self.stdout))
    }
}

/// A running program. It is killed with all its children when dropped.
pub struct Running {
    child: Child,
    start: Instant,
    output: Folder,
    command: String,
}

/// Starts `program` in its own process group. Its output goes to files, so that an orphaned child cannot keep a pipe open.
pub fn start(mut program: Command) -> Running {
    let output = Folder::new();
    let file = |name| File::create(output.path().join(name)).unwrap_or_else(|e| panic!("{}: {e}", output.at(name)));
    let settings = [
        ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
        ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
        ("OMPI_MCA_btl", "self,vader"),
        // skips the search for other networks, which takes a fifth of the start time
        ("OMPI_MCA_pml", "^cm,ucx"),
        ("OMPI_MCA_mpi_yield_when_idle", "1"),
    ];
    program.envs(settings).env_remove("RUST_BACKTRACE").stdin(Stdio::null()).process_group(0);
    program.stdout(file("stdout")).stderr(file("stderr"));
    let command = format!("{program:?}");
    let child = program.spawn().unwrap_or_else(|e| {
        let name = program.get_program().to_string_lossy().into_owned();
        panic!("cannot start {name}: {e}; these tests need it (Debian: apt-get install openmpi-bin)")
    });
    Running { child, start: Instant::now(), output, command }
}

/// Returns a command that runs `program` on `ranks` ranks, or without mpirun if `ranks` is 0.
pub fn on_ranks(ranks: usize, program: impl AsRef<std::ffi::OsStr>) -> Command {
    if ranks == 0 {
        return Command::new(program);
    }
    let (name, flags) = mpirun();
    let mut mpirun = Command::new(name);
    mpirun.args(["-n", &ranks.to_string()]).args(*flags).arg(program);
    mpirun
}

/// Returns a command that runs `program` with a limit on the size of files. With the limit's signal ignored, a write
/// beyond it fails, as on a full disk. The unit is 512 or 1,024 bytes, depending on the shell.
pub fn with_file_limit(ranks: usize, units: usize, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = on_ranks(ranks, "sh");
    command.args(["-c", &format!("trap '' XFSZ; ulimit -f {units}; exec \"$@\""), "sh"]).arg(program);
    command
}

/// Returns the `mpirun` that the environment variable MPIRUN names, or the one on the PATH, and the flags that allow more ranks than cores.
pub fn mpirun() -> &'static (String, &'static [&'static str]) {
    static MPIRUN: OnceLock<(String, &[&str])> = OnceLock::new();
    MPIRUN.get_or_init(|| {
        let name = std::env::var("MPIRUN").unwrap_or("mpirun".into());
        let version = Command::new(&name).arg("--version").output().map(|output| output.stdout).unwrap_or_default();
        let version = String::from_utf8_lossy(&version);
        let open_mpi = version.contains("Open MPI") || version.contains("OpenRTE");
        (name, if open_mpi { &["--oversubscribe", "--bind-to", "none"] } else { &[] })
    })
}

/// Returns a command that runs `trireme` on `ranks` ranks, or without mpirun if `ranks` is 0.
///
/// The program sees no GPU, so that tests of the CPU do not depend on the machine.
pub fn trireme(ranks: usize, args: &[&str]) -> Command {
    let mut command = on_ranks(ranks, crate::built().join("trireme"));
    command.args(args).env(GPUS, NO_GPU);
    command
}

/// An environment variable and a value that make Open MPI's mpirun wait three seconds, and not one, between SIGTERM and
/// SIGKILL. Tests set it if a rank must do something in that time, which may be longer on a busy machine. mpirun also waits
/// this long before it sends SIGTERM, so each use costs six seconds.
pub const PATIENT_MPIRUN: (&str, &str) = ("OMPI_MCA_odls_base_sigkill_timeout", "3");

/// The environment variable that selects the GPUs that a program sees.
pub const GPUS: &str = "CUDA_VISIBLE_DEVICES";
/// Value of [`GPUS`] that hides all GPUs.
pub const NO_GPU: &str = "-1";

/// Runs [`trireme()`] to its end.
#[track_caller]
pub fn run(ranks: usize, args: &[&str]) -> ProgramOutput {
    start(trireme(ranks, args)).wait(PATIENCE)
}

/// Multiplies a time limit by the number of runnable tasks per core in the last minute, if it is above 1, and by the
/// environment variable `TRIREME_TEST_SLOWER` if it is set. An emulator of another processor needs it.
pub fn longer(limit: Duration) -> Duration {
    let load = fs::read_to_string("/proc/loadavg").ok();
    let load = load.and_then(|text| text.split(' ').next()?.parse().ok()).unwrap_or(0.0);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let factor = std::env::var("TRIREME_TEST_SLOWER").map_or(1.0, |factor| factor.parse().expect("a number"));
    limit.mul_f64((load / cores as f64).max(1.0) * factor)
}

impl Running {
    /// Waits for the end of the program. Panics if this takes longer than [`longer(patience)`](longer).
    #[track_caller]
    pub fn wait(mut self, patience: Duration) -> ProgramOutput {
        let since = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child of this process") {
                let (stdout, stderr) = (self.read("stdout"), self.read("stderr"));
                return ProgramOutput { status, stdout, stderr, took: self.start.elapsed() };
            }
            let passed = since.elapsed();
            assert!(
                passed < longer(patience),
                "{} is still running after {passed:?}\n{}",
                self.command,
                self.read("stderr")
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until `done` returns true. Panics if the program ends first or if this takes longer than [`PATIENCE`].
    #[track_caller]
    pub fn until(&mut self, what: &str, done: impl Fn() -> bool) {
        let since = Instant::now();
        while !done() {
            let status = self.child.try_wait().expect("a child of this process");
            // it may have happened after the first look and before the end
            let is_over = status.is_some() && !done();
            assert!(!is_over, "the program ended before: {what}\n{}", self.read("stderr"));
            assert!(since.elapsed() < longer(PATIENCE), "waited too long for: {what}\n{}", self.read("stderr"));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until metrics.jsonl in the output folder has this many lines.
    #[track_caller]
    pub fn until_logged(&mut self, out: &str, lines: usize) {
        self.until("line of metrics.jsonl", || logged(out, "\n") >= lines);
    }

    /// Waits until the program has handlers for all of these signals.
    #[track_caller]
    pub fn until_caught(&mut self, signals: &[i32]) {
        let status = Path::new("/proc").join(self.id().to_string()).join("status");
        let all = signals.iter().fold(0, |mask, signal| mask | 1 << (signal - 1));
        self.until("handlers of signals", || signal_mask(&status, "SigCgt") & all == all);
    }

    /// Waits until a thread of the program has taken the signal that was sent to it.
    #[track_caller]
    pub fn until_taken(&mut self, signal: i32) {
        let status = Path::new("/proc").join(self.id().to_string()).join("status");
        self.until("a signal", || signal_mask(&status, "ShdPnd") >> (signal - 1) & 1 == 0);
    }

    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Returns the process id of the program, or of mpirun if the program runs under it.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn ranks(&self) -> Vec<u32> {
        let entries = fs::read_dir("/proc").expect("/proc is there");
        let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        ids.filter(|&id| parent(id) == Some(self.id())).collect()
    }

    /// Returns a function that reads what has been printed to stderr so far.
    pub fn stderr(&self) -> impl Fn() -> String + use<> {
        let path = self.output.path().join("stderr");
        move || String::from_utf8_lossy(&fs::read(&path).unwrap_or_default()).into_owned()
    }

    fn read(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.output.path().join(name)).unwrap_or_default()).into_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // mpirun puts each rank into its own process group
            let ranks = self.ranks();
            signal(-(self.id() as i32), libc::SIGKILL);
            ranks.iter().for_each(|&rank| signal(rank as i32, libc::SIGKILL));
            let _ = self.child.wait();
            // until their last threads have ended, the ranks may still write files and hold locks
            let since = Instant::now();
            while ranks.iter().any(|&rank| is_alive(rank)) && since.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

/// Removes a folder in which a program may be writing. The program cannot create a file in it in the meantime.
pub fn remove_at_once(folder: &str) {
    let removed = format!("{folder}.removed");
    fs::rename(folder, &removed)
        .and_then(|()| fs::remove_dir_all(&removed))
        .unwrap_or_else(|e| panic!("{folder}: {e}"));
}

/// Compiles a C file of the repository into the program or library `out`.
#[track_caller]
pub fn compile_c(source: &str, out: impl AsRef<Path>, flags: &[&str]) {
    let mut compiler = Command::new("cc");
    compiler.args(flags).arg("-o").arg(out.as_ref()).arg(crate::in_repository(source)).arg("-ldl");
    let made = compiler.output().unwrap_or_else(|e| panic!("cc: {e} (Debian: apt-get install build-essential)"));
    assert!(made.status.success(), "{source}:\n{}", String::from_utf8_lossy(&made.stderr));
}

pub fn signal(process: i32, signal: i32) {
    // SAFETY: kill(2) touches no memory; the processes are this test's own children.
    unsafe { libc::kill(process, signal) };
}

/// Returns a bit mask of signals from the status of a process or thread, such as `SigBlk`, or 0 if it has ended.
pub fn signal_mask(status: &Path, which: &str) -> u64 {
    let text = fs::read_to_string(status).unwrap_or_default();
    let mask = text.lines().find_map(|line| line.strip_prefix(which)?.strip_prefix(':')).unwrap_or("0");
    u64::from_str_radix(mask.trim(), 16).expect("a hexadecimal number")
}

/// Returns true if this process ignores a signal. Its child processes then ignore it, too. `nohup` starts programs that
/// ignore SIGHUP, and a shell starts background jobs that ignore SIGQUIT.
pub fn is_ignored(signal: i32) -> bool {
    // Rust's runtime ignores SIGPIPE, but starts child processes that do not
    signal != libc::SIGPIPE && signal_mask(Path::new("/proc/self/status"), "SigIgn") >> (signal - 1) & 1 == 1
}

fn parent(process: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

/// Returns true if the process exists and one of its threads has not ended. The first thread of a killed process may end
/// before the others.
pub fn is_alive(process: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let runs = |status: String| {
        let state = status.lines().find_map(|line| line.strip_prefix("State:"));
        state.is_some_and(|state| !state.trim().starts_with(['Z', 'X']))
    };
    threads.into_iter().any(|thread| fs::read_to_string(thread.path().join("status")).is_ok_and(runs))
}

/// Returns how often `text` occurs in OUT/metrics.jsonl so far. The run may be writing it.
pub fn logged(out: &str, text: &str) -> usize {
    fs::read_to_string(Path::new(out).join("metrics.jsonl")).unwrap_or_default().matches(text).count()
}

/// Returns the lines of OUT/metrics.jsonl with this event.
pub fn events(out: &str, event: &str) -> Vec<Value> {
    let path = Path::new(out).join("metrics.jsonl");
    let text = fs::read_to_string(&path).unwrap_or_default();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")));
    lines.filter(|line: &Value| line["event"] == event).collect()
}

/// Returns the lines of OUT/metrics.jsonl with this event, without their times.
pub fn events_without_times(out: &str, event: &str) -> Vec<Value> {
    let mut lines = events(out, event);
    for line in &mut lines {
        let line = line.as_object_mut().expect("an object");
        assert!(line.remove("t").is_some() && line.remove("utc").is_some());
    }
    lines
}

/// Returns a number from each line of OUT/metrics.jsonl with this event.
#[track_caller]
pub fn numbers(out: &str, event: &str, key: &str) -> Vec<f64> {
    events(out, event).iter().map(|line| line[key].as_f64().unwrap_or_else(|| panic!("no {key} in {line}"))).collect()
}

/// Returns arguments that set these keys of the recipe, each given as `key=value`.
pub fn sets<'a>(keys: &[&'a str]) -> Vec<&'a str> {
    keys.iter().flat_map(|key| ["--set", *key]).collect()
}

/// Returns the sorted relative paths of all files in a folder, or nothing if the folder does not exist.
///
/// Leaves out the marker and the lock of a run, the heartbeat files of the ranks, and the reports (report.html,
/// evaluation.json, run.log and TensorBoard's events).
pub fn files(folder: &str) -> Vec<String> {
    fn visit(folder: &Path, root: &Path, found: &mut Vec<String>) {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let looks = ["report.html", "evaluation.json", "run.log"].contains(&name.as_str())
                || name.starts_with("events.out.tfevents");
            if looks || name == ".ranks" || name.starts_with(".trireme-") {
                continue;
            } else if path.is_dir() {
                visit(&path, root, found);
            } else {
                found.push(path.strip_prefix(root).unwrap_or(&path).display().to_string());
            }
        }
    }
    let mut found = Vec::new();
    visit(Path::new(folder), Path::new(folder), &mut found);
    found.sort();
    found
}

/// Returns the steps of the checkpoints in an output folder, in ascending order.
pub fn checkpoints(out: &str) -> Vec<u64> {
    let names = files(out).into_iter();
    names.filter_map(|file| file.strip_prefix("checkpoints/step-")?.strip_suffix(".h5")?.parse().ok()).collect()
}

/// Checks that all of these processes end soon.
#[track_caller]
pub fn assert_gone(ranks: &[u32]) {
    let start = Instant::now();
    while ranks.iter().any(|&rank| is_alive(rank)) {
        assert!(start.elapsed() < longer(Duration::from_secs(5)), "ranks are still running after mpirun ended");
        std::thread::sleep(Duration::from_millis(20));
    }
}
