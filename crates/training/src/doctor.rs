//! `trireme doctor`: reports the properties of the machine and of MPI, and names a remedy for each problem.

use std::fmt::Write;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

use base::screen;
use comm::{Comm, Verdict};

use crate::bench;
use crate::error::Error;
use crate::launch;
use crate::train::agree::Session;
use crate::train::agree::gpus;
use crate::train::agree::preflight;
use crate::train::observe::watch::Watch;

pub struct Report {
    pub text: String,
    /// Number of lines that begin with `problem`.
    pub problems: usize,
}

/// Examines the machines of all ranks. `verbose` also lists where libraries were searched. Returns `None` on all ranks except 0. If it
/// returns `Ok`, MPI has also passed the test with sums whose results are known.
pub fn examine(verbose: bool) -> Result<Option<Report>, Error> {
    let comm = Comm::launch();
    let _answered = expect_answer(&comm);
    let world = comm.world()?.clone();
    let mut findings = Vec::new();
    if let Verdict::Warning(why) | Verdict::Fatal(why) = comm::check_launch(world.size) {
        findings.push(why);
    }
    let mut session = Session { comm, world, notes: Vec::new(), watch: Watch::default() };
    let report = report(&mut session, findings, verbose);
    session.conclude(report)
}

/// The beginning of a text that does not report a problem.
const NOTE: &str = "note: ";

fn report(session: &mut Session, mut findings: Vec<String>, verbose: bool) -> Result<Option<Report>, Error> {
    session.same_start(("none", None), "trireme doctor")?;
    let cores = session.cores()?;
    findings.append(&mut session.notes);
    let mut text = format!("trireme {}\n", env!("CARGO_PKG_VERSION"));
    let _ = writeln!(text, "processor  {}", bench::processor());
    let launch::CpuReport { describe: device, bf16 } = launch::cpu_report(cores)?;
    let _ = writeln!(text, "cpu bf16   {bf16}");
    for line in launch::cuda_lines(verbose) {
        let _ = writeln!(text, "cuda       {line}");
    }
    let claim = comm::library::claim();
    let says = claim.yes.map_or("unknown", |yes| if yes { "yes" } else { "no" });
    let _ = writeln!(text, "cuda-aware {says}: {}", claim.by);
    let gpus = gpus::visible(&session.world.host);
    let gpus = session.comm.gather("exchange of GPUs", &gpus)?;
    findings.extend(gpus.iter().flat_map(|gpus| gpus::warnings(gpus)));
    let _ = writeln!(text, "mpi        {}, {}", session.world.library, session.world.thread_level);
    let rows = preflight::table(session, &device, "program")?;
    for row in &rows {
        let _ = writeln!(text, "{row}");
    }
    let (notes, problems): (Vec<&str>, Vec<&str>) =
        findings.iter().map(String::as_str).partition(|finding| finding.starts_with(NOTE));
    for note in notes {
        let _ = writeln!(text, "note       {}", note.trim_start_matches(NOTE));
    }
    for problem in &problems {
        let _ = writeln!(text, "problem    {}", problem.trim_start_matches("warning: "));
    }
    if problems.is_empty() {
        text.push_str("no problem found");
    }
    Ok(session.is_root().then_some(Report { text, problems: problems.len() }))
}

/// How long an MPI operation may take before [`examine`] looks for a reason.
const PATIENCE: Duration = Duration::from_secs(10);

/// Starts a thread that reports an MPI operation without an answer, because MPI itself waits forever. If a network problem explains the
/// wait, the thread ends all ranks, otherwise it prints a note. Dropping the returned sender stops the thread.
fn expect_answer(comm: &Comm) -> Sender<()> {
    let (comm, (answered, end)) = (comm.clone(), mpsc::channel());
    let wait = move || {
        while end.recv_timeout(PATIENCE / 10) == Err(RecvTimeoutError::Timeout) {
            let progress = comm.progress();
            let waited = progress.since.elapsed();
            if progress.running && waited >= PATIENCE {
                let waits = format!("waiting in \"{}\" for {:.0} s", progress.name, waited.as_secs_f64());
                let advice = comm::network::unreachable();
                if comm.progress() != progress {
                    // the wait ended while the network was tested, which takes seconds
                    continue;
                }
                if let Some(advice) = advice {
                    comm::die(1, &format!("{waits}: {advice}"));
                }
                let why = "another rank has not started or cannot be reached over the network";
                return screen::say(&format!("{}note: {waits}: {why}", comm::rank_prefix()));
            }
        }
    };
    // if the thread cannot start, a wait is just not explained
    let _ = std::thread::Builder::new().name("doctor".into()).spawn(wait);
    answered
}
