//! The tickets of the thread that owns MPI, in every order of the threads that draw them: one operation at a time, in the order of the
//! tickets, and nobody waits for ever.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use trireme_loom::sync::{Builder, Receiver, Sender, unbounded};
use trireme_loom::turns::Turns;

/// The order, and what it protects.
struct Shared {
    turns: Turns,
    /// The tickets that were served. loom ends a test in which two threads are here at once, or one does not see what the last has done.
    served: UnsafeCell<Vec<u64>>,
}

// SAFETY: that is what the tests are to show of `served`; loom watches over each access
unsafe impl Sync for Shared {}

impl Shared {
    fn serve(&self, ticket: u64) {
        self.turns.wait(ticket);
        // SAFETY: it is this ticket's turn; loom checks that nobody else is here
        self.served.with_mut(|served| unsafe { (*served).push(ticket) });
        self.turns.next();
    }

    /// On the calling thread, as `Comm::run` does it.
    fn run(&self) -> bool {
        self.turns.draw(|_| true).map(|ticket| self.serve(ticket)).is_some()
    }

    /// On the owner's thread, as `Comm::start` does it.
    fn start(&self, queue: &Sender<u64>) -> bool {
        self.turns.draw(|ticket| queue.send(ticket).is_ok()).is_some()
    }
}

/// The thread that owns MPI: the start, what is queued, then the end.
fn own(shared: &Shared, queue: &Receiver<u64>) {
    shared.serve(0);
    while let Ok(ticket) = queue.recv() {
        shared.serve(ticket);
    }
}

/// Runs an owner beside `others`; gives the tickets in the order in which they were served.
fn check(expected: u64, others: fn(&Arc<Shared>, Sender<u64>)) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let shared = Arc::new(Shared { turns: Turns::new(), served: UnsafeCell::new(Vec::new()) });
        let (queue, work) = unbounded();
        let owner = Arc::clone(&shared);
        let owner = Builder::new().spawn(move || own(&owner, &work)).unwrap();
        others(&shared, queue);
        owner.join().unwrap();
        // SAFETY: all threads have ended
        let served = shared.served.with(|served| unsafe { (*served).clone() });
        assert_eq!(served, (0..=expected).collect::<Vec<u64>>());
    });
}

#[test]
fn one_thread_queues_and_runs() {
    check(3, |shared, queue| {
        assert!(shared.start(&queue) && shared.run() && shared.start(&queue));
    });
}

#[test]
fn two_threads_queue_and_run() {
    check(3, |shared, queue| {
        let other = Arc::clone(shared);
        let second = queue.clone();
        let other = loom::thread::spawn(move || assert!(other.run() && other.start(&second)));
        assert!(shared.start(&queue));
        drop(queue);
        other.join().unwrap();
    });
}

#[test]
fn two_threads_queue_at_once() {
    check(2, |shared, queue| {
        let other = Arc::clone(shared);
        let second = queue.clone();
        let other = loom::thread::spawn(move || assert!(other.start(&second)));
        assert!(shared.start(&queue));
        drop(queue);
        other.join().unwrap();
    });
}

/// Whoever comes after the last ticket gets none; whoever came before it is served.
#[test]
fn nothing_comes_after_the_end() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let turns = Arc::new(Turns::new());
        let (queue, work) = unbounded();
        let other = Arc::clone(&turns);
        let other = loom::thread::spawn(move || {
            other.draw(|_| true).inspect(|&ticket| {
                other.wait(ticket);
                other.next();
            })
        });
        turns.draw_last(|ticket| queue.send(ticket).is_ok());
        turns.draw_last(|_| unreachable!("there is one end"));
        assert_eq!(turns.draw(|_| true), None);
        turns.next();
        let end = work.recv().unwrap();
        turns.wait(end);
        let drawn = other.join().unwrap();
        assert!(drawn.is_none_or(|ticket| ticket < end), "{drawn:?} beside {end}");
    });
}
