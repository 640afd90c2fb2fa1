//! The sum over all ranks by the ways that gradients take, against plain MPI_Allreduce of the same MPI, in turn.

use std::time::{Duration, Instant};

use crate::comm::{Comm, Error as CommError, World};
use crate::train::Error;
use crate::train::session::Session;

/// One size's times; each is the median over the repeats unless it says otherwise.
pub struct Sums {
    /// Bytes of the buffer.
    pub bytes: usize,
    /// Bytes of one bucket of it.
    pub bucket: usize,
    /// Ranks.
    pub ranks: usize,
    /// Milliseconds, bucket after bucket by the compute thread: the way without overlap.
    pub ms: f64,
    /// The fastest.
    pub ms_best: f64,
    /// Milliseconds with all buckets handed to the thread that owns MPI: the way with overlap, but nothing beside it.
    pub queued_ms: f64,
    /// Milliseconds of one plain MPI_Allreduce over the whole buffer.
    pub plain_ms: f64,
    /// The fastest.
    pub plain_ms_best: f64,
    /// The MPI library.
    pub library: String,
}

/// Bytes that the repeats of one size add up to, roughly.
const TRAFFIC: usize = 1 << 29;

/// Sums f32 buffers of these sizes over all ranks, in buckets of at most `bucket` bytes; empty on ranks other than 0.
///
/// Each repeat takes all ways one after another, beginning with another one each time, so that what disturbs the machine
/// disturbs all alike.
pub fn run(sizes: &[usize], bucket: usize) -> Result<Vec<Sums>, Error> {
    let session = Session::join(Comm::launch())?;
    let mut results = Vec::new();
    for &bytes in sizes {
        let mut buckets = Buckets::new(bytes, bucket);
        let repeats = TRAFFIC.div_ceil(bytes).clamp(10, 200);
        let mut times: [Vec<Duration>; 3] = Default::default();
        for repeat in 0..repeats {
            for way in (0..3).map(|i| (i + repeat) % 3) {
                let time = match way {
                    0 => buckets.own(&session.comm),
                    1 => buckets.queued(&session.comm),
                    _ => buckets.plain(&session.comm),
                };
                times[way].push(time?);
            }
        }
        times.iter_mut().for_each(|t| t.sort_unstable());
        let ms = |way: usize, at: usize| times[way][at].as_secs_f64() * 1e3;
        results.push(Sums {
            bytes,
            bucket: bucket.min(bytes),
            ranks: session.world.size,
            ms: ms(0, repeats / 2),
            ms_best: ms(0, 0),
            queued_ms: ms(1, repeats / 2),
            plain_ms: ms(2, repeats / 2),
            plain_ms_best: ms(2, 0),
            library: session.world.library.clone(),
        });
    }
    session.comm.finish()?;
    if !session.is_root() {
        results.clear();
    }
    Ok(results)
}

/// One buffer, cut into buckets as the gradients are, and whole.
struct Buckets {
    parts: Vec<Vec<f32>>,
    whole: Vec<f32>,
}

impl Buckets {
    fn new(bytes: usize, bucket: usize) -> Self {
        let whole = vec![0f32; bytes.div_ceil(4)];
        Self { parts: whole.chunks((bucket / 4).max(1)).map(<[f32]>::to_vec).collect(), whole }
    }

    fn own(&mut self, comm: &Comm) -> Result<Duration, CommError> {
        comm.run("barrier of the bench", World::barrier)?;
        let start = Instant::now();
        for part in &mut self.parts {
            comm.run("sum of the bench", |world| world.sum_f32(part))?;
        }
        Ok(start.elapsed())
    }

    fn queued(&mut self, comm: &Comm) -> Result<Duration, CommError> {
        comm.run("barrier of the bench", World::barrier)?;
        let start = Instant::now();
        let hand_over = |mut part: Vec<f32>| {
            comm.start("sum of the bench", move |world| {
                world.sum_f32(&mut part)?;
                Ok(part)
            })
        };
        let pending: Vec<_> = self.parts.drain(..).map(hand_over).collect();
        for part in pending {
            self.parts.push(part.wait()?);
        }
        Ok(start.elapsed())
    }

    fn plain(&mut self, comm: &Comm) -> Result<Duration, CommError> {
        comm.run("plain sum of the bench", |world| {
            world.barrier()?;
            let start = Instant::now();
            world.sum_f32(&mut self.whole)?;
            Ok(start.elapsed())
        })
    }
}
