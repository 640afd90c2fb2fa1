//! Turns the SIGBUS of a mapped shard that was cut short (or whose disk fails) into a message that
//! names rank, shard and byte, and exit code 1. Other SIGBUS go to whoever handled them before.
//!
//! The handler only reads atomics, writes numbers into small arrays on its stack, and calls `writev`
//! and `_exit`.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use crate::Error;

/// The most files that can be mapped at once; the table is 1 MiB of zero pages until used.
const LIMIT: usize = 32_768;

/// `base` of a place in the table that nobody has.
const FREE: usize = 0;
/// `base` of a place whose other fields are being written. No mapping starts at address 1.
const CLAIMED: usize = 1;

const NO_RANK: u32 = u32::MAX;

struct Entry {
    base: AtomicUsize,
    length: AtomicUsize,
    path: AtomicPtr<u8>,
    path_length: AtomicUsize,
}

static TABLE: [Entry; LIMIT] = [const {
    Entry {
        base: AtomicUsize::new(FREE),
        length: AtomicUsize::new(0),
        path: AtomicPtr::new(std::ptr::null_mut()),
        path_length: AtomicUsize::new(0),
    }
}; LIMIT];

/// One past the highest place ever used, so that a scan stays short.
static USED: AtomicUsize = AtomicUsize::new(0);
static RANK: AtomicU32 = AtomicU32::new(NO_RANK);
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Names this process in the handler's message; until called, no rank is named.
pub fn set_rank(rank: u32) {
    RANK.store(rank, Ordering::Relaxed);
}

/// Installs the handler for the whole process; further calls do nothing. Call it before threads read
/// shards; a handler installed earlier by someone else still gets the faults that are not ours.
pub fn install() -> io::Result<()> {
    static INSTALLING: Mutex<()> = Mutex::new(());
    let _guard = INSTALLING.lock().unwrap_or_else(|e| e.into_inner());
    if PREVIOUS.get().is_some() {
        return Ok(());
    }
    // SAFETY: sigaction is a C struct for which all zeros is a valid value; both calls get pointers to
    // live structs, and the handler has the signature that SA_SIGINFO asks for.
    unsafe {
        let mut previous: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut previous) != 0 {
            return Err(io::Error::last_os_error());
        }
        // Stored before ours is live: the handler may run the very next moment.
        PREVIOUS.get_or_init(|| previous);
        let mut ours: libc::sigaction = std::mem::zeroed();
        ours.sa_sigaction = on_sigbus as *const () as usize;
        // Not on the alternate stack: a thread that reads a shard has stack left, while alternate
        // ones may be hardly larger than the registers saved there.
        ours.sa_flags = libc::SA_SIGINFO;
        libc::sigemptyset(&mut ours.sa_mask);
        if libc::sigaction(libc::SIGBUS, &ours, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// A mapped range that the handler knows, until dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    place: Option<usize>,
    /// Owns what the table's `path` points to.
    _path: Box<[u8]>,
}

impl Registration {
    /// Makes the mapping `bytes` of the file at `path` known. Must be dropped before it is unmapped.
    pub(crate) fn new(bytes: &[u8], path: &Path) -> Result<Self, Error> {
        use std::os::unix::ffi::OsStrExt;
        let mut name: Box<[u8]> = path.as_os_str().as_bytes().into();
        if bytes.is_empty() {
            return Ok(Self { place: None, _path: name });
        }
        let place = TABLE
            .iter()
            .position(|entry| entry.base.compare_exchange(FREE, CLAIMED, Ordering::AcqRel, Ordering::Relaxed).is_ok())
            .ok_or_else(|| Error::TooManyShards { path: path.to_owned(), limit: LIMIT })?;
        let entry = &TABLE[place];
        entry.length.store(bytes.len(), Ordering::Relaxed);
        entry.path.store(name.as_mut_ptr(), Ordering::Relaxed);
        entry.path_length.store(name.len(), Ordering::Relaxed);
        USED.fetch_max(place + 1, Ordering::AcqRel);
        entry.base.store(bytes.as_ptr() as usize, Ordering::Release);
        Ok(Self { place: Some(place), _path: name })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            TABLE[place].base.store(FREE, Ordering::Release);
        }
    }
}

