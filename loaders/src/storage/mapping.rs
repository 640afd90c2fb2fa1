//! A file mapped read-only into memory and made known to the SIGBUS handler; and pages put at hand before they are touched,
//! which costs less than a fault for each.

use std::path::Path;

use memmap2::{Advice, Mmap};

use crate::Error;
use crate::file::regular;
use crate::storage::sigbus::Registration;

/// What the kernel maps at once around a page that is touched, by default.
const AROUND: u64 = 64 << 10;

/// A whole file, mapped. Fields drop in order: the handler forgets the range before it is unmapped.
#[derive(Debug)]
pub(crate) struct Mapping {
    _registration: Registration,
    map: Mmap,
}

impl Mapping {
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let failed = |action| {
            let path = path.to_owned();
            move |source| Error::Io { action, path, source }
        };
        let file = regular::open(path).map_err(failed("open"))?;
        // SAFETY: the bytes are only ever read. Should another process write the file meanwhile, each
        // read still yields some bytes, which the checksums judge; should it be cut short, the read
        // ends in SIGBUS, which `sigbus` turns into a message and an exit.
        let map = unsafe { Mmap::map(&file) }.map_err(failed("map"))?;
        let registration = Registration::new(&map, path)?;
        Ok(Self { _registration: registration, map })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Asks the kernel to read these bytes, which will be wanted soon; returns before they are there. Only a hint: a
    /// refusal costs speed, and the reading itself will say what is wrong.
    pub(crate) fn will_need(&self, offset: u64, length: u64) {
        let _ = self.advise(Advice::WillNeed, offset, length);
    }

    /// Waits for these bytes and puts their pages at this process's hand (Linux 5.14; before, nothing happens). Also a hint.
    ///
    /// One page of each [`AROUND`] is asked for: with it come its neighbours as far as they are in the page cache, and the
    /// kernel need not look at each by itself.
    pub(crate) fn populate(&self, offset: u64, length: u64) {
        let end = offset.saturating_add(length).min(self.map.len() as u64);
        for page in (offset / AROUND * AROUND..end).step_by(AROUND as usize) {
            let _ = self.advise(Advice::PopulateRead, page, 1);
        }
    }

    fn advise(&self, advice: Advice, offset: u64, length: u64) -> std::io::Result<()> {
        let offset = (offset as usize).min(self.map.len());
        match (length as usize).min(self.map.len() - offset) {
            0 => Ok(()),
            length => self.map.advise_range(advice, offset, length),
        }
    }
}

/// Puts the pages of memory that was never touched at hand, to be written (Linux 5.14; before, nothing happens). Only a
/// hint: pages that are not there yet come when they are touched.
pub(crate) fn populate_fresh(values: &mut [f32]) {
    let page = 4096;
    let (start, end) = (values.as_ptr().addr(), values.as_ptr().addr() + size_of_val(values));
    let skipped = start.next_multiple_of(page) - start;
    let length = (end / page * page).saturating_sub(start + skipped);
    if length > 0 {
        // SAFETY: the whole pages lie inside of `values`, which is borrowed; their content stays as it is.
        unsafe { libc::madvise(values.as_mut_ptr().byte_add(skipped).cast(), length, libc::MADV_POPULATE_WRITE) };
    }
}
