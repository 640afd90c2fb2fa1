//! Jobs for a thread, one at a time: whoever hands one over goes on and looks for the answer later. `tests/loom` tries every order in which
//! the two can do it.

use std::io;

use base::sync::{Builder, JoinHandle, Receiver, Sender, bounded};

/// The thread, and its ends of two channels.
pub struct HandOver<J, A> {
    jobs: Option<Sender<J>>,
    answers: Receiver<A>,
    thread: Option<JoinHandle<()>>,
    under_way: bool,
}

/// The thread has ended.
pub struct Gone;

impl<J: Send + 'static, A: Send + 'static> HandOver<J, A> {
    /// Starts a thread of this name that first does `begin`, then `work` for every job.
    pub fn start(
        name: &str,
        begin: impl FnOnce() + Send + 'static,
        mut work: impl FnMut(J) -> A + Send + 'static,
    ) -> io::Result<Self> {
        let ((jobs, queue), (answer, answers)) = (bounded::<J>(1), bounded(1));
        let life = move || {
            begin();
            while let Ok(job) = queue.recv() {
                // a failure means that nobody waits for answers any more
                let _ = answer.send(work(job));
            }
        };
        let thread = Builder::new().name(name.into()).spawn(life)?;
        Ok(Self { jobs: Some(jobs), answers, thread: Some(thread), under_way: false })
    }
}

impl<J, A> HandOver<J, A> {
    /// Whether a job is under way whose answer has not been taken.
    pub fn is_busy(&self) -> bool {
        self.under_way
    }

    /// Hands over a job; none is under way.
    pub fn give(&mut self, job: J) -> Result<(), Gone> {
        self.under_way = self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        if self.under_way { Ok(()) } else { Err(Gone) }
    }

    /// The answer to the job under way, if it is there; with `wait`, as soon as it is.
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
    /// A job under way is finished.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // a panic there has ended the process already
            let _ = thread.join();
        }
    }
}
