//! Measures with events when the GPU reaches points of its stream, and converts these times to the host's clock.

use std::cell::RefCell;
use std::time::Instant;

use super::driver::stream::Event;
use super::shared::Shared;
use crate::Error;

/// Times at which the GPU reaches points of its stream, on the host's clock.
#[derive(Default)]
pub struct Clock {
    /// A point that the GPU has passed, and the host's time at that moment.
    origin: RefCell<Option<(Event, Instant)>>,
    /// Points enqueued since the last call of `take`.
    stamps: RefCell<Vec<Event>>,
    /// Events that were read and can be recorded again.
    free: RefCell<Vec<Event>>,
}

impl Clock {
    /// Enqueues a point. The first call waits for the GPU.
    pub fn stamp(&self, shared: &Shared) -> Result<(), Error> {
        shared.start()?;
        let mut origin = self.origin.borrow_mut();
        if origin.is_none() {
            shared.stream().wait()?;
            // the stream is empty, so the GPU reaches the event at once
            let first = Event::timed(shared.context())?;
            first.record(shared.stream(), false)?;
            first.wait()?;
            *origin = Some((first, Instant::now()));
        }
        let event = match self.free.borrow_mut().pop() {
            Some(event) => event,
            None => Event::timed(shared.context())?,
        };
        event.record(shared.stream(), shared.recording.get())?;
        self.stamps.borrow_mut().push(event);
        Ok(())
    }

    /// Waits for the GPU and returns the time of each point since the last call.
    pub fn take(&self, shared: &Shared) -> Result<Vec<Instant>, Error> {
        shared.settle()?;
        let mut stamps = self.stamps.take();
        let mut origin = self.origin.borrow_mut();
        let Some((first, start)) = origin.take() else { return Ok(Vec::new()) };
        let times = stamps.iter().map(|stamp| Ok(start + first.time_until(stamp)?));
        let times = times.collect::<Result<Vec<_>, Error>>()?;
        // The driver returns milliseconds as f32, which is precise only for short times. So the last point becomes the
        // next origin.
        *origin = Some(match stamps.pop().zip(times.last()) {
            Some((last, when)) => {
                stamps.push(first);
                (last, *when)
            }
            None => (first, start),
        });
        self.free.borrow_mut().extend(stamps);
        Ok(times)
    }
}
