//! Device memory, with or without a page-locked copy on the host, and its copies to and from the host.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use base::device_region::DeviceRegion;
use cudarc::driver::sys::{self, CUresult};

use super::pinned::Pinned;
use super::slice::{Activation, Plain, Slice};
use super::status::driver;
use super::stream::{Event, Queues, Stream};
use crate::memory::{Part, Whole};
use crate::{Buffer, Error, Precision};

/// A buffer of f32 elements on the GPU.
#[derive(Default)]
pub struct CudaBuf {
    address: sys::CUdeviceptr,
    len: usize,
    queues: Option<Arc<Queues>>,
    /// The host's copy in page-locked memory. `None` until the buffer is first copied through it.
    host: Option<Pinned<f32>>,
    /// The point after the work that fills this buffer. `None` until it is marked.
    filled: Option<Event>,
    /// The point after the last copy to or from the host.
    copied: Option<Event>,
    /// Set if the buffer is a part of a region.
    part: Option<Part<Mutex<CudaBuf>>>,
}

/// Memory that is handed out in parts. All parts are used on the computing queue.
pub struct Region(Arc<Whole<Mutex<CudaBuf>>>);

impl Region {
    pub fn new(memory: CudaBuf) -> Self {
        Self(Whole::new(Mutex::new(memory)))
    }
}

impl crate::Region<CudaBuf> for Region {
    fn take(&self, at: &Range<usize>) -> Result<CudaBuf, Error> {
        let memory = self.0.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let part = Some(self.0.take(at, memory.len)?);
        // the range is inside the region's memory (`take` has checked it), and the memory lives as long as the part
        let (address, queues) = (memory.address + 4 * at.start as u64, memory.queues.clone());
        Ok(CudaBuf { address, len: at.len(), queues, host: None, filled: None, copied: None, part })
    }

    fn give(&self, _: &Range<usize>, part: CudaBuf) {
        drop(part);
    }
}

impl CudaBuf {
    /// Allocates a buffer and clears it on the computing queue.
    pub fn zeroed(queues: &Arc<Queues>, len: usize, what: &str) -> Result<Self, Error> {
        let buffer = Self::unset(queues, len, what)?;
        buffer.clear()?;
        Ok(buffer)
    }

