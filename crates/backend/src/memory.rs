//! Memory of a device, and copies to and from the host.

use std::collections::HashMap;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use base::device_region::DeviceRegion;
use net::Shape;

use super::error::Error;

/// A device buffer of f32 elements. It can move to the thread that owns MPI and back.
///
/// Any thread can copy its elements to and from the host with [`Buffer::fetch`], [`Buffer::staged`] and
/// [`Buffer::unstage`]. If the host can address the memory, these functions do not copy. The device orders the copies:
/// a copy waits for work that was enqueued before the last [`Queue::mark`](super::Queue::mark), and later work on the
/// buffer waits for the copy.
pub trait Buffer: Send + Default + 'static {
    /// Returns the number of elements.
    fn len(&self) -> usize;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns an address that no other living buffer has.
    fn place(&self) -> usize;

    /// Returns the elements, if the host can address them.
    fn host(&self) -> Option<&[f32]>;

    /// Starts to copy the elements to the host, without waiting.
    fn fetch(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Returns the elements on the host, after an earlier [`Buffer::fetch`] has finished. If the host cannot address
    /// the memory and there was no fetch, the content is undefined until the caller writes it.
    fn staged(&mut self) -> Result<&mut [f32], Error>;

    /// Starts to copy the elements of [`Buffer::staged`] back to the device, without waiting.
    fn unstage(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Returns the device memory for a library that accepts device addresses. Waits for the work before the last
    /// [`mark`](super::Queue::mark). Returns `None` if the host can address the elements or if no library can use them.
    fn region(&mut self) -> Result<Option<DeviceRegion<'_>>, Error> {
        Ok(None)
    }

    /// Copies elements to the host, from `first` on, until `to` is full. Waits for all enqueued work that changes them.
    /// If the calling thread is not the one that enqueues work, the last change must be followed by a
    /// [`mark`](super::Queue::mark).
    fn read(&self, first: usize, to: &mut [f32]) -> Result<(), Error>;

    /// Copies elements from the host to the elements from `first` on, and waits as [`Buffer::read`] does.
    fn write(&mut self, first: usize, from: &[f32]) -> Result<(), Error>;
}

// Flat memory for parameters, gradients and optimizer state. It consists of buckets, and a bucket is summed over the
// ranks as a whole.

/// Where a tensor is stored, including its format's padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    pub bucket: usize,
    /// First element in the bucket.
    pub offset: usize,
    pub len: usize,
}

impl Slot {
    /// Returns the slot's range in the bucket.
    pub fn range(&self) -> std::ops::Range<usize> {
        self.offset..self.offset + self.len
    }
}

/// Buckets of device memory. A bucket of gradients moves to the thread that owns MPI and back, so two threads never
/// share it.
pub struct Arena<B: DeviceMemory> {
    /// The buckets, in the order in which backward finishes them.
    pub buckets: Vec<B::Buf>,
}

impl<B: DeviceMemory> Arena<B> {
    /// Allocates buckets with these numbers of elements, filled with zeros.
    pub fn new(backend: &B, elems: &[usize]) -> Result<Self, Error> {
        let buckets = elems.iter().map(|&n| backend.alloc(n)).collect::<Result<_, _>>()?;
        Ok(Self { buckets })
    }

    /// Writes a parameter in PyTorch's layout to its slot.
    pub fn pack(&mut self, format: &B::Format, plain: &[f32], slot: Slot) -> Result<(), Error> {
        let bucket = &mut self.buckets[slot.bucket];
        if bucket.host().is_some() {
            return format.pack(plain, &mut bucket.staged()?[slot.range()]);
        }
        let mut packed = vec![0.0; slot.len];
        format.pack(plain, &mut packed)?;
        bucket.write(slot.offset, &packed)
    }

