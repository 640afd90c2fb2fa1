//! Device memory, alone or paired with page-locked memory of the host, and its copies to the host and back.

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

/// Device memory, in f32 elements.
#[derive(Default)]
pub struct CudaBuf {
    address: sys::CUdeviceptr,
    len: usize,
    queues: Option<Arc<Queues>>,
    /// Its copy on the host, once something was staged.
    host: Option<Pinned<f32>>,
    /// The end of the work that fills it, once it was marked.
    filled: Option<Event>,
    /// The end of its last copy to the host or back.
    copied: Option<Event>,
    /// Where it is a part of a region.
    part: Option<Part<Mutex<CudaBuf>>>,
}

/// Memory that is given out in parts, all of which are used on the computing queue.
pub struct Region(Arc<Whole<Mutex<CudaBuf>>>);

impl Region {
    /// Of this memory.
    pub fn new(memory: CudaBuf) -> Self {
        Self(Whole::new(Mutex::new(memory)))
    }
}

impl crate::Region<CudaBuf> for Region {
    fn take(&self, at: &Range<usize>) -> Result<CudaBuf, Error> {
        let memory = self.0.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let part = Some(self.0.take(at, memory.len)?);
        // the range lies in the region's memory (`take` has checked that), which lives as long as the part
        let (address, queues) = (memory.address + 4 * at.start as u64, memory.queues.clone());
        Ok(CudaBuf { address, len: at.len(), queues, host: None, filled: None, copied: None, part })
    }

    fn give(&self, _: &Range<usize>, part: CudaBuf) {
        drop(part);
    }
}

impl CudaBuf {
    /// Zeros, on the computing queue.
    pub fn zeroed(queues: &Arc<Queues>, len: usize, what: &str) -> Result<Self, Error> {
        let buffer = Self::unset(queues, len, what)?;
        buffer.clear()?;
        Ok(buffer)
    }

