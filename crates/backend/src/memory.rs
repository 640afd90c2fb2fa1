//! Memory of a device, and copies of its elements to the host and back.

use std::collections::HashMap;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use base::device_region::DeviceRegion;
use net::Shape;

use super::error::Error;

/// Device memory of f32 elements. It can move to the thread that owns MPI and back.
///
/// Its elements come to the host by [`Buffer::fetch`], [`Buffer::staged`] and [`Buffer::unstage`], from any thread; where the
/// host can address them this is no copy at all. A device starts copies of its own and orders them: what it does with the buffer
/// next waits for them, and they wait for what was enqueued before its last [`Queue::mark`](super::Queue::mark).
pub trait Buffer: Send + Default + 'static {
    /// Elements.
    fn len(&self) -> usize;

    /// Whether it holds nothing.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// An address, unique among memories that are alive at the same time.
    fn place(&self) -> usize;

    /// The elements, where the host can address them.
    fn host(&self) -> Option<&[f32]>;

    /// Starts copying the elements to the host and does not wait.
    fn fetch(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// The elements on the host; waits for a [`Buffer::fetch`]. Without one, contents are uninitialised until the first write.
    fn staged(&mut self) -> Result<&mut [f32], Error>;

    /// Starts copying the elements of [`Buffer::staged`] back to the device and does not wait.
    fn unstage(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// The elements as a library may be given them that takes memory of this device, once all before the last
    /// [`mark`](super::Queue::mark) is done: waits for that. None where the host can address them, or where no library can be
    /// given them.
    fn region(&mut self) -> Result<Option<DeviceRegion<'_>>, Error> {
        Ok(None)
    }

    /// Copies elements from `first` on to the host, as many as there is room for, once all that was enqueued to change them is
    /// done. On another thread than the one that enqueues, a [`mark`](super::Queue::mark) must have come after the last change.
    fn read(&self, first: usize, to: &mut [f32]) -> Result<(), Error>;

    /// Copies elements from the host to those from `first` on, and waits for them, as [`Buffer::read`] does.
    fn write(&mut self, first: usize, from: &[f32]) -> Result<(), Error>;
}

// Flat memory for parameters, gradients and optimizer state, in chunks that are summed over the ranks as a whole.

/// One tensor's place: chunk, first element, elements (padding of its format included).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Which chunk.
    pub chunk: usize,
    /// First element in the chunk.
    pub offset: usize,
    /// Elements.
    pub len: usize,
}

impl Slot {
    /// Its range in the chunk.
    pub fn range(&self) -> std::ops::Range<usize> {
        self.offset..self.offset + self.len
    }
}

/// Chunks of device memory. A gradient chunk is a bucket of the exchange: it moves to the thread that owns MPI and back,
/// so no two threads ever share one.
pub struct Arena<B: DeviceMemory> {
    /// The chunks, in the order in which backward finishes them.
    pub chunks: Vec<B::Buf>,
}

impl<B: DeviceMemory> Arena<B> {
    /// Zeroed chunks of these many elements.
    pub fn new(backend: &B, elems: &[usize]) -> Result<Self, Error> {
        let chunks = elems.iter().map(|&n| backend.alloc(n)).collect::<Result<_, _>>()?;
        Ok(Self { chunks })
    }

    /// Writes a parameter given in PyTorch's layout into its place.
    pub fn pack(&mut self, format: &B::Format, plain: &[f32], slot: Slot) -> Result<(), Error> {
        let chunk = &mut self.chunks[slot.chunk];
        if chunk.host().is_some() {
            return format.pack(plain, &mut chunk.staged()?[slot.range()]);
        }
        let mut packed = vec![0.0; slot.len];
        format.pack(plain, &mut packed)?;
        chunk.write(slot.offset, &packed)
    }

    /// Reads a parameter in PyTorch's layout, on any thread.
    pub fn unpack(&self, format: &B::Format, slot: Slot, plain: &mut [f32]) -> Result<(), Error> {
        let chunk = &self.chunks[slot.chunk];
        if let Some(all) = chunk.host() {
            return format.unpack(&all[slot.range()], plain);
        }
        let mut packed = vec![0.0; slot.len];
        chunk.read(slot.offset, &mut packed)?;
        format.unpack(&packed, plain)
    }
}

// Memory in which tensors that are never in use at the same time share places.

