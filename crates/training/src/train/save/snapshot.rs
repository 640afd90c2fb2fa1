//! Snapshots of a run's state, taken between two steps, and the thread that writes them to checkpoint files. Training
//! waits only until the memory is copied.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use backend::{Arena, Backend, Buffer};
use crossbeam_channel::{Receiver, bounded};
use formats::checkpoint::{ModelFile, Progress, StateFile, Tensor};
use loaders::crc32c::crc32c_append;
use loaders::on_threads;

use crate::error::Error;
use crate::train::agree::Session;
use crate::train::plan::run::Run;
use crate::train::reduce::bucket_sum::{from_bytes, to_bytes};
use crate::train::save::hand_over::HandOver;
use crate::train::save::model::Exporter;

/// Maximum number of threads that copy. More threads do not increase the bandwidth of the memory.
const COPIERS: usize = 4;

/// Memory for a copy of a run's state. It is reused for all snapshots, because allocating it again would take longer
/// than the copy.
pub struct Snapshot<B: Backend> {
    weights: Arena<B>,
    running: Vec<f32>,
    slots: Vec<(&'static str, Arena<B>)>,
    ema: Option<(Arena<B>, Vec<f32>)>,
}

impl<B: Backend> Snapshot<B> {
    /// Allocates memory for copies of `run`.
    pub fn new(run: &Run<B>) -> Result<Self, Error> {
        let (backend, buckets) = (run.graph.backend(), &run.graph.layout().buckets);
        let fresh = || Arena::new(backend, buckets).map_err(for_checkpoints);
        let slots = run.optimizer.slots().map(|(name, _)| Ok((name, fresh()?)));
        let running = run.graph.running().to_vec();
        let ema = run.ema.as_ref().map(|ema| Ok::<_, Error>((fresh()?, ema.running.clone()))).transpose()?;
        Ok(Self { weights: fresh()?, slots: slots.collect::<Result<_, Error>>()?, running, ema })
    }

    /// Returns the size in bytes of a copy of `run`. Writing this copy to a file needs the same memory again.
    pub fn bytes_of(run: &Run<B>) -> usize {
        let arenas = 1 + run.optimizer.slots().count() + usize::from(run.ema.is_some());
        4 * arenas * run.graph.layout().buckets.iter().sum::<usize>()
    }

    /// Copies the state of `run` into this memory.
    pub fn take(&mut self, run: &Run<B>) -> Result<(), Error> {
        let (backend, mut pairs) = (run.graph.backend(), Vec::new());
        pair(backend, &mut self.weights, run.graph.weights(), &mut pairs)?;
        for ((_, to), (_, from)) in self.slots.iter_mut().zip(run.optimizer.slots()) {
            pair(backend, to, from, &mut pairs)?;
        }
        self.running.copy_from_slice(run.graph.running());
        if let (Some((to, running)), Some(from)) = (&mut self.ema, &run.ema) {
            pair(backend, to, &from.weights, &mut pairs)?;
            running.copy_from_slice(&from.running);
        }
        copy(pairs);
        Ok(())
    }

    /// Writes to every page of the memory on the host, so that the system allocates the pages before the first
    /// snapshot.
    fn touch(&mut self) -> Result<(), backend::Error> {
        let slots = self.slots.iter_mut().map(|slot| &mut slot.1);
        let arenas = std::iter::once(&mut self.weights).chain(slots).chain(self.ema.as_mut().map(|ema| &mut ema.0));
        let mut buckets = arenas.flat_map(|arena| &mut arena.buckets).filter(|bucket| bucket.host().is_some());
        buckets.try_for_each(|bucket| bucket.staged().map(|values| values.fill(0.0)))
    }
}

/// If `error` reports missing memory, adds that the memory was for checkpoints.
fn for_checkpoints(error: backend::Error) -> backend::Error {
    let what = "the copy for checkpoints".to_string();
    match error {
        backend::Error::Memory { bytes, .. } => backend::Error::Memory { what, bytes },
        backend::Error::DeviceMemory { need, have, .. } => backend::Error::DeviceMemory { what, need, have },
        error => error,
    }
}

/// Pairs of a destination and a source.
type Pairs<'a> = Vec<(&'a mut [f32], &'a [f32])>;

/// Copies `from` to `to`. Device memory is copied asynchronously. For host memory, only adds the copies to make to
/// `pairs`.
fn pair<'a, B: Backend>(
    backend: &B,
    to: &'a mut Arena<B>,
    from: &'a Arena<B>,
    pairs: &mut Pairs<'a>,
) -> Result<(), Error> {
    for (to, from) in to.buckets.iter_mut().zip(&from.buckets) {
        match from.host() {
            Some(from) => pairs.push((to.staged()?, from)),
            None => {
                backend.copy(to, from)?;
                backend.queue().map_or(Ok(()), |queue| queue.mark(to))?;
            }
        }
    }
    Ok(())
}

