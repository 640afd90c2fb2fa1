//! Memory in which tensors that are never in use at the same time share places.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use super::buffer::Buffer;
use super::error::Error;

/// Memory whose parts are buffers for a while. What a part holds stays there until a part that overlaps it is written.
pub trait Region<Buf> {
    /// The elements of a range as a buffer.
    ///
    /// # Errors
    /// Where the range is none of the region's, or overlaps a part that is in use.
    fn take(&self, at: &Range<usize>) -> Result<Buf, Error>;

    /// Ends the use of a part that [`Region::take`] gave.
    fn give(&self, at: &Range<usize>, part: Buf);
}

/// The ranges of a region that are in use.
#[derive(Debug, Default)]
struct Taken(Mutex<Vec<Range<usize>>>);

impl Taken {
    /// Notes that a range of a region of so many elements is in use; fails where another one that overlaps it is.
    pub fn take(&self, at: &Range<usize>, elems: usize) -> Result<(), Error> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let other = taken.iter().find(|other| at.start < other.end && other.start < at.end);
        if at.start > at.end || at.end > elems || other.is_some() {
            let used = other.map_or_else(String::new, |other| format!(", of which {other:?} is in use"));
            let (expected, got) = (format!("a free range of {elems} elements{used}"), format!("{at:?}"));
            return Err(Error::Size { op: "memory of tensors".into(), expected, got });
        }
        taken.push(at.clone());
        Ok(())
    }

    /// Notes that a range is no longer in use.
    pub fn give(&self, at: &Range<usize>) {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = taken.iter().position(|taken| taken == at) {
            taken.swap_remove(place);
        }
    }
}

/// Memory that is given out in parts, and which of them are in use.
pub(super) struct Whole<Memory> {
    pub memory: Memory,
    taken: Taken,
}

impl<Memory> Whole<Memory> {
    pub fn new(memory: Memory) -> Arc<Self> {
        Arc::new(Self { memory, taken: Taken::default() })
    }

    /// Takes a range of these `elems` elements.
    ///
    /// # Errors
    /// As [`Region::take`].
    pub fn take(self: &Arc<Self>, at: &Range<usize>, elems: usize) -> Result<Part<Memory>, Error> {
        self.taken.take(at, elems)?;
        Ok(Part { of: self.clone(), at: at.clone() })
    }
}

/// A range that is in use until this is dropped; keeps the memory alive.
pub(super) struct Part<Memory> {
    of: Arc<Whole<Memory>>,
    at: Range<usize>,
}

impl<Memory> Drop for Part<Memory> {
    fn drop(&mut self) {
        self.of.taken.give(&self.at);
    }
}

/// A region whose parts have memory of their own each, so that nothing is shared.
pub(super) struct Apart<Buf> {
    elems: usize,
    taken: Taken,
    parts: Mutex<HashMap<Range<usize>, Buf>>,
}

impl<Buf: Buffer> Apart<Buf> {
    /// With a buffer for each of these ranges, from `alloc`.
    pub fn new(
        elems: usize,
        parts: &[Range<usize>],
        alloc: impl Fn(usize) -> Result<Buf, Error>,
    ) -> Result<Self, Error> {
        let mut own = HashMap::new();
        for at in parts {
            if !own.contains_key(at) {
                own.insert(at.clone(), alloc(at.len())?);
            }
        }
        Ok(Self { elems, taken: Taken::default(), parts: Mutex::new(own) })
    }
}

impl<Buf: Buffer> Region<Buf> for Apart<Buf> {
    fn take(&self, at: &Range<usize>) -> Result<Buf, Error> {
        self.taken.take(at, self.elems)?;
        let part = self.parts.lock().unwrap_or_else(PoisonError::into_inner).get_mut(at).map(std::mem::take);
        part.ok_or_else(|| {
            let (expected, got) = ("a range that was planned".into(), format!("{at:?}"));
            Error::Size { op: "memory of tensors".into(), expected, got }
        })
    }

    fn give(&self, at: &Range<usize>, part: Buf) {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).insert(at.clone(), part);
        self.taken.give(at);
    }
}
