//! Runs jobs on another thread, one at a time. The caller continues and asks for the answer later. `tests/loom` tests
//! all interleavings of the two threads.

use std::io;

use base::sync::{Builder, JoinHandle, Receiver, Sender, bounded};

/// A thread that runs jobs, with the channels to it.
pub struct HandOver<J, A> {
    jobs: Option<Sender<J>>,
    answers: Receiver<A>,
    thread: Option<JoinHandle<()>>,
    under_way: bool,
}

/// The error of [`HandOver::give`] if the thread has ended.
pub struct ThreadEnded;

impl<J: Send + 'static, A: Send + 'static> HandOver<J, A> {
    /// Starts a thread that first runs `begin` and then `work` for every job.
    pub fn start(
        name: &str,
        begin: impl FnOnce() + Send + 'static,
        mut work: impl FnMut(J) -> A + Send + 'static,
    ) -> io::Result<Self> {
        let ((jobs, queue), (answer, answers)) = (bounded::<J>(1), bounded(1));
        let life = move || {
            begin();
            while let Ok(job) = queue.recv() {
                // this fails only if the receiver was dropped, and then the answer is not needed
                let _ = answer.send(work(job));
            }
        };
        let thread = Builder::new().name(name.into()).spawn(life)?;
        Ok(Self { jobs: Some(jobs), answers, thread: Some(thread), under_way: false })
    }
}

impl<J, A> HandOver<J, A> {
    /// Returns true if the answer to a job has not been taken yet.
    pub fn is_busy(&self) -> bool {
        self.under_way
    }

    /// Sends a job. No other job may be in progress.
    pub fn give(&mut self, job: J) -> Result<(), ThreadEnded> {
        self.under_way = self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        if self.under_way { Ok(()) } else { Err(ThreadEnded) }
    }

    /// Returns the answer to the current job if it is ready. With `wait` set, waits for it.
    pub fn poll(&mut self, wait: bool) -> Option<A> {
        if !self.under_way {
            return None;
        }
        let answer = if wait { self.answers.recv().ok() } else { self.answers.try_recv().ok() }?;
        self.under_way = false;
        Some(answer)
    }
}

impl<J, A> Drop for HandOver<J, A> {
    /// Waits until the thread has finished its current job.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // a panic in the thread has already ended the process
            let _ = thread.join();
        }
    }
}
