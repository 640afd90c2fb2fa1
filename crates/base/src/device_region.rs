//! A buffer in device memory that a backend lends to MPI.

use std::marker::PhantomData;

/// A mutable borrow of f32 elements in device memory.
#[derive(Debug)]
pub struct DeviceRegion<'a> {
    address: usize,
    elems: usize,
    owner: PhantomData<&'a mut [f32]>,
}

impl DeviceRegion<'_> {
    /// Creates a region of `elems` elements at the device address `address`.
    ///
    /// # Safety
    ///
    /// The memory must belong to a device and stay allocated during the lifetime of the region. Nothing else may read
    /// or write it during this time.
    pub unsafe fn new(address: usize, elems: usize) -> Self {
        Self { address, elems, owner: PhantomData }
    }

    /// Returns the address of the first element, in the device's address space.
    pub fn address(&self) -> usize {
        self.address
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.elems
    }

    pub fn is_empty(&self) -> bool {
        self.elems == 0
    }
}