    /// Reads a parameter in PyTorch's layout. Works on any thread.
    pub fn unpack(&self, format: &B::Format, slot: Slot, plain: &mut [f32]) -> Result<(), Error> {
        let bucket = &self.buckets[slot.bucket];
        if let Some(all) = bucket.host() {
            return format.unpack(&all[slot.range()], plain);
        }
        let mut packed = vec![0.0; slot.len];
        bucket.read(slot.offset, &mut packed)?;
        format.unpack(&packed, plain)
    }
}

// Memory that tensors share if they are never in use at the same time.

/// Memory whose parts are used as buffers temporarily. The content of a part stays until an overlapping part is
/// written.
pub trait Region<Buf> {
    /// Returns the elements of a range as a buffer.
    ///
    /// # Errors
    ///
    /// Returns an error if the range is outside the region or overlaps a part that is in use.
    fn take(&self, at: &Range<usize>) -> Result<Buf, Error>;

    /// Ends the use of a part that [`Region::take`] returned.
    fn give(&self, at: &Range<usize>, part: Buf);
}

/// The ranges of a region that are in use.
#[derive(Debug, Default)]
struct UsedRanges(Mutex<Vec<Range<usize>>>);

impl UsedRanges {
    /// Marks a range as used. `elems` is the size of the region. Returns an error if the range overlaps one that is in
    /// use.
    pub fn take(&self, at: &Range<usize>, elems: usize) -> Result<(), Error> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let other = taken.iter().find(|other| at.start < other.end && other.start < at.end);
        if at.start > at.end || at.end > elems || other.is_some() {
            let used = other.map_or_else(String::new, |other| format!(", but {other:?} is in use"));
            let (expected, got) = (format!("a free range within {elems} elements{used}"), format!("{at:?}"));
            return Err(Error::Size { op: "memory of tensors".into(), expected, got });
        }
        taken.push(at.clone());
        Ok(())
    }

    /// Marks a range as no longer used.
    pub fn give(&self, at: &Range<usize>) {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = taken.iter().position(|taken| taken == at) {
            taken.swap_remove(place);
        }
    }
}

/// Memory that is handed out in parts, with a record of the parts in use.
pub(super) struct Whole<Memory> {
    pub memory: Memory,
    taken: UsedRanges,
}

impl<Memory> Whole<Memory> {
    pub fn new(memory: Memory) -> Arc<Self> {
        Arc::new(Self { memory, taken: UsedRanges::default() })
    }

    /// Reserves the range `at`. The whole memory has `elems` elements.
    ///
    /// # Errors
    ///
    /// As for [`Region::take`].
    pub fn take(self: &Arc<Self>, at: &Range<usize>, elems: usize) -> Result<Part<Memory>, Error> {
        self.taken.take(at, elems)?;
        Ok(Part { of: self.clone(), at: at.clone() })
    }
}

/// A range that is in use until this is dropped. Keeps the memory alive.
pub(super) struct Part<Memory> {
    of: Arc<Whole<Memory>>,
    at: Range<usize>,
}

impl<Memory> Drop for Part<Memory> {
    fn drop(&mut self) {
        self.of.taken.give(&self.at);
    }
}

/// A region in which each part has its own memory, for devices whose buffers cannot share memory.
pub(super) struct SeparateBuffers<Buf> {
    elems: usize,
    taken: UsedRanges,
    parts: Mutex<HashMap<Range<usize>, Buf>>,
}

impl<Buf: Buffer> SeparateBuffers<Buf> {
    /// Allocates a buffer for each of these ranges with `alloc`.
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
        Ok(Self { elems, taken: UsedRanges::default(), parts: Mutex::new(own) })
    }
}

impl<Buf: Buffer> Region<Buf> for SeparateBuffers<Buf> {
    fn take(&self, at: &Range<usize>) -> Result<Buf, Error> {
        self.taken.take(at, self.elems)?;
        let part = self.parts.lock().unwrap_or_else(PoisonError::into_inner).get_mut(at).map(std::mem::take);
        part.ok_or_else(|| {
            let (expected, got) = ("a planned range".into(), format!("{at:?}"));
            Error::Size { op: "memory of tensors".into(), expected, got }
        })
    }

