//! A loader thread: takes a free slot, then the next job, fills the slot whole and passes it on.
//! Delivery in order is the consumer's matter (`loader`).

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender};

use crate::error::Error;
use crate::format::record::OVERHEAD;
use crate::order::{Job, Order};
use crate::ring::loader::Form;
use crate::ring::nice;
use crate::ring::slot::{Slot, Spare, Token};
use crate::ring::stats::{SAMPLED, Stages, Tally, Totals};
use crate::storage::fetch::Fetch;
use crate::storage::io::{Held, Storage, Want};
use crate::transform::{Pipeline, Scratch};

/// What comes from the threads.
pub(crate) struct Filled {
    /// Position in the order; `None` for a failure outside of any job.
    pub number: Option<u64>,
    pub result: Result<Slot, Error>,
}

/// What all threads of a loader share.
pub(crate) struct Shared {
    storage: Arc<Storage>,
    wants: Sender<Want>,
    pipeline: Pipeline,
    jobs: Mutex<Jobs>,
    spare: Arc<Spare>,
    stop: AtomicBool,
    skip: bool,
    form: Form,
    totals: Totals,
}

struct Jobs {
    order: Box<dyn Order>,
    /// Jobs handed out.
    count: u64,
    ended: bool,
}

/// Where an image goes.
enum Place<'a> {
    Values(&'a mut [f32]),
    Bytes(&'a mut [u8]),
}

/// Why a thread has no batch to pass on.
enum Outcome {
    Filled,
    /// The order has ended, or the loader stops.
    Over,
}

/// A slot with its job, the records asked for if they are fetched.
struct Turn {
    slot: Slot,
    number: u64,
    fetch: Option<Fetch>,
}

/// What a thread keeps from batch to batch.
#[derive(Default)]
struct Tools {
    scratch: Scratch,
    held: Held,
    tally: Tally,
    spare: Vec<Fetch>,
}

impl Shared {
    pub fn new(
        storage: Arc<Storage>,
        wants: Sender<Want>,
        pipeline: Pipeline,
        order: Box<dyn Order>,
        (skip, form): (bool, Form),
    ) -> Self {
        let jobs = Mutex::new(Jobs { order, count: 0, ended: false });
        let (spare, stop, totals) = (Arc::default(), AtomicBool::new(false), Totals::default());
        Self { storage, wants, pipeline, jobs, spare, stop, skip, form, totals }
    }

    /// Tells threads to end at the next sample.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// The slots that are free.
    pub fn spare(&self) -> &Arc<Spare> {
        &self.spare
    }

    /// Where the records come from.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// What the threads did so far.
    pub fn stages(&self) -> Stages {
        self.totals.stages()
    }

    /// Asks a reader.
    pub fn want(&self, want: Want) {
        // a failure means that there are none, or none left
        let _ = self.wants.send(want);
    }

    /// The number of jobs, once the order has ended.
    pub fn ended_after(&self) -> Option<u64> {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.ended.then_some(jobs.count)
    }

    /// Puts the next job into `job` and returns its number; `None` when there is none left.
    fn take_job(&self, job: &mut Job) -> Option<u64> {
        // A panic in the order's code reaches the consumer by the thread that had it; the others
        // need not trust the order afterwards, since the consumer stops them.
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if jobs.ended || !jobs.order.fill(job) {
            jobs.ended = true;
            return None;
        }
        jobs.count += 1;
        let number = jobs.count - 1;
        drop(jobs);
        job.ahead.drain(..).filter(|_| self.reads()).for_each(|shard| self.want(Want::Shard(shard)));
        Some(number)
    }

    /// Whether records are looked at at all.
    fn reads(&self) -> bool {
        !matches!(self.form, Form::Sights { .. })
    }

    /// Asks for the records of a turn that is not to be filled at once.
    fn look_ahead(&self, turn: &mut Turn, tools: &mut Tools) -> Result<(), Error> {
        if self.reads() && self.storage.plan().advises() {
            for &id in &turn.slot.job.ids {
                let (place, record) = self.storage.split().locate(id)?;
                self.storage.shard(place, &mut tools.held)?.will_need(record);
            }
        }
        self.ask(turn, tools)
    }

    /// Asks the readers for a turn's records, where readers bring them.
    fn ask(&self, turn: &mut Turn, tools: &mut Tools) -> Result<(), Error> {
        if self.reads() && self.storage.plan().fetches() && turn.fetch.is_none() {
            let fetch = turn.fetch.insert(tools.spare.pop().unwrap_or_else(Fetch::new));
            fetch.begin(&self.storage, &turn.slot.job.ids, |want| self.want(want))?;
        }
        Ok(())
    }

    fn fill(&self, turn: &mut Turn, tools: &mut Tools) -> Result<Outcome, Error> {
        if let Form::Sights { labels, spec } = &self.form {
            let Slot { job, labels: own, sights, skipped, bytes, .. } = &mut turn.slot;
            (*own, *bytes) = (job.ids.iter().map(|&id| labels[id as usize]).collect(), 0);
            *sights = job.ids.iter().map(|&id| self.pipeline.sight(*spec, id, job.epoch)).collect();
            skipped.clear();
            return Ok(Outcome::Filled);
        }
        self.ask(turn, tools)?;
        let Turn { slot, fetch, .. } = turn;
        let values = self.pipeline.output().values();
        let needed = slot.job.ids.len() * values;
        let as_bytes = matches!(self.form, Form::Bytes);
        if as_bytes && slot.pixels.len() < needed {
            slot.pixels.resize(needed, 0);
        } else if !as_bytes && slot.images.len() < needed {
            // fresh from the system and so zero already: touched first where the images are written
            (slot.images, slot.touched) = (vec![0.0; needed], 0);
        }
        slot.labels.clear();
        slot.skipped.clear();
        slot.bytes = 0;
        if let Some(fetch) = fetch {
            let start = Instant::now();
            fetch.finish();
            tools.tally.waited += start.elapsed();
        }
        for i in 0..slot.job.ids.len() {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(Outcome::Over);
            }
            let (id, kept) = (slot.job.ids[i], slot.labels.len());
            let image = if as_bytes {
                Place::Bytes(&mut slot.pixels[kept * values..][..values])
            } else {
                slot.touch((kept + 1) * values);
                Place::Values(&mut slot.images[kept * values..][..values])
            };
            match self.sample((id, slot.job.epoch), fetch.as_mut().map(|fetch| (fetch, i)), tools, image) {
                Ok((label, bytes)) => {
                    slot.labels.push(label);
                    slot.bytes += bytes;
                    slot.job.ids[kept] = id;
                }
                Err(error @ Error::Record { .. }) if self.skip => slot.skipped.push(error),
                Err(error) => return Err(error),
            }
        }
        slot.job.ids.truncate(slot.labels.len());
        tools.held.clear();
        self.totals.add(&mut tools.tally);
        Ok(Outcome::Filled)
    }

    /// Makes one sample's image; its label, and the bytes of its record.
    fn sample(
        &self,
        (id, epoch): (u64, u32),
        fetched: Option<(&mut Fetch, usize)>,
        tools: &mut Tools,
        image: Place<'_>,
    ) -> Result<(u32, u64), Error> {
        let Tools { scratch, held, tally, .. } = tools;
        let start = tally.images.is_multiple_of(SAMPLED).then(Instant::now);
        tally.images += 1;
        let (place, record) = self.storage.split().locate(id)?;
        let shard = self.storage.shard(place, held)?;
        let payload = match fetched {
            Some((fetch, i)) => shard.payload(record, fetch.record(i)?)?,
            None => shard.record(record)?,
        };
        let (example, label) = self.storage.split().read(shard, record, payload)?;
        let read = start.map(|_| Instant::now());
        scratch.time_decoding(start.is_some());
        let made = match image {
            Place::Values(values) => self.pipeline.run(&example, id, epoch, scratch, values),
            Place::Bytes(bytes) => self.pipeline.run_bytes(&example, id, epoch, scratch, bytes),
        };
        made.map_err(|fault| shard.fault(record, fault))?;
        if let (Some(start), Some(read)) = (start, read) {
            let end = Instant::now();
            let decoded = scratch.decoded().unwrap_or(read);
            tally.add(read - start, decoded - read, end - decoded);
        }
        Ok((label, payload.len() as u64 + OVERHEAD))
    }
}

