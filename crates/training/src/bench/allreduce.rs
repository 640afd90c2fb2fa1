//! The sum of gradients over all ranks, with any codec, by the caller and by the MPI thread, against plain MPI_Allreduce of f32 of the
//! same MPI, in turn.

use std::time::{Duration, Instant};

use comm::codec::{Bucket, Key, Settings, Share, Tensor};
use comm::{Comm, World, codec};
use loaders::Draws;

use crate::error::Error;
use crate::train::agree::Session;
use crate::train::reduce::bucket_sum::Costs;
use crate::train::reduce::bucket_sum::SumStep;
use crate::train::reduce::host::HostSum;

/// One size's times; each is the median over the repeats unless it says otherwise.
pub struct Sums {
    /// Bytes of the gradients.
    pub bytes: usize,
    /// Bytes of one bucket of them.
    pub bucket: usize,
    /// Ranks.
    pub ranks: usize,
    /// Milliseconds, bucket after bucket by the compute thread: the way without overlap.
    pub ms: f64,
    /// The fastest.
    pub ms_best: f64,
    /// Milliseconds with all buckets handed to the thread that owns MPI: the way with overlap, but nothing beside it.
    pub queued_ms: f64,
    /// Milliseconds of one plain MPI_Allreduce over the whole buffer as f32.
    pub plain_ms: f64,
    /// The fastest.
    pub plain_ms_best: f64,
    /// Milliseconds of encoding, inside MPI, of decoding, of the way without overlap.
    pub parts_ms: [f64; 3],
    /// Bytes handed to MPI.
    pub wire_bytes: u64,
    /// The MPI library.
    pub library: String,
}

/// Bytes that the repeats of one size add up to, roughly.
const TRAFFIC: usize = 1 << 29;

/// Sums gradients of these sizes over all ranks, in buckets of at most `bucket` bytes; empty on ranks other than 0.
///
/// Each repeat takes all ways one after another, beginning with another one each time, so that what disturbs the machine
/// disturbs all alike.
pub fn run(sizes: &[usize], bucket: usize, codec: &str) -> Result<Vec<Sums>, Error> {
    let entry = codec::find(codec)
        .ok_or_else(|| Error::Usage(format!("no codec \"{codec}\"; there are {}", codec::NAMES.join(", "))))?;
    let session = Session::join(Comm::launch())?;
    let options = format!("trireme bench allreduce\n--sizes {sizes:?}\n--bucket {bucket}\n--codec {codec}");
    session.same_start("none", &options)?;
    session.agree(sizes.iter().try_for_each(|bytes| fits(*bytes, loaders::memory::total())))?;
    let (rank, ranks) = (session.world.rank, session.world.size);
    let workers = if ranks > entry.most_workers {
        Err(Error::Usage(format!("codec {codec} takes {} ranks at most, got {ranks}", entry.most_workers)))
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
    session.comm.finish()?;
    if !session.is_root() {
        results.clear();
    }
    Ok(results)
}

/// Fails for gradients whose copies here (fresh, in buckets, whole, and encoded) the machine's `memory` could not hold.
fn fits(bytes: usize, memory: u64) -> Result<(), Error> {
    let need = 4 * bytes as u128;
    if need <= u128::from(memory) {
        return Ok(());
    }
    let gb = |bytes: f64| format!("{:.1} GB", bytes / 1e9);
    Err(Error::Usage(format!(
        "--sizes: sums of {bytes} bytes take {} of memory a rank, this machine has {}; try smaller ones",
        gb(need as f64),
        gb(memory as f64)
    )))
}

/// Gradients, cut into buckets as in training, and whole.
struct Buckets {
    rank: usize,
    parts: Vec<(Vec<f32>, HostSum)>,
    /// What the parts hold before each sum.
    fresh: Vec<f32>,
    whole: Vec<f32>,
    /// Of the last sum by this thread.
    costs: Costs,
}

/// The one step that is done again and again.
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

    /// Sums in place would grow from repeat to repeat.
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
        comm.run("barrier of the bench", World::barrier)?;
        let start = Instant::now();
        for (part, sum) in &mut self.parts {
            let mut share = [Share { worker: self.rank, gradients: part }];
            self.costs += comm.run("sum of the bench", |world| Ok(sum.reduce(world, &mut share, &STEP)))??;
        }
        Ok(start.elapsed())
    }

    fn queued(&mut self, comm: &Comm) -> Result<Duration, Error> {
        self.refresh();
        comm.run("barrier of the bench", World::barrier)?;
        let (start, worker) = (Instant::now(), self.rank);
        let hand_over = |(mut part, mut sum): (Vec<f32>, HostSum)| {
            comm.start("sum of the bench", move |world| {
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
        let took = comm.run("plain sum of the bench", |world| {
            world.barrier()?;
            let start = Instant::now();
            world.sum_f32(&mut self.whole)?;
            Ok(start.elapsed())
        })?;
        Ok(took)
    }
}