    /// Allocates a buffer with undefined content.
    pub fn unset(queues: &Arc<Queues>, len: usize, what: &str) -> Result<Self, Error> {
        if len == 0 {
            return Ok(Self::default());
        }
        let (context, bytes) = (queues.context(), len.saturating_mul(4));
        context.bind()?;
        let mut address = 0;
        // SAFETY: the context is bound, and the pointer is valid for the call. `drop` frees the memory.
        let status = unsafe { sys::cuMemAlloc_v2(&mut address, bytes) };
        if status == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            let (free, total) = context.memory()?;
            let have = format!("{} of {} are free on {}", megabytes(free), megabytes(total), context.gpu.name);
            let have = format!("{have}; try a smaller batch, or check with `nvidia-smi` what else uses this GPU");
            return Err(Error::DeviceMemory { what: what.into(), need: megabytes(bytes), have });
        }
        driver(status, "cuMemAlloc_v2", what)?;
        let queues = Some(queues.clone());
        Ok(Self { address, len, queues, host: None, filled: None, copied: None, part: None })
    }

    /// Sets all elements to zero on the computing queue.
    pub fn clear(&self) -> Result<(), Error> {
        let Some(queues) = &self.queues else { return Ok(()) };
        queues.context().bind()?;
        // SAFETY: the memory belongs to this buffer and has `len` elements.
        let status = unsafe { sys::cuMemsetD32Async(self.address, 0, self.len, queues.compute.handle()) };
        queues.context().launches.add(1);
        driver(status, "cuMemsetD32Async", "a buffer")
    }

    /// Copies the elements of another buffer on the computing queue.
    pub fn copy_from(&self, from: &CudaBuf) -> Result<(), Error> {
        let Some(queues) = &self.queues else { return Ok(()) };
        from.check(0, self.len)?;
        queues.context().bind()?;
        let stream = queues.compute.handle();
        // SAFETY: both buffers hold that many bytes (checked).
        let status = unsafe { sys::cuMemcpyDtoDAsync_v2(self.address, from.address, 4 * self.len, stream) };
        queues.context().launches.add(1);
        driver(status, "cuMemcpyDtoDAsync_v2", "a buffer")
    }

    /// Repeats the first `len` elements until the buffer is full, on the computing queue.
    pub fn repeat_first(&self, len: usize) -> Result<(), Error> {
        let Some(queues) = &self.queues else { return Ok(()) };
        self.check(0, len)?;
        queues.context().bind()?;
        let mut done = len;
        while done > 0 && done < self.len {
            let more = done.min(self.len - done);
            let (to, stream) = (self.address + 4 * done as u64, queues.compute.handle());
            // SAFETY: both ranges are inside the buffer and do not overlap.
            let status = unsafe { sys::cuMemcpyDtoDAsync_v2(to, self.address, 4 * more, stream) };
            driver(status, "cuMemcpyDtoDAsync_v2", "a buffer")?;
            done += more;
        }
        Ok(())
    }

    /// Returns the start address. No two living buffers share it, so it identifies the buffer.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the whole buffer as elements of type `T`.
    pub fn slice<T: Plain>(&self) -> Slice<'_, T> {
        Slice::new(self.address, 4 * self.len / size_of::<T>(), size_of::<T>())
    }

    /// Returns the whole buffer, or `None` if it is empty.
    pub fn optional<T: Plain>(&self) -> Option<Slice<'_, T>> {
        (self.len > 0).then(|| self.slice())
    }

    /// Returns the whole buffer as activations of this precision.
    pub fn activations(&self, precision: Precision) -> Slice<'_, Activation> {
        Slice::new(self.address, 4 * self.len / precision.bytes(), precision.bytes())
    }

    pub fn bytes(&self) -> usize {
        4 * self.len
    }

    /// Returns an error unless the buffer has elements `first` to `first + len`.
    pub fn check(&self, first: usize, len: usize) -> Result<(), Error> {
        if first.checked_add(len).is_some_and(|end| end <= self.len) {
            return Ok(());
        }
        let expected = format!("at least {} elements", first.saturating_add(len));
        Err(Error::Size { op: "a buffer on the GPU".into(), expected, got: self.len.to_string() })
    }

    /// Marks the point after all work enqueued so far. `recording` is true if the computing stream is being captured.
    pub fn mark(&mut self, recording: bool) -> Result<(), Error> {
        let Some(queues) = &self.queues else { return Ok(()) };
        let event = self.filled.take().map_or_else(|| Event::new(queues.context()), Ok)?;
        event.record(&queues.compute, recording)?;
        self.filled = Some(event);
        Ok(())
    }

    /// Makes a stream wait until this buffer is filled: for the work before its mark and for its last copy.
    pub fn wait_on(&self, stream: &Stream) -> Result<(), Error> {
        self.follow(self.queues()?, stream)
    }

    /// Makes later computations, and later copies of this buffer, wait for the work that another library has enqueued
    /// on `stream`.
    pub fn come_after(&mut self, stream: &Stream) -> Result<(), Error> {
        let queues = self.queues()?.clone();
        let done = self.filled.take().map_or_else(|| Event::new(queues.context()), Ok)?;
        done.record(stream, false)?;
        queues.compute_after(&done)?;
        self.filled = Some(done);
        Ok(())
    }

    /// Makes a stream wait for the work before the buffer's mark and for the buffer's last copy.
    fn follow(&self, queues: &Queues, stream: &Stream) -> Result<(), Error> {
        match &self.filled {
            Some(filled) => stream.wait_for(filled)?,
            // never marked: any work enqueued so far may change it
            None => queues.after_all(stream)?,
        }
        self.copied.as_ref().map_or(Ok(()), |copied| stream.wait_for(copied))
    }

    /// Works like `follow`, for a copy that the calling thread waits for. The thread that enqueues computation may have
    /// changed the buffer after the mark. So if it calls this, the copy waits for all computation that is enqueued.
    /// Copies of other threads wait only for the mark, so that later work does not delay them.
    fn follow_changes(&self, queues: &Queues, stream: &Stream) -> Result<(), Error> {
        if self.filled.is_some() && queues.is_owner() {
            queues.after_all(stream)?;
        }
        self.follow(queues, stream)
    }

    /// Records that a copy of this buffer was just enqueued. Later computations wait for it.
    fn copied_by(&mut self, queues: &Queues, copies: &Stream) -> Result<(), Error> {
        let copied = self.copied.take().map_or_else(|| Event::new(queues.context()), Ok)?;
        copied.record(copies, false)?;
        queues.compute_after(&copied)?;
        self.copied = Some(copied);
        Ok(())
    }

    fn queues(&self) -> Result<&Arc<Queues>, Error> {
        let why = "it has no memory, because it is empty or was moved".into();
        self.queues.as_ref().ok_or(Error::Unsupported { op: "a buffer on the GPU".into(), why })
    }

    fn own_host(&mut self) -> Result<&mut Pinned<f32>, Error> {
        let host = self.host.take();
        let host = host.map_or_else(|| Pinned::new(self.queues()?.context(), self.len, "staging"), Ok)?;
        Ok(self.host.insert(host))
    }
}