/// The life of one thread. It ends when told to, after the last job, or after passing on an error;
/// a panic is an error like any other.
pub(crate) fn work(
    shared: &Shared,
    thread: usize,
    nice: i32,
    free_in: &Sender<Token>,
    free_out: &Receiver<Token>,
    ready: &Sender<Filled>,
) {
    if nice > 0
        && let Err(source) = nice::lower_current_thread(nice)
    {
        let result = Err(Error::Nice { nice, source });
        // If nobody listens any more, there is nobody to tell.
        let _ = ready.send(Filled { number: None, result });
        return;
    }
    let mut tools = Tools::default();
    let mut ahead = None;
    loop {
        let turn = match ahead.take() {
            Some(turn) => Ok(Some(turn)),
            None => {
                let start = Instant::now();
                let Ok(Token::Slot) = free_out.recv() else { return };
                shared.totals.add_slots(start.elapsed());
                take(shared, thread, free_in)
            }
        };
        let filled = match turn {
            Ok(Some(mut turn)) => {
                let next = if shared.storage.plan().looks_ahead() { free_out.try_recv().ok() } else { None };
                fill(shared, thread, &mut turn, &mut ahead, next, &mut tools, free_in).map(|result| {
                    tools.spare.extend(turn.fetch.take());
                    Filled { number: Some(turn.number), result: result.map(|()| turn.slot) }
                })
            }
            // So that a thread which waits for a slot learns of the end, too: `take` has given it back.
            Ok(None) => None,
            Err(error) => Some(Filled { number: None, result: Err(error) }),
        };
        let Some(filled) = filled else { return };
        let failed = filled.result.is_err();
        if ready.send(filled).is_err() || failed {
            return;
        }
    }
}

