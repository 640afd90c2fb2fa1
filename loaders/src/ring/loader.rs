//! The consumer's side of the prefetch ring: a [`Loader`] returns [`Batch`]es in order. Threads fill them ahead of
//! time, see `worker`.
//!
//! Each slot holds one batch, and slots go round: free -> filled by threads -> ready -> held by the consumer -> free
//! again when the batch is dropped. The number of slots is fixed. So memory is bounded, threads wait for a slow
//! consumer, and the consumer waits for slow threads. A thread takes a slot before it takes a job, so the batch that
//! the consumer waits for always has a slot.

use std::fmt;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::error::Error;
use crate::order::Order;
use crate::ring::batch::{Batch, PixelFormat, SlotReturn};
use crate::ring::options::Options;
use crate::ring::reader::{self, ReadRequest};
use crate::ring::shared::{Jobs, Shared};
use crate::ring::slot::{Slot, Token};
use crate::ring::stats::{LoaderStats, Totals};
use crate::ring::worker::{BatchMessage, Worker};
use crate::spec::ImageSpec;
use crate::storage::dataset::Split;
use crate::storage::read_plan::{OpenShards, ReadPlan};
use crate::sync::{AtomicBool, Builder, JoinHandle, Mutex, Receiver, Sender, TryRecvError, bounded, unbounded};
use crate::transform::Pipeline;

/// Returns the batches of an order, prefetched by threads. Dropping it ends and joins the threads.
pub struct Loader {
    shared: Arc<Shared>,
    output: ImageSpec,
    slots: usize,
    /// Each batch gets a clone, which returns the batch's slot when the batch is dropped.
    home: SlotReturn,
    ready: Receiver<BatchMessage>,
    threads: Vec<JoinHandle<()>>,
    /// These threads wait for storage, so that `threads` do not have to.
    readers: Vec<JoinHandle<()>>,
    /// Batches that were filled before it was their turn.
    early: Vec<BatchMessage>,
    /// Number of the next batch to deliver.
    due: u64,
    stopped: bool,
    stats: LoaderStats,
}

impl Loader {
    /// Starts the threads. They begin to fill batches at once.
    pub fn start(
        split: Arc<Split>,
        pipeline: Pipeline,
        order: Box<dyn Order>,
        options: Options,
    ) -> Result<Self, Error> {
        Self::start_as(PixelFormat::Values, split, pipeline, order, options)
    }

    /// Works like [`Loader::start`], for images in another format.
    pub fn start_as(
        format: PixelFormat,
        split: Arc<Split>,
        pipeline: Pipeline,
        order: Box<dyn Order>,
        options: Options,
    ) -> Result<Self, Error> {
        let Options { nice, skip, .. } = options;
        if !(0..=19).contains(&nice) {
            return Err(Error::Nice { nice, source: ErrorKind::InvalidInput.into() });
        }
        let plan = ReadPlan::new(&split, &options.reading())?;
        let output = pipeline.output();
        // No images are made if only crops are delivered.
        let values = if matches!(format, PixelFormat::CropRects { .. }) { 0 } else { output.values() };
        let division = options.division(&plan, values);
        let (count, slots) = (options.threads.max(1), options.slot_count(&plan, division.piece_count(order.largest())));
        // There is room for every slot or its pieces, and for one more message from or to each thread, so sending never
        // blocks.
        let (free, free_out) = bounded(slots * division.pieces + count);
        let (ready_in, ready) = bounded(slots + count);
        let (requests, reader_requests) = unbounded();
        let shards = Arc::new(OpenShards::new(split, plan));
        let shared = Arc::new(Shared {
            shards: Arc::clone(&shards),
            pipeline,
            jobs: Mutex::new(Jobs::new(order)),
            free: Arc::default(),
            totals: Totals::default(),
            format,
            skip,
            division,
            requests,
            stop: AtomicBool::new(false),
        });
        let home = SlotReturn { slots: Arc::clone(&shared.free), tokens: free, held: Arc::default() };
        (0..slots).for_each(|_| home.slots.add(Slot::default(), &home.tokens));
        let mut loader = Self {
            shared,
            output,
            slots,
            home,
            ready,
            threads: Vec::with_capacity(count),
            readers: Vec::new(),
            early: Vec::with_capacity(slots + count),
            due: 0,
            stopped: false,
            stats: LoaderStats::default(),
        };
        loader.start_readers(nice, &reader_requests)?;
        loader.start_workers(count, nice, &free_out, &ready_in)?;
        Ok(loader)
    }

