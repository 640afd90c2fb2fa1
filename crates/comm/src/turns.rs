//! The one order of operations: tickets are drawn in the order of the calls, and served one by one. `tests/loom` tries every order in
//! which threads can do it.

use std::sync::PoisonError;

use base::sync::{Condvar, Mutex};

/// Whose turn it is. Ticket 0 is drawn already.
pub struct Turns {
    tickets: Mutex<Tickets>,
    served: Condvar,
}

#[derive(Debug)]
struct Tickets {
    issued: u64,
    done: u64,
    /// Whether the last ticket has been drawn.
    closed: bool,
}

impl Turns {
    /// It is the turn of ticket 0.
    pub fn new() -> Self {
        Self { tickets: Mutex::new(Tickets { issued: 1, done: 0, closed: false }), served: Condvar::new() }
    }

    /// Draws the next ticket, unless the last one has been drawn or `accept` refuses it. Nobody draws one while `accept` looks at it, so
    /// a queue that it fills has the tickets' order.
    pub fn draw(&self, accept: impl FnOnce(u64) -> bool) -> Option<u64> {
        let mut tickets = self.tickets.lock().unwrap_or_else(PoisonError::into_inner);
        let ticket = tickets.issued;
        if tickets.closed || !accept(ticket) {
            return None;
        }
        tickets.issued += 1;
        Some(ticket)
    }

    /// Draws a ticket after which there is none.
    pub fn draw_last(&self, accept: impl FnOnce(u64) -> bool) {
        let mut tickets = self.tickets.lock().unwrap_or_else(PoisonError::into_inner);
        if !tickets.closed && accept(tickets.issued) {
            tickets.issued += 1;
            tickets.closed = true;
        }
    }

    /// Waits for this ticket's turn.
    pub fn wait(&self, ticket: u64) {
        let mut tickets = self.tickets.lock().unwrap_or_else(PoisonError::into_inner);
        while tickets.done < ticket {
            tickets = self.served.wait(tickets).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The next ticket's turn comes.
    pub fn next(&self) {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner).done += 1;
        self.served.notify_all();
    }
}
