//! The mapped ranges that the SIGBUS handler knows: a table of atomics, which a signal handler may read.

use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::error::Error;

/// The most files that can be mapped at once; the table is 1 MiB of zero pages until used.
const LIMIT: usize = 32_768;

/// `base` of a free entry.
const FREE: usize = 0;
/// `base` of an entry whose other fields are being written. No mapping starts at address 1.
const CLAIMED: usize = 1;

/// A mapped range, and what its file is called in a message.
pub(super) struct Entry {
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

/// One past the highest entry ever used, so that a scan stays short.
static USED: AtomicUsize = AtomicUsize::new(0);

/// Keeps a mapped range in the table until it is dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    place: Option<usize>,
    /// Owns what the table's `name` points to; no box, which may not be moved while a pointer to its inside is in use.
    _name: Vec<u8>,
}

impl Registration {
    /// Enters the mapping of the file at `path`, which is a `kind` ("shard") in messages, by its addresses. Must be dropped before the
    /// range is unmapped.
    ///
    /// # Errors
    /// If the table is full.
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

/// The entry whose range holds `address`, and the offset in that range. A thread that faults in a mapping borrows it, so its entry
/// cannot be freed meanwhile; entries that are being changed elsewhere are skipped.
pub(super) fn find(address: usize) -> Option<(&'static Entry, usize)> {
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
    fn concurrent_registrations_never_share_a_place() {
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
