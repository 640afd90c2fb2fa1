//! What a pass leaves for the host: loss and hits. There are two places, so that a pass can be enqueued before the host has read the sums
//! of the one before: the GPU need not wait for the host.

use std::collections::VecDeque;
use std::sync::Arc;

use super::driver::pinned::Pinned;
use super::driver::queues::Queues;
use super::driver::slice::Slice;
use super::driver::stream::{Event, Stream};
use crate::Error;

/// Passes whose sums are kept.
pub const PLACES: usize = 2;

/// See the module.
pub struct Outbox {
    places: [Place; PLACES],
    /// Passes whose sums nobody has read, in their order.
    open: VecDeque<usize>,
    /// Place of the last pass that was begun.
    now: usize,
    /// Place of the pass whose sums were read last.
    read: usize,
}

struct Place {
    /// Loss, rows that hit with their best score, with one of five; rows whose label is no class.
    sums: Pinned<f64>,
    /// Rows of the loss.
    rows: u64,
    classes: usize,
    /// After the pass, where another was begun since.
    end: Event,
    marked: bool,
}

/// The sums of one pass.
pub struct Sums<'a> {
    pub sums: &'a [f64],
    pub rows: u64,
    pub classes: usize,
}

impl Outbox {
    pub fn new(queues: &Arc<Queues>) -> Result<Self, Error> {
        let context = queues.context();
        let place = || {
            let (sums, end) = (Pinned::new(context, 4, "sums")?, Event::new(context)?);
            Ok::<_, Error>(Place { sums, rows: 0, classes: 0, end, marked: false })
        };
        Ok(Self { places: [place()?, place()?], open: VecDeque::new(), now: 0, read: 0 })
    }

    /// A pass begins, behind all that is on the stream.
    pub fn begin(&mut self, stream: &Stream) -> Result<(), Error> {
        for &open in &self.open {
            let place = &mut self.places[open];
            if !place.marked {
                place.end.record(stream, false)?;
                place.marked = true;
            }
        }
        if self.open.len() == PLACES {
            // nobody wanted them
            self.open.pop_front();
        }
        self.now = (0..PLACES).find(|place| !self.open.contains(place)).unwrap_or(0);
        Ok(())
    }

    /// The pass that was begun will have the loss of so many rows.
    pub fn expect(&mut self, rows: usize) {
        let place = &mut self.places[self.now];
        (place.rows, place.marked) = (rows as u64, false);
        if !self.open.contains(&self.now) {
            self.open.push_back(self.now);
        }
    }

    /// Number of classes of the loss.
    pub fn set_classes(&mut self, classes: usize) {
        self.places[self.now].classes = classes;
    }

    /// Place of the last pass that was begun.
    pub fn now(&self) -> usize {
        self.now
    }

    /// Place of the pass whose sums were read last.
    pub fn read(&self) -> usize {
        self.read
    }

    /// Where the pass writes its sums.
    pub fn sums(&self) -> Slice<'_, f64> {
        self.places[self.now].sums.slice()
    }

    /// Waits for the end of the oldest pass whose sums nobody has read, if it was marked; false if all of the stream must be waited for.
    pub fn wait(&self) -> Result<bool, Error> {
        match self.open.front().map(|&open| &self.places[open]).filter(|place| place.marked) {
            Some(place) => place.end.wait().map(|()| true),
            None => Ok(false),
        }
    }

    /// Its sums, which the GPU has written; none if there was no loss.
    pub fn take(&mut self) -> Option<Sums<'_>> {
        self.read = self.open.pop_front()?;
        let Place { sums, rows, classes, .. } = &self.places[self.read];
        Some(Sums { sums: sums.as_slice(), rows: *rows, classes: *classes })
    }
}
