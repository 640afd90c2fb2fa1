//! A file mapped read-only into memory and registered with the SIGBUS handler; and pages that are populated before their first use,
//! which costs less than a page fault each.
//!
//! Others may write the file at any time, also between a check of its bytes and their use. So its bytes are never lent: they are copied
//! out, each once, and checks and use see the copy.

use std::path::Path;

use memmap2::{Advice, MmapOptions, MmapRaw};

use crate::error::Error;
use crate::file::regular;
use crate::storage::sigbus::Registration;

/// Bytes that the kernel maps around a page fault by default.
const AROUND: u64 = 64 << 10;

/// Bytes of a line of the processor's caches.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// A whole file, mapped. Fields drop in order: the range is unregistered before it is unmapped.
#[derive(Debug)]
pub struct Mapping {
    _registration: Registration,
    map: MmapRaw,
}

impl Mapping {
    /// Maps the regular file at `path`; `kind` is what messages call it, as "shard".
    ///
    /// # Errors
    /// If it cannot be opened or mapped; too many mappings.
    pub fn open(kind: &str, path: &Path) -> Result<Self, Error> {
        let file = regular::open(path).map_err(Error::io("open", path))?;
        let map = MmapOptions::new().map_raw_read_only(&file).map_err(Error::io("map", path))?;
        let registration = Registration::new(map.as_ptr().addr()..map.as_ptr().addr() + map.len(), kind, path)?;
        Ok(Self { _registration: registration, map })
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether the file is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `out` with the bytes at `offset`; no, if the mapping ends before them.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> bool {
        let Some(from) = self.inside(offset, out.len()) else { return false };
        // SAFETY: the bytes lie inside of the mapping and `out` has room for them; see `copy`.
        unsafe { copy_once(self.map.as_ptr().add(from), out.as_mut_ptr(), out.len()) };
        true
    }

    /// Where in memory `length` bytes at `offset` begin, from the start of the mapping.
    fn inside(&self, offset: u64, length: usize) -> Option<usize> {
        usize::try_from(offset).ok().filter(|&from| self.len().checked_sub(from) >= Some(length))
    }

    /// Copies `length` bytes at `offset` to the end of `to`; no, if the mapping ends before them.
    pub(crate) fn copy(&self, offset: u64, length: usize, to: &mut Vec<u8>) -> bool {
        let Some(from) = self.inside(offset, length) else { return false };
        to.reserve(length);
        let end = to.len();
        // SAFETY: `from..from + length` lies inside of the mapping, which lives as long as `self`, and `to` has room for `length` bytes
        // behind its end, all of which are written before they count. Others may change the file meanwhile: any bytes will do, and
        // nothing is read there twice (see `copy_once`). Reading where the file was cut short ends in SIGBUS, which `sigbus` turns into
        // a message and an exit.
        unsafe {
            copy_once(self.map.as_ptr().add(from), to.as_mut_ptr().add(end), length);
            to.set_len(end + length);
        }
        true
    }

    /// Fetches these bytes, as far as the mapping has them, into the processor's caches without waiting for them. Only a hint, which
    /// changes nothing: bytes that are not in memory are left where they are.
    pub fn prefetch(&self, offset: u64, length: u64) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let end = offset.saturating_add(length).min(self.len() as u64);
            for at in (offset..end).step_by(LINE) {
                // SAFETY: the address lies inside of the mapping, and a prefetch neither faults nor gives anything to the program.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(self.map.as_ptr().add(at as usize).cast()) };
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (offset, length);
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

/// Copies bytes that others may change meanwhile: what is read from the copy later is what was copied.
///
/// A plain copy would not do: the compiler may read its source again in place of its target, and what others wrote there in between. It
/// must take the empty assembler block for code that has written the target anew, so it cannot.
///
/// # Safety
/// `length` bytes can be read at `from` and written at `to`, and do not overlap.
#[inline]
unsafe fn copy_once(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: as the caller says; the block does nothing.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, length);
        std::arch::asm!("/* {0} */", in(reg) to, options(nostack, preserves_flags));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_any_place_and_length() {
        let path = std::env::temp_dir().join(format!("loaders-mapping-{}", std::process::id()));
        let bytes: Vec<u8> = (0..10_000u32).map(|i| (i * 7 % 251) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let mapping = Mapping::open("file", &path).unwrap();
        for from in (0..40).chain([9_000, 9_999, 10_000]) {
            for length in (0..50).chain([777, 1000]) {
                let mut copy = vec![9];
                let there = mapping.copy(from, length, &mut copy);
                let expected = bytes.get(from as usize..from as usize + length);
                assert_eq!(there, expected.is_some());
                assert_eq!(&copy[1..], expected.unwrap_or(&[]), "{from} {length}");
                let mut filled = vec![0; length];
                mapping.prefetch(from, length as u64);
                assert_eq!(mapping.read(from, &mut filled), there);
                assert!(!there || filled == copy[1..]);
            }
        }
        mapping.prefetch(u64::MAX, u64::MAX);
        assert!(!mapping.copy(u64::MAX, 1, &mut Vec::new()));
        std::fs::remove_file(path).unwrap();
    }
}
