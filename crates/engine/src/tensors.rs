//! The memory of a graph's activations and their gradients. Each operation takes the values that it reads and writes,
//! and returns them afterwards.

use std::ops::{Deref, DerefMut, Range};

use backend::{Backend, Error, Region};

use super::memory::Memory;

/// All values in one region, at the places of the memory plan.
pub(super) struct Tensors<B: Backend> {
    region: Box<dyn Region<B::Buf>>,
    places: Vec<Range<usize>>,
}

/// A value that an operation uses. Dropping the guard returns the value.
pub(super) struct ValueGuard<'a, B: Backend> {
    of: &'a Tensors<B>,
    value: usize,
    buf: B::Buf,
}

impl<B: Backend> Tensors<B> {
    pub fn new(backend: &B, memory: &Memory) -> Result<Self, Error> {
        let region = backend.region(memory.elems, &memory.places)?;
        Ok(Self { region, places: memory.places.clone() })
    }

    /// Reserves a value until the result is dropped. Until then, this value and values with overlapping places cannot
    /// be taken.
    pub fn take(&self, value: usize) -> Result<ValueGuard<'_, B>, Error> {
        Ok(ValueGuard { of: self, value, buf: self.region.take(&self.places[value])? })
    }

    /// Takes values for reading, in this order. A value may appear more than once. `None` becomes an empty buffer.
    pub fn take_all(&self, values: impl Iterator<Item = Option<usize>>) -> Result<ValueGuards<'_, B>, Error> {
        let (mut taken, mut order): (Vec<ValueGuard<'_, B>>, Vec<Option<usize>>) = Default::default();
        for value in values {
            let Some(value) = value else {
                order.push(None);
                continue;
            };
            let known = taken.iter().position(|taken| taken.value == value);
            order.push(Some(known.unwrap_or(taken.len())));
            if known.is_none() {
                taken.push(self.take(value)?);
            }
        }
        Ok(ValueGuards { taken, order, nothing: B::Buf::default() })
    }
}

impl<B: Backend> Deref for ValueGuard<'_, B> {
    type Target = B::Buf;

    fn deref(&self) -> &B::Buf {
        &self.buf
    }
}

impl<B: Backend> DerefMut for ValueGuard<'_, B> {
    fn deref_mut(&mut self) -> &mut B::Buf {
        &mut self.buf
    }
}

impl<B: Backend> Drop for ValueGuard<'_, B> {
    fn drop(&mut self) {
        self.of.region.give(&self.of.places[self.value], std::mem::take(&mut self.buf));
    }
}

pub(super) struct ValueGuards<'a, B: Backend> {
    taken: Vec<ValueGuard<'a, B>>,
    order: Vec<Option<usize>>,
    nothing: B::Buf,
}

impl<B: Backend> ValueGuards<'_, B> {
    /// Returns the buffers in the requested order.
    pub fn refs(&self) -> Vec<&B::Buf> {
        self.order.iter().map(|at| at.map_or(&self.nothing, |at| &*self.taken[at])).collect()
    }
}
