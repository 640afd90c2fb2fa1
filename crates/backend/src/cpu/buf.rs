//! Host memory aligned to cache lines.

use std::alloc::{Layout, alloc, dealloc};
use std::cell::{RefCell, RefMut};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use super::threads::Threads;
use crate::memory::{Part, Whole};
use crate::{Buffer, Error, Region};

/// Alignment in bytes: the size of a cache line and of the widest vector register.
const ALIGN: usize = 64;

/// Number of f32 elements in a page of 4 KiB.
const PAGE: usize = 1024;

/// From this number of elements on, all threads zero a new buffer together. For smaller buffers, waking the threads
/// would take longer.
const SHARED: usize = 1 << 16;

/// Zeroed f32 memory aligned to 64 bytes.
pub struct AlignedBuf {
    data: NonNull<f32>,
    len: usize,
    /// Set if the memory is part of a region. Then the region owns it.
    part: Option<Part<AlignedBuf>>,
}

// SAFETY: like a `Box<[f32]>`, it has exclusive access to its memory. Parts of a region that are alive at the same time
// do not overlap.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared references can only read.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// Allocates `len` zeros. `what` names the memory in the error message.
    pub fn zeroed(len: usize, what: &str) -> Result<Self, Error> {
        Self::touched_by(Threads(1), len, what)
    }

    /// Allocates `len` zeros. All threads write them together, because the system places a page near the core that
    /// writes to it first. Each thread writes the range that `Threads::split` assigns to it. Loops over images use
    /// almost the same ranges: only the ends differ, because an image belongs to a single thread.
    pub fn touched_by(threads: Threads, len: usize, what: &str) -> Result<Self, Error> {
        if len == 0 {
            return Ok(Self::default());
        }
        let fail = || Error::Memory { what: what.into(), bytes: len.saturating_mul(4) };
        let layout = Self::layout(len).ok_or_else(fail)?;
        // SAFETY: the layout has a non-zero size.
        let data: NonNull<f32> = NonNull::new(unsafe { alloc(layout) }.cast()).ok_or_else(fail)?;
        // SAFETY: `data` is valid for `len` elements, `MaybeUninit` needs no initial value, and nothing else uses the
        // memory yet.
        let fresh = unsafe { std::slice::from_raw_parts_mut(data.as_ptr().cast::<MaybeUninit<f32>>(), len) };
        match len < SHARED {
            true => fresh.fill(MaybeUninit::zeroed()),
            false => threads.split(fresh, PAGE, |_, run| run.fill(MaybeUninit::zeroed())),
        }
        Ok(Self { data, len, part: None })
    }

    fn layout(len: usize) -> Option<Layout> {
        Layout::from_size_align(len.checked_mul(4)?, ALIGN).ok()
    }

    pub fn as_slice(&self) -> &[f32] {
        // SAFETY: `data` is valid for `len` initialised elements (dangling but aligned when `len` is 0).
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.len) }
    }

    pub fn as_mut_slice(&mut self) -> &mut [f32] {
        // SAFETY: as in `as_slice`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr(), self.len) }
    }
}

impl Default for AlignedBuf {
    fn default() -> Self {
        Self { data: NonNull::dangling(), len: 0, part: None }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if let (true, None, Some(layout)) = (self.len > 0, &self.part, Self::layout(self.len)) {
            // SAFETY: `touched_by` allocated the memory with the same layout.
            unsafe { dealloc(self.data.as_ptr().cast(), layout) };
        }
    }
}

impl Region<AlignedBuf> for Arc<Whole<AlignedBuf>> {
    fn take(&self, at: &Range<usize>) -> Result<AlignedBuf, Error> {
        let part = Whole::take(self, at, self.memory.len)?;
        // SAFETY: `take` has checked that the range is inside the region's memory, which lives as long as the part.
        let data = unsafe { self.memory.data.add(at.start) };
        Ok(AlignedBuf { data, len: at.len(), part: Some(part) })
    }

    fn give(&self, _: &Range<usize>, part: AlignedBuf) {
        drop(part);
    }
}

/// Reinterprets f32 memory as twice as many 16-bit numbers.
pub(super) fn as_u16_mut(words: &mut [f32]) -> &mut [u16] {
    // SAFETY: an f32 is as large as two u16 and has a stricter alignment. All bit patterns are valid for both types.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), words.len() * 2) }
}

/// Works like [`as_u16_mut`], for reading.
pub(super) fn as_u16(words: &[f32]) -> &[u16] {
    // SAFETY: as in `as_u16_mut`.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len() * 2) }
}

/// Workspace that operations share, because they run one after another. Its content is undefined when a pass begins.
#[derive(Default)]
pub(super) struct Scratch(RefCell<AlignedBuf>);

impl Scratch {
    /// Makes room for at least `elems` elements. `what` names the memory in the error message.
    pub fn reserve(&self, elems: usize, what: &str) -> Result<(), Error> {
        let mut buf = self.0.borrow_mut();
        if buf.len < elems {
            // Free the old buffer first.
            *buf = AlignedBuf::default();
            *buf = AlignedBuf::zeroed(elems, what)?;
        }
        Ok(())
    }

    pub fn borrow(&self) -> RefMut<'_, AlignedBuf> {
        self.0.borrow_mut()
    }

    pub fn bytes(&self) -> usize {
        self.0.borrow().len * 4
    }
}

impl Buffer for AlignedBuf {
    fn len(&self) -> usize {
        self.len
    }

    fn place(&self) -> usize {
        self.data.as_ptr() as usize
    }

    fn host(&self) -> Option<&[f32]> {
        Some(self.as_slice())
    }

    fn staged(&mut self) -> Result<&mut [f32], Error> {
        Ok(self.as_mut_slice())
    }

    fn read(&self, first: usize, to: &mut [f32]) -> Result<(), Error> {
        to.copy_from_slice(&self.as_slice()[first..][..to.len()]);
        Ok(())
    }

    fn write(&mut self, first: usize, from: &[f32]) -> Result<(), Error> {
        self.as_mut_slice()[first..][..from.len()].copy_from_slice(from);
        Ok(())
    }
}
