//! How every failure ends: one message, then all ranks.
//!
//! A rank that just leaves (a `return` from main, a panic, an early exit) lets the others wait in a collective forever;
//! so every error and every panic of any thread ends in [`die`].

use std::any::Any;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::{launcher, sys, thread};

/// How far MPI is in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// Initialisation is under way on the MPI thread.
    Starting = 1,
    /// Initialisation is over, well or badly.
    Running = 2,
    /// Finalised, or never started.
    Ended = 3,
}

static PHASE: AtomicU8 = AtomicU8::new(0);
static RANK: AtomicUsize = AtomicUsize::new(0);
/// Zero while MPI has not told.
static SIZE: AtomicUsize = AtomicUsize::new(0);

/// How long an initialisation under way may hold up the end, and how long MPI_Abort may take.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn enter(phase: Phase) {
    PHASE.store(phase as u8, Ordering::SeqCst);
}

pub(super) fn set_rank(rank: usize, size: usize) {
    RANK.store(rank, Ordering::SeqCst);
    SIZE.store(size, Ordering::SeqCst);
}

/// `rank R: ` when there are several ranks, else nothing. Before MPI has told, the launcher's variables are asked.
pub fn rank_prefix() -> String {
    let (rank, size) = match SIZE.load(Ordering::SeqCst) {
        0 => launcher::rank_and_size().unwrap_or((0, 1)),
        size => (RANK.load(Ordering::SeqCst), size),
    };
    if size > 1 { format!("rank {rank}: ") } else { String::new() }
}

/// Prints `rank R: message` to stderr and ends all ranks with exit code `code`.
///
/// Callable from any thread, before MPI is initialised, while it is, and after it is finalised. Only the first call
/// prints; a second one waits for the end that the first brings.
pub fn die(code: i32, message: &str) -> ! {
    static DYING: AtomicBool = AtomicBool::new(false);
    thread_local! {
        static HERE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }
    if HERE.replace(true) {
        // A failure while failing, on the same thread: nobody else would end this process.
        sys::exit_now(code);
    }
    if DYING.swap(true, Ordering::SeqCst) {
        loop {
            std::thread::park();
        }
    }
    // A lock on stderr or the MPI library may hold this thread up; the process ends all the same.
    let _ = std::thread::Builder::new().name("end".into()).spawn(move || {
        std::thread::sleep(2 * PATIENCE);
        sys::exit_now(code)
    });
    print(message);
    end(code)
}

/// Writes the message in one piece, so that the messages of several ranks do not mix.
fn print(message: &str) {
    let mut stderr = std::io::stderr();
    // On a terminal the line may hold a progress bar.
    let clear = if stderr.is_terminal() { "\r\x1b[K" } else { "" };
    let text = format!("{clear}{}{}\n", rank_prefix(), message.trim_end());
    // With stderr closed there is nobody to tell; the exit code still says it.
    let _ = stderr.write_all(text.as_bytes());
}

fn end(code: i32) -> ! {
    let patience = Instant::now() + PATIENCE;
    loop {
        if SIZE.load(Ordering::SeqCst) == 1 {
            // Nobody else to end, and MPI_Abort would bury the message under its own.
            sys::exit_now(code);
        }
        if sys::is_alive() {
            sys::abort(code);
            sys::exit_now(code);
        }
        let starting = PHASE.load(Ordering::SeqCst) == Phase::Starting as u8;
        if !starting || thread::on_mpi_thread() || Instant::now() > patience {
            sys::exit_now(code);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Makes every panic of any thread end all ranks with exit code 1 and a message that names thread and place.
///
/// Also prints Rust's own report, with the backtrace, where `RUST_BACKTRACE` is set.
pub fn install_panic_hook() {
    let old = std::panic::take_hook();
    let backtrace = std::env::var_os("RUST_BACKTRACE").is_some_and(|v| v != "0");
    std::panic::set_hook(Box::new(move |info| {
        if backtrace {
            old(info);
        }
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("without a name");
        let text = panic_text(info.payload());
        let place = info.location().map(|l| format!(" at {l}")).unwrap_or_default();
        let hint = "This is a fault of trireme itself: please report it, with the output of RUST_BACKTRACE=1";
        die(1, &format!("panic in thread {name}{place}: {text}\n{hint}"));
    }));
}

/// The text that a panic carries.
pub(super) fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "(no text)".into())
}
