//! Chooses how gradients get from the devices of one rank to those of the others. Each possible transport is tested
//! with sums whose results are known, for the sizes of the run's buckets. Transports are compared by time only if the
//! choice cannot change any result.

use std::path::{Path, PathBuf};
use std::slice::from_mut;
use std::sync::Arc;
use std::time::{Duration, Instant};

use backend::{Backend, Buffer};
use base::screen;
use base::text::plural;
use comm::codec::{Bucket, Entry, FLOAT, Settings};
use comm::{World, known_answer, library};
use recipe::TransportSetting;

use crate::error::Error;
use crate::train::agree::Session;
use crate::train::reduce::bucket_sum::{BucketSum, NcclSum, SumStep};
use crate::train::reduce::device::MpiSum;
use crate::train::reduce::group::{Group, first_reason};
use crate::train::reduce::host::HostSum;

/// A way to sum buckets over the ranks.
pub enum Transport<B: Backend> {
    /// Buckets are copied to the host, as f32 or encoded, summed there by MPI, and copied back.
    Host,
    Mpi,
    Nccl(Arc<Group<B>>),
}

/// The chosen transport, and whether sums run during backward.
pub struct TransportPlan<B: Backend> {
    /// True if buckets are summed during backward.
    pub overlap: bool,
    pub transport: Transport<B>,
}

impl<B: Backend> Transport<B> {
    /// Returns the name for recipes and the log.
    pub fn name(&self) -> &'static str {
        match self {
            Transport::Host => "staged",
            Transport::Mpi => "cuda-aware",
            Transport::Nccl(_) => "nccl",
        }
    }

    /// Returns the group of devices that sum buckets, if this transport has one.
    pub fn group(&self) -> Option<Arc<Group<B>>> {
        if let Transport::Nccl(group) = self { Some(group.clone()) } else { None }
    }

    /// Returns the sums to use with this transport: the planned sums or, for MPI and NCCL, sums in device memory.
    pub fn carry(&self, planned: Vec<Box<dyn BucketSum<B>>>) -> Vec<Box<dyn BucketSum<B>>> {
        match self {
            Transport::Host => planned,
            Transport::Mpi => planned.iter().map(|_| self.in_place()).collect(),
            Transport::Nccl(group) => planned.into_iter().map(|sum| sum.into_group_sum(group)).collect(),
        }
    }

    /// Returns the same transport for the ranks below `count`. NCCL needs a new group for these ranks, which the remaining ranks do not
    /// join. Collective over all ranks.
    pub fn over_first(&self, session: &Session, backend: &B, count: usize) -> Result<Self, Error> {
        match self {
            Transport::Host => Ok(Transport::Host),
            Transport::Mpi => Ok(Transport::Mpi),
            Transport::Nccl(group) if count == session.world.size => Ok(Transport::Nccl(group.clone())),
            Transport::Nccl(_) => {
                let failed = |why| Error::Failed(format!("NCCL on {count} ranks: {why}"));
                let group = session.agree(Group::join_first(session, backend, count)?.map_err(failed))?;
                group.iter().for_each(|group| group.watch(&session.watch));
                Ok(group.map_or(Transport::Host, Transport::Nccl))
            }
        }
    }

    /// Returns a sum of `len` f32 values with this transport, for a trial.
    pub fn float_sum(&self, len: usize) -> Box<dyn BucketSum<B>> {
        match self {
            Transport::Host => {
                Box::new(HostSum::new(&FLOAT, Bucket { len, tensors: Vec::new() }, &Settings::plain(1), 0..1))
            }
            _ => self.in_place(),
        }
    }

    fn in_place(&self) -> Box<dyn BucketSum<B>> {
        match self {
            Transport::Nccl(group) => Box::new(NcclSum(group.clone())),
            _ => Box::new(MpiSum),
        }
    }
}

/// Returns an error if the device or the codec does not support the requested transport.
pub fn check(transport: TransportSetting, codec: &str, queues: bool) -> Result<(), Error> {
    let forced = matches!(transport, TransportSetting::CudaAware | TransportSetting::Nccl);
    if forced && !queues {
        return Err(Error::Usage(format!(
            "reduce.path = \"{transport}\" works only on GPUs; remove it, or compute with --device cuda"
        )));
    }
    // NCCL is not refused, because it also sums gradients that a device has encoded
    if transport == TransportSetting::CudaAware && codec != FLOAT.name {
        return Err(Error::Usage(format!(
            "reduce.path = \"{transport}\" sums only f32 gradients, but reduce.codec = \"{codec}\" encodes them; remove reduce.path, \
             or use reduce.codec = \"{}\"",
            FLOAT.name
        )));
    }
    Ok(())
}

