//! The times at which the GPU reaches points of its queue, measured with events and given on the host's clock.

use std::cell::RefCell;
use std::time::Instant;

use super::driver::stream::Event;
use super::shared::Shared;
use crate::Error;

/// When the GPU gets to points of its queue, on the host's clock.
#[derive(Default)]
pub struct Clock {
    /// A point that the GPU has passed, and when.
    origin: RefCell<Option<(Event, Instant)>>,
    /// Points since the times were taken.
    stamps: RefCell<Vec<Event>>,
    /// Events for further points.
    free: RefCell<Vec<Event>>,
}

impl Clock {
    /// Enqueues a point. The first one waits for the GPU.
    pub fn stamp(&self, shared: &Shared) -> Result<(), Error> {
        shared.start()?;
        let mut origin = self.origin.borrow_mut();
        if origin.is_none() {
            shared.stream().wait()?;
            // the GPU has nothing else to do: it gets there at once
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

    /// Waits for the GPU; when it got to each point since the last call.
    pub fn take(&self, shared: &Shared) -> Result<Vec<Instant>, Error> {
        shared.settle()?;
        let mut stamps = self.stamps.take();
        let mut origin = self.origin.borrow_mut();
        let Some((first, start)) = origin.take() else { return Ok(Vec::new()) };
        let times = stamps.iter().map(|stamp| Ok(start + first.time_until(stamp)?));
        let times = times.collect::<Result<Vec<_>, Error>>()?;
        // the driver's f32 is exact for short times only: the last point is the next origin
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
