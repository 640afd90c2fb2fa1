//! Benchmark of the gradient sum over all ranks. It compares three methods: a codec with the calling thread waiting for
//! each bucket, the same codec with all buckets queued on the MPI thread, and a plain MPI_Allreduce of f32.

use std::time::{Duration, Instant};

use base::text::did_you_mean;
use comm::codec::{Bucket, Entry, Key, Settings, Share, Tensor};
use comm::{Comm, World, codec};
use loaders::Draws;

use crate::error::Error;
use crate::train::agree::Session;
use crate::train::reduce::bucket_sum::Costs;
use crate::train::reduce::bucket_sum::SumStep;
use crate::train::reduce::host::HostSum;

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
    /// Milliseconds if all buckets are queued on the MPI thread at once. Nothing else is computed meanwhile.
    pub queued_ms: f64,
    /// Milliseconds for a plain MPI_Allreduce over the whole f32 buffer.
    pub plain_ms: f64,
    pub plain_ms_best: f64,
    /// Milliseconds for encoding, MPI and decoding, in this order, without overlap.
    pub parts_ms: [f64; 3],
    /// Bytes that this rank passes to MPI for the whole sum.
    pub wire_bytes: u64,
    /// Name and version of the MPI library.
    pub library: String,
}

/// Approximate number of bytes to sum per size. It determines how many times a sum is repeated.
const TRAFFIC: usize = 1 << 29;

/// Sums gradients of the given sizes in bytes over all ranks, in buckets of at most `bucket` bytes. The result is empty
/// on all ranks except 0.
///
/// Each repeat runs all three methods. The method that runs first changes from repeat to repeat, so that other load on
/// the machine affects all methods equally.
pub fn run(sizes: &[usize], bucket: usize, codec: &str) -> Result<Vec<Sums>, Error> {
    let entry = codec::find(codec).ok_or_else(|| {
        let (names, hint) = (codec::NAMES.join(", "), did_you_mean(codec, &codec::NAMES));
        Error::Usage(format!("unknown codec \"{codec}\"; the codecs are {names}{hint}"))
    })?;
    let session = Session::join(Comm::launch())?;
    let result = measure(&session, sizes, bucket, codec, entry);
    session.conclude(result)
}

fn measure(session: &Session, sizes: &[usize], bucket: usize, codec: &str, entry: &Entry) -> Result<Vec<Sums>, Error> {
    let options = format!("trireme bench allreduce\n--sizes {sizes:?}\n--bucket {bucket}\n--codec {codec}");
    session.same_start("none", &options)?;
    session.agree(sizes.iter().try_for_each(|bytes| fits(*bytes, loaders::memory::total())))?;
    let (rank, ranks) = (session.world.rank, session.world.size);
    let workers = if ranks > entry.most_workers {
        Err(Error::Usage(format!("codec {codec} supports at most {} ranks, got {ranks}", entry.most_workers)))
    } else {
        Ok(ranks)
    };
    let workers = session.agree(workers)?;
    let settings = Settings { workers, clip: 2.5, error_feedback: false };
    let mut results = Vec::new();
    for &bytes in sizes {
        let mut buckets = Buckets::new(bytes, bucket, entry, &settings, rank);
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
        results.push(Sums {
            bytes,
            bucket: bucket.min(bytes),
            ranks,
            ms: ms(&times[0], middle),
            ms_best: ms(&times[0], 0),
            queued_ms: ms(&times[1], middle),
            plain_ms: ms(&times[2], middle),
            plain_ms_best: ms(&times[2], 0),
            parts_ms: costs.each_ref().map(|part| ms(part, middle)),
            wire_bytes,
            library: session.world.library.clone(),
        });
    }
    if !session.is_root() {
        results.clear();
    }
    Ok(results)
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
        "--sizes: a sum of {bytes} bytes needs {} of memory per rank, but this machine has {}; use smaller sizes",
        gb(need as f64),
        gb(memory as f64)
    )))
}

/// The same gradients twice: divided into buckets as in training, and as one buffer.
struct Buckets {
    rank: usize,
    parts: Vec<(Vec<f32>, HostSum)>,
    /// Initial values, copied into the buckets before each sum.
    fresh: Vec<f32>,
    whole: Vec<f32>,
    /// Costs of the last sum without overlap.
    costs: Costs,
}

/// The step passed to all sums. It has no loss scaling, no comparison with codec `float`, and does not count zeros.
const STEP: SumStep =
    SumStep { done: 0, key: Key { seed: 1, step: 0 }, worker: 0, scaled: false, compare: false, count: false };

impl Buckets {
    fn new(bytes: usize, bucket: usize, entry: &codec::Entry, settings: &Settings, rank: usize) -> Self {
        let mut draws = Draws::new(1, rank as u64, 0, 0);
        let fresh: Vec<f32> = (0..bytes.div_ceil(4)).map(|_| (draws.unit() - 0.5) * 1e-2).collect();
        let part = |values: &[f32]| {
            let len = values.len();
            let tensor = Tensor { name: "bench".into(), parameter: 0, range: 0..len, elems: len, exempt: false };
            let bucket = Bucket { len, tensors: vec![tensor] };
            (values.to_vec(), HostSum::new(entry, bucket, settings, rank..rank + 1))
        };
        let parts = fresh.chunks((bucket / 4).max(1)).map(part).collect();
        Self { rank, parts, whole: fresh.clone(), fresh, costs: Costs::default() }
    }

    /// Restores the initial values. The sums are in place, so the values would grow from repeat to repeat.
    fn refresh(&mut self) {
        let mut rest = self.fresh.as_slice();
        for (part, _) in &mut self.parts {
            let (fresh, others) = rest.split_at(part.len());
            part.copy_from_slice(fresh);
            rest = others;
        }
    }

    fn own(&mut self, comm: &Comm) -> Result<Duration, Error> {
        self.refresh();
        self.costs = Costs::default();
        comm.run("barrier of the benchmark", World::barrier)?;
        let start = Instant::now();
        for (part, sum) in &mut self.parts {
            let mut share = [Share { worker: self.rank, gradients: part }];
            self.costs +=
                comm.run("gradient sum of the benchmark", |world| Ok(sum.reduce(world, &mut share, &STEP)))??;
        }
        Ok(start.elapsed())
    }

    fn queued(&mut self, comm: &Comm) -> Result<Duration, Error> {
        self.refresh();
        comm.run("barrier of the benchmark", World::barrier)?;
        let (start, worker) = (Instant::now(), self.rank);
        let hand_over = |(mut part, mut sum): (Vec<f32>, HostSum)| {
            comm.start("gradient sum of the benchmark", move |world| {
                let done = sum.reduce(world, &mut [Share { worker, gradients: &mut part }], &STEP);
                Ok(done.map(|_| (part, sum)))
            })
        };
        let pending: Vec<_> = self.parts.drain(..).map(hand_over).collect();
        for part in pending {
            self.parts.push(part.wait()??);
        }
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
