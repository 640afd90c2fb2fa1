//! The reference backend as a device: its memory, and the passes over flat arrays.

use super::host_buf::HostBuf;
use crate::{Arena, DeviceMemory, Error, Slot};

/// The plain-loop backend.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reference;

impl DeviceMemory for Reference {
    type Buf = HostBuf;
    type Format = usize;
    type Fusion = ();

    fn alloc(&self, elems: usize) -> Result<HostBuf, Error> {
        Ok(HostBuf(vec![0.0; elems]))
    }

    fn copy(&self, to: &mut HostBuf, from: &HostBuf) -> Result<(), Error> {
        to.0.copy_from_slice(&from.0);
        Ok(())
    }

    fn zero(&self, to: &mut HostBuf) -> Result<(), Error> {
        to.0.fill(0.0);
        Ok(())
    }

    fn add(&self, to: &mut HostBuf, from: &HostBuf) -> Result<(), Error> {
        for (a, b) in to.0.iter_mut().zip(&from.0) {
            *a += b;
        }
        Ok(())
    }

    fn scale(&self, to: &mut HostBuf, factor: f32) -> Result<(), Error> {
        to.0.iter_mut().for_each(|a| *a *= factor);
        Ok(())
    }

    fn clamp(&self, x: &mut HostBuf, limit: f32) -> Result<(), Error> {
        x.0.iter_mut().for_each(|x| *x = x.clamp(-limit, limit));
        Ok(())
    }

    fn lerp(&self, to: &mut HostBuf, from: &HostBuf, weight: f32) -> Result<(), Error> {
        to.0.iter_mut().zip(&from.0).for_each(|(to, from)| *to += weight * (from - *to));
        Ok(())
    }
}

impl Arena<Reference> {
    /// The elements of a slot.
    pub(super) fn get(&self, slot: Slot) -> &[f32] {
        &self.chunks[slot.chunk].0[slot.range()]
    }

    /// The elements of a slot for writing.
    pub(super) fn get_mut(&mut self, slot: Slot) -> &mut [f32] {
        &mut self.chunks[slot.chunk].0[slot.range()]
    }
}
