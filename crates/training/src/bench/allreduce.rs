//! Benchmarks gradient sums over all ranks. It compares three methods: a codec on the calling thread, the same codec on
//! the MPI thread, and a plain MPI_Allreduce with f32. On GPUs the first two sum device memory with the same transport
//! as in training.

use std::time::{Duration, Instant};

use backend::{Backend, Buffer};
use base::text::did_you_mean;
use comm::codec::{Bucket, Entry, Settings, Tensor};
use comm::{Comm, World, codec};
use loaders::Draws;
use recipe::TransportSetting;

use super::exchange::time_sum;
use crate::device::{Device, DeviceChoice, DeviceSettings, F32_SETTINGS};
use crate::error::Error;
use crate::train::agree::Session;
use crate::train::agree::gpus;
use crate::train::reduce::bucket_sum::{BucketSum, Costs, Pending, SumStep, Summed};
use crate::train::reduce::plan::bucket_sum;
use crate::train::reduce::transport::{self, Choice, Transport, TransportRequest};

pub struct AllreduceRequest {
    /// Sizes in bytes of the gradients to sum.
    pub sizes: Vec<usize>,
    /// Maximum bytes per bucket.
    pub bucket: usize,
    pub codec: String,
    pub device: DeviceChoice,
    /// Transport for gradients, with the same values as `reduce.path` in a recipe.
    pub path: TransportSetting,
    pub share_gpu: bool,
}

/// Times for one size of gradients. Each is the median of all repeats unless the name says `best`.
pub struct Sums {
    /// Bytes of all gradients as f32.
    pub bytes: usize,
    /// Bytes of gradients per bucket.
    pub bucket: usize,
    pub ranks: usize,
    /// Milliseconds if the calling thread waits for each bucket's sum before it requests the next one.
    pub ms: f64,
    pub ms_best: f64,
    /// Milliseconds if all buckets are queued on the MPI thread or, with NCCL, on the device. No other computation runs
    /// at the same time.
    pub queued_ms: f64,
    /// Milliseconds for a plain MPI_Allreduce over the whole f32 buffer in host memory.
    pub plain_ms: f64,
    pub plain_ms_best: f64,
    /// Milliseconds for encoding, MPI and decoding, without overlap. `None` with NCCL, because the host then only
    /// enqueues the work.
    pub parts_ms: Option<[f64; 3]>,
    /// Bytes that this rank sends for the whole sum.
    pub wire_bytes: u64,
    /// Transport for the gradients: `host` between CPUs, otherwise a value of `reduce.path`.
    pub path: &'static str,
    /// Reasons for the choice of transport on GPUs. Empty if there is no choice.
    pub why: String,
    /// Name and version of the MPI library.
    pub library: String,
}

/// Approximate number of bytes to sum per size. It determines how many times a sum is repeated.
const TRAFFIC: usize = 1 << 29;

/// Sums gradients with the requested sizes over all ranks. The result is empty on all ranks except 0.
///
/// Each repeat runs all three methods. The method that runs first changes from repeat to repeat, so that other load on
/// the machine affects all methods equally.
pub fn run<D: Device>(device: &D, request: &AllreduceRequest) -> Result<Vec<Sums>, Error> {
    Session::run(|session| measure(device, session, request))
}

/// Returns the codec with this name, or an error that lists all codecs.
fn entry(codec: &str) -> Result<&'static Entry, Error> {
    codec::find(codec).ok_or_else(|| {
        let (names, hint) = (codec::NAMES.join(", "), did_you_mean(codec, &codec::NAMES));
        Error::Usage(format!("unknown codec \"{codec}\"; the codecs are {names}{hint}"))
    })
}