// Chooses the transport of gradients at the start of a run. If a codec on the host encodes the gradients, they must go through host memory.
// An MPI library that wrongly claims to support device memory crashes the process. Therefore a file in OUT marks a trial in progress. A
// start that finds this file does not repeat the trial, unless the recipe requires this transport.

/// The chosen transport and the reason.
pub struct Choice<B: Backend> {
    pub transport: Transport<B>,
    /// Text for the log: the name of the transport, and what was found about each transport.
    pub why: String,
}

/// The properties of a run that the choice depends on.
pub struct TransportRequest<'a> {
    /// Value of `reduce.path`.
    pub path: TransportSetting,
    pub codec: &'a Entry,
    /// True if gradients are summed over ranks.
    pub allreduce: bool,
    /// The reason why NCCL must not be tried, if there is one.
    pub no_nccl: Option<&'a str>,
    /// Folder for a temporary file that exists while MPI is tested with device memory. `None` creates no file.
    pub out: Option<&'a Path>,
    /// Number of elements in each bucket.
    pub buckets: &'a [usize],
    /// True if the device encodes the gradients.
    pub coded: bool,
    /// True if all ranks have the same number of workers.
    pub even: bool,
}

/// Lengths of the test sums in `trireme doctor --cuda-aware`.
const SIZES: [usize; 5] = [1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 24];

/// Chooses among the transports that [`check`] allows. Collective.
pub fn choose<B: Backend>(session: &Session, backend: &B, request: &TransportRequest<'_>) -> Result<Choice<B>, Error> {
    let Choice { transport, mut why } = choose_path(session, backend, request)?;
    if !why.is_empty() {
        why += match &transport {
            Transport::Host | Transport::Mpi => {
                "; the host takes part in each sum, so the device waits for the host in each step"
            }
            Transport::Nccl(_) if !request.even => {
                "; the host reads the losses of each step before it enqueues the next step, because ranks have different numbers of workers"
            }
            Transport::Nccl(_) => "",
        };
    }
    Ok(Choice { transport, why })
}

fn choose_path<B: Backend>(session: &Session, backend: &B, request: &TransportRequest<'_>) -> Result<Choice<B>, Error> {
    let staged = |why: String| Ok(Choice { transport: Transport::Host, why });
    let wanted = |name: &TransportSetting| [TransportSetting::Auto, *name].contains(&request.path);
    if request.coded {
        return choose_for_codes(session, backend, request);
    }
    if session.world.size == 1 || !request.allreduce || backend.queue().is_none() {
        return staged(String::new());
    }
    if request.codec.name != FLOAT.name {
        return staged(format!("staged: the host encodes and sums gradients with {}", request.codec.name));
    }
    let trial = Trial { session, backend, buckets: request.buckets };
    let (mut transports, mut found) = (vec![Transport::Host], Vec::new());
    for name in [TransportSetting::CudaAware, TransportSetting::Nccl].into_iter().filter(wanted) {
        let tried = match name {
            TransportSetting::Nccl => trial.nccl(request.no_nccl)?,
            _ => try_mpi(&trial, request)?,
        };
        match tried {
            Ok(WorkingTransport { transport, why }) => {
                transports.push(transport);
                found.push(format!("{name}: {why}"));
            }
            Err(why) if request.path == name => {
                return session.agree(Err(Error::Failed(format!("reduce.path = \"{name}\": {why}"))));
            }
            Err(why) => found.push(format!("no {name}: {why}")),
        }
    }
    pick(&trial, request, transports, &found)
}

/// Chooses NCCL if it works, otherwise MPI, for a device that encodes the gradients. Codecs that sum integers give bit-identical results
/// with both, and on two ranks all codecs do. Otherwise NCCL rounds partial sums in an order of its own, so it must be requested. Then
/// `auto` gives the same result whether NCCL works or not, as the host does.
fn choose_for_codes<B: Backend>(
    session: &Session,
    backend: &B,
    request: &TransportRequest<'_>,
) -> Result<Choice<B>, Error> {
    let codec = request.codec.name;
    let coded = format!("coded: the device encodes gradients with {codec}, and only codes are copied to the host");
    if session.world.size == 1 || !request.allreduce || request.path == TransportSetting::Staged {
        return Ok(Choice { transport: Transport::Host, why: coded });
    }
    if request.path == TransportSetting::Auto && !request.codec.integer && session.world.size > 2 {
        let why = format!(
            "{coded} (nccl not tried: on more than two ranks it adds {codec} in another order than MPI; reduce.path = \"nccl\" requests it)"
        );
        return Ok(Choice { transport: Transport::Host, why });
    }
    match (Trial { session, backend, buckets: request.buckets }.nccl(request.no_nccl)?, request.path) {
        (Ok(WorkingTransport { transport, why }), _) => {
            Ok(Choice { transport, why: format!("nccl: the device encodes gradients with {codec} ({why})") })
        }
        (Err(why), TransportSetting::Nccl) => {
            session.agree(Err(Error::Failed(format!("reduce.path = \"nccl\": {why}"))))
        }
        (Err(why), _) => Ok(Choice { transport: Transport::Host, why: format!("{coded} (no nccl: {why})") }),
    }
}

