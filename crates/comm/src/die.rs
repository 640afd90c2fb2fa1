//! How every failure ends: one message, then all ranks.
//!
//! A rank that just leaves (a `return` from main, a panic, an early exit) lets the others wait in a collective forever;
//! so every error and every panic of any thread ends in [`die`].

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base::screen;

use super::{launcher, sys};

/// How long an initialisation under way may hold up the end, and how long MPI_Abort may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// `rank R: ` when there are several ranks, else nothing. Before MPI is initialised the launcher's variables count.
pub fn rank_prefix() -> String {
    let (rank, size) = rank_and_size().or_else(launcher::rank_and_size).unwrap_or((0, 1));
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
        // a failure while failing, on the same thread: nobody else would end this process
        sys::exit_now(code);
    }
    if DYING.swap(true, Ordering::SeqCst) {
        loop {
            std::thread::park();
        }
    }
    // a lock on stderr or the MPI library may hold this thread up; the process ends all the same
    let _ = std::thread::Builder::new().name("end".into()).spawn(move || {
        std::thread::sleep(2 * PATIENCE);
        sys::exit_now(code)
    });
    // in one piece, so that the messages of several ranks do not mix
    screen::say_last(&format!("{}{}", rank_prefix(), message.trim_end()));
    end(code)
}

fn end(code: i32) -> ! {
    let patience = Instant::now() + PATIENCE;
    loop {
        if rank_and_size().is_some_and(|(_, size)| size == 1) {
            // nobody else to end, and MPI_Abort would bury the message under its own.
            sys::exit_now(code);
        }
        if sys::is_alive() {
            sys::abort(code);
            sys::exit_now(code);
        }
        if !is_starting() || on_mpi_thread() || Instant::now() > patience {
            sys::exit_now(code);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Installs a panic hook. A panic in any thread ends all ranks with exit code 1 and a message that names the thread and the source line.
///
/// Panics that will be caught are not affected. For example, a decoder's panic becomes an error that names the file.
///
/// Also prints Rust's own report, with the backtrace, where `RUST_BACKTRACE` is set.
pub fn install_panic_hook() {
    let old = std::panic::take_hook();
    let backtrace = std::env::var_os("RUST_BACKTRACE").is_some_and(|v| v != "0");
    std::panic::set_hook(Box::new(move |info| {
        if loaders::will_be_caught(info) {
            return;
        }
        if backtrace {
            old(info);
        }
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("without a name");
        let text = loaders::panic_text(info.payload());
        let place = info.location().map(|l| format!(" at {l}")).unwrap_or_default();
        let hint = "This is a fault of trireme itself: please report it, with the output of RUST_BACKTRACE=1";
        die(1, &format!("panic in thread {name}{place}: {text}\n{hint}"));
    }));
}

/// If the address space is limited, makes faults end with an explanation (see `sys::explain`). Without a limit, signals are not changed.
pub fn explain_faults() {
    if let Some(limit) = loaders::memory::limits() {
        sys::explain(&limit);
    }
}

/// How far MPI is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Initialisation is under way on the MPI thread.
    Starting = 1,
    /// Initialisation is over, well or badly.
    Running = 2,
    /// Finalised, or never started.
    Ended = 3,
}

static PHASE: AtomicU8 = AtomicU8::new(0);
static RANK: AtomicUsize = AtomicUsize::new(0);
/// Zero until MPI is initialised.
static SIZE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static OWNS_MPI: Cell<bool> = const { Cell::new(false) };
}

/// MPI has reached this phase.
pub fn enter(phase: Phase) {
    PHASE.store(phase as u8, Ordering::SeqCst);
}

/// Whether initialisation is under way.
pub fn is_starting() -> bool {
    PHASE.load(Ordering::SeqCst) == Phase::Starting as u8
}

/// Notes this rank's number and the number of ranks.
pub fn set_rank(rank: usize, size: usize) {
    RANK.store(rank, Ordering::SeqCst);
    SIZE.store(size, Ordering::SeqCst);
}

/// Rank and number of ranks, once MPI is initialised.
pub fn rank_and_size() -> Option<(usize, usize)> {
    match SIZE.load(Ordering::SeqCst) {
        0 => None,
        size => Some((RANK.load(Ordering::SeqCst), size)),
    }
}

/// Makes the caller the MPI thread.
pub fn own_mpi() {
    OWNS_MPI.set(true);
}

/// Whether the caller is the MPI thread.
pub fn on_mpi_thread() -> bool {
    OWNS_MPI.get()
}