/// Copies all pairs, in about equal parts on a few threads.
fn copy(pairs: Pairs<'_>) {
    let all: usize = pairs.iter().map(|pair| pair.1.len()).sum();
    let threads = if all < 1 << 20 { 1 } else { COPIERS };
    let mut parts: Vec<Pairs<'_>> = (0..threads).map(|_| Vec::new()).collect();
    let mut before = 0;
    for pair in pairs {
        let part = before * threads / all.max(1);
        before += pair.1.len();
        parts[part].push(pair);
    }
    on_threads(threads, parts.into_iter(), |part| {
        part.into_iter().for_each(|(to, from)| to.copy_from_slice(from));
    });
}

/// A checkpoint to write, with everything that the writer thread needs.
pub struct CheckpointJob<B: Backend> {
    pub snapshot: Snapshot<B>,
    /// The model file without weights.
    pub head: ModelFile,
    pub progress: Progress,
    /// For each rank, the bytes of its workers' residuals, worker by worker. Empty without error feedback.
    pub residuals: Vec<Vec<u8>>,
    pub path: PathBuf,
    /// How long training waited for the copy.
    pub waited: Duration,
}

pub struct WrittenCheckpoint<B: Backend> {
    /// The memory of the snapshot, to be reused for the next one.
    pub snapshot: Snapshot<B>,
    pub progress: Progress,
    pub path: PathBuf,
    pub waited: Duration,
    /// The size of the file in bytes.
    pub result: Result<u64, Error>,
    pub took: Duration,
}

pub struct Writer<B: Backend> {
    thread: HandOver<CheckpointJob<B>, WrittenCheckpoint<B>>,
    /// Receives the memory for the first snapshot after the thread has touched its pages.
    fresh: Receiver<Result<Snapshot<B>, backend::Error>>,
    idle: Option<Snapshot<B>>,
}

impl<B: Backend> Writer<B> {
    /// Starts the thread that writes the checkpoints of `run`.
    pub fn start(run: &Run<B>) -> Result<Self, Error> {
        let exporter = Exporter::new(&run.graph);
        let buckets: Arc<[usize]> = run.graph.layout().buckets.as_slice().into();
        let mut first = Snapshot::new(run)?;
        let (fresh_in, fresh) = bounded(1);
        let touch = move || {
            let touched = first.touch();
            // this fails only if the receiver was dropped, and then the memory is not needed
            let _ = fresh_in.send(touched.map(|()| first));
        };
        let work = move |mut job: CheckpointJob<B>| {
            let begin = Instant::now();
            let residuals = std::mem::take(&mut job.residuals);
            let result = write(&job, residuals, &exporter, &buckets);
            let CheckpointJob { snapshot, progress, path, waited, .. } = job;
            WrittenCheckpoint { snapshot, progress, path, waited, result, took: begin.elapsed() }
        };
        let thread = HandOver::start("checkpoint", touch, work)
            .map_err(|error| Error::Failed(format!("cannot start the thread that writes checkpoints: {error}")))?;
        Ok(Self { thread, fresh, idle: None })
    }

    /// Returns true while a file is being written.
    pub fn is_busy(&self) -> bool {
        self.thread.is_busy()
    }

    /// Returns the result of the last job if it is ready. With `wait` set, waits for it.
    pub fn poll(&mut self, wait: bool) -> Option<WrittenCheckpoint<B>> {
        self.thread.poll(wait)
    }

    /// Returns memory for the next snapshot. No job may be in progress.
    pub fn snapshot(&mut self) -> Result<Snapshot<B>, Error> {
        self.idle.take().map_or_else(|| Ok(self.fresh.recv().map_err(|_| gone())??), Ok)
    }

    /// Takes back the memory of a written snapshot.
    pub fn give_back(&mut self, snapshot: Snapshot<B>) {
        self.idle = Some(snapshot);
    }

    pub fn write(&mut self, job: CheckpointJob<B>) -> Result<(), Error> {
        self.thread.give(job).map_err(|_| gone())
    }
}

fn gone() -> Error {
    Error::Failed("the thread that writes checkpoints has ended unexpectedly".into())
}

