//! A file mapped read-only into memory and registered with the SIGBUS handler; and pages that are populated before their first use,
//! which costs less than a page fault each.

use std::path::Path;

use memmap2::{Advice, Mmap};

use crate::error::Error;
use crate::file::regular;
use crate::storage::sigbus::Registration;

/// Bytes that the kernel maps around a page fault by default.
const AROUND: u64 = 64 << 10;

/// A whole file, mapped. Fields drop in order: the range is unregistered before it is unmapped.
#[derive(Debug)]
pub(crate) struct Mapping {
    _registration: Registration,
    map: Mmap,
}

impl Mapping {
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let file = regular::open(path).map_err(Error::io("open", path))?;
        // SAFETY: the bytes are only ever read. If another process writes the file meanwhile, each read still
        // yields some bytes, which the checksums verify; if it is cut short, the read ends in SIGBUS, which
        // `sigbus` turns into a message and an exit.
        let map = unsafe { Mmap::map(&file) }.map_err(Error::io("map", path))?;
        let registration = Registration::new(&map, path)?;
        Ok(Self { _registration: registration, map })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Asks the kernel to read these bytes ahead; returns at once. Only a hint: a failure costs speed, and the read itself will report
    /// what is wrong.
    pub(crate) fn will_need(&self, offset: u64, length: u64) {
        let _ = self.advise(Advice::WillNeed, offset, length);
    }

    /// Reads these bytes and enters their pages into this process's page table (Linux 5.14; does nothing on older kernels). Also a hint.
    ///
    /// One page of each [`AROUND`] bytes is requested: the kernel maps its neighbours with it if they are in the page cache.
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

/// Populates the pages of fresh memory before it is written (Linux 5.14; does nothing on older kernels). Only a hint: other pages are
/// populated by faults when they are first written.
pub(crate) fn populate_fresh(values: &mut [f32]) {
    let page = 4096;
    let (start, end) = (values.as_ptr().addr(), values.as_ptr().addr() + size_of_val(values));
    let skipped = start.next_multiple_of(page) - start;
    let length = (end / page * page).saturating_sub(start + skipped);
    if length > 0 {
        // SAFETY: the whole pages lie inside of `values`, which is borrowed; their contents do not change.
        unsafe { libc::madvise(values.as_mut_ptr().byte_add(skipped).cast(), length, libc::MADV_POPULATE_WRITE) };
    }
}