/// Memory whose parts are buffers for a while. What a part holds stays there until a part that overlaps it is written.
pub trait Region<Buf> {
    /// The elements of a range as a buffer.
    ///
    /// # Errors
    /// Where the range is none of the region's, or overlaps a part that is in use.
    fn take(&self, at: &Range<usize>) -> Result<Buf, Error>;

    /// Ends the use of a part that [`Region::take`] gave.
    fn give(&self, at: &Range<usize>, part: Buf);
}

/// The ranges of a region that are in use.
#[derive(Debug, Default)]
struct Taken(Mutex<Vec<Range<usize>>>);

impl Taken {
    /// Notes that a range of a region of so many elements is in use; fails where another one that overlaps it is.
    pub fn take(&self, at: &Range<usize>, elems: usize) -> Result<(), Error> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let other = taken.iter().find(|other| at.start < other.end && other.start < at.end);
        if at.start > at.end || at.end > elems || other.is_some() {
            let used = other.map_or_else(String::new, |other| format!(", of which {other:?} is in use"));
            let (expected, got) = (format!("a free range of {elems} elements{used}"), format!("{at:?}"));
            return Err(Error::Size { op: "memory of tensors".into(), expected, got });
        }
        taken.push(at.clone());
        Ok(())
    }

    /// Notes that a range is no longer in use.
    pub fn give(&self, at: &Range<usize>) {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = taken.iter().position(|taken| taken == at) {
            taken.swap_remove(place);
        }
    }
}

/// Memory that is given out in parts, and which of them are in use.
pub(super) struct Whole<Memory> {
    pub memory: Memory,
    taken: Taken,
}

impl<Memory> Whole<Memory> {
    pub fn new(memory: Memory) -> Arc<Self> {
        Arc::new(Self { memory, taken: Taken::default() })
    }

    /// Takes a range of these `elems` elements.
    ///
    /// # Errors
    /// As [`Region::take`].
    pub fn take(self: &Arc<Self>, at: &Range<usize>, elems: usize) -> Result<Part<Memory>, Error> {
        self.taken.take(at, elems)?;
        Ok(Part { of: self.clone(), at: at.clone() })
    }
}

/// A range that is in use until this is dropped; keeps the memory alive.
pub(super) struct Part<Memory> {
    of: Arc<Whole<Memory>>,
    at: Range<usize>,
}

impl<Memory> Drop for Part<Memory> {
    fn drop(&mut self) {
        self.of.taken.give(&self.at);
    }
}

/// A region whose parts have memory of their own each, so that nothing is shared.
pub(super) struct Apart<Buf> {
    elems: usize,
    taken: Taken,
    parts: Mutex<HashMap<Range<usize>, Buf>>,
}

impl<Buf: Buffer> Apart<Buf> {
    /// With a buffer for each of these ranges, from `alloc`.
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
        Ok(Self { elems, taken: Taken::default(), parts: Mutex::new(own) })
    }
}

impl<Buf: Buffer> Region<Buf> for Apart<Buf> {
    fn take(&self, at: &Range<usize>) -> Result<Buf, Error> {
        self.taken.take(at, self.elems)?;
        let part = self.parts.lock().unwrap_or_else(PoisonError::into_inner).get_mut(at).map(std::mem::take);
        part.ok_or_else(|| {
            let (expected, got) = ("a range that was planned".into(), format!("{at:?}"));
            Error::Size { op: "memory of tensors".into(), expected, got }
        })
    }

    fn give(&self, at: &Range<usize>, part: Buf) {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).insert(at.clone(), part);
        self.taken.give(at);
    }
}

// Memory of a device, and the passes over flat arrays of f32 in it.

