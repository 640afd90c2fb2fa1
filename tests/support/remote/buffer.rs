//! Memory of the remote device and its copies to the host. Each copy is a thread that waits until the device reaches the buffer's mark.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, ThreadId};

use backend::{Buffer, Error};

use super::queue::{Event, Memory, Task, TaskSender, ask};

#[derive(Default)]
pub struct RemoteBuf(Option<Inner>);

struct Inner {
    line: TaskSender,
    memory: Arc<Memory>,
    len: usize,
    marked: Arc<Event>,
    /// The thread that enqueues operations.
    owner: ThreadId,
    arriving: Option<Receiver<Vec<f32>>>,
    mirror: Vec<f32>,
}

impl RemoteBuf {
    pub fn new(line: TaskSender, len: usize) -> Self {
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

    /// Returns the task that marks the buffer when the device reaches it.
    pub fn mark(&self) -> Task {
        Task::mark(&self.inner().expect("a buffer that was taken must not be marked").marked)
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
            // the receiver is gone if the buffer was dropped in the meantime
            let _ = sender.send(memory.lock().0.clone());
        };
        if last > 0 {
            thread::spawn(copy);
        } else {
            // The buffer was never marked, so the copy must follow everything enqueued so far. Only the enqueuing
            // thread knows how much that is.
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
        // the copy takes its place in the queue, after everything enqueued so far and before all later work
        let back = Task::new(move |_| {
            memory.lock().0.copy_from_slice(&values);
            Ok(())
        });
        inner.line.send(back).expect("the compute thread is running");
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