/// Formats a number of bytes for messages.
pub fn megabytes(bytes: usize) -> String {
    if bytes >= 1 << 20 { format!("{:.0} MB", bytes as f64 / 1e6) } else { format!("{bytes} bytes") }
}

impl Buffer for CudaBuf {
    fn len(&self) -> usize {
        self.len
    }

    fn place(&self) -> usize {
        self.address as usize
    }

    fn host(&self) -> Option<&[f32]> {
        None
    }

    fn fetch(&mut self) -> Result<(), Error> {
        if self.len == 0 {
            return Ok(());
        }
        self.own_host()?;
        let queues = self.queues()?.clone();
        self.follow(&queues, &queues.down)?;
        if let Some(host) = &mut self.host {
            host.receive(Slice::new(self.address, self.len, 4), &queues.down)?;
        }
        self.copied_by(&queues, &queues.down)
    }

    fn staged(&mut self) -> Result<&mut [f32], Error> {
        if self.len == 0 {
            return Ok(&mut []);
        }
        if let Some(copied) = &self.copied {
            copied.wait()?;
        }
        Ok(self.own_host()?.as_mut_slice())
    }

    fn unstage(&mut self) -> Result<(), Error> {
        let (Some(queues), Some(host)) = (self.queues.clone(), &self.host) else { return Ok(()) };
        self.follow(&queues, &queues.up)?;
        host.send(self.slice(), &queues.up)?;
        // the host may write to its copy again when this transfer is done
        self.copied_by(&queues, &queues.up)
    }

    fn region(&mut self) -> Result<Option<DeviceRegion<'_>>, Error> {
        for event in self.filled.iter().chain(&self.copied) {
            event.wait()?;
        }
        // SAFETY: the memory belongs to this buffer, which the region borrows exclusively. The work that fills it has
        // ended (waited for above), and nothing that uses it is enqueued until the buffer is back with the thread that
        // enqueues.
        Ok(Some(unsafe { DeviceRegion::new(self.address as usize, self.len) }))
    }

    fn read(&self, first: usize, to: &mut [f32]) -> Result<(), Error> {
        self.check(first, to.len())?;
        if to.is_empty() {
            return Ok(());
        }
        let queues = self.queues()?;
        self.follow_changes(queues, &queues.down)?;
        let (from, bytes) = (self.address + 4 * first as u64, size_of_val(to));
        // SAFETY: both sides hold that many bytes, and the copy ends before the borrow of `to`.
        let status = unsafe { sys::cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), from, bytes, queues.down.handle()) };
        driver(status, "cuMemcpyDtoHAsync_v2", "a buffer")?;
        queues.down.wait()
    }

    fn write(&mut self, first: usize, from: &[f32]) -> Result<(), Error> {
        self.check(first, from.len())?;
        if from.is_empty() {
            return Ok(());
        }
        let queues = self.queues()?;
        self.follow_changes(queues, &queues.up)?;
        let (to, bytes) = (self.address + 4 * first as u64, size_of_val(from));
        // SAFETY: both sides hold that many bytes, and the copy ends before the borrow of `from`.
        let status = unsafe { sys::cuMemcpyHtoDAsync_v2(to, from.as_ptr().cast(), bytes, queues.up.handle()) };
        driver(status, "cuMemcpyHtoDAsync_v2", "a buffer")?;
        queues.up.wait()
    }
}

impl Drop for CudaBuf {
    fn drop(&mut self) {
        if let (Some(queues), None) = (&self.queues, &self.part)
            && queues.context().is_idle_after_waiting()
        {
            // SAFETY: `unset` allocated it, and no work uses it any more.
            let _ = unsafe { sys::cuMemFree_v2(self.address) };
        }
    }
}

