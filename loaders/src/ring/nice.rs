//! Lowering the calling thread's priority, so that loader threads yield to compute threads.

use std::io;

/// Sets the calling thread's nice value (Linux keeps one per thread) to `nice`, 0 to 19. Does nothing
/// if the thread is that nice already: priority is never raised.
pub fn lower_current_thread(nice: i32) -> io::Result<()> {
    // SAFETY: these calls take and return integers only.
    unsafe {
        let thread = libc::gettid() as libc::id_t;
        // getpriority may return -1 as a value, so errno tells whether it failed.
        *libc::__errno_location() = 0;
        let current = libc::getpriority(libc::PRIO_PROCESS, thread);
        if current == -1 && *libc::__errno_location() != 0 {
            return Err(io::Error::last_os_error());
        }
        if current >= nice {
            return Ok(());
        }
        if libc::setpriority(libc::PRIO_PROCESS, thread, nice) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn current() -> i32 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        // Fields after the name in parentheses start at 3; nice is field 19.
        let after = stat.rsplit_once(')').unwrap().1;
        after.split_whitespace().nth(16).unwrap().parse().unwrap()
    }

    #[test]
    fn only_this_thread_and_only_downwards() {
        let before = current();
        std::thread::spawn(move || {
            let wanted = (before + 3).min(19);
            lower_current_thread(wanted).unwrap();
            assert_eq!(current(), wanted);
            lower_current_thread(before).unwrap();
            assert_eq!(current(), wanted);
        })
        .join()
        .unwrap();
        assert_eq!(current(), before);
    }
}
