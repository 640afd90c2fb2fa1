//! Chooses the transport of gradients at the start of a run. What a rank could use is tried with sums of known answer, of the very sizes
//! of the buckets, and timed where the choice cannot change a bit. Where a codec makes other numbers of gradients, they go through host
//! memory.
//!
//! A library that claims to take device memory and does not ends the process by a signal: so a file in OUT marks a trial under way, and a
//! start that finds it does not try again.

use std::path::{Path, PathBuf};

use backend::Backend;
use base::screen;
use comm::codec::FLOAT;
use comm::library;
use recipe::TransportSetting;

use crate::error::Error;
use crate::train::agree::session::Session;
use crate::train::reduce::transport::Transport;
use crate::train::reduce::trial::{Found, Trial};

/// The transport that was chosen, and why.
pub struct Choice<B: Backend> {
    /// The transport.
    pub transport: Transport<B>,
    /// For the log: its name, and what was found of each.
    pub why: String,
}

/// What a choice depends on.
pub struct TransportRequest<'a> {
    /// `reduce.path`.
    pub path: TransportSetting,
    /// Name of the codec.
    pub codec: &'a str,
    /// Whether gradients travel at all.
    pub allreduce: bool,
    /// Whether ranks share a GPU.
    pub shared: bool,
    /// The output folder.
    pub out: &'a Path,
    /// Elements of each bucket.
    pub buckets: &'a [usize],
    /// Whether the device makes codes.
    pub coded: bool,
}

/// Elements of the sums that `trireme doctor --cuda-aware` tries.
const SIZES: [usize; 5] = [1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 24];

/// Chooses among the transports that [`check`](super::transport::check) allows; collective.
pub fn choose<B: Backend>(session: &Session, backend: &B, request: &TransportRequest<'_>) -> Result<Choice<B>, Error> {
    let staged = |why: String| Ok(Choice { transport: Transport::Host, why });
    if request.coded {
        return staged(format!("coded: the device codes for {}, codes alone come to the host", request.codec));
    }
    if session.world.size == 1 || !request.allreduce || backend.queue().is_none() {
        return staged(String::new());
    }
    if request.codec != FLOAT.name {
        return staged(format!("staged: {} sums what it has coded on the host", request.codec));
    }
    let trial = Trial { session, backend, buckets: request.buckets };
    let (mut transports, mut found) = (vec![Transport::Host], Vec::new());
    let wanted = |name: &TransportSetting| [TransportSetting::Auto, *name].contains(&request.path);
    for name in [TransportSetting::CudaAware, TransportSetting::Nccl].into_iter().filter(wanted) {
        let tried = match name {
            TransportSetting::Nccl => trial.nccl(request.shared)?,
            _ => try_mpi(&trial, request)?,
        };
        match tried {
            Ok(Found { transport, why }) => {
                transports.push(transport);
                found.push(format!("{name}: {why}"));
            }
            Err(why) if request.path == name => {
                return session.agree(Err(Error::Transport { transport: format!("reduce.path = \"{name}\""), why }));
            }
            Err(why) => found.push(format!("no {name}: {why}")),
        }
    }
    pick(&trial, request, transports, &found)
}

/// Whether MPI takes device memory; the reason why not.
fn try_mpi<B: Backend>(
    trial: &Trial<'_, B>,
    request: &TransportRequest<'_>,
) -> Result<Result<Found<B>, String>, Error> {
    let (session, claim, marker) = (trial.session, library::claim(), marker(request.out));
    let (forced, crashed) = (request.path != TransportSetting::Auto, session.is_root() && marker.exists());
    if !trial.all(claim.yes != Some(false) || forced)? {
        return Ok(Err(claim.by));
    }
    if !trial.all(claim.yes == Some(true) || forced)? {
        return Ok(Err(format!("{}; `trireme doctor --cuda-aware` tries it", claim.by)));
    }
    if !trial.all(!crashed)? && !forced {
        let shown = marker.display();
        return Ok(Err(format!(
            "the trial of an earlier start did not come back ({shown} is left of it; remove it to try anew)"
        )));
    }
    session.agree(if session.is_root() { mark(&marker) } else { Ok(()) })?;
    let right = trial.known_answer(&Transport::Mpi)?;
    if session.is_root() {
        let _ = std::fs::remove_file(&marker);
    }
    Ok(right.map(|()| Found { transport: Transport::Mpi, why: format!("{}, and its sums are right", claim.by) }))
}

/// The fastest of several on two ranks, which have only one order to add in; else the one that leaves most to the devices: with more
/// ranks each transport adds in an order of its own, and a clock must not decide about bits.
fn pick<B: Backend>(
    trial: &Trial<'_, B>,
    request: &TransportRequest<'_>,
    mut transports: Vec<Transport<B>>,
    found: &[String],
) -> Result<Choice<B>, Error> {
    if request.path != TransportSetting::Auto || transports.len() == 1 || trial.session.world.size > 2 {
        let last = if request.path == TransportSetting::Staged { None } else { transports.pop() };
        let transport = last.unwrap_or(Transport::Host);
        let why = if found.is_empty() { "requested".into() } else { found.join("; ") };
        return Ok(Choice { why: format!("{} ({why})", transport.name()), transport });
    }
    let mut times = transports.iter().map(|transport| trial.time(transport)).collect::<Result<Vec<_>, _>>()?;
    trial.session.comm.run("times of the transports", |world| world.max_f64(&mut times))?;
    let fastest = (0..times.len()).min_by(|a, b| times[*a].total_cmp(&times[*b])).unwrap_or(0);
    let names = transports.iter().map(Transport::name);
    let timed: Vec<String> = names.zip(&times).map(|(name, t)| format!("{name} {:.2} ms", 1e3 * t)).collect();
    let transport = transports.swap_remove(fastest);
    let name = transport.name();
    let why = format!("{name}, the fastest for all buckets: {} ({})", timed.join(", "), found.join("; "));
    Ok(Choice { transport, why })
}

/// Tries sums by MPI in device memory, of sizes from 4 KB to 64 MB, whatever the library claims; the findings, on rank 0. Collective.
pub fn try_aware<B: Backend>(session: &Session, backend: &B) -> Result<Option<String>, Error> {
    let claim = library::claim();
    if session.is_root() {
        screen::say(&format!(
            "trying MPI_Allreduce of device memory over {} rank(s); {}. If a signal ends this, {} does not take device memory",
            session.world.size, claim.by, session.world.library
        ));
    }
    let trial = Trial { session, backend, buckets: &SIZES };
    if let Err(why) = trial.known_answer(&Transport::Mpi)? {
        let why = format!("{why}; use reduce.path = \"staged\"");
        return session.agree(Err(Error::Transport { transport: "not cuda-aware".into(), why }));
    }
    let (aware, staged) = (trial.time(&Transport::Mpi)?, trial.time(&Transport::Host)?);
    let (aware, staged) = (1e3 * aware, 1e3 * staged);
    let found = format!("cuda-aware: its sums are right; {aware:.2} ms for all sizes, staged {staged:.2} ms");
    Ok(session.is_root().then_some(found))
}

/// The file that marks a trial under way.
fn marker(out: &Path) -> PathBuf {
    out.join(".cuda-aware-trial")
}

fn mark(marker: &Path) -> Result<(), Error> {
    let text = "MPI_Allreduce of device memory is being tried; if this is still here later, it ended the process\n";
    Ok(formats::checkpoint::write_text(marker, text)?)
}
