//! The life of a loader thread: it takes a free slot, then the next job, fills the slot and passes it on. The consumer (`loader`) puts
//! the batches in order.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use crate::error::Error;
use crate::ring::fill::{Outcome, Task, ThreadState, fill, request, request_ahead};
use crate::ring::nice;
use crate::ring::shared::Shared;
use crate::ring::slot::{Filling, Slot, Token};
use crate::sync::{Receiver, Sender};

/// A message of a thread to the consumer.
pub(crate) struct Filled {
    /// Position in the order; `None` for an error outside of any job.
    pub number: Option<u64>,
    pub result: Result<Slot, Error>,
}

/// One thread and its ends of the channels.
pub(crate) struct Worker {
    pub shared: Arc<Shared>,
    /// Counts the loader's threads, from 0.
    pub thread: usize,
    pub nice: i32,
    /// For slots that the thread returns.
    pub free_in: Sender<Token>,
    pub free_out: Receiver<Token>,
    pub ready: Sender<Filled>,
}

impl Worker {
    /// Fills slots until a token says to stop, the order ends, or an error was passed on; a panic is an error like any other.
    pub fn run(&self) {
        if self.nice > 0
            && let Err(source) = nice::lower_current_thread(self.nice)
        {
            let result = Err(Error::Nice { nice: self.nice, source });
            // a failure means that the consumer has gone
            let _ = self.ready.send(Filled { number: None, result });
            return;
        }
        let mut state = ThreadState::default();
        let mut ahead = None;
        while let Some(filled) = self.next(&mut ahead, &mut state) {
            let failed = filled.result.is_err();
            if self.ready.send(filled).is_err() || failed {
                return;
            }
        }
    }

    /// The next filled slot or error; `None` if the thread is to end. `ahead` is the task whose records were requested already.
    fn next(&self, ahead: &mut Option<Task>, state: &mut ThreadState) -> Option<Filled> {
        let task = match ahead.take() {
            Some(task) => Ok(Some(task)),
            None => {
                let start = Instant::now();
                let Ok(Token::Slot) = self.free_out.recv() else { return None };
                self.shared.totals.add_slots(start.elapsed());
                self.take()
            }
        };
        match task {
            // `take` has returned the slot, so that a thread which waits for one learns of the end, too
            Ok(None) => None,
            Ok(Some(mut task)) => {
                let start = Instant::now();
                let outcome = self.fill(&mut task, ahead, state);
                task.slot.filling = Some(Filling { thread: self.thread, start, took: start.elapsed() });
                state.fetches.extend(task.fetch.take());
                let result = match outcome {
                    Ok(Outcome::Filled) => Ok(task.slot),
                    Ok(Outcome::Stopped) => return None,
                    Err(error) => Err(error),
                };
                Some(Filled { number: Some(task.number), result })
            }
            Err(error) => Some(Filled { number: None, result: Err(error) }),
        }
    }

    /// Takes a free slot, for which a token has been received, and a job for it; returns the slot if there is no job left.
    fn take(&self) -> Result<Option<Task>, Error> {
        let mut slot = self.shared.free.take();
        match caught(self.thread, || Ok(self.shared.take_job(&mut slot.job)))? {
            Some(number) => Ok(Some(Task { slot, number, fetch: None })),
            None => {
                self.shared.free.add(slot, &self.free_in);
                Ok(None)
            }
        }
    }

    /// Fills a task, after requesting the records of the next one if there is a free slot for it.
    fn fill(&self, task: &mut Task, ahead: &mut Option<Task>, state: &mut ThreadState) -> Result<Outcome, Error> {
        let looks_ahead = self.shared.shards.plan().looks_ahead();
        let next = if looks_ahead { self.free_out.try_recv().ok() } else { None };
        caught(self.thread, || {
            request(&self.shared, task, state)?;
            match next {
                Some(Token::Slot) => {
                    *ahead = self.take()?;
                    ahead.as_mut().map_or(Ok(()), |next| request_ahead(&self.shared, next, state))?;
                }
                // for this thread or another, when it next waits
                Some(Token::Stop) => drop(self.free_in.try_send(Token::Stop)),
                None => {}
            }
            fill(&self.shared, task, state)
        })
    }
}

/// Turns a panic of `f` into an error.
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