/// The entry whose range holds `address`, and the offset within. A thread that faults in a mapping
/// borrows it, so that entry cannot be given back meanwhile; entries in flux elsewhere are skipped.
fn find(address: usize) -> Option<(&'static Entry, usize)> {
    TABLE[..USED.load(Ordering::Acquire)].iter().find_map(|entry| {
        let base = entry.base.load(Ordering::Acquire);
        let offset = address.checked_sub(base)?;
        let inside = base > CLAIMED && offset < entry.length.load(Ordering::Relaxed);
        (inside && entry.base.load(Ordering::Acquire) == base).then_some((entry, offset))
    })
}

extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo to a SA_SIGINFO handler; for SIGBUS si_addr is set.
    let address = unsafe { (*info).si_addr() } as usize;
    match find(address) {
        Some((entry, offset)) => report_and_exit(entry, offset),
        None => chain(signal, info, context),
    }
}

fn report_and_exit(entry: &Entry, offset: usize) -> ! {
    let (path, length) = (entry.path.load(Ordering::Relaxed), entry.path_length.load(Ordering::Relaxed));
    // SAFETY: `find` saw the entry in use, so its registration, which owns these bytes, is alive.
    let path = unsafe { std::slice::from_raw_parts(path, length) };
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
        b"shard ",
        path,
        b": cannot read at byte offset ",
        decimal(offset as u64, &mut offset_digits),
        b" (mapped with ",
        decimal(size, &mut size_digits),
        b" bytes): the file was cut short while in use, or its disk failed; \
          restore it and check with `trireme data verify`\n",
    ]
    .map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
    // SAFETY: writev and _exit are async-signal-safe; each iovec is of a live slice and only read.
    // Should the write fail there is nowhere left to say it; the exit code still does.
    unsafe {
        libc::writev(libc::STDERR_FILENO, parts.as_ptr(), parts.len() as libc::c_int);
        libc::_exit(1)
    }
}

/// The number's digits, written to the end of `digits`.
fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
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

/// Hands a fault that is not ours to the action that was there before `install`.
fn chain(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let previous = PREVIOUS.get();
    let action = previous.map_or(libc::SIG_DFL, |previous| previous.sa_sigaction);
    match previous {
        Some(previous) if action != libc::SIG_DFL && action != libc::SIG_IGN => {
            // SAFETY: the address came from sigaction(2), which says by SA_SIGINFO which of the two
            // signatures it has.
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
            // Returning repeats the faulting access, which then ends the process as by default.
            // SAFETY: restores the default action; signal(2) is async-signal-safe.
            unsafe {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_found_while_registered() {
        let bytes = vec![0u8; 64];
        let base = bytes.as_ptr() as usize;
        let registration = Registration::new(&bytes, Path::new("some/shard")).unwrap();
        assert_eq!(find(base).map(|(_, offset)| offset), Some(0));
        assert_eq!(find(base + 63).map(|(_, offset)| offset), Some(63));
        assert!(find(base + 64).is_none());
        drop(registration);
        assert!(find(base).is_none());
    }

    #[test]
    fn concurrent_registrations_never_share_a_place() {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                std::thread::spawn(|| {
                    for _ in 0..500 {
                        let bytes = vec![0u8; 32];
                        let held = Registration::new(&bytes, Path::new("x")).unwrap();
                        let (entry, offset) = find(bytes.as_ptr() as usize + 5).unwrap();
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

    #[test]
    fn numbers_are_decimal() {
        for number in [0, 7, 10, 4096, u64::MAX] {
            let mut digits = [0; 20];
            let expected = number.to_string();
            assert_eq!(decimal(number, &mut digits), expected.as_bytes());
        }
    }
}
