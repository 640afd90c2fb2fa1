//! The prefetch ring, as its consumer sees it: [`Loader`] hands out [`Batch`]es in the order's order,
//! filled ahead of time by threads. What the threads do is in `worker`.
//!
//! Slots, one batch each, go round: free -> a thread fills it -> ready -> the consumer -> free when the
//! batch is dropped. There is a fixed number of them, so memory is bounded, threads wait for a slow
//! consumer and the consumer waits for slow threads. A thread takes a slot before it takes a job:
//! the batch that the consumer waits for always has one.

use std::fmt;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded, unbounded};

use crate::error::Error;
use crate::order::Order;
use crate::ring::slot::{Slot, Spare, Token};
use crate::ring::stats::LoaderStats;
use crate::ring::worker::{Filled, Shared, work};
use crate::spec::ImageSpec;
use crate::storage::dataset::Split;
use crate::storage::io::{Io, Plan, Storage, Want, attend};
use crate::transform::{Pipeline, Sight};

/// How a loader runs; nothing but `skip` changes what comes out.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Threads that fill batches; 0 counts as 1.
    pub threads: usize,
    /// Batches in memory at once, those held by the consumer included; 0 = threads + 2, and as many as threads more where
    /// each thread has the next batch's records fetched while it fills one.
    pub slots: usize,
    /// Nice value of the threads, 0 (leave as it is) to 19 (last).
    pub nice: i32,
    /// How records are read.
    pub io: Io,
    /// Shards that the order has in use at once; 0: all of them.
    pub open: usize,
    /// Bytes that shards read into memory may take.
    pub buffer: usize,
    /// Whether a record that cannot be used is left out of its batch, instead of ending the loader.
    pub skip: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { threads: 1, slots: 0, nice: 0, io: Io::Auto, open: 0, buffer: BUFFER, skip: false }
    }
}

/// What a batch's images are.
#[derive(Debug, Clone, Default)]
pub enum Form {
    /// Values, ready for a network.
    #[default]
    Values,
    /// Bytes, whose values are in the tables of [`Pipeline::tables`], which must be there.
    Bytes,
    /// Which part is seen of each image, for a consumer that has them all; [`Pipeline::is_sight`] must hold.
    Sights {
        /// Of all samples of the split, by their ids.
        labels: Arc<[u32]>,
        /// The shape of all images.
        spec: ImageSpec,
    },
}

/// Default of [`Options::buffer`].
pub const BUFFER: usize = 256 << 20;

/// Yields the batches of an order, prefetched. Dropping it ends and joins its threads.
pub struct Loader {
    shared: Arc<Shared>,
    output: ImageSpec,
    slots: usize,
    free: Sender<Token>,
    ready: Receiver<Filled>,
    threads: Vec<JoinHandle<()>>,
    /// Threads that wait for the storage, so that those above need not.
    readers: Vec<JoinHandle<()>>,
    /// Filled out of turn, kept until their turn.
    early: Vec<Filled>,
    /// Number of the batch that is due.
    due: u64,
    stopped: bool,
    /// Batches alive at the consumer.
    held: Arc<AtomicUsize>,
    stats: LoaderStats,
}

impl Loader {
    /// Starts the threads; they begin to fill batches at once.
    pub fn start(
        split: Arc<Split>,
        pipeline: Pipeline,
        order: Box<dyn Order>,
        options: Options,
    ) -> Result<Self, Error> {
        Self::start_as(Form::Values, split, pipeline, order, options)
    }

