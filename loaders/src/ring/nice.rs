//! Lowers the calling thread's priority, so that loader threads yield to compute threads.

use std::io;

use rustix::process::{getpriority_process, setpriority_process};
use rustix::thread::gettid;

/// Sets the calling thread's nice value to `nice`, from 0 to 19. Linux has one value per thread. Does nothing if the
/// thread already has at least this value, so the priority is never raised.
pub fn lower_current_thread(nice: i32) -> io::Result<()> {
    // Linux accepts a thread id where POSIX expects a process id.
    let thread = Some(gettid());
    if getpriority_process(thread)? < nice {
        setpriority_process(thread, nice)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn current() -> i32 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        // The fields after the name in parentheses start at 3. The nice value is field 19.
        let after = stat.rsplit_once(')').unwrap().1;
        after.split_whitespace().nth(16).unwrap().parse().unwrap()
    }

    #[test]
    fn lower_affects_only_this_thread_and_never_raises_priority() {
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