fn measure<D: Device>(device: &D, session: &mut Session, request: &AllreduceRequest) -> Result<Vec<Sums>, Error> {
    let AllreduceRequest { sizes, bucket, codec, path, share_gpu, device: _ } = request;
    let options = format!(
        "trireme bench allreduce\n--sizes {sizes:?}\n--bucket {bucket}\n--codec {codec}\n--path {path}\n--share-gpu {share_gpu}"
    );
    session.same_start((D::NAME, device.why_chosen()), &options)?;
    let entry = session.agree(entry(codec))?;
    // adds notes about cores that ranks share, which make the sums slower
    session.cores()?;
    let memory = loaders::memory::share(session.world.node_size);
    session.agree(sizes.iter().try_for_each(|bytes| fits(*bytes, memory)))?;
    let (rank, ranks) = (session.world.rank, session.world.size);
    let workers = if ranks > entry.most_workers {
        Err(Error::Usage(format!("codec {codec} supports at most {} ranks, got {ranks}", entry.most_workers)))
    } else {
        Ok(ranks)
    };
    let workers = session.agree(workers)?;
    let settings = Settings { workers, clip: 2.5, error_feedback: false };
    let opened = device.open(&DeviceSettings { node_rank: session.world.node_rank, ..F32_SETTINGS });
    let backend = session.agree(opened.map_err(Error::from))?;
    let checked = gpus::check(session, device.gpu(&backend).as_ref(), *share_gpu)?;
    session.notes.extend(checked.notes);
    session.notes.extend(device.why_chosen().map(String::from));
    session.print_notes();
    let queues = backend.queue().is_some();
    session.agree(transport::check(*path, codec, queues))?;
    let largest = sizes.iter().copied().max().unwrap_or(4);
    let lengths: Vec<usize> = parts(largest, *bucket).collect();
    let on_device = Some(&backend).filter(|_| queues && *path != TransportSetting::Staged);
    let sum = |len: usize| {
        let tensor = Tensor { name: "bench".into(), parameter: 0, range: 0..len, elems: len, exempt: false };
        bucket_sum(entry, Bucket { len, tensors: vec![tensor] }, &settings, rank..rank + 1, on_device)
    };
    let coded = sum(lengths.first().copied().unwrap_or(1))?.codes_on_device();
    let wanted = TransportRequest {
        path: *path,
        codec: entry,
        allreduce: true,
        no_nccl: checked.no_nccl.as_deref(),
        out: None,
        buckets: &lengths,
        coded,
        even: true,
    };
    let Choice { transport, why } = transport::choose(session, &backend, &wanted)?;
    let path = match &transport {
        Transport::Host if !queues => "host",
        Transport::Host if coded => "coded",
        other => other.name(),
    };
    let mut results = Vec::new();
    for &bytes in sizes {
        let sums = parts(bytes, *bucket).map(sum).collect::<Result<_, _>>()?;
        let mut buckets = Buckets::new(&backend, bytes, *bucket, transport.carry(sums), rank)?;
        let repeats = TRAFFIC.div_ceil(bytes).clamp(10, 200);
        let mut times: [Vec<Duration>; 3] = Default::default();
        let mut costs: [Vec<Duration>; 3] = Default::default();
        let mut wire_bytes = 0;
        for repeat in 0..repeats {
            for way in (0..3).map(|i| (i + repeat) % 3) {
                let time = match way {
                    0 => buckets.own(&session.comm),
                    1 => buckets.queued(&session.comm),
                    _ => buckets.plain(&session.comm),
                };
                times[way].push(time?);
                if way == 0 {
                    let Costs { encode, wire, decode, bytes, .. } = buckets.costs;
                    costs.iter_mut().zip([encode, wire, decode]).for_each(|(all, one)| all.push(one));
                    wire_bytes = bytes;
                }
            }
        }
        times.iter_mut().chain(&mut costs).for_each(|t| t.sort_unstable());
        let ms = |times: &[Duration], at: usize| times[at].as_secs_f64() * 1e3;
        let middle = repeats / 2;
        let enqueued = matches!(transport, Transport::Nccl(_));
        results.push(Sums {
            bytes,
            bucket: (*bucket).min(bytes),
            ranks,
            ms: ms(&times[0], middle),
            ms_best: ms(&times[0], 0),
            queued_ms: ms(&times[1], middle),
            plain_ms: ms(&times[2], middle),
            plain_ms_best: ms(&times[2], 0),
            parts_ms: (!enqueued).then(|| costs.each_ref().map(|part| ms(part, middle))),
            wire_bytes,
            path,
            why: why.clone(),
            library: session.world.library.clone(),
        });
    }
    transport.group().map_or(Ok(()), |group| group.retire(&session.comm))?;
    if !session.is_root() {
        results.clear();
    }
    Ok(results)
}

/// Divides `bytes` bytes of f32 gradients into buckets of at most `bucket` bytes. Returns the number of elements in
/// each bucket.
fn parts(bytes: usize, bucket: usize) -> impl Iterator<Item = usize> {
    let (all, each) = (bytes.div_ceil(4), (bucket / 4).max(1));
    (0..all.div_ceil(each)).map(move |part| each.min(all - part * each))
}