    fn start_readers(&mut self, nice: i32, requests: &Receiver<ReadRequest>) -> Result<(), Error> {
        for number in 0..self.shared.shards.plan().readers() {
            let (shards, requests) = (Arc::clone(&self.shared.shards), requests.clone());
            self.readers.push(spawn(format!("reader-{number}"), move || reader::run(&shards, nice, &requests))?);
        }
        Ok(())
    }

    fn start_workers(
        &mut self,
        count: usize,
        nice: i32,
        free_out: &Receiver<Token>,
        ready: &Sender<BatchMessage>,
    ) -> Result<(), Error> {
        for thread in 0..count {
            let worker = Worker {
                shared: Arc::clone(&self.shared),
                thread,
                nice,
                free_in: self.home.tokens.clone(),
                free_out: free_out.clone(),
                ready: ready.clone(),
            };
            self.threads.push(spawn(format!("loader-{thread}"), move || worker.run())?);
        }
        Ok(())
    }

    /// Returns the next batch in order, or `None` after the last. Waits until it is filled.
    ///
    /// The first error of any thread is returned at its position in the order, and ends the loader. When the consumer
    /// requests a batch, it must hold fewer batches than there are slots.
    #[allow(clippy::should_implement_trait)] // An `Iterator` cannot distinguish the end from an error.
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
            let batch = Batch::new(slot, self.output, self.shared.pipeline.dtype().bytes(), self.home.clone());
            self.due += 1;
            self.stats.batches += 1;
            self.stats.images += batch.len() as u64;
            self.stats.skipped += batch.skipped().len() as u64;
            self.stats.bytes += batch.bytes();
            batch
        }))
    }

    /// Returns true if the next batch is already filled, so that [`Loader::next`] would not wait.
    pub fn is_ready(&mut self) -> bool {
        while let Ok(filled) = self.ready.try_recv() {
            self.early.push(filled);
        }
        !self.stopped && self.early.iter().any(|filled| self.is_due(filled))
    }

    /// Returns true if a message must be delivered next: it is the next batch, or an error outside any job.
    fn is_due(&self, filled: &BatchMessage) -> bool {
        filled.number.is_none_or(|number| number == self.due)
    }

    /// Statistics about everything delivered so far.
    pub fn stats(&self) -> LoaderStats {
        LoaderStats { stages: self.shared.totals.stages(), ..self.stats }
    }

    /// Returns how records are read and why, for the log.
    pub fn access(&self) -> &str {
        &self.shared.shards.plan().text
    }

    /// Returns true if records come from mappings of files on this machine.
    pub fn maps_local_files(&self) -> bool {
        self.shared.shards.plan().local
    }

    /// Waits for the next batch. Returns `None` after the last.
    fn await_due(&mut self) -> Result<Option<Slot>, Error> {
        loop {
            let at = self.early.iter().position(|filled| self.is_due(filled));
            let filled = match at {
                Some(at) => self.early.swap_remove(at),
                None => match self.receive()? {
                    Some(filled) => filled,
                    None => return Ok(None),
                },
            };
            if self.is_due(&filled) {
                return filled.result.map(Some);
            }
            self.early.push(filled);
        }
    }

    /// Receives the next message of a thread. Returns `None` when all threads have ended after the last batch.
    fn receive(&mut self) -> Result<Option<BatchMessage>, Error> {
        match self.ready.try_recv() {
            Ok(filled) => return Ok(Some(filled)),
            Err(TryRecvError::Empty) if self.home.held.load(Ordering::Relaxed) >= self.slots => {
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
            // Sending fails only if the threads have already ended.
            let _ = self.home.tokens.try_send(Token::Stop);
        }
        self.shared.shards.stop();
    }
}

fn spawn(name: String, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    Builder::new().name(name).spawn(work).map_err(|source| Error::Thread { source })
}

impl Drop for Loader {
    fn drop(&mut self) {
        if !self.stopped {
            self.stop();
        }
        // The threads have caught and reported their panics.
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
        // Stop the readers last, because a thread may be waiting for one.
        self.readers.iter().for_each(|_| self.shared.request(ReadRequest::Stop));
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