    fn give(&self, at: &Range<usize>, part: Buf) {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).insert(at.clone(), part);
        self.taken.give(at);
    }
}

// The memory of a device, and passes over flat f32 arrays.

/// How much memory a network may use.
pub struct MemoryLimit {
    /// Bytes that can still be allocated.
    pub bytes: usize,
    /// The limit and its reason for messages, such as "540 MB are free".
    pub text: String,
}

/// A device's memory. Operations on two buffers require equal lengths.
pub trait DeviceMemory: Sized + 'static {
    /// An array of f32 in this memory.
    type Buf: Buffer;
    /// The memory layout of a parameter.
    type Format: ParamFormat;
    /// State that two adjacent operations share, so that each can do a part of the other's work. The second operation
    /// must be the only reader of the first one's output. The state exists before the first operation is planned.
    type Fusion: Default;
    /// Name in tables for operations that run the backend's own loops or kernels.
    const LOOPS: &'static str = "own";

    /// Allocates memory filled with zeros.
    fn alloc(&self, elems: usize) -> Result<Self::Buf, Error>;

    /// Allocates memory from which these ranges will be taken. Ranges that overlap are never in use at the same time.
    /// Ranges begin at multiples of 64 elements. A device may give each range its own memory.
    fn region(&self, elems: usize, parts: &[Range<usize>]) -> Result<Box<dyn Region<Self::Buf>>, Error> {
        Ok(Box::new(SeparateBuffers::new(elems, parts, |elems| self.alloc(elems))?))
    }

    /// Returns how much memory another network may use at most, or `None` if this is unknown. The networks that are
    /// already on the device have allocated `allocated` bytes.
    fn memory_limit(&self, allocated: usize) -> Result<Option<MemoryLimit>, Error> {
        let _ = allocated;
        Ok(None)
    }

    /// Returns the bytes of the workspace that all operations share.
    fn scratch_bytes(&self) -> usize {
        0
    }

    /// Returns the bytes per parameter. Its gradient needs the same number.
    fn parameter_bytes(&self) -> usize {
        4
    }

    /// Returns the number of f32 words that these activations need.
    fn words(&self, desc: &TensorDesc) -> usize {
        desc.words()
    }

    /// Copies the first elements of `from` until `to` is full.
    fn copy(&self, to: &mut Self::Buf, from: &Self::Buf) -> Result<(), Error>;

    /// `to = 0`.
    fn zero(&self, to: &mut Self::Buf) -> Result<(), Error>;

    /// `to += from`.
    fn add(&self, to: &mut Self::Buf, from: &Self::Buf) -> Result<(), Error>;

    /// `to *= factor`.
    fn scale(&self, to: &mut Self::Buf, factor: f32) -> Result<(), Error>;

    /// Clamps every value to [-limit, limit]. NaN stays NaN.
    fn clamp(&self, x: &mut Self::Buf, limit: f32) -> Result<(), Error>;

    /// `to += weight * (from - to)`. A device with a [`Queue`](super::Queue) uses the weight passed to
    /// [`begin_update`](super::Queue::begin_update).
    fn lerp(&self, to: &mut Self::Buf, from: &Self::Buf, weight: f32) -> Result<(), Error>;
}

// The memory layout of activations.

/// A batch of tensors with channels in blocks: `[n][ceil(c / block)][h][w][block]`. Block 1 is plain NCHW. Padding
/// channels in the last block are zero, and every operation keeps them zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorDesc {
    pub n: usize,
    pub shape: Shape,
    /// Number of adjacent channels in a block.
    pub block: usize,
    /// True if the elements are bf16. Otherwise they are f32, or the device's type for all activations.
    pub bf16: bool,
}

impl TensorDesc {
    /// Returns the NCHW layout with f32 elements.
    pub fn plain(n: usize, shape: Shape) -> Self {
        Self { n, shape, block: 1, bf16: false }
    }