/// Returns an error if the buffers for `bytes` of gradients do not fit in `memory` bytes. There are four buffers of
/// this size: initial values, buckets, the whole gradients in one buffer, and encoded gradients.
fn fits(bytes: usize, memory: u64) -> Result<(), Error> {
    let need = 4 * bytes as u128;
    if need <= u128::from(memory) {
        return Ok(());
    }
    let gb = |bytes: f64| format!("{:.1} GB", bytes / 1e9);
    Err(Error::Usage(format!(
        "--sizes: a sum of {bytes} bytes needs {} of memory per rank, but a rank can use at most {} here; use smaller sizes",
        gb(need as f64),
        gb(memory as f64)
    )))
}

/// The gradients that the benchmark sums, stored twice: divided into buckets as in training, and in one buffer.
struct Buckets<'a, B: Backend> {
    backend: &'a B,
    step: SumStep,
    parts: Vec<(B::Buf, Box<dyn BucketSum<B>>)>,
    /// Initial values, copied into the buckets before each sum.
    fresh: Vec<f32>,
    whole: Vec<f32>,
    /// Costs of the last sum without overlap.
    costs: Costs,
}

impl<'a, B: Backend> Buckets<'a, B> {
    fn new(
        backend: &'a B,
        bytes: usize,
        bucket: usize,
        sums: Vec<Box<dyn BucketSum<B>>>,
        rank: usize,
    ) -> Result<Self, Error> {
        let mut draws = Draws::new(1, rank as u64, 0, 0);
        let fresh: Vec<f32> = (0..bytes.div_ceil(4)).map(|_| (draws.unit() - 0.5) * 1e-2).collect();
        let parts = parts(bytes, bucket).zip(sums).map(|(len, sum)| Ok((backend.alloc(len)?, sum)));
        let parts = parts.collect::<Result<_, Error>>()?;
        let step = SumStep { worker: rank, ..SumStep::TRIAL };
        Ok(Self { backend, step, parts, whole: fresh.clone(), fresh, costs: Costs::default() })
    }

    /// Restores the initial values. The sums are in place, so the values would grow from repeat to repeat.
    fn refresh(&mut self) -> Result<(), Error> {
        let mut rest = self.fresh.as_slice();
        for (part, _) in &mut self.parts {
            let (fresh, others) = rest.split_at(part.len());
            part.write(0, fresh)?;
            self.backend.queue().map_or(Ok(()), |queue| queue.mark(part))?;
            rest = others;
        }
        Ok(())
    }

    fn own(&mut self, comm: &Comm) -> Result<Duration, Error> {
        self.refresh()?;
        self.costs = Costs::default();
        comm.run("barrier of the benchmark", World::barrier)?;
        let start = Instant::now();
        for (part, sum) in &mut self.parts {
            self.costs += time_sum(comm, sum.as_mut(), part, &self.step)?;
        }
        Ok(start.elapsed())
    }

    fn queued(&mut self, comm: &Comm) -> Result<Duration, Error> {
        self.refresh()?;
        comm.run("barrier of the benchmark", World::barrier)?;
        let start = Instant::now();
        let pending: Vec<Pending<B>> = self
            .parts
            .drain(..)
            .map(|(part, sum)| sum.start(comm, vec![part], self.step, true))
            .collect::<Result<_, _>>()?;
        for pending in pending {
            let Summed { mut gradients, sum, .. } = pending.finish(comm)?;
            self.parts.extend(gradients.pop().map(|part| (part, sum)));
        }
        self.parts.iter().try_for_each(|(part, _)| part.read(0, &mut [0.0]))?;
        Ok(start.elapsed())
    }

    fn plain(&mut self, comm: &Comm) -> Result<Duration, Error> {
        self.whole.copy_from_slice(&self.fresh);
        let took = comm.run("plain sum of the benchmark", |world| {
            world.barrier()?;
            let start = Instant::now();
            world.sum_f32(&mut self.whole)?;
            Ok(start.elapsed())
        })?;
        Ok(took)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_cover_all_gradients() {
        let of = |bytes, bucket| parts(bytes, bucket).collect::<Vec<_>>();
        assert_eq!(of(40_000, 20_000), [5_000, 5_000]);
        assert_eq!(of(41, 16), [4, 4, 3]);
        assert_eq!((of(3, 1 << 20), of(8, 1)), (vec![1], vec![1, 1]));
    }
}
