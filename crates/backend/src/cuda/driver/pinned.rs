//! Page-locked host memory.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUresult};

use super::context::Context;
use super::slice::{Plain, Slice};
use super::status::driver;
use super::stream::Stream;
use crate::Error;

/// Page-locked host memory that the GPU reads and writes directly.
pub struct Pinned<T> {
    data: *mut T,
    len: usize,
    /// The address by which the GPU accesses the memory.
    address: sys::CUdeviceptr,
    context: Arc<Context>,
    own: PhantomData<T>,
}

// SAFETY: it owns its memory exclusively, like a Box<[T]>.
unsafe impl<T: Send> Send for Pinned<T> {}

impl<T: Plain> Pinned<T> {
    /// Allocates `len` elements and clears them.
    pub fn new(context: &Arc<Context>, len: usize, what: &str) -> Result<Self, Error> {
        context.bind()?;
        let (mut data, mut address): (*mut c_void, _) = (std::ptr::null_mut(), 0);
        let bytes = (len * size_of::<T>()).max(16);
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: the context is bound, the pointers are valid for the calls, and the memory has `bytes` bytes. `drop`
        // frees it.
        unsafe {
            let status = sys::cuMemHostAlloc(&mut data, bytes, flags);
            if status == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
                return Err(Error::Memory { what: format!("{what} (page-locked)"), bytes });
            }
            driver(status, "cuMemHostAlloc", what)?;
            data.cast::<u8>().write_bytes(0, bytes);
        }
        let mut own = Self { data: data.cast(), len, address: 0, context: context.clone(), own: PhantomData };
        // SAFETY: the memory was just allocated with a mapping for the GPU.
        let status = unsafe { sys::cuMemHostGetDevicePointer_v2(&mut address, data, 0) };
        driver(status, "cuMemHostGetDevicePointer_v2", what)?;
        own.address = address;
        Ok(own)
    }

    /// Returns the elements as kernels see them. Kernels access them over the bus.
    pub fn slice(&self) -> Slice<'_, T> {
        Slice::new(self.address, self.len, size_of::<T>())
    }

    /// Returns the elements. No enqueued work may still write them.
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: `data` is valid for `len` elements, and every bit pattern is a valid `T`.
        unsafe { std::slice::from_raw_parts(self.data, self.len) }
    }

    /// Returns the elements for writing. No enqueued work may still write them.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: `data` is valid for `len` elements, every bit pattern is a valid `T`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.data, self.len) }
    }

    /// Enqueues a copy from the GPU to the first elements of this memory.
    pub fn receive(&mut self, from: Slice<'_, T>, stream: &Stream) -> Result<(), Error> {
        let (address, len) = (from.address(), from.len());
        let to = &mut self.as_mut_slice()[..len];
        let (to, bytes) = (to.as_mut_ptr().cast(), size_of_val(to));
        self.context.bind()?;
        // SAFETY: source and target both hold `bytes` bytes. `drop` waits for the copy.
        let status = unsafe { sys::cuMemcpyDtoHAsync_v2(to, address, bytes, stream.handle()) };
        self.context.launches.add(1);
        driver(status, "cuMemcpyDtoHAsync_v2", "a copy to the host")
    }

    /// Enqueues a copy of the first `to.len()` elements to the GPU.
    pub fn send(&self, to: Slice<'_, T>, stream: &Stream) -> Result<(), Error> {
        let from = &self.as_slice()[..to.len()];
        let (address, bytes) = (to.address(), size_of_val(from));
        self.context.bind()?;
        // SAFETY: source and target both hold `bytes` bytes. `drop` waits for the copy.
        let status = unsafe { sys::cuMemcpyHtoDAsync_v2(address, from.as_ptr().cast(), bytes, stream.handle()) };
        self.context.launches.add(1);
        driver(status, "cuMemcpyHtoDAsync_v2", "a copy to the GPU")
    }
}

impl<T> Drop for Pinned<T> {
    fn drop(&mut self) {
        if self.context.is_idle_after_waiting() {
            // SAFETY: `new` allocated it, and no work uses it any more.
            let _ = unsafe { sys::cuMemFreeHost(self.data.cast()) };
        }
    }
}