/// Takes a slot that is free, and a job for it; gives the slot back if there is none left.
fn take(shared: &Shared, thread: usize, free_in: &Sender<Token>) -> Result<Option<Turn>, Error> {
    let mut slot = shared.spare.take();
    let number = caught(thread, || Ok(shared.take_job(&mut slot.job)))?;
    match number {
        Some(number) => Ok(Some(Turn { slot, number, fetch: None })),
        None => {
            shared.spare.add(slot, free_in);
            Ok(None)
        }
    }
}

/// Fills a turn, after asking for the records of the next if there is a slot for it; `None` where the loader stops.
fn fill(
    shared: &Shared,
    thread: usize,
    turn: &mut Turn,
    ahead: &mut Option<Turn>,
    next: Option<Token>,
    tools: &mut Tools,
    free_in: &Sender<Token>,
) -> Option<Result<(), Error>> {
    let outcome = caught(thread, || {
        shared.ask(turn, tools)?;
        match next {
            Some(Token::Slot) => {
                *ahead = take(shared, thread, free_in)?;
                ahead.as_mut().map_or(Ok(()), |next| shared.look_ahead(next, tools))?;
            }
            // for this thread or another, at its next wait
            Some(stop) => drop(free_in.try_send(stop)),
            None => {}
        }
        shared.fill(turn, tools)
    });
    match outcome {
        Ok(Outcome::Filled) => Some(Ok(())),
        Ok(Outcome::Over) => None,
        Err(error) => Some(Err(error)),
    }
}

fn caught<T>(thread: usize, f: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| Err(Error::Panic { thread, message: message(&*panic) }))
}

fn message(panic: &(dyn Any + Send)) -> String {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "no message".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_messages() {
        let of = |panic: Box<dyn Any + Send>| message(&*panic);
        assert_eq!(of(Box::new("text")), "text");
        assert_eq!(of(Box::new(String::from("string"))), "string");
        assert_eq!(of(Box::new(7)), "no message");
    }
}
