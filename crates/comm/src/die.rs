//! The end of a failed run: [`die`] prints one message and ends all ranks.
//!
//! If a rank simply exits (a `return` from main, a panic, an early exit), the other ranks wait in a collective forever.
//! Therefore every error and every panic of any thread ends in [`die`].

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base::screen;

use super::{launcher, sys};

/// How long [`die`] waits while MPI is being initialised. After twice this time, the process ends even if MPI_Abort or
/// the output blocks.
const PATIENCE: Duration = Duration::from_secs(5);

/// Returns `rank R: ` if there are at least two ranks, otherwise an empty string. Before MPI is initialised, this reads
/// the launcher's environment variables.
pub fn rank_prefix() -> String {
    let (rank, size) = rank_and_size().or_else(launcher::rank_and_size).unwrap_or((0, 1));
    if size > 1 { format!("rank {rank}: ") } else { String::new() }
}

/// Prints `rank R: message` to stderr and ends all ranks with exit code `code`.
///
/// This can be called from any thread: before MPI is initialised, during initialisation, and after MPI is finalised.
/// Only the first call prints. Later calls from other threads block until the process ends.
pub fn die(code: i32, message: &str) -> ! {
    static DYING: AtomicBool = AtomicBool::new(false);
    thread_local! {
        static HERE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }
    if HERE.replace(true) {
        // `die` itself failed on this thread and called `die` again. No other thread would end this process.
        sys::exit_now(code);
    }
    if DYING.swap(true, Ordering::SeqCst) {
        loop {
            std::thread::park();
        }
    }
    // A lock on stderr or the MPI library may block this thread. This second thread ends the process even then.
    let _ = std::thread::Builder::new().name("end".into()).spawn(move || {
        std::thread::sleep(2 * PATIENCE);
        sys::exit_now(code)
    });
    // One write, so that the messages of different ranks do not mix.
    screen::say_last(&format!("{}{}", rank_prefix(), message.trim_end()));
    end(code)
}

fn end(code: i32) -> ! {
    let patience = Instant::now() + PATIENCE;
    loop {
        if rank_and_size().is_some_and(|(_, size)| size == 1) {
            // With a single rank, MPI_Abort has nothing else to end, and its own output would hide the message.
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
/// Panics in code that catches them are not affected. For example, a decoder's panic becomes an error that names the
/// file.
///
/// Also prints Rust's own report with the backtrace if `RUST_BACKTRACE` is set and not `0`.
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
        let hint =
            "This is a bug in trireme. Please report it with the output of the same command with RUST_BACKTRACE=1";
        die(1, &format!("panic in thread {name}{place}: {text}\n{hint}"));
    }));
}

/// Installs signal handlers that explain faults (see `sys::explain`) if the address space is limited. Without a limit,
/// signals are not changed.
pub fn explain_faults() {
    if let Some(limit) = loaders::memory::limits() {
        sys::explain(&limit);
    }
}

/// The state of MPI in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// The MPI thread is initialising MPI.
    Starting = 1,
    /// Initialisation has ended, successfully or not.
    Running = 2,
    /// MPI was finalised, or its thread could not be started.
    Ended = 3,
}

static PHASE: AtomicU8 = AtomicU8::new(0);
static RANK: AtomicUsize = AtomicUsize::new(0);
/// Number of ranks, or 0 until MPI is initialised.
static SIZE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static OWNS_MPI: Cell<bool> = const { Cell::new(false) };
}

/// Records that MPI has reached `phase`.
pub fn enter(phase: Phase) {
    PHASE.store(phase as u8, Ordering::SeqCst);
}

/// Returns true while MPI is being initialised.
pub fn is_starting() -> bool {
    PHASE.load(Ordering::SeqCst) == Phase::Starting as u8
}

pub fn set_rank(rank: usize, size: usize) {
    RANK.store(rank, Ordering::SeqCst);
    SIZE.store(size, Ordering::SeqCst);
}

/// Returns the rank and the number of ranks, or `None` until MPI is initialised.
pub fn rank_and_size() -> Option<(usize, usize)> {
    match SIZE.load(Ordering::SeqCst) {
        0 => None,
        size => Some((RANK.load(Ordering::SeqCst), size)),
    }
}

/// Marks the calling thread as the MPI thread.
pub fn own_mpi() {
    OWNS_MPI.set(true);
}

pub fn on_mpi_thread() -> bool {
    OWNS_MPI.get()
}
