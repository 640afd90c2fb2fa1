//! Trials of a transport on the buckets of a run: sums of known answer, and times.

use std::slice::from_mut;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use backend::{Backend, Buffer};
use comm::codec::Key;
use comm::{World, known_answer};

use crate::error::Error;
use crate::train::agree::session::Session;
use crate::train::reduce::bucket_sum::SumStep;
use crate::train::reduce::transport::Transport;

/// Rounds of a timing; the fastest counts.
const ROUNDS: usize = 3;

/// A trial's step; f32 as they are need nothing of it.
const STEP: SumStep =
    SumStep { done: 0, key: Key { seed: 0, step: 0 }, worker: 0, scaled: false, compare: false, count: false };

/// A transport that works, the same on all ranks.
pub struct Found<B: Backend> {
    /// The transport.
    pub transport: Transport<B>,
    /// Why it can be used.
    pub why: String,
}

/// The ranks, the device and the buckets of a trial.
pub struct Trial<'a, B: Backend> {
    /// All ranks.
    pub session: &'a Session,
    /// This rank's device.
    pub backend: &'a B,
    /// Elements of each bucket.
    pub buckets: &'a [usize],
}

impl<B: Backend> Trial<'_, B> {
    /// Whether it is true on all ranks.
    pub fn all(&self, yes: bool) -> Result<bool, Error> {
        Ok(self.session.comm.all("agreement on a transport", yes)?)
    }

    /// What stands in the way of any rank: the first one's reason, with its number unless all have the same. Collective.
    fn obstacle(&self, own: Option<String>) -> Result<Option<String>, Error> {
        let all = self.session.comm.gather_all("agreement on a transport", &own)?;
        let Some(rank) = all.iter().position(Option::is_some) else { return Ok(None) };
        let alike = all.iter().all(|other| *other == all[rank]);
        let name = |why: String| if alike { why } else { format!("rank {rank}: {why}") };
        Ok(all.into_iter().nth(rank).flatten().map(name))
    }

    /// Whether the devices can sum with NCCL; the reason why not.
    pub fn nccl(&self, shared: bool) -> Result<Result<Found<B>, String>, Error> {
        if shared {
            return Ok(Err("ranks share a GPU, and NCCL takes one rank a GPU only".into()));
        }
        let (comm, world) = (&self.session.comm, &self.session.world);
        let Some(devices) = self.backend.collectives() else { return Ok(Err("not for this kind of device".into())) };
        // whoever joins waits for all, so that a rank that cannot even begin must be known before
        let ready = devices.ready();
        if let Some(why) = self.obstacle(ready.as_ref().err().map(ToString::to_string))? {
            return Ok(Err(why));
        }
        let ready = ready?;
        let made = self.session.is_root().then(|| ready.new_id().map_err(|error| error.to_string()));
        let id: Vec<u8> = match comm.broadcast("id of the NCCL group", made.as_ref())? {
            Ok(id) => id,
            Err(why) => return Ok(Err(why)),
        };
        let joined = ready.join(&id, world.rank, world.size);
        if let Some(why) = self.obstacle(joined.as_ref().err().map(ToString::to_string))? {
            return Ok(Err(why));
        }
        let group = joined?;
        let why = format!("{}, its sums are right", group.describe());
        let transport = Transport::Nccl(Arc::new(Mutex::new(group)));
        Ok(self.known_answer(&transport)?.map(|()| Found { transport, why }))
    }

    /// A bucket with this rank's part of a sum whose answer is known.
    fn bucket(&self, elems: usize) -> Result<B::Buf, backend::Error> {
        let rank = self.session.world.rank;
        let values: Vec<f32> = (0..elems).map(|i| known_answer::value(rank, i) as f32).collect();
        let mut bucket = self.backend.alloc(elems)?;
        bucket.write(0, &values)?;
        self.backend.queue().map_or(Ok(()), |queue| queue.mark(&mut bucket))?;
        Ok(bucket)
    }

    /// Sums of the buckets' sizes; the inner error names the first wrong one.
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

    /// What is wrong with a sum of so many elements, if anything is.
    fn wrong_sum(&self, transport: &Transport<B>, elems: usize) -> Result<Option<String>, Error> {
        let mut bucket = self.session.agree(self.bucket(elems).map_err(Error::from))?;
        let mut sum = transport.float_sum(elems);
        self.session.comm.run("sum of device memory", |world| Ok(sum.sum(world, from_mut(&mut bucket), &STEP)))??;
        let mut got = vec![0.0; elems];
        bucket.read(0, &mut got)?;
        let expected = |i| known_answer::sum(self.session.world.size, i);
        let off = (0..elems).find(|&i| got[i] != expected(i) as f32);
        Ok(off.map(|i| format!("element {i} of a sum of {elems} should be {}, got {}", expected(i), got[i])))
    }

    /// Seconds of the sums of all buckets, one after another.
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
                comm.run("timing of a sum", |world| Ok(sum.sum(world, from_mut(bucket), &STEP)))??;
            }
            let mut end = [0.0];
            buckets.last().map_or(Ok(()), |bucket| bucket.read(0, &mut end))?;
            best = best.min(start.elapsed());
        }
        Ok(best.as_secs_f64())
    }
}
