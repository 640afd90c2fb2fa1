//! Host memory on cache-line boundaries.

use std::alloc::{Layout, alloc, dealloc};
use std::cell::{RefCell, RefMut};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use super::threads::Threads;
use crate::memory::{Part, Whole};
use crate::{Buffer, Error};

/// Alignment in bytes: a cache line, and the widest vector.
const ALIGN: usize = 64;

/// Elements of a page of 4 KiB.
const PAGE: usize = 1024;

/// Elements from which threads share the first writing: below, it takes less than to wake them.
const SHARED: usize = 1 << 16;

/// Zeroed f32 memory aligned to 64 bytes.
pub struct AlignedBuf {
    data: NonNull<f32>,
    len: usize,
    /// Where it is a part of a region.
    part: Option<Part<AlignedBuf>>,
}

// SAFETY: it owns its memory exclusively, like a Box<[f32]>: no two parts of a region that are alive at the same time overlap.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared references only read.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// `len` zeros.
    pub fn zeroed(len: usize, what: &str) -> Result<Self, Error> {
        Self::touched_by(Threads(1), len, what)
    }

    /// `len` zeros, written by the threads that will use them: a page lies in the memory of the socket whose core first writes to it.
    /// Each gets the run that `Threads::split` gives it, as do loops over images, which are whole in one run but for its ends.
    pub fn touched_by(threads: Threads, len: usize, what: &str) -> Result<Self, Error> {
        if len == 0 {
            return Ok(Self::default());
        }
        let fail = || Error::Memory { what: what.into(), bytes: len.saturating_mul(4) };
        let layout = Self::layout(len).ok_or_else(fail)?;
        // SAFETY: the layout has a non-zero size.
        let data: NonNull<f32> = NonNull::new(unsafe { alloc(layout) }.cast()).ok_or_else(fail)?;
        // SAFETY: `len` elements that need no value yet, and nobody else has.
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

    /// The elements.
    pub fn as_slice(&self) -> &[f32] {
        // SAFETY: `data` is valid for `len` initialised elements (dangling but aligned when `len` is 0).
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.len) }
    }

    /// The elements for writing.
    pub fn as_mut_slice(&mut self) -> &mut [f32] {
        // SAFETY: as above, and exclusively borrowed.
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
            // SAFETY: allocated by `touched_by` with this very layout.
            unsafe { dealloc(self.data.as_ptr().cast(), layout) };
        }
    }
}

/// Memory that is given out in parts.
pub(super) struct Region(Arc<Whole<AlignedBuf>>);

impl Region {
    /// Zeros, see [`AlignedBuf::touched_by`].
    pub fn new(threads: Threads, elems: usize, what: &str) -> Result<Self, Error> {
        Ok(Self(Whole::new(AlignedBuf::touched_by(threads, elems, what)?)))
    }
}

impl crate::Region<AlignedBuf> for Region {
    fn take(&self, at: &Range<usize>) -> Result<AlignedBuf, Error> {
        let memory = &self.0.memory;
        let part = self.0.take(at, memory.len)?;
        // SAFETY: the range lies in the region's memory (`take` has checked that), which lives as long as the part.
        let data = unsafe { memory.data.add(at.start) };
        Ok(AlignedBuf { data, len: at.len(), part: Some(part) })
    }

    fn give(&self, _: &Range<usize>, part: AlignedBuf) {
        drop(part);
    }
}

/// The same memory as twice as many numbers of 16 bits.
pub(super) fn halves(words: &mut [f32]) -> &mut [u16] {
    // SAFETY: an f32 is as long as two of them and aligned more strictly; any bits are a value of both.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), words.len() * 2) }
}

/// The same for reading.
pub(super) fn halves_of(words: &[f32]) -> &[u16] {
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len() * 2) }
}

/// Work space that operations share, since one runs at a time; what one leaves there means nothing to the next.
#[derive(Default)]
pub(super) struct Scratch(RefCell<AlignedBuf>);

impl Scratch {
    /// Makes room for at least so many elements.
    pub fn reserve(&self, elems: usize, what: &str) -> Result<(), Error> {
        let mut buf = self.0.borrow_mut();
        if buf.len < elems {
            // the old one goes first
            *buf = AlignedBuf::default();
            *buf = AlignedBuf::zeroed(elems, what)?;
        }
        Ok(())
    }

    /// For one pass.
    pub fn borrow(&self) -> RefMut<'_, AlignedBuf> {
        self.0.borrow_mut()
    }

    /// Its size.
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
