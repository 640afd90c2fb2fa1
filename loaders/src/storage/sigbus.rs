//! Turns SIGBUS into a message. The signal is raised if a mapped file was truncated or its disk fails. The signal
//! handler only reads atomics, writes numbers into small arrays on its stack, and calls `writev` and `_exit`.

use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use base::text::decimal;

use crate::error::Error;

const NO_RANK: u32 = u32::MAX;

static RANK: AtomicU32 = AtomicU32::new(NO_RANK);
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Sets the rank for the handler's message. Without this call, the message has no rank.
pub fn set_rank(rank: u32) {
    RANK.store(rank, Ordering::Relaxed);
}

/// Installs the handler for the whole process. Further calls do nothing. Call it before any thread reads a shard. If
/// another handler was installed before, it still receives the faults outside of registered mappings.
pub fn install() -> io::Result<()> {
    static INSTALLING: Mutex<()> = Mutex::new(());
    let _guard = INSTALLING.lock().unwrap_or_else(|e| e.into_inner());
    if PREVIOUS.get().is_some() {
        return Ok(());
    }
    // SAFETY: `sigaction` is a C struct for which all zeros is a valid value. Both calls get pointers to live structs,
    // and the handler has the signature that SA_SIGINFO requires.
    unsafe {
        let mut previous: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut previous) != 0 {
            return Err(io::Error::last_os_error());
        }
        // Store this before the handler is installed, because the handler may run at once and read it.
        PREVIOUS.get_or_init(|| previous);
        let mut ours: libc::sigaction = std::mem::zeroed();
        ours.sa_sigaction = on_sigbus as *const () as usize;
        // Do not use the alternate stack: it may be hardly larger than the registers that are saved there. A thread
        // that reads a shard has stack space left.
        ours.sa_flags = libc::SA_SIGINFO;
        libc::sigemptyset(&mut ours.sa_mask);
        if libc::sigaction(libc::SIGBUS, &ours, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid `siginfo` to a SA_SIGINFO handler, and sets `si_addr` for SIGBUS.
    let address = unsafe { (*info).si_addr() } as usize;
    match find(address) {
        Some((entry, offset)) => report_and_exit(entry, offset),
        None => chain(signal, info, context),
    }
}

/// Writes which rank could not read which byte of which file, and exits.
fn report_and_exit(entry: &Entry, offset: usize) -> ! {
    let (name, length) = (entry.name.load(Ordering::Relaxed), entry.name_length.load(Ordering::Relaxed));
    // SAFETY: `find` saw the entry in use, so the registration that owns these bytes is alive.
    let name = unsafe { std::slice::from_raw_parts(name, length) };
    let rank = RANK.load(Ordering::Relaxed);
    let (before_rank, after_rank) = match rank {
        NO_RANK => ("", ""),
        _ => ("rank ", ": "),
    };
    let (mut rank_digits, mut offset_digits, mut size_digits) = ([0; 20], [0; 20], [0; 20]);
    let rank = match rank {
        NO_RANK => &[],
        rank => decimal(u64::from(rank), &mut rank_digits),
    };
    let size = entry.length.load(Ordering::Relaxed) as u64;
    let parts = [
        before_rank.as_bytes(),
        rank,
        after_rank.as_bytes(),
        name,
        b": cannot read at byte offset ",
        decimal(offset as u64, &mut offset_digits),
        b" (mapped with ",
        decimal(size, &mut size_digits),
        b" bytes): the file was cut short while in use, or its disk failed; \
          restore it (`trireme data verify` checks the shards of a data set)\n",
    ]
    .map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
    // SAFETY: `writev` and `_exit` are async-signal-safe. Each iovec points to a live slice, which is only read. If the
    // write fails, the error cannot be reported, but the exit code remains.
    unsafe {
        libc::writev(libc::STDERR_FILENO, parts.as_ptr(), parts.len() as libc::c_int);
        libc::_exit(1)
    }
}

/// Passes a fault outside of registered mappings to the action that was set before [`install`].
fn chain(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let previous = PREVIOUS.get();
    let action = previous.map_or(libc::SIG_DFL, |previous| previous.sa_sigaction);
    match previous {
        Some(previous) if action != libc::SIG_DFL && action != libc::SIG_IGN => {
            // SAFETY: the address came from sigaction(2). Its SA_SIGINFO flag tells which of the two signatures it has.
            unsafe {
                if previous.sa_flags & libc::SA_SIGINFO != 0 {
                    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                        std::mem::transmute(action);
                    handler(signal, info, context);
                } else {
                    let handler: extern "C" fn(libc::c_int) = std::mem::transmute(action);
                    handler(signal);
                }
            }
        }
        _ => {
            // After the return, the faulting access is repeated, and the default action then ends the process.
            // SAFETY: restores the default action, and signal(2) is async-signal-safe.
            unsafe {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
    }
}

/// Maximum number of files that can be mapped at once. The table has 1 MiB of zero pages, which use no memory until
/// they are written.
const LIMIT: usize = 32_768;

/// The value of `base` in a free entry.
const FREE: usize = 0;
/// The value of `base` in an entry that another thread is writing. No mapping starts at address 1.
const CLAIMED: usize = 1;

/// A mapped range and the name of its file in messages.
struct Entry {
    base: AtomicUsize,
    pub length: AtomicUsize,
    pub name: AtomicPtr<u8>,
    pub name_length: AtomicUsize,
}

static TABLE: [Entry; LIMIT] = [const {
    Entry {
        base: AtomicUsize::new(FREE),
        length: AtomicUsize::new(0),
        name: AtomicPtr::new(std::ptr::null_mut()),
        name_length: AtomicUsize::new(0),
    }
}; LIMIT];

/// One more than the highest index ever used. It keeps the search short.
static USED: AtomicUsize = AtomicUsize::new(0);

/// Keeps a mapped range in the table until it is dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    place: Option<usize>,
    /// Owns the bytes that `name` in the table points to. It is not a `Box`, because a `Box` may not be moved while a
    /// pointer into it is in use.
    _name: Vec<u8>,
}

impl Registration {
    /// Registers the address range of the mapping of the file at `path`. Messages call it `kind`, for example "shard".
    /// The registration must be dropped before the range is unmapped.
    ///
    /// # Errors
    ///
    /// Returns an error if the table is full.
    pub(crate) fn new(range: Range<usize>, kind: &str, path: &Path) -> Result<Self, Error> {
        let mut name = [kind.as_bytes(), b" ", path.as_os_str().as_bytes()].concat();
        if range.is_empty() {
            return Ok(Self { place: None, _name: name });
        }
        let place = TABLE
            .iter()
            .position(|entry| entry.base.compare_exchange(FREE, CLAIMED, Ordering::AcqRel, Ordering::Relaxed).is_ok())
            .ok_or_else(|| Error::TooManyShards { path: path.to_owned(), limit: LIMIT })?;
        let entry = &TABLE[place];
        entry.length.store(range.len(), Ordering::Relaxed);
        entry.name.store(name.as_mut_ptr(), Ordering::Relaxed);
        entry.name_length.store(name.len(), Ordering::Relaxed);
        USED.fetch_max(place + 1, Ordering::AcqRel);
        entry.base.store(range.start, Ordering::Release);
        Ok(Self { place: Some(place), _name: name })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            TABLE[place].base.store(FREE, Ordering::Release);
        }
    }
}

/// Finds the entry for the range that contains `address`, and the offset within that range. A thread that faults in a
/// mapping borrows the mapping, so its entry cannot be freed meanwhile. Entries that other threads are changing are
/// skipped.
fn find(address: usize) -> Option<(&'static Entry, usize)> {
    TABLE[..USED.load(Ordering::Acquire)].iter().find_map(|entry| {
        let base = entry.base.load(Ordering::Acquire);
        let offset = address.checked_sub(base)?;
        let inside = base > CLAIMED && offset < entry.length.load(Ordering::Relaxed);
        (inside && entry.base.load(Ordering::Acquire) == base).then_some((entry, offset))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_found_while_registered() {
        let bytes = [0u8; 64];
        let base = bytes.as_ptr() as usize;
        let registration = Registration::new(base..base + 64, "shard", Path::new("some/shard")).unwrap();
        assert_eq!(find(base).map(|(_, offset)| offset), Some(0));
        assert_eq!(find(base + 63).map(|(_, offset)| offset), Some(63));
        assert!(find(base + 64).is_none());
        drop(registration);
        assert!(find(base).is_none());
    }

    #[test]
    fn concurrent_registrations_never_share_a_slot() {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                std::thread::spawn(|| {
                    for _ in 0..500 {
                        let bytes = [0u8; 32];
                        let base = bytes.as_ptr() as usize;
                        let held = Registration::new(base..base + 32, "file", Path::new("x")).unwrap();
                        let (entry, offset) = find(base + 5).unwrap();
                        assert_eq!((offset, entry.length.load(Ordering::Relaxed)), (5, 32));
                        drop(held);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
    }
}