fn write<B: Backend>(
    job: &CheckpointJob<B>,
    ranks: Vec<Vec<u8>>,
    exporter: &Exporter<B>,
    buckets: &[usize],
) -> Result<u64, Error> {
    let Snapshot { weights, running, slots, ema } = &job.snapshot;
    let layers = exporter.layers(weights, running)?;
    let ema = ema.as_ref().map(|(weights, running)| exporter.layers(weights, running)).transpose()?;
    let slots = slots.iter().map(|(name, arena)| Ok((name.to_string(), exporter.tensors(arena)?)));
    let state = StateFile {
        model: ModelFile { layers, ema: ema.unwrap_or_default(), ..job.head.clone() },
        slots: slots.collect::<Result<_, Error>>()?,
        residuals: residuals(exporter, buckets, ranks)?,
        progress: job.progress.clone(),
    };
    Ok(state.write(&job.path)?)
}

/// Converts the bytes from each rank to residuals per worker. Starts with the last worker, and frees its bytes before it
/// converts the next one.
fn residuals<B: Backend>(
    exporter: &Exporter<B>,
    buckets: &[usize],
    ranks: Vec<Vec<u8>>,
) -> Result<Vec<Vec<Tensor>>, Error> {
    let each = 4 * buckets.iter().sum::<usize>();
    let mut flat: Vec<Vec<f32>> = buckets.iter().map(|&len| vec![0.0; len]).collect();
    let mut workers = Vec::new();
    for mut rank in ranks.into_iter().rev() {
        while let Some(start) = rank.len().checked_sub(each.max(1)) {
            let mut bytes = &rank[start..];
            for bucket in &mut flat {
                let (own, rest) = bytes.split_at(4 * bucket.len());
                from_bytes(own, bucket);
                bytes = rest;
            }
            workers.push(exporter.tensors_of(&flat)?);
            rank.truncate(start);
            rank.shrink_to_fit();
        }
    }
    workers.reverse();
    Ok(workers)
}

/// Returns three CRC-32C digests: of the parameters, of the running statistics, and of the optimizer state with the
/// averaged weights. They cover names and values of tensors in plain layout.
pub fn state<B: Backend>(run: &Run<B>) -> Result<String, Error> {
    let graph = &run.graph;
    let (mut parameters, mut optimizer) = (0, 0);
    for (index, p) in graph.params().iter().enumerate() {
        parameters = extend(parameters, &p.name, &graph.param(index)?);
        let averages = run.ema.iter().map(|ema| ("ema", &ema.weights));
        for (slot, arena) in run.optimizer.slots().chain(averages) {
            optimizer = extend(extend(optimizer, slot, &[]), &p.name, &graph.unpack(index, arena)?);
        }
    }
    let statistics = extend(0, "running", graph.running());
    Ok(format!("{parameters:08x}-{statistics:08x}-{optimizer:08x}"))
}

fn extend(crc: u32, name: &str, values: &[f32]) -> u32 {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    crc32c_append(crc32c_append(crc, name.as_bytes()), &bytes)
}

/// Broadcasts rank 0's arena. Collective.
pub fn broadcast_arena<B: Backend>(session: &Session, arena: &mut Arena<B>) -> Result<(), Error> {
    arena.buckets.iter_mut().filter(|_| session.world.size > 1).try_for_each(|bucket| {
        bucket.fetch()?;
        broadcast_values(session, bucket.staged()?)?;
        Ok(bucket.unstage()?)
    })
}

/// Broadcasts rank 0's weights and running statistics. Restarts the averaged weights and the strategy from them.
/// Collective.
pub fn share<B: Backend>(session: &Session, run: &mut Run<B>) -> Result<(), Error> {
    broadcast_arena(session, run.graph.arenas().1)?;
    broadcast_values(session, run.graph.running_mut())?;
    run.ema.as_mut().map_or(Ok(()), |averages| averages.restart(&run.graph))?;
    Ok(run.strategy.restart(run.graph.backend(), run.graph.weights())?)
}

/// Broadcasts rank 0's values. Collective.
pub fn broadcast_values(session: &Session, values: &mut [f32]) -> Result<(), Error> {
    if session.world.size == 1 {
        return Ok(());
    }
    let mut bytes = Vec::new();
    if session.is_root() {
        to_bytes(values, &mut bytes);
    }
    let bytes = session.comm.run("a part of the checkpoint", move |world| {
        world.broadcast(&mut bytes)?;
        Ok(bytes)
    })?;
    from_bytes(&bytes, values);
    Ok(())
}
