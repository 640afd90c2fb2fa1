//! The gradients' way from this rank's device to the others' and back: staged through memory of the host, by an MPI library that
//! takes device memory, or by the devices among themselves (NCCL). Chosen at the start; what is there is asked for, tried with
//! sums whose answer is known, of the very sizes of the buckets, and timed where the choice cannot change a bit. Where a codec makes
//! other numbers of gradients these go through memory of the host, whoever makes them ([`super::coded`]).
//!
//! A library that says it takes device memory and does not ends the process by a signal: so a file in OUT says that a trial is
//! under way, and a start that finds it tries no more.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::backend::{self, Backend, Buffer, Collective};
use crate::comm::{self, World, aware, known_answer};
use crate::error::Error;
use crate::recipe::TransportSetting;
use crate::train::agree::session::Session;

/// How a bucket of f32 is summed.
pub enum Way<B: Backend> {
    /// Copied to the host, summed there by MPI, copied back.
    Staged,
    /// By MPI where it lies.
    Aware,
    /// By the devices.
    Among(Arc<Mutex<Box<dyn Collective<B>>>>),
}

impl<B: Backend> Clone for Way<B> {
    fn clone(&self) -> Self {
        match self {
            Way::Staged => Way::Staged,
            Way::Aware => Way::Aware,
            Way::Among(collective) => Way::Among(collective.clone()),
        }
    }
}

/// The way that was chosen, and why.
pub struct Chosen<B: Backend> {
    /// The way.
    pub way: Way<B>,
    /// For the log: its name, and what was found on each.
    pub why: String,
}

/// What a choice depends on.
pub struct Ask<'a> {
    /// `reduce.path`.
    pub path: TransportSetting,
    /// Name of the codec.
    pub codec: &'a str,
    /// Whether gradients travel at all.
    pub allreduce: bool,
    /// Whether ranks share a card.
    pub shared: bool,
    /// The output folder.
    pub out: &'a Path,
    /// Elements of each bucket.
    pub buckets: &'a [usize],
    /// Whether the device makes the codes.
    pub coded: bool,
}

/// The codec whose numbers can be summed as they lie.
const FLOAT: &str = "float";

/// Elements of the sums that `trireme doctor --cuda-aware` tries.
const SIZES: [usize; 5] = [1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 24];

/// Rounds of a timing; the fastest counts.
const ROUNDS: usize = 3;

impl<B: Backend> Way<B> {
    fn name(&self) -> &'static str {
        match self {
            Way::Staged => "staged",
            Way::Aware => "cuda-aware",
            Way::Among(_) => "nccl",
        }
    }

    /// Replaces a bucket of f32 by its sum over all ranks. Errors of the device are the inner ones: the other ranks know nothing of
    /// them.
    pub fn sum(&self, world: &World, bucket: &mut B::Buf) -> Result<Result<(), backend::Error>, comm::Error> {
        match self {
            Way::Staged => {
                let values = match bucket.staged() {
                    Ok(values) => values,
                    Err(error) => return Ok(Err(error)),
                };
                world.sum_f32(values)?;
                Ok(bucket.unstage())
            }
            Way::Aware => {
                let mut region = match bucket.region() {
                    Ok(Some(region)) => region,
                    Ok(None) => return Ok(Err(unreachable_memory())),
                    Err(error) => return Ok(Err(error)),
                };
                world.sum_region(&mut region)?;
                Ok(Ok(()))
            }
            Way::Among(collective) => Ok(collective.lock().unwrap_or_else(PoisonError::into_inner).sum(bucket)),
        }
    }
}

fn unreachable_memory() -> backend::Error {
    let why = "no library can be given this device's memory; use reduce.path = \"staged\"".into();
    backend::Error::Unsupported { op: "the exchange of gradients".into(), why }
}

/// Refuses ways that this device, or this codec, has not.
pub fn check(path: TransportSetting, codec: &str, queues: bool) -> Result<(), Error> {
    let forced = matches!(path, TransportSetting::CudaAware | TransportSetting::Nccl);
    if forced && !queues {
        return Err(Error::Usage(format!(
            "reduce.path = \"{path}\" is for GPUs: leave it out, or compute with --device cuda"
        )));
    }
    if forced && codec != FLOAT {
        return Err(Error::Usage(format!(
            "reduce.path = \"{path}\" adds f32 where they lie, and reduce.codec = \"{codec}\" sends other numbers; leave reduce.path \
             out, or use reduce.codec = \"{FLOAT}\""
        )));
    }
    Ok(())
}

