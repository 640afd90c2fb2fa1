//! Memory of the remote device, and its copies to the host: each copy is a thread that waits for the buffer's own mark.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, ThreadId};

use backend::{Buffer, Error};

use super::queue::{Event, Line, Memory, Task, ask};

/// Memory of the device.
#[derive(Default)]
pub struct RemoteBuf(Option<Inner>);

struct Inner {
    line: Line,
    memory: Arc<Memory>,
    len: usize,
    marked: Arc<Event>,
    /// The thread that enqueues.
    owner: ThreadId,
    arriving: Option<Receiver<Vec<f32>>>,
    mirror: Vec<f32>,
}

impl RemoteBuf {
    pub fn new(line: Line, len: usize) -> Self {
        let (memory, owner) = (Memory::zeroed(len), thread::current().id());
        let (marked, arriving, mirror) = (Arc::default(), None, Vec::new());
        Self(Some(Inner { line, memory, len, marked, owner, arriving, mirror }))
    }

    fn inner(&self) -> Result<&Inner, Error> {
        self.0.as_ref().ok_or_else(nothing)
    }

    fn inner_mut(&mut self) -> Result<&mut Inner, Error> {
        self.0.as_mut().ok_or_else(nothing)
    }

    pub fn memory(&self) -> Result<Arc<Memory>, Error> {
        Ok(self.inner()?.memory.clone())
    }

    /// What marks the buffer once the device comes to it.
    pub fn mark(&self) -> Task {
        Task::mark(&self.inner().expect("a buffer that was taken is not marked").marked)
    }
}

fn nothing() -> Error {
    Error::Size { op: "a remote buffer".into(), expected: "memory".into(), got: "nothing".into() }
}

impl Buffer for RemoteBuf {
    fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |inner| inner.len)
    }

    fn place(&self) -> usize {
        self.0.as_ref().map_or(0, |inner| Arc::as_ptr(&inner.memory) as usize)
    }

    fn host(&self) -> Option<&[f32]> {
        None
    }

    fn fetch(&mut self) -> Result<(), Error> {
        let inner = self.inner_mut()?;
        let (sender, arriving) = channel();
        let (memory, marked, last) = (inner.memory.clone(), inner.marked.clone(), inner.marked.last());
        let copy = move || {
            marked.wait(last);
            // a buffer that is given up in between needs no answer
            let _ = sender.send(memory.lock().0.clone());
        };
        if last > 0 {
            thread::spawn(copy);
        } else {
            // never marked: after all that was enqueued, which only the thread that enqueues can know
            assert_eq!(thread::current().id(), inner.owner, "an unmarked buffer is fetched by another thread");
            ask(&inner.line, |_| ())?;
            copy();
        }
        inner.arriving = Some(arriving);
        Ok(())
    }

    fn staged(&mut self) -> Result<&mut [f32], Error> {
        let inner = self.inner_mut()?;
        if let Some(arriving) = inner.arriving.take() {
            inner.mirror = arriving.recv().expect("the copy arrives");
        }
        inner.mirror.resize(inner.len, f32::NAN);
        Ok(&mut inner.mirror)
    }

    fn unstage(&mut self) -> Result<(), Error> {
        let inner = self.inner_mut()?;
        let (values, memory) = (inner.mirror.clone(), inner.memory.clone());
        // no earlier than what was enqueued before, no later than what comes
        let back = Task::new(move |_| {
            memory.lock().0.copy_from_slice(&values);
            Ok(())
        });
        inner.line.send(back).expect("the thread that computes lives");
        Ok(())
    }

    fn read(&self, first: usize, to: &mut [f32]) -> Result<(), Error> {
        let inner = self.inner()?;
        if thread::current().id() == inner.owner {
            ask(&inner.line, |_| ())?;
        } else {
            assert!(inner.marked.last() > 0, "an unmarked buffer is read by another thread");
            inner.marked.wait(inner.marked.last());
        }
        to.copy_from_slice(&inner.memory.lock().0[first..][..to.len()]);
        Ok(())
    }

    fn write(&mut self, first: usize, from: &[f32]) -> Result<(), Error> {
        let inner = self.inner()?;
        let (memory, from) = (inner.memory.clone(), from.to_vec());
        ask(&inner.line, move |_| memory.lock().0[first..][..from.len()].copy_from_slice(&from))
    }
}