/// Tests MPI sums in device memory, if the library claims to support them or the recipe requires them. The inner error is the reason why
/// they are not used.
fn try_mpi<B: Backend>(
    trial: &Trial<'_, B>,
    request: &TransportRequest<'_>,
) -> Result<Result<WorkingTransport<B>, String>, Error> {
    let (session, claim, marker) = (trial.session, library::claim(), request.out.map(marker));
    let marker = marker.filter(|_| session.is_root());
    let (forced, crashed) = (request.path != TransportSetting::Auto, marker.as_ref().is_some_and(|file| file.exists()));
    if !trial.all(claim.yes != Some(false) || forced)? {
        return Ok(Err(claim.by));
    }
    if !trial.all(claim.yes == Some(true) || forced)? {
        return Ok(Err(format!("{}; `trireme doctor --cuda-aware` tests it", claim.by)));
    }
    if !trial.all(!crashed)? && !forced {
        let shown = request.out.map(self::marker).unwrap_or_default();
        return Ok(Err(format!(
            "the test of MPI sums in GPU memory did not finish in an earlier start and may have ended that process, so it is not repeated \
             (to repeat it, remove {})",
            shown.display()
        )));
    }
    session.agree(marker.as_deref().map_or(Ok(()), mark))?;
    let right = trial.known_answer(&Transport::Mpi)?;
    if let Some(marker) = marker {
        let _ = std::fs::remove_file(marker);
    }
    Ok(right
        .map(|()| WorkingTransport { transport: Transport::Mpi, why: format!("{}, and its sums are right", claim.by) }))
}

/// Chooses among the transports that work. If the recipe names a transport, chooses this one. Otherwise, on two ranks,
/// chooses the fastest. All transports give the same result there, because a sum of two values has only one order. On
/// more ranks, each transport adds in its own order, so a choice by time could change the results from start to start.
/// Then it chooses the last candidate, which needs the host least.
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
    for group in transports.iter().filter_map(Transport::group) {
        group.retire(&trial.session.comm)?;
    }
    let name = transport.name();
    let why = format!("{name}, the fastest for all buckets: {} ({})", timed.join(", "), found.join("; "));
    Ok(Choice { transport, why })
}

/// Tests sums in device memory by MPI, with sizes from 4 KB to 64 MB, even if the library does not claim to support
/// them. Returns the findings on rank 0. Collective.
pub fn try_aware<B: Backend>(session: &Session, backend: &B) -> Result<Option<String>, Error> {
    let claim = library::claim();
    if session.is_root() {
        screen::say(&format!(
            "trying MPI_Allreduce of device memory over {}; {}. If a signal ends this process, {} does not support device memory",
            plural(session.world.size, "rank"),
            claim.by,
            session.world.library
        ));
    }
    let trial = Trial { session, backend, buckets: &SIZES };
    if let Err(why) = trial.known_answer(&Transport::Mpi)? {
        return session.agree(Err(Error::Failed(format!("not cuda-aware: {why}; use reduce.path = \"staged\""))));
    }
    let (aware, staged) = (trial.time(&Transport::Mpi)?, trial.time(&Transport::Host)?);
    let (aware, staged) = (1e3 * aware, 1e3 * staged);
    let found = format!("cuda-aware: its sums are right; {aware:.2} ms for all sizes, staged {staged:.2} ms");
    Ok(session.is_root().then_some(found))
}

/// Returns the file that marks a trial in progress.
fn marker(out: &Path) -> PathBuf {
    out.join(".cuda-aware-trial")
}

fn mark(marker: &Path) -> Result<(), Error> {
    let text = "MPI_Allreduce of device memory is being tried. If this file still exists later, the trial has ended the process\n";
    Ok(formats::checkpoint::write_text(marker, text)?)
}

/// How many times a timing is repeated. The shortest time is used.
const ROUNDS: usize = 3;

pub struct WorkingTransport<B: Backend> {
    pub transport: Transport<B>,
    /// What was found when the transport was tested.
    pub why: String,
}