/// Chooses among what [`check`] leaves; collective.
pub fn choose<B: Backend>(session: &Session, backend: &B, ask: &Ask<'_>) -> Result<Chosen<B>, Error> {
    let staged = |why: String| Ok(Chosen { way: Way::Staged, why });
    if ask.coded {
        return staged(format!("coded: the device codes for {}, codes alone come to the host", ask.codec));
    }
    if session.world.size == 1 || !ask.allreduce || !backend.queues() {
        return staged(String::new());
    }
    if ask.codec != FLOAT {
        return staged(format!("staged: {} sums what it has coded on the host", ask.codec));
    }
    let trial = Trial { session, backend, ask };
    let (mut ways, mut found) = (vec![Way::Staged], Vec::new());
    let looks: [(TransportSetting, Look<'_, B>); 2] =
        [(TransportSetting::CudaAware, &|| trial.aware()), (TransportSetting::Nccl, &|| trial.among())];
    for (name, look) in looks {
        if ask.path == TransportSetting::Auto || ask.path == name {
            match look()? {
                Ok((way, why)) => {
                    ways.push(way);
                    found.push(format!("{name}: {why}"));
                }
                Err(why) if ask.path == name => {
                    return session.agree(Err(Error::Failed(format!("reduce.path = \"{name}\": {why}"))));
                }
                Err(why) => found.push(format!("no {name}: {why}")),
            }
        }
    }
    trial.pick(ways, found)
}

/// What comes of looking for a way: the way and what speaks for it, or what speaks against it; the same on all ranks.
type Found<B> = Result<(Way<B>, String), String>;

/// Looks for one.
type Look<'a, B> = &'a dyn Fn() -> Result<Found<B>, Error>;

struct Trial<'a, B: Backend> {
    session: &'a Session,
    backend: &'a B,
    ask: &'a Ask<'a>,
}

impl<B: Backend> Trial<'_, B> {
    /// Whether MPI takes device memory.
    fn aware(&self) -> Result<Found<B>, Error> {
        let claim = aware::claim();
        let marker = marker(self.ask.out);
        let (forced, crashed) = (self.ask.path != TransportSetting::Auto, self.session.is_root() && marker.exists());
        if !self.all(claim.yes != Some(false) || forced)? {
            return Ok(Err(claim.by));
        }
        if !self.all(claim.yes == Some(true) || forced)? {
            return Ok(Err(format!("{}; `trireme doctor --cuda-aware` tries it", claim.by)));
        }
        if !self.all(!crashed)? && !forced {
            let shown = marker.display();
            return Ok(Err(format!(
                "the trial of an earlier start did not come back ({shown} is left of it; remove it to try anew)"
            )));
        }
        let local = if self.session.is_root() { mark(&marker) } else { Ok(()) };
        self.session.agree(local)?;
        let right = self.known_answer(&Way::Aware)?;
        if self.session.is_root() {
            let _ = std::fs::remove_file(&marker);
        }
        Ok(right.map(|()| (Way::Aware, format!("{}, and its sums are right", claim.by))))
    }

    /// Whether the devices can sum among themselves.
    fn among(&self) -> Result<Found<B>, Error> {
        if self.ask.shared {
            return Ok(Err("ranks share a GPU, and NCCL takes one rank a GPU only".into()));
        }
        let root = self.session.is_root();
        let made = if root { B::collective_id() } else { Ok(None) };
        let mut word = match &made {
            Ok(Some(id)) => [&[1], id.as_slice()].concat(),
            Ok(None) => b"\0not for this kind of device".to_vec(),
            Err(error) => [b"\0".as_slice(), error.to_string().as_bytes()].concat(),
        };
        let word = self.session.comm.run("id of the devices' sums", move |world| {
            world.broadcast(&mut word, 0)?;
            Ok(word)
        })?;
        let id = match word.split_first() {
            Some((1, id)) => id,
            other => return Ok(Err(String::from_utf8_lossy(other.map_or(&[], |(_, why)| why)).into_owned())),
        };
        let joined = self.backend.collective(id, self.session.world.rank, self.session.world.size);
        let why = joined.as_ref().err().map(ToString::to_string);
        if !self.all(why.is_none())? {
            return Ok(Err(why.unwrap_or("another rank cannot join".into())));
        }
        let collective = joined?;
        let what = collective.describe();
        let way = Way::Among(Arc::new(Mutex::new(collective)));
        Ok(self.known_answer(&way)?.map(|()| (way, format!("{what}, its sums are right"))))
    }

    /// Whether all ranks say yes.
    fn all(&self, yes: bool) -> Result<bool, Error> {
        let noes = self.session.comm.run("agreement on a way of sums", |world| {
            let mut noes = [u64::from(!yes)];
            world.sum_u64(&mut noes)?;
            Ok(noes[0])
        })?;
        Ok(noes == 0)
    }

    /// A bucket with this rank's part of a sum whose answer is known.
    fn bucket(&self, elems: usize) -> Result<B::Buf, backend::Error> {
        let rank = self.session.world.rank;
        let values: Vec<f32> = (0..elems).map(|i| known_answer::value(rank, i) as f32).collect();
        let mut bucket = self.backend.alloc(elems)?;
        bucket.write(0, &values)?;
        self.backend.mark(&mut bucket)?;
        Ok(bucket)
    }

    /// Sums as large as each bucket; what was wrong.
    fn known_answer(&self, way: &Way<B>) -> Result<Result<(), String>, Error> {
        let ranks = self.session.world.size;
        let mut sizes = self.ask.buckets.to_vec();
        sizes.sort_unstable();
        sizes.dedup();
        let mut wrong = None;
        for elems in sizes {
            let mut bucket = self.session.agree(self.bucket(elems).map_err(Error::from))?;
            self.session.comm.run("sum of device memory", |world| way.sum(world, &mut bucket))??;
            let mut got = vec![0.0; elems];
            bucket.read(0, &mut got)?;
            let off = (0..elems).find(|&i| got[i] != known_answer::sum(ranks, i) as f32);
            wrong = wrong.or(off.map(|i| {
                let expected = known_answer::sum(ranks, i);
                format!("element {i} of a sum of {elems} should be {expected}, got {}", got[i])
            }));
        }
        let right = self.all(wrong.is_none())?;
        Ok(if right { Ok(()) } else { Err(wrong.unwrap_or("wrong sums on another rank".into())) })
    }

    /// The fastest of several, where two ranks have but one order to add in; else the one that leaves most to the devices: with
    /// more ranks each way adds in an order of its own, and a clock must not decide about bits.
    fn pick(&self, mut ways: Vec<Way<B>>, found: Vec<String>) -> Result<Chosen<B>, Error> {
        if self.ask.path != TransportSetting::Auto || ways.len() == 1 || self.session.world.size > 2 {
            let way = if self.ask.path == TransportSetting::Staged { None } else { ways.pop() }.unwrap_or(Way::Staged);
            let name = way.name();
            let why = if found.is_empty() { "asked for".into() } else { found.join("; ") };
            return Ok(Chosen { way, why: format!("{name} ({why})") });
        }
        let mut times = ways.iter().map(|way| self.time(way)).collect::<Result<Vec<_>, _>>()?;
        self.session.comm.run("times of the ways of sums", |world| world.max_f64(&mut times))?;
        let fastest = (0..times.len()).min_by(|a, b| times[*a].total_cmp(&times[*b])).unwrap_or(0);
        let names = ways.iter().map(Way::name);
        let timed: Vec<String> = names.zip(&times).map(|(name, t)| format!("{name} {:.2} ms", 1e3 * t)).collect();
        let way = ways.swap_remove(fastest);
        let why = format!("{}, the fastest for all buckets: {} ({})", way.name(), timed.join(", "), found.join("; "));
        Ok(Chosen { way, why })
    }

    /// Seconds that the sums of all buckets take, one after another.
    fn time(&self, way: &Way<B>) -> Result<f64, Error> {
        let mut buckets = self.ask.buckets.iter().map(|&n| self.bucket(n)).collect::<Result<Vec<_>, _>>()?;
        let mut best = Duration::MAX;
        for _ in 0..ROUNDS {
            self.session.comm.run("barrier of a timing", World::barrier)?;
            let start = Instant::now();
            for bucket in &mut buckets {
                if matches!(way, Way::Staged) {
                    bucket.fetch()?;
                }
                self.session.comm.run("timing of a sum", |world| way.sum(world, bucket))??;
            }
            let mut end = [0.0];
            buckets.last().map_or(Ok(()), |bucket| bucket.read(0, &mut end))?;
            best = best.min(start.elapsed());
        }
        Ok(best.as_secs_f64())
    }
}

