//! Page-locked memory of the host, alone or paired with memory on the GPU.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUresult};

use super::context::Context;
use super::memory::{CudaBuf, Plain, Slice};
use super::status::driver;
use super::stream::{Event, Queues, Stream};
use crate::Error;

/// Page-locked host memory that the GPU reads and writes directly.
pub struct Pinned<T> {
    data: *mut T,
    len: usize,
    /// Where the GPU sees it.
    address: sys::CUdeviceptr,
    context: Arc<Context>,
    own: PhantomData<T>,
}

// SAFETY: it owns its memory exclusively, like a Box<[T]>.
unsafe impl<T: Send> Send for Pinned<T> {}

impl<T: Plain> Pinned<T> {
    /// Zeros.
    pub fn new(context: &Arc<Context>, len: usize, what: &str) -> Result<Self, Error> {
        context.bind()?;
        let (mut data, mut address): (*mut c_void, _) = (std::ptr::null_mut(), 0);
        let bytes = (len * size_of::<T>()).max(16);
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: the context is bound, the pointers valid for the calls, the memory `bytes` long; freed in `drop`.
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

    /// The elements as kernels see them, over the bus.
    pub fn slice(&self) -> Slice<'_, T> {
        Slice::new(self.address, self.len, size_of::<T>())
    }

    /// The elements; nothing enqueued may still write them.
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: `data` is valid for `len` elements of a type that is valid whatever its bits.
        unsafe { std::slice::from_raw_parts(self.data, self.len) }
    }

    /// The elements for writing; nothing enqueued may still write them.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as above, and exclusively borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.data, self.len) }
    }

    /// Enqueues a copy of these elements of the GPU to the first ones here.
    pub fn receive(&mut self, from: Slice<'_, T>, stream: &Stream) -> Result<(), Error> {
        let (address, len) = (from.address(), from.len());
        let to = &mut self.as_mut_slice()[..len];
        let (to, bytes) = (to.as_mut_ptr().cast(), size_of_val(to));
        self.context.bind()?;
        // SAFETY: both sides hold so many bytes, and page-locked memory outlives the copy: the driver waits before it frees.
        let status = unsafe { sys::cuMemcpyDtoHAsync_v2(to, address, bytes, stream.handle()) };
        self.context.launches.add(1);
        driver(status, "cuMemcpyDtoHAsync_v2", "a copy to the host")
    }

    /// Enqueues a copy of the first elements to these of the GPU, as many as those are.
    pub fn send(&self, to: Slice<'_, T>, stream: &Stream) -> Result<(), Error> {
        let from = &self.as_slice()[..to.len()];
        let (address, bytes) = (to.address(), size_of_val(from));
        self.context.bind()?;
        // SAFETY: as above.
        let status = unsafe { sys::cuMemcpyHtoDAsync_v2(address, from.as_ptr().cast(), bytes, stream.handle()) };
        self.context.launches.add(1);
        driver(status, "cuMemcpyHtoDAsync_v2", "a copy to the GPU")
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

/// Elements with a place on the GPU and one on the host, copied from one to the other on the codes' queue.
pub struct Mirrored<T> {
    device: CudaBuf,
    host: Pinned<T>,
    len: usize,
}

impl<T: Plain> Mirrored<T> {
    /// Zeros on both sides.
    pub fn new(queues: &Arc<Queues>, len: usize, what: &str) -> Result<Self, Error> {
        let words = (len * size_of::<T>()).div_ceil(4);
        Ok(Self { device: CudaBuf::zeroed(queues, words, what)?, host: Pinned::new(queues.context(), len, what)?, len })
    }

    /// The elements on the GPU, as they are or as another type of their size.
    pub fn slice<U: Plain>(&self) -> Slice<'_, U> {
        const { assert!(size_of::<T>() == size_of::<U>()) };
        self.device.slice()
    }

    /// The elements on the host.
    pub fn host(&mut self) -> &mut [T] {
        self.host.as_mut_slice()
    }

    /// Bytes on both sides.
    pub fn bytes(&self) -> usize {
        self.device.bytes() + size_of_val(self.host.as_slice())
    }

    /// Enqueues their way to the host.
    pub fn down(&mut self, queues: &Queues) -> Result<(), Error> {
        if self.len == 0 { Ok(()) } else { self.host.receive(self.device.slice().range(0, self.len)?, &queues.codes) }
    }

    /// Enqueues their way to the GPU.
    pub fn up(&self, queues: &Queues) -> Result<(), Error> {
        if self.len == 0 { Ok(()) } else { self.host.send(self.device.slice().range(0, self.len)?, &queues.codes) }
    }
}

/// A block on the GPU that the host writes anew again and again, without waiting for the GPU.
pub struct Inlet<T> {
    device: CudaBuf,
    host: Pinned<T>,
    sent: Event,
}

impl<T: Plain> Inlet<T> {
    /// Room for so many elements.
    pub fn new(queues: &Arc<Queues>, len: usize, what: &str) -> Result<Self, Error> {
        let (context, bytes) = (queues.context(), len * size_of::<T>());
        let host = Pinned::new(context, len, what)?;
        Ok(Self { device: CudaBuf::zeroed(queues, bytes.div_ceil(4).max(4), what)?, host, sent: Event::new(context)? })
    }

    /// Elements that fit.
    pub fn room(&self) -> usize {
        self.host.as_slice().len()
    }

    /// The elements on the GPU.
    pub fn slice(&self) -> Slice<'_, T> {
        self.device.slice()
    }

    /// The block as elements of another type.
    pub fn slice_as<U: Plain>(&self) -> Slice<'_, U> {
        self.device.slice()
    }

    /// What the host has written last.
    pub fn values(&self) -> &[T] {
        self.host.as_slice()
    }

    /// Writes the elements for the work that is enqueued afterwards.
    pub fn write(&mut self, values: &[T], stream: &Stream) -> Result<(), Error> {
        self.lay_out(values)?;
        self.host.send(self.device.slice().range(0, values.len())?, stream)?;
        self.sent.record(stream, false)
    }

    /// The same by a kernel that `launch` enqueues: it copies the elements of the first slice to the second.
    pub fn write_by(
        &mut self,
        values: &[T],
        stream: &Stream,
        launch: impl FnOnce(Slice<'_, T>, Slice<'_, T>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.lay_out(values)?;
        launch(self.host.slice().range(0, values.len())?, self.device.slice().range(0, values.len())?)?;
        self.sent.record(stream, false)
    }

    /// Puts the elements where the next copy takes them.
    fn lay_out(&mut self, values: &[T]) -> Result<(), Error> {
        if values.len() > self.room() {
            let (expected, got) = (format!("at most {} values", self.room()), values.len().to_string());
            return Err(Error::Size { op: "a block for the GPU".into(), expected, got });
        }
        // the copy of the values before must be over
        self.sent.wait()?;
        self.host.as_mut_slice()[..values.len()].copy_from_slice(values);
        Ok(())
    }
}
