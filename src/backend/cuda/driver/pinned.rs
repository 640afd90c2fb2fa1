//! Page-locked memory of the host.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUresult};

use crate::backend::Error;
use crate::backend::cuda::driver::context::Context;
use crate::backend::cuda::driver::status::driver;
use crate::backend::cuda::driver::stream::Stream;

/// Page-locked host memory that the card reads and writes directly.
pub struct Pinned<T> {
    data: *mut T,
    len: usize,
    /// Where the card sees it.
    address: sys::CUdeviceptr,
    context: Arc<Context>,
    own: PhantomData<T>,
}

// SAFETY: it owns its memory exclusively, like a Box<[T]>.
unsafe impl<T: Send> Send for Pinned<T> {}

/// Types that are valid whatever their bits are.
pub trait Plain: Copy + Send + 'static {}
impl Plain for u8 {}
impl Plain for u16 {}
impl Plain for i32 {}
impl Plain for u32 {}
impl Plain for u64 {}
impl Plain for f32 {}
impl Plain for f64 {}

impl<T: Plain> Pinned<T> {
    /// Zeros.
    pub fn new(context: &Arc<Context>, len: usize, what: &str) -> Result<Self, Error> {
        context.bind()?;
        let (mut data, mut address): (*mut c_void, _) = (std::ptr::null_mut(), 0);
        let bytes = (len * size_of::<T>()).max(16);
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: the context is bound, the pointers valid for the calls, the memory as long as said; freed in `drop`.
        unsafe {
            let status = sys::cuMemHostAlloc(&mut data, bytes, flags);
            if status == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
                return Err(Error::Memory { what: format!("{what} (page-locked)"), bytes });
            }
            driver(status, "cuMemHostAlloc", what)?;
            data.cast::<u8>().write_bytes(0, bytes);
        }
        let mut own = Self { data: data.cast(), len, address: 0, context: context.clone(), own: PhantomData };
        // SAFETY: the memory was just allocated as mapped.
        let status = unsafe { sys::cuMemHostGetDevicePointer_v2(&mut address, data, 0) };
        driver(status, "cuMemHostGetDevicePointer_v2", what)?;
        own.address = address;
        Ok(own)
    }

    /// Where the card sees it.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The elements; the card must be through with them.
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: `data` is valid for `len` elements of a type that is valid whatever its bits.
        unsafe { std::slice::from_raw_parts(self.data, self.len) }
    }

    /// The elements for writing; the card must be through with them.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as above, and exclusively borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.data, self.len) }
    }

    /// Enqueues a copy of `len` elements from the card, to element `first` on.
    pub fn receive(&mut self, from: u64, first: usize, len: usize, stream: &Stream) -> Result<(), Error> {
        let to = &mut self.as_mut_slice()[first..first + len];
        let (to, bytes) = (to.as_mut_ptr().cast(), size_of_val(to));
        self.context.bind()?;
        // SAFETY: the slice is in bounds, and page-locked memory outlives the copy: the driver waits before it frees.
        let status = unsafe { sys::cuMemcpyDtoHAsync_v2(to, from, bytes, stream.handle()) };
        driver(status, "cuMemcpyDtoHAsync_v2", "a copy to the host")
    }

    /// Enqueues a copy of the first `len` elements to the card.
    pub fn send(&self, len: usize, to: u64, stream: &Stream) -> Result<(), Error> {
        let from = &self.as_slice()[..len];
        self.context.bind()?;
        // SAFETY: as above.
        let status = unsafe { sys::cuMemcpyHtoDAsync_v2(to, from.as_ptr().cast(), size_of_val(from), stream.handle()) };
        driver(status, "cuMemcpyHtoDAsync_v2", "a copy to the card")
    }
}

impl<T> Drop for Pinned<T> {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: allocated by `new`.
            let _ = unsafe { sys::cuMemFreeHost(self.data.cast()) };
        }
    }
}
