//! Read-only file mappings that are registered with the SIGBUS handler. Also populates pages before their first use,
//! which costs less than one page fault per page.
//!
//! Other processes may write to the file at any time, even between a check of its bytes and their use. So a mapping
//! never returns references to its bytes. Each byte is copied out once, and both the check and the use see the copy.

use std::path::Path;

use memmap2::{Advice, MmapOptions, MmapRaw};

use crate::error::Error;
use crate::file::regular;
use crate::storage::sigbus::Registration;

/// Number of bytes that the kernel maps around a page fault by default.
const AROUND: u64 = 64 << 10;

/// Size of a CPU cache line in bytes.
const LINE: usize = 64;

/// A mapping of a whole file. Fields are dropped in order, so the range is unregistered before it is unmapped.
#[derive(Debug)]
pub struct Mapping {
    _registration: Registration,
    map: MmapRaw,
}

impl Mapping {
    /// Maps the regular file at `path`. Messages call the file `kind`, for example "shard".
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be opened or mapped, or if too many files are mapped.
    pub fn open(kind: &str, path: &Path) -> Result<Self, Error> {
        let file = regular::open(path).map_err(Error::io("open", path))?;
        let map = MmapOptions::new().map_raw_read_only(&file).map_err(Error::io("map", path))?;
        let registration = Registration::new(map.as_ptr().addr()..map.as_ptr().addr() + map.len(), kind, path)?;
        Ok(Self { _registration: registration, map })
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `out` with the bytes at `offset`. Returns false if the mapping is too short.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> bool {
        let Some(from) = self.inside(offset, out.len()) else { return false };
        // SAFETY: the source range is inside the mapping, and `out` has exactly this length. For concurrent writes see
        // `copy`.
        unsafe { copy_once(self.map.as_ptr().add(from), out.as_mut_ptr(), out.len()) };
        true
    }

    /// Returns `offset` as an index if `length` bytes from there are inside the mapping.
    fn inside(&self, offset: u64, length: usize) -> Option<usize> {
        usize::try_from(offset).ok().filter(|&from| self.len().checked_sub(from) >= Some(length))
    }

    /// Appends `length` bytes at `offset` to `to`. Returns false if the mapping is too short.
    pub(crate) fn copy(&self, offset: u64, length: usize, to: &mut Vec<u8>) -> bool {
        let Some(from) = self.inside(offset, length) else { return false };
        to.reserve(length);
        let end = to.len();
        // SAFETY: `from..from + length` is inside the mapping, which lives as long as `self`. `to` has capacity for
        // `length` more bytes, and all of them are written before `set_len`. Other processes may change the file
        // meanwhile: any byte values are acceptable, and no byte is read twice (see `copy_once`). If the file was
        // truncated, the read raises SIGBUS, which `sigbus` turns into a message and an exit.
        unsafe {
            copy_once(self.map.as_ptr().add(from), to.as_mut_ptr().add(end), length);
            to.set_len(end + length);
        }
        true
    }

    /// Loads these bytes into the CPU caches without waiting, as far as they are inside the mapping. This is only a
    /// hint, and does not read from the disk.
    pub fn prefetch(&self, offset: u64, length: u64) {
        let end = offset.saturating_add(length).min(self.len() as u64);
        for at in (offset..end).step_by(LINE) {
            base::simd::prefetch(self.map.as_ptr().wrapping_add(at as usize).cast());
        }
    }

    /// Asks the kernel to read these bytes ahead and returns at once. This is only a hint: if it fails, only speed is
    /// lost, and the actual read reports the problem.
    pub(crate) fn will_need(&self, offset: u64, length: u64) {
        let _ = self.advise(Advice::WillNeed, offset, length);
    }

    /// Reads these bytes and enters their pages into the page table of this process. Needs Linux 5.14 and does nothing
    /// on older kernels. This is only a hint.
    ///
    /// One page in every [`AROUND`] bytes is requested. The kernel maps the neighbouring pages with it if they are in
    /// the page cache.
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

/// Copies bytes that other processes may change meanwhile. Later reads of the copy always see the bytes that were
/// copied.
///
/// A plain copy does not guarantee this: the compiler may read the source again instead of the copy, and the source may
/// have changed. The empty assembler block prevents it, because the compiler must assume that the block modified the
/// copy.
///
/// # Safety
///
/// `from` must be valid for reads and `to` for writes of `length` bytes, and the two ranges must not overlap.
#[inline]
unsafe fn copy_once(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: the caller guarantees valid ranges without overlap. The assembler block has no instructions.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, length);
        std::arch::asm!("/* {0} */", in(reg) to, options(nostack, preserves_flags));
    }
}

/// Populates the pages of newly allocated memory before they are written. Needs Linux 5.14 and does nothing on older
/// kernels. This is only a hint: pages that are not populated fault on their first write.
pub(crate) fn populate_fresh(values: &mut [f32]) {
    let page = 4096;
    let (start, end) = (values.as_ptr().addr(), values.as_ptr().addr() + size_of_val(values));
    let skipped = start.next_multiple_of(page) - start;
    let length = (end / page * page).saturating_sub(start + skipped);
    if length > 0 {
        // SAFETY: the pages are completely inside `values`, which is borrowed mutably. Their contents do not change.
        unsafe { libc::madvise(values.as_mut_ptr().byte_add(skipped).cast(), length, libc::MADV_POPULATE_WRITE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_match_the_file_at_any_offset_and_length() {
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
