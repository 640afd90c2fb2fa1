//! Messages for faults that end a process whose address space is limited. If an allocation fails, many libraries use the null pointer, and
//! Rust's collections abort. Without this module the process would end by a signal, and no message would mention the limit.

use std::ffi::c_int;
use std::sync::OnceLock;

use crate::state;

/// The signals with their messages. They are formatted in advance because a signal handler cannot allocate memory.
static MESSAGES: OnceLock<[(c_int, String); 2]> = OnceLock::new();

/// Makes SIGSEGV and SIGABRT end the process with a message and exit code 1. The message contains `limit`, a description of the limit.
pub(crate) fn explain(limit: &str) {
    let text = |signal: &str| {
        format!(
            "ended by {signal}; the address space is limited ({limit}), so probably a library has found no memory: raise the limit, or try \
             a smaller batch or fewer --threads. If it happens without a limit, please report it\n"
        )
    };
    let messages = [(libc::SIGSEGV, text("SIGSEGV")), (libc::SIGABRT, text("SIGABRT"))];
    for (signal, _) in MESSAGES.get_or_init(|| messages) {
        // SAFETY: sigaction is a C struct for which all zeros is a valid value. The handler has the signature for no SA_SIGINFO and calls
        // only async-signal-safe functions. It runs on the alternate stack, because the fault may be a stack that cannot grow.
        unsafe {
            let mut ours: libc::sigaction = std::mem::zeroed();
            ours.sa_sigaction = on_fault as *const () as usize;
            ours.sa_flags = libc::SA_ONSTACK | libc::SA_RESETHAND;
            libc::sigemptyset(&mut ours.sa_mask);
            libc::sigaction(*signal, &ours, std::ptr::null_mut());
        }
    }
}

extern "C" fn on_fault(signal: c_int) {
    let messages = MESSAGES.get().into_iter().flatten();
    let text = messages.filter(|(number, _)| *number == signal).map(|(_, text)| text.as_bytes()).next().unwrap_or(b"");
    let mut digits = [0; 20];
    let (before, rank, after): (&[u8], &[u8], &[u8]) = match state::rank_and_size() {
        Some((rank, size)) if size > 1 => (b"rank ", decimal(rank, &mut digits), b": "),
        _ => (b"", b"", b""),
    };
    let parts = [before, rank, after, text]
        .map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
    // SAFETY: writev and _exit are async-signal-safe. Each iovec points to a live slice that is only read.
    unsafe {
        libc::writev(libc::STDERR_FILENO, parts.as_ptr(), parts.len() as c_int);
        libc::_exit(1)
    }
}

/// Writes a number in decimal to the end of `digits` and returns its digits.
fn decimal(mut number: usize, digits: &mut [u8; 20]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[at..];
        }
    }
}
