//! Memory that only a device can address, as its backend lends it to MPI.

use std::marker::PhantomData;

/// f32 elements in a device's memory, borrowed for as long as it lives.
#[derive(Debug)]
pub struct DeviceRegion<'a> {
    address: usize,
    elems: usize,
    owner: PhantomData<&'a mut [f32]>,
}

impl DeviceRegion<'_> {
    /// The region of `elems` elements at `address`.
    ///
    /// # Safety
    /// The memory is a device's, allocated as long as the region lives, and nothing else reads or writes it meanwhile.
    pub unsafe fn new(address: usize, elems: usize) -> Self {
        Self { address, elems, owner: PhantomData }
    }

    /// Where it begins, as the device addresses it.
    pub fn address(&self) -> usize {
        self.address
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.elems
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.elems == 0
    }
}
