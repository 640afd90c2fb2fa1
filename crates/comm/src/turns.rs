//! A ticket lock that gives all operations one order: tickets are drawn in the order of the calls and served one at a
//! time. `tests/loom` tests it with every possible interleaving of threads.

use std::sync::PoisonError;

use base::sync::{Condvar, Mutex};

/// The ticket counters. Ticket 0 is already drawn.
pub struct Turns {
    tickets: Mutex<Tickets>,
    served: Condvar,
}

#[derive(Debug)]
struct Tickets {
    issued: u64,
    done: u64,
    /// True once the last ticket has been drawn.
    closed: bool,
}

impl Turns {
    /// Creates the counters. Ticket 0 has the first turn.
    pub fn new() -> Self {
        Self { tickets: Mutex::new(Tickets { issued: 1, done: 0, closed: false }), served: Condvar::new() }
    }

    /// Draws the next ticket. Returns `None` if the last ticket has been drawn or `accept` returns false. The lock is
    /// held while `accept` runs, so a queue that `accept` fills has the same order as the tickets.
    pub fn draw(&self, accept: impl FnOnce(u64) -> bool) -> Option<u64> {
        let mut tickets = self.tickets.lock().unwrap_or_else(PoisonError::into_inner);
        let ticket = tickets.issued;
        if tickets.closed || !accept(ticket) {
            return None;
        }
        tickets.issued += 1;
        Some(ticket)
    }

    /// Draws the last ticket. Later draws fail.
    pub fn draw_last(&self, accept: impl FnOnce(u64) -> bool) {
        let mut tickets = self.tickets.lock().unwrap_or_else(PoisonError::into_inner);
        if !tickets.closed && accept(tickets.issued) {
            tickets.issued += 1;
            tickets.closed = true;
        }
    }

    /// Blocks until it is this ticket's turn.
    pub fn wait(&self, ticket: u64) {
        let mut tickets = self.tickets.lock().unwrap_or_else(PoisonError::into_inner);
        while tickets.done < ticket {
            tickets = self.served.wait(tickets).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the current turn and begins the next one.
    pub fn next(&self) {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner).done += 1;
        self.served.notify_all();
    }
}
