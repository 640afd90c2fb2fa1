//! Signals stay away from threads that run oneDNN: its generated matrix kernels use the stack pointer as one more register that
//! points into a buffer of theirs, so a signal handler's frame would overwrite whatever lies in front of that buffer.

use std::{mem, ptr};

use crate::Error;

/// Signals that a thread's own instruction raises; no other thread can take them.
const FAULTS: [i32; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT, libc::SIGSYS];

/// Blocks every signal that has a handler, for the calling thread and those that it will start: another thread of the process
/// takes them. Signals without a handler do what they always do.
pub fn leave_to_others() -> Result<(), Error> {
    // SAFETY: a set is plain memory, which sigemptyset makes the empty one.
    let mut handled: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: a live set.
    unsafe { libc::sigemptyset(&mut handled) };
    for signal in (1..libc::SIGRTMIN()).filter(|signal| !FAULTS.contains(signal)) {
        // SAFETY: plain memory for which all zeros is a valid value; the call only fills it in.
        let mut now: libc::sigaction = unsafe { mem::zeroed() };
        // SAFETY: asks for the disposition of a signal and changes nothing.
        let known = unsafe { libc::sigaction(signal, ptr::null(), &mut now) } == 0;
        if known && ![libc::SIG_DFL, libc::SIG_IGN].contains(&now.sa_sigaction) {
            // SAFETY: a live set and a number that sigaction knew.
            unsafe { libc::sigaddset(&mut handled, signal) };
        }
    }
    // SAFETY: a live set; the old mask is not requested.
    let status = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &handled, ptr::null_mut()) };
    if status == 0 {
        return Ok(());
    }
    let status = std::io::Error::from_raw_os_error(status).to_string();
    Err(Error::Foreign { library: "libc", call: "pthread_sigmask", op: "compute threads".into(), status })
}