/// Tries sums of device memory by MPI over sizes from 4 KB to 64 MB, whatever the library says of itself; what came of it, on rank
/// 0. Collective.
pub fn try_aware<B: Backend>(session: &Session, backend: &B) -> Result<Option<String>, Error> {
    let claim = aware::claim();
    if session.is_root() {
        eprintln!(
            "trying MPI_Allreduce of device memory over {} rank(s); {}. If a signal ends this, {} does not take device memory",
            session.world.size, claim.by, session.world.library
        );
    }
    let ask = Ask {
        path: TransportSetting::CudaAware,
        codec: FLOAT,
        allreduce: true,
        shared: false,
        out: Path::new(""),
        buckets: &SIZES,
        coded: false,
    };
    let trial = Trial { session, backend, ask: &ask };
    let found = match trial.known_answer(&Way::Aware)? {
        Ok(()) => {
            let (aware, staged) = (trial.time(&Way::Aware)?, trial.time(&Way::Staged)?);
            format!(
                "cuda-aware: its sums are right; {:.2} ms for all sizes, staged {:.2} ms",
                1e3 * aware,
                1e3 * staged
            )
        }
        Err(why) => {
            return session.agree(Err(Error::Failed(format!("not cuda-aware: {why}; use reduce.path = \"staged\""))));
        }
    };
    Ok(session.is_root().then_some(found))
}

/// The file that says that a trial is under way.
fn marker(out: &Path) -> PathBuf {
    out.join(".cuda-aware-trial")
}

fn mark(marker: &Path) -> Result<(), Error> {
    let text = "MPI_Allreduce of device memory is being tried; if this is still here later, it ended the process\n";
    Ok(crate::checkpoint::write_text(marker, text)?)
}