    /// With undefined contents.
    pub fn unset(queues: &Arc<Queues>, len: usize, what: &str) -> Result<Self, Error> {
        if len == 0 {
            return Ok(Self::default());
        }
        let (context, bytes) = (queues.context(), len.saturating_mul(4));
        context.bind()?;
        let mut address = 0;
        // SAFETY: the context is bound, the pointer valid for the call; freed in `drop`.
        let status = unsafe { sys::cuMemAlloc_v2(&mut address, bytes) };
        if status == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            let (free, total) = context.memory()?;
            let have = format!("{} of {} are free on {}", megabytes(free), megabytes(total), context.gpu.name);
            let have =
                format!("{have}; try a smaller batch or more ranks, or see with `nvidia-smi` who else uses this GPU");
            return Err(Error::DeviceMemory { what: what.into(), need: megabytes(bytes), have });
        }
        driver(status, "cuMemAlloc_v2", what)?;
        let queues = Some(queues.clone());
        Ok(Self { address, len, queues, host: None, filled: None, copied: None, part: None })
    }

    /// Zeros, on the computing queue.
    pub fn clear(&self) -> Result<(), Error> {
        let Some(queues) = &self.queues else { return Ok(()) };
        queues.context().bind()?;
        // SAFETY: the memory is this buffer's and `len` elements long.
        let status = unsafe { sys::cuMemsetD32Async(self.address, 0, self.len, queues.compute.handle()) };
        queues.context().launches.add(1);
        driver(status, "cuMemsetD32Async", "a buffer")
    }

    /// Copies the elements of another buffer, on the computing queue.
    pub fn copy_from(&self, from: &CudaBuf) -> Result<(), Error> {
        let Some(queues) = &self.queues else { return Ok(()) };
        from.check(0, self.len)?;
        queues.context().bind()?;
        let stream = queues.compute.handle();
        // SAFETY: both hold as many bytes (checked).
        let status = unsafe { sys::cuMemcpyDtoDAsync_v2(self.address, from.address, 4 * self.len, stream) };
        queues.context().launches.add(1);
        driver(status, "cuMemcpyDtoDAsync_v2", "a buffer")
    }

    /// Repeats its first `len` elements to its end, on the computing queue.
    pub fn repeat_first(&self, len: usize) -> Result<(), Error> {
        let Some(queues) = &self.queues else { return Ok(()) };
        self.check(0, len)?;
        queues.context().bind()?;
        let mut done = len;
        while done > 0 && done < self.len {
            let more = done.min(self.len - done);
            let (to, stream) = (self.address + 4 * done as u64, queues.compute.handle());
            // SAFETY: both ranges lie in the buffer and do not overlap.
            let status = unsafe { sys::cuMemcpyDtoDAsync_v2(to, self.address, 4 * more, stream) };
            driver(status, "cuMemcpyDtoDAsync_v2", "a buffer")?;
            done += more;
        }
        Ok(())
    }

    /// Where it begins, which no other living buffer has: it identifies the buffer.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// All of it, as elements of this type.
    pub fn slice<T: Plain>(&self) -> Slice<'_, T> {
        Slice::new(self.address, 4 * self.len / size_of::<T>(), size_of::<T>())
    }

    /// The same, or none where it is empty.
    pub fn optional<T: Plain>(&self) -> Option<Slice<'_, T>> {
        (self.len > 0).then(|| self.slice())
    }

    /// All of it, as activations of this precision.
    pub fn activations(&self, precision: Precision) -> Slice<'_, Activation> {
        Slice::new(self.address, 4 * self.len / precision.bytes(), precision.bytes())
    }

    /// Bytes.
    pub fn bytes(&self) -> usize {
        4 * self.len
    }

    /// Fails unless it holds `len` elements from `first` on.
    pub fn check(&self, first: usize, len: usize) -> Result<(), Error> {
        if first.checked_add(len).is_some_and(|end| end <= self.len) {
            return Ok(());
        }
        let expected = format!("at least {} elements", first.saturating_add(len));
        Err(Error::Size { op: "a buffer on the GPU".into(), expected, got: self.len.to_string() })
    }

    /// Marks the end of the work that fills it.
    pub fn mark(&mut self, recording: bool) -> Result<(), Error> {
        let Some(queues) = &self.queues else { return Ok(()) };
        let event = match self.filled.take() {
            Some(event) => event,
            None => Event::new(queues.context())?,
        };
        event.record(&queues.compute, recording)?;
        self.filled = Some(event);
        Ok(())
    }

    /// Makes a stream wait for all that was enqueued to change it before.
    pub fn wait_on(&self, stream: &Stream) -> Result<(), Error> {
        self.follow(self.queues()?, stream)
    }

    /// Makes what is computed and copied next wait for another library's work on it.
    pub fn come_after(&mut self, stream: &Stream) -> Result<(), Error> {
        let queues = self.queues()?.clone();
        let done = match self.filled.take() {
            Some(event) => event,
            None => Event::new(queues.context())?,
        };
        done.record(stream, false)?;
        queues.compute_after(&done)?;
        self.filled = Some(done);
        Ok(())
    }

    /// Makes a stream wait for the work that fills the buffer, and for its last copy.
    fn follow(&self, queues: &Queues, stream: &Stream) -> Result<(), Error> {
        match &self.filled {
            Some(filled) => stream.wait_for(filled)?,
            // never marked: all that was enqueued may change it
            None => queues.after_all(stream)?,
        }
        self.copied.as_ref().map_or(Ok(()), |copied| stream.wait_for(copied))
    }

    /// The same for a copy that the calling thread waits for. The thread that enqueues may have changed the buffer after its last mark, and
    /// such changes come first; another one goes by the mark, so that it waits for nothing that comes later.
    fn follow_changes(&self, queues: &Queues, stream: &Stream) -> Result<(), Error> {
        if self.filled.is_some() && queues.is_owner() {
            queues.after_all(stream)?;
        }
        self.follow(queues, stream)
    }

    /// Notes that the copy which was just enqueued here is its last; what is computed next comes after it.
    fn copied_by(&mut self, queues: &Queues, copies: &Stream) -> Result<(), Error> {
        let copied = match self.copied.take() {
            Some(event) => event,
            None => Event::new(queues.context())?,
        };
        copied.record(copies, false)?;
        queues.compute_after(&copied)?;
        self.copied = Some(copied);
        Ok(())
    }

    fn queues(&self) -> Result<&Arc<Queues>, Error> {
        let why = "it was moved elsewhere".into();
        self.queues.as_ref().ok_or(Error::Unsupported { op: "a buffer on the GPU".into(), why })
    }

    fn own_host(&mut self) -> Result<&mut Pinned<f32>, Error> {
        let host = match self.host.take() {
            Some(host) => host,
            None => Pinned::new(self.queues()?.context(), self.len, "staging")?,
        };
        Ok(self.host.insert(host))
    }
}

/// Bytes in words.
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
        // the host may write there again once this is over
        self.copied_by(&queues, &queues.up)
    }

    fn region(&mut self) -> Result<Option<DeviceRegion<'_>>, Error> {
        for event in self.filled.iter().chain(&self.copied) {
            event.wait()?;
        }
        // SAFETY: the memory is this buffer's, which the region borrows exclusively; what fills it is over (waited for above), and
        // nothing that uses it is enqueued before it is given back to the thread that enqueues.
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
        // SAFETY: both sides hold so many bytes; the copy is over before the borrow of `to` ends.
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
        // SAFETY: both sides hold so many bytes; the copy is over before the borrow of `from` ends.
        let status = unsafe { sys::cuMemcpyHtoDAsync_v2(to, from.as_ptr().cast(), bytes, queues.up.handle()) };
        driver(status, "cuMemcpyHtoDAsync_v2", "a buffer")?;
        queues.up.wait()
    }
}

impl Drop for CudaBuf {
    fn drop(&mut self) {
        if let (Some(queues), None) = (&self.queues, &self.part)
            && queues.context().bind().is_ok()
        {
            // SAFETY: allocated by `unset`; the driver waits for the work that uses it.
            let _ = unsafe { sys::cuMemFree_v2(self.address) };
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