    /// The same for images of another form.
    pub fn start_as(
        form: Form,
        split: Arc<Split>,
        pipeline: Pipeline,
        order: Box<dyn Order>,
        options: Options,
    ) -> Result<Self, Error> {
        let nice = options.nice;
        if !(0..=19).contains(&nice) {
            let source = ErrorKind::InvalidInput.into();
            return Err(Error::Nice { nice, source });
        }
        let plan = Plan::new(&split, &options)?;
        let count = options.threads.max(1);
        let slots = plan.slots(&options);
        // Room for every slot and for one word more from or to each thread: no send ever waits.
        let (free, free_out) = bounded(slots + count);
        let (ready_in, ready) = bounded(slots + count);
        let output = pipeline.output();
        let (wants, wanted) = unbounded();
        let storage = Arc::new(Storage::new(split, plan));
        let mut loader = Self {
            shared: Arc::new(Shared::new(Arc::clone(&storage), wants, pipeline, order, (options.skip, form))),
            output,
            slots,
            free,
            ready,
            threads: Vec::with_capacity(count),
            readers: Vec::new(),
            early: Vec::with_capacity(slots + count),
            due: 0,
            stopped: false,
            held: Arc::new(AtomicUsize::new(0)),
            stats: LoaderStats::default(),
        };
        for _ in 0..slots {
            loader.shared.spare().add(Slot::default(), &loader.free);
        }
        for number in 0..storage.plan().readers() {
            let (storage, wanted) = (Arc::clone(&storage), wanted.clone());
            loader.readers.push(spawn(format!("reader-{number}"), move || attend(&storage, nice, &wanted))?);
        }
        for number in 0..count {
            let shared = Arc::clone(&loader.shared);
            let (free_in, free_out) = (loader.free.clone(), free_out.clone());
            let ready = ready_in.clone();
            let work = move || work(&shared, number, nice, &free_in, &free_out, &ready);
            loader.threads.push(spawn(format!("loader-{number}"), work)?);
        }
        Ok(loader)
    }

    /// The next batch in order, `None` after the last. Waits while it is being filled.
    ///
    /// The first error of any thread arrives in its turn and ends the loader. The consumer must hold
    /// fewer batches than there are slots when it asks for another.
    #[allow(clippy::should_implement_trait)] // an Iterator could not say "end" and "error" apart
    pub fn next(&mut self) -> Result<Option<Batch>, Error> {
        if self.stopped {
            return Err(Error::Stopped);
        }
        self.stats.queue += (self.ready.len() + self.early.len()) as u64;
        let result = self.await_due();
        if result.is_err() && !matches!(result, Err(Error::SlotsHeld { .. })) {
            self.stop();
        }
        Ok(result?.map(|slot| {
            self.due += 1;
            self.stats.batches += 1;
            self.stats.images += slot.job.ids.len() as u64;
            self.stats.skipped += slot.skipped.len() as u64;
            self.stats.bytes += slot.bytes;
            self.held.fetch_add(1, Ordering::Relaxed);
            let (spare, free) = (Arc::clone(self.shared.spare()), self.free.clone());
            Batch { slot, output: self.output, spare, free, held: Arc::clone(&self.held) }
        }))
    }

    /// Whether the batch that is due has been filled, so that [`Loader::next`] would not wait.
    pub fn is_ready(&self) -> bool {
        !self.stopped && (!self.ready.is_empty() || self.early.iter().any(|filled| filled.number == Some(self.due)))
    }

    /// What has passed so far.
    pub fn stats(&self) -> LoaderStats {
        LoaderStats { stages: self.shared.stages(), ..self.stats }
    }

    /// How records are read, and why so, in words.
    pub fn access(&self) -> &str {
        self.shared.storage().plan().describe()
    }

    /// The shape of each image in the batches.
    pub fn output(&self) -> ImageSpec {
        self.output
    }

    fn await_due(&mut self) -> Result<Option<Slot>, Error> {
        loop {
            let at = self.early.iter().position(|f| f.number == Some(self.due));
            let filled = match at {
                Some(at) => self.early.swap_remove(at),
                None => match self.receive()? {
                    Some(filled) => filled,
                    None => return Ok(None),
                },
            };
            match filled.number {
                Some(number) if number != self.due => self.early.push(filled),
                // In its turn, or an error that has none.
                _ => return filled.result.map(Some),
            }
        }
    }

