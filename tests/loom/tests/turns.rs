//! The tickets of the thread that owns MPI, in every interleaving of the threads that draw them. Only one operation
//! runs at a time, in the order of the tickets, and no thread waits forever.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use trireme_loom::sync::{Builder, Receiver, Sender, unbounded};
use trireme_loom::turns::Turns;

/// The tickets and the data that they protect.
struct Shared {
    turns: Turns,
    /// The served tickets. loom fails a test if two threads access this at once, or if a thread does not see what the previous one wrote.
    served: UnsafeCell<Vec<u64>>,
}

// SAFETY: the tests check that accesses to `served` are exclusive; loom observes each access
unsafe impl Sync for Shared {}

impl Shared {
    fn serve(&self, ticket: u64) {
        self.turns.wait(ticket);
        // SAFETY: `wait` has returned, so this thread holds the turn; loom reports an error if another thread accesses
        // `served`
        self.served.with_mut(|served| unsafe { (*served).push(ticket) });
        self.turns.next();
    }

    /// Runs an operation on the calling thread, as `Comm::run` does.
    fn run(&self) -> bool {
        self.turns.draw(|_| true).map(|ticket| self.serve(ticket)).is_some()
    }

    /// Queues an operation for the owner's thread, as `Comm::start` does.
    fn start(&self, queue: &Sender<u64>) -> bool {
        self.turns.draw(|ticket| queue.send(ticket).is_ok()).is_some()
    }
}

/// Runs the thread that owns MPI: it serves the start and then the queue until its end.
fn own(shared: &Shared, queue: &Receiver<u64>) {
    shared.serve(0);
    while let Ok(ticket) = queue.recv() {
        shared.serve(ticket);
    }
}

/// Runs an owner and `others`, and checks that all tickets were served in order.
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

/// `draw` returns `None` after the last ticket. A ticket drawn before the last one is still served.
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
        turns.draw_last(|_| unreachable!("the end may be drawn only once"));
        assert_eq!(turns.draw(|_| true), None);
        turns.next();
        let end = work.recv().unwrap();
        turns.wait(end);
        let drawn = other.join().unwrap();
        assert!(drawn.is_none_or(|ticket| ticket < end), "ticket {drawn:?} was drawn after the end {end}");
    });
}