/// A device as far as its memory goes. All binary passes take buffers of equal length.
pub trait DeviceMemory: Sized + 'static {
    /// An array of f32 in it.
    type Buf: Buffer;
    /// How a parameter lies in it.
    type Format: ParamFormat;
    /// What two operations share, where the second alone reads what the first one makes, so that each may do a part of the other's work;
    /// made before the first is planned.
    type Fusion: Default;

    /// Zeroed memory.
    fn alloc(&self, elems: usize) -> Result<Self::Buf, Error>;

    /// Memory of which these ranges will be taken, at times when none that overlaps is in use; they begin at multiples of 64
    /// elements. A device may give each range memory of its own.
    fn region(&self, elems: usize, parts: &[Range<usize>]) -> Result<Box<dyn Region<Self::Buf>>, Error> {
        Ok(Box::new(Apart::new(elems, parts, |elems| self.alloc(elems))?))
    }

    /// Bytes that a network may take at most; none where that is not known.
    fn free_bytes(&self) -> Result<Option<usize>, Error> {
        Ok(None)
    }

    /// Bytes of the work space that all operations share.
    fn scratch_bytes(&self) -> usize {
        0
    }

    /// Bytes that a parameter takes, and its gradient as many.
    fn parameter_bytes(&self) -> usize {
        4
    }

    /// Number of f32 words that such activations take.
    fn words(&self, desc: &TensorDesc) -> usize {
        desc.words()
    }

    /// `to = from`.
    fn copy(&self, to: &mut Self::Buf, from: &Self::Buf) -> Result<(), Error>;

    /// `to = 0`.
    fn zero(&self, to: &mut Self::Buf) -> Result<(), Error>;

    /// `to += from`.
    fn add(&self, to: &mut Self::Buf, from: &Self::Buf) -> Result<(), Error>;

    /// `to *= factor`.
    fn scale(&self, to: &mut Self::Buf, factor: f32) -> Result<(), Error>;

    /// Moves every value into [-limit, limit]; NaN stays NaN.
    fn clamp(&self, x: &mut Self::Buf, limit: f32) -> Result<(), Error>;

    /// `to += weight * (from - to)`; a device with a [`Queue`](super::Queue) uses the weight given to
    /// [`begin_update`](super::Queue::begin_update).
    fn lerp(&self, to: &mut Self::Buf, from: &Self::Buf, weight: f32) -> Result<(), Error>;
}

// The memory layout of a batch of activations.

/// A batch of tensors, channels in blocks: `[n][ceil(c / block)][h][w][block]`. Block 1 is plain NCHW. Channels that pad the
/// last block hold zeros, and every op keeps them zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorDesc {
    /// Rows of the batch.
    pub n: usize,
    /// One sample.
    pub shape: Shape,
    /// Channels that lie side by side.
    pub block: usize,
    /// Whether its numbers are bf16, of 16 bits; else f32, or what the device holds all activations in.
    pub bf16: bool,
}

impl TensorDesc {
    /// Plain NCHW.
    pub fn plain(n: usize, shape: Shape) -> Self {
        Self { n, shape, block: 1, bf16: false }
    }

    /// The same layout for another shape.
    pub fn with_shape(&self, shape: Shape) -> Self {
        Self { shape, ..*self }
    }

    /// Blocks of channels.
    pub fn blocks(&self) -> usize {
        self.shape.c.div_ceil(self.block)
    }

    /// Elements of one sample, padding included.
    pub fn sample_elems(&self) -> usize {
        self.blocks() * self.block * self.shape.plane()
    }

    /// Elements of the batch, padding included.
    pub fn elems(&self) -> usize {
        self.n * self.sample_elems()
    }

    /// f32 words that they take.
    pub fn words(&self) -> usize {
        if self.bf16 { self.elems().div_ceil(2) } else { self.elems() }
    }

    /// The same layout of f32.
    pub fn in_f32(&self) -> Self {
        Self { bf16: false, ..*self }
    }

    /// Place of channel `c`, position `p` (row * w + column) within a sample.
    pub fn at(&self, c: usize, p: usize) -> usize {
        ((c / self.block) * self.shape.plane() + p) * self.block + c % self.block
    }

    /// Whether memory order is plain NCHW (also when blocks of single positions make it so).
    pub fn is_plain(&self) -> bool {
        self.block == 1 || (self.shape.plane() == 1 && self.shape.c.is_multiple_of(self.block))
    }

    /// Copies to plain NCHW.
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

    /// Copies from plain NCHW; padding becomes zero.
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

// How a parameter lies in memory.

/// The memory order of one parameter. Conversions run on the host, on any thread; [`Arena`](super::Arena) does the rest.
pub trait ParamFormat: Clone + PartialEq + Debug + Send + 'static {
    /// Elements in memory, padding included.
    fn elems(&self) -> usize;

    /// Converts a parameter from PyTorch's order.
    fn pack(&self, plain: &[f32], packed: &mut [f32]) -> Result<(), Error>;

    /// Converts a parameter to PyTorch's order.
    fn unpack(&self, packed: &[f32], plain: &mut [f32]) -> Result<(), Error>;
}

/// PyTorch's own order, of this many elements.
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