/// Elements stored both on the GPU and on the host. The `codes` stream copies them in either direction.
pub struct Mirrored<T> {
    device: CudaBuf,
    host: Pinned<T>,
}

impl<T: Plain> Mirrored<T> {
    /// Allocates both sides and clears them.
    pub fn new(queues: &Arc<Queues>, len: usize, what: &str) -> Result<Self, Error> {
        let words = (len * size_of::<T>()).div_ceil(4);
        Ok(Self { device: CudaBuf::zeroed(queues, words, what)?, host: Pinned::new(queues.context(), len, what)? })
    }

    /// Returns the elements on the GPU, as type `T` or another type of the same size.
    pub fn slice<U: Plain>(&self) -> Slice<'_, U> {
        const { assert!(size_of::<T>() == size_of::<U>()) };
        self.device.slice()
    }

    /// Returns the memory on the GPU.
    pub fn device(&mut self) -> &mut CudaBuf {
        &mut self.device
    }

    /// Returns the elements on the host.
    pub fn host(&mut self) -> &mut [T] {
        self.host.as_mut_slice()
    }

    /// Returns the number of bytes on the GPU and the host together.
    pub fn bytes(&self) -> usize {
        self.device.bytes() + size_of_val(self.host.as_slice())
    }

    /// Enqueues the copy to the host.
    pub fn down(&mut self, queues: &Queues) -> Result<(), Error> {
        let len = self.host.as_slice().len();
        if len == 0 { Ok(()) } else { self.host.receive(self.device.slice().range(0, len)?, &queues.codes) }
    }

    /// Enqueues the copy to the GPU.
    pub fn up(&self, queues: &Queues) -> Result<(), Error> {
        let len = self.host.as_slice().len();
        if len == 0 { Ok(()) } else { self.host.send(self.device.slice().range(0, len)?, &queues.codes) }
    }
}

/// A block on the GPU that the host overwrites repeatedly without waiting for the GPU's computations.
pub struct Inlet<T> {
    device: CudaBuf,
    host: Pinned<T>,
    sent: Event,
}

impl<T: Plain> Inlet<T> {
    /// Allocates room for `len` elements.
    pub fn new(queues: &Arc<Queues>, len: usize, what: &str) -> Result<Self, Error> {
        let (context, bytes) = (queues.context(), len * size_of::<T>());
        let host = Pinned::new(context, len, what)?;
        Ok(Self { device: CudaBuf::zeroed(queues, bytes.div_ceil(4).max(4), what)?, host, sent: Event::new(context)? })
    }

    /// Returns the number of elements that fit.
    pub fn room(&self) -> usize {
        self.host.as_slice().len()
    }

    /// Makes room for `len` elements. Returns true if the block's address changed.
    pub fn fit(&mut self, len: usize, what: &str) -> Result<bool, Error> {
        if self.room() >= len {
            return Ok(false);
        }
        *self = Self::new(&self.device.queues()?.clone(), len, what)?;
        Ok(true)
    }

    /// Returns the elements on the GPU.
    pub fn slice(&self) -> Slice<'_, T> {
        self.device.slice()
    }

    /// Returns the block on the GPU as elements of another type.
    pub fn slice_as<U: Plain>(&self) -> Slice<'_, U> {
        self.device.slice()
    }

    /// Returns the values that the host wrote last.
    pub fn values(&self) -> &[T] {
        self.host.as_slice()
    }

    /// Writes the elements for work that is enqueued later.
    pub fn write(&mut self, values: &[T], stream: &Stream) -> Result<(), Error> {
        self.lay_out(values)?;
        self.host.send(self.device.slice().range(0, values.len())?, stream)?;
        self.sent.record(stream, false)
    }

    /// Works like `write`, but `launch` enqueues a kernel that copies the elements of its first argument to its second.
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

    /// Writes the elements into the host's copy.
    fn lay_out(&mut self, values: &[T]) -> Result<(), Error> {
        if values.len() > self.room() {
            let (expected, got) = (format!("at most {} values", self.room()), values.len().to_string());
            return Err(Error::Size { op: "a block for the GPU".into(), expected, got });
        }
        // wait until the previous values have been copied
        self.sent.wait()?;
        self.host.as_mut_slice()[..values.len()].copy_from_slice(values);
        Ok(())
    }
}