    /// What a thread sends next; `None` once all have ended after the last batch.
    fn receive(&mut self) -> Result<Option<Filled>, Error> {
        match self.ready.try_recv() {
            Ok(filled) => return Ok(Some(filled)),
            Err(TryRecvError::Empty) if self.held.load(Ordering::Relaxed) >= self.slots => {
                return Err(Error::SlotsHeld { slots: self.slots });
            }
            Err(_) => {}
        }
        let start = Instant::now();
        let received = self.ready.recv();
        self.stats.wait += start.elapsed();
        match received {
            Ok(filled) => Ok(Some(filled)),
            Err(_) if self.shared.ended_after() == Some(self.due) => Ok(None),
            Err(_) => Err(Error::Stopped),
        }
    }

    fn stop(&mut self) {
        self.stopped = true;
        self.shared.stop();
        for _ in 0..self.threads.len() {
            // A failure means that the threads are gone already.
            let _ = self.free.try_send(Token::Stop);
        }
        self.shared.storage().stop();
    }
}

fn spawn(name: String, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    thread::Builder::new().name(name).spawn(work).map_err(|source| Error::Thread { source })
}

impl Drop for Loader {
    fn drop(&mut self) {
        if !self.stopped {
            self.stop();
        }
        // Panics were caught and reported within the threads.
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
        // Not before: a thread may wait for what it has asked of them.
        self.readers.iter().for_each(|_| self.shared.want(Want::Stop));
        self.readers.drain(..).for_each(|thread| drop(thread.join()));
    }
}

impl fmt::Debug for Loader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader")
            .field("threads", &self.threads.len())
            .field("slots", &self.slots)
            .field("due", &self.due)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

/// The samples of one job, ready for the device. Gives its memory back to the ring when dropped.
pub struct Batch {
    slot: Slot,
    output: ImageSpec,
    spare: Arc<Spare>,
    free: Sender<Token>,
    held: Arc<AtomicUsize>,
}

impl Batch {
    /// The epoch, from 0.
    pub fn epoch(&self) -> u32 {
        self.slot.job.epoch
    }

    /// The step within the epoch, from 0.
    pub fn step(&self) -> u64 {
        self.slot.job.step
    }

    /// The logical worker whose share this is.
    pub fn worker(&self) -> usize {
        self.slot.job.worker
    }

    /// Number of samples; 0 where a short last step has none for this worker.
    pub fn len(&self) -> usize {
        self.slot.job.ids.len()
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The shape of each image.
    pub fn spec(&self) -> ImageSpec {
        self.output
    }

    /// The images, (N, C, H, W) without gaps.
    pub fn images(&self) -> &[f32] {
        &self.slot.images[..self.len() * self.output.values()]
    }

    /// The images as bytes, (N, H, W, C) without gaps, where the loader was asked for these.
    pub fn pixels(&self) -> &[u8] {
        &self.slot.pixels[..self.len() * self.output.values()]
    }

    /// What is seen of each image, where the loader was asked for this.
    pub fn sights(&self) -> &[Sight] {
        &self.slot.sights
    }

    /// The labels, one a sample, below the number of classes.
    pub fn labels(&self) -> &[u32] {
        &self.slot.labels
    }

    /// What was wrong with the samples that were left out, see [`Options::skip`].
    pub fn skipped(&self) -> &[Error] {
        &self.slot.skipped
    }

    /// The samples' ids.
    pub fn ids(&self) -> &[u64] {
        &self.slot.job.ids
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let slot = std::mem::take(&mut self.slot);
        // Before the slot goes back: `held` may then only be too low, which errs towards waiting for
        // a slot that is on its way.
        self.held.fetch_sub(1, Ordering::Relaxed);
        self.spare.add(slot, &self.free);
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("job", &self.slot.job).field("spec", &self.output).finish_non_exhaustive()
    }
}