/// The ranks, the device and the buckets of a trial.
pub struct Trial<'a, B: Backend> {
    pub session: &'a Session,
    pub backend: &'a B,
    /// Number of elements in each bucket.
    pub buckets: &'a [usize],
}

impl<B: Backend> Trial<'_, B> {
    /// Returns true if `yes` is true on all ranks.
    pub fn all(&self, yes: bool) -> Result<bool, Error> {
        Ok(self.session.comm.all("agreement on a transport", yes)?)
    }

    /// Gathers each rank's reason why a transport is not possible. Returns the reason of the first rank that has one.
    /// Collective.
    fn obstacle(&self, own: Option<String>) -> Result<Option<String>, Error> {
        Ok(first_reason(&self.session.comm.gather_all("agreement on a transport", &own)?))
    }

    /// Tests whether the devices can sum with NCCL. The inner error is the reason why not.
    pub fn nccl(&self, no_nccl: Option<&str>) -> Result<Result<WorkingTransport<B>, String>, Error> {
        if let Some(why) = no_nccl {
            return Ok(Err(why.into()));
        }
        let group = match Group::join(self.session, self.backend)? {
            Ok(group) => group,
            Err(why) => return Ok(Err(why)),
        };
        group.watch(&self.session.watch);
        let transport = Transport::Nccl(group.clone());
        if let Err(why) = self.known_answer(&transport)? {
            group.retire(&self.session.comm)?;
            return Ok(Err(why));
        }
        let why = format!("{}, its sums are right", group.lock().describe());
        Ok(Ok(WorkingTransport { transport, why }))
    }

    /// Returns a bucket with this rank's values for a sum whose result is known.
    fn bucket(&self, elems: usize) -> Result<B::Buf, backend::Error> {
        let rank = self.session.world.rank;
        let values: Vec<f32> = (0..elems).map(|i| known_answer::value(rank, i) as f32).collect();
        let mut bucket = self.backend.alloc(elems)?;
        bucket.write(0, &values)?;
        self.backend.queue().map_or(Ok(()), |queue| queue.mark(&mut bucket))?;
        Ok(bucket)
    }

    /// Tests sums of all bucket sizes. The inner error describes the first wrong result.
    pub fn known_answer(&self, transport: &Transport<B>) -> Result<Result<(), String>, Error> {
        let mut sizes = self.buckets.to_vec();
        sizes.sort_unstable();
        sizes.dedup();
        let mut wrong = None;
        for elems in sizes {
            wrong = wrong.or(self.wrong_sum(transport, elems)?);
        }
        Ok(self.obstacle(wrong)?.map_or(Ok(()), Err))
    }

    /// Tests a sum of `elems` values. Returns a description of the difference if the result is wrong.
    fn wrong_sum(&self, transport: &Transport<B>, elems: usize) -> Result<Option<String>, Error> {
        let mut bucket = self.session.agree(self.bucket(elems).map_err(Error::from))?;
        let mut sum = transport.float_sum(elems);
        sum.wait(from_mut(&mut bucket), &SumStep::TRIAL)?;
        self.session
            .comm
            .run("sum of device memory", |world| Ok(sum.sum(world, from_mut(&mut bucket), &SumStep::TRIAL)))??;
        let mut got = vec![0.0; elems];
        bucket.read(0, &mut got)?;
        let expected = |i| known_answer::sum(self.session.world.size, i);
        let off = (0..elems).find(|&i| got[i] != expected(i) as f32);
        Ok(off.map(|i| {
            format!("element {i} of a test sum of {elems} elements should be {}, got {}", expected(i), got[i])
        }))
    }

    /// Returns the seconds to sum all buckets in sequence.
    pub fn time(&self, transport: &Transport<B>) -> Result<f64, Error> {
        let comm = &self.session.comm;
        let mut buckets = self.buckets.iter().map(|&n| self.bucket(n)).collect::<Result<Vec<_>, _>>()?;
        let mut sums: Vec<_> = self.buckets.iter().map(|&n| transport.float_sum(n)).collect();
        let mut best = Duration::MAX;
        for _ in 0..ROUNDS {
            comm.run("barrier of a timing", World::barrier)?;
            let start = Instant::now();
            for (bucket, sum) in buckets.iter_mut().zip(&mut sums) {
                sum.prepare(from_mut(bucket))?;
                sum.wait(from_mut(bucket), &SumStep::TRIAL)?;
                comm.run("timing of a sum", |world| Ok(sum.sum(world, from_mut(bucket), &SumStep::TRIAL)))??;
            }
            let mut end = [0.0];
            buckets.last().map_or(Ok(()), |bucket| bucket.read(0, &mut end))?;
            best = best.min(start.elapsed());
        }
        Ok(best.as_secs_f64())
    }
}
