//! What this machine and this MPI can do, and the cure of each problem.

use std::fmt::Write;

use super::session::Session;
use super::{Error, bench, device, gpus};
use crate::backend::Backend;
use crate::backend::cpu::Cpu;
use crate::comm::{self, Comm, Verdict};

/// The report of rank 0.
pub struct Report {
    /// Lines for the user.
    pub text: String,
    /// Lines that begin with `problem`.
    pub problems: usize,
}

/// Looks around on all ranks; `None` on those other than 0. MPI's known-answer sums have passed when it returns.
pub fn examine() -> Result<Option<Report>, Error> {
    let launcher = comm::launcher();
    let comm = Comm::launch();
    let world = comm.world()?.clone();
    let mut text = format!("trireme {}\n", env!("CARGO_PKG_VERSION"));
    let _ = writeln!(text, "processor  {}", bench::processor());
    let _ = writeln!(text, "device     {}", Cpu::new(1)?.describe());
    for line in device::cuda_lines() {
        let _ = writeln!(text, "cuda       {line}");
    }
    let claim = comm::aware::claim();
    let says = claim.yes.map_or("unknown", |yes| if yes { "yes" } else { "no" });
    let _ = writeln!(text, "cuda-aware {says}: {}", claim.by);
    let _ = writeln!(text, "mpi        {}, {}", world.library, world.thread_level);
    let _ = writeln!(text, "launcher   {}", launcher.unwrap_or("none: one rank"));
    let _ = writeln!(text, "sums       known answers of f32, f64 and i64 over {} rank(s): right", world.size);
    let mut findings = Vec::new();
    if let Verdict::Warning(why) | Verdict::Fatal(why) = comm::check_launch(world.size) {
        findings.push(why);
    }
    let line = format!(
        "rank {:<4} {:<20} {} of {} on its node, cores {:?}",
        world.rank,
        world.host,
        world.node_rank + 1,
        world.node_size,
        super::cores::affinity()
    );
    let mut session = Session { comm, world, notes: Vec::new() };
    session.cores()?;
    findings.append(&mut session.notes);
    let gpus = gpus::visible(&session.world.host);
    let gpus = session.comm.run("exchange of GPUs", move |world| world.gather(gpus.line().as_bytes()))?;
    findings.extend(gpus.and_then(|lines| gpus::shared(&lines)));
    let lines = session.comm.run("gathering of hosts", move |world| world.gather(line.as_bytes()))?;
    session.comm.finish()?;
    for line in lines.iter().flatten() {
        let _ = writeln!(text, "{}", String::from_utf8_lossy(line));
    }
    for finding in &findings {
        let _ = writeln!(text, "problem    {}", finding.trim_start_matches("warning: "));
    }
    if findings.is_empty() {
        text.push_str("no problem found");
    }
    Ok(session.is_root().then_some(Report { text, problems: findings.len() }))
}