    /// Returns the same layout for another shape.
    pub fn with_shape(&self, shape: Shape) -> Self {
        Self { shape, ..*self }
    }

    /// Returns the number of channel blocks.
    pub fn blocks(&self) -> usize {
        self.shape.c.div_ceil(self.block)
    }

    /// Returns the elements of a sample, including padding.
    pub fn sample_elems(&self) -> usize {
        self.blocks() * self.block * self.shape.plane()
    }

    /// Returns the elements of the batch, including padding.
    pub fn elems(&self) -> usize {
        self.n * self.sample_elems()
    }

    /// Returns the f32 words that the elements need.
    pub fn words(&self) -> usize {
        if self.bf16 { self.elems().div_ceil(2) } else { self.elems() }
    }

    /// Returns the same layout with f32 elements.
    pub fn in_f32(&self) -> Self {
        Self { bf16: false, ..*self }
    }

    /// Returns the index within a sample of channel `c` at position `p` (row * w + column).
    pub fn at(&self, c: usize, p: usize) -> usize {
        ((c / self.block) * self.shape.plane() + p) * self.block + c % self.block
    }

    /// Returns true if the memory order is NCHW. This includes vectors that fill their blocks.
    pub fn is_plain(&self) -> bool {
        self.block == 1 || (self.shape.plane() == 1 && self.shape.c.is_multiple_of(self.block))
    }

    /// Copies elements in this layout to NCHW order, without padding.
    pub fn to_plain(&self, from: &[f32], to: &mut [f32]) {
        let (sample, plane) = (self.sample_elems(), self.shape.plane());
        for n in 0..self.n {
            for c in 0..self.shape.c {
                for p in 0..plane {
                    to[(n * self.shape.c + c) * plane + p] = from[n * sample + self.at(c, p)];
                }
            }
        }
    }

    /// Copies from NCHW order and sets padding to zero.
    pub fn from_plain(&self, from: &[f32], to: &mut [f32]) {
        let (sample, plane) = (self.sample_elems(), self.shape.plane());
        if !self.shape.c.is_multiple_of(self.block) {
            to[..self.elems()].fill(0.0);
        }
        for n in 0..self.n {
            for c in 0..self.shape.c {
                for p in 0..plane {
                    to[n * sample + self.at(c, p)] = from[(n * self.shape.c + c) * plane + p];
                }
            }
        }
    }
}

/// Rounds sums to f32, up to the shorter length.
pub(crate) fn store(to: &mut [f32], sums: &[f64]) {
    to.iter_mut().zip(sums).for_each(|(to, sum)| *to = *sum as f32);
}

/// The memory order of a parameter. Conversions run on the host, on any thread. [`Arena`](super::Arena) copies the
/// parameter to and from the device.
pub trait ParamFormat: Clone + PartialEq + Debug + Send + 'static {
    /// Returns the elements in memory, including padding.
    fn elems(&self) -> usize;

    /// Describes the order for messages. Different orders have different descriptions.
    fn describe(&self) -> String {
        format!("{} elements in plain order", self.elems())
    }

    /// Converts a parameter from PyTorch's order.
    fn pack(&self, plain: &[f32], packed: &mut [f32]) -> Result<(), Error>;

    /// Converts a parameter to PyTorch's order.
    fn unpack(&self, packed: &[f32], plain: &mut [f32]) -> Result<(), Error>;
}

/// PyTorch's own order. The value is the number of elements.
impl ParamFormat for usize {
    fn elems(&self) -> usize {
        *self
    }

    fn pack(&self, plain: &[f32], packed: &mut [f32]) -> Result<(), Error> {
        packed.copy_from_slice(plain);
        Ok(())
    }

    fn unpack(&self, packed: &[f32], plain: &mut [f32]) -> Result<(), Error> {
        plain.copy_from_slice(packed);
        Ok(())
    }
}
