//! The way of a batch to the card: page-locked memory in two slots, copies on a queue of their own, and a kernel that makes the
//! network's input of what has arrived.

use std::cell::RefCell;

use crate::backend::cuda::driver::inlet::Inlet;
use crate::backend::cuda::driver::memory::CudaBuf;
use crate::backend::cuda::driver::pinned::Pinned;
use crate::backend::cuda::driver::stream::Event;
use crate::backend::cuda::kernels::module::Arg::{At, U32, U64};
use crate::backend::cuda::shared::Shared;
use crate::backend::{Buffer, Error, Input, TensorDesc, View};

/// Where batches arrive.
#[derive(Default)]
pub struct Feed {
    slots: RefCell<[Option<Slot>; 2]>,
    next: std::cell::Cell<usize>,
    tables: RefCell<Option<Inlet<f32>>>,
    kept: RefCell<Option<Kept>>,
}

/// Pictures that stay on the card.
struct Kept {
    bytes: CudaBuf,
    height: usize,
    width: usize,
    len: usize,
}

/// Room for one batch.
struct Slot {
    host: Pinned<u8>,
    card: CudaBuf,
    arrived: Event,
    used: Event,
    /// Where the batch in it lies on the host, and its bytes.
    holds: Option<(usize, usize)>,
}

/// What travels.
fn bytes<'a>(images: &Input<'a>) -> &'a [u8] {
    let raw = |data: *const u8, len: usize| {
        // SAFETY: f32 and `View` (four 32-bit words) have no padding, and live as long as the slice they come from.
        unsafe { std::slice::from_raw_parts(data, len) }
    };
    match images {
        Input::Values(values) => raw(values.as_ptr().cast(), size_of_val(*values)),
        Input::Bytes { pixels, .. } => pixels,
        Input::Kept { views, .. } => raw(views.as_ptr().cast(), size_of_val(*views)),
    }
}

impl Feed {
    /// Starts the way of a batch to the card; gives its slot.
    pub fn send(&self, shared: &Shared, images: &Input<'_>) -> Result<usize, Error> {
        let bytes = bytes(images);
        let place = (bytes.as_ptr() as usize, bytes.len());
        let mut slots = self.slots.borrow_mut();
        let i = self.next.get();
        let mut slot = match slots[i].take().filter(|s| s.host.as_slice().len() >= bytes.len()) {
            Some(slot) => slot,
            None => {
                let context = shared.context();
                Slot {
                    host: shared.pinned(bytes.len(), "a batch")?,
                    card: CudaBuf::unset(&shared.queues, bytes.len().div_ceil(4), "a batch")?,
                    arrived: Event::new(context)?,
                    used: Event::new(context)?,
                    holds: None,
                }
            }
        };
        // the copy of two batches ago, and the kernel that read it
        slot.arrived.wait()?;
        slot.host.as_mut_slice()[..bytes.len()].copy_from_slice(bytes);
        shared.queues.copies.wait_for(&slot.used)?;
        slot.host.send(bytes.len(), slot.card.address(), &shared.queues.copies)?;
        slot.arrived.record(&shared.queues.copies, false)?;
        slot.holds = Some(place);
        slots[i] = Some(slot);
        self.next.set(1 - i);
        Ok(i)
    }

    /// Enqueues the kernel that makes the network's input, in `to`, of a batch that was sent before or is sent now.
    pub fn take(&self, shared: &Shared, images: &Input<'_>, desc: &TensorDesc, to: &CudaBuf) -> Result<(), Error> {
        let data = bytes(images);
        let place = Some((data.as_ptr() as usize, data.len()));
        let sent = self.slots.borrow().iter().position(|s| s.as_ref().is_some_and(|s| s.holds == place));
        // whatever else was sent ahead is not what came next
        for slot in self.slots.borrow_mut().iter_mut().flatten() {
            slot.holds = None;
        }
        let i = match sent {
            Some(i) => i,
            None => self.send(shared, images)?,
        };
        let to = At(shared.holds(to, desc.elems())?);
        let tables = match images {
            Input::Values(_) => 0,
            Input::Bytes { tables, .. } | Input::Kept { tables, .. } => self.tables(shared, tables, desc)?,
        };
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = &mut slots[i] else { return Ok(()) };
        slot.holds = None;
        shared.start()?;
        shared.stream().wait_for(&slot.arrived)?;
        let (shape, from) = (desc.shape, At(slot.card.address()));
        let [rows, c, h, w] = [desc.n, shape.c, shape.h, shape.w].map(|v| U32(v as u32));
        let pixels = desc.n * shape.plane();
        let need = match images {
            Input::Values(_) => 4 * desc.elems(),
            Input::Bytes { .. } => desc.elems(),
            Input::Kept { .. } => desc.n * size_of::<View>(),
        };
        if data.len() != need {
            let (expected, got) = (format!("{need} bytes for {} rows", desc.n), data.len().to_string());
            return Err(Error::Size { op: "a batch".into(), expected, got });
        }
        // SAFETY: the slot holds as many bytes as the kernel reads (checked), `to` a whole batch; kept pictures are checked below.
        unsafe {
            match images {
                Input::Values(_) => {
                    let args = [from, to, rows, c, U32(shape.plane() as u32)];
                    shared.launch("input_values", shared.grid(pixels), &args)?;
                }
                Input::Bytes { .. } => {
                    let args = [from, At(tables), to, U64(desc.elems() as u64), c];
                    shared.launch("input_bytes", shared.grid(desc.elems()), &args)?;
                }
                Input::Kept { views, .. } => {
                    let kept = self.kept.borrow();
                    let Some(kept) = kept.as_ref().filter(|k| {
                        views.iter().all(|v| (v.picture as usize) < k.len / (k.height * k.width * shape.c))
                    }) else {
                        let why = "pictures that are not on the card were asked for".into();
                        return Err(Error::Unsupported { op: "the network's input".into(), why });
                    };
                    let [from_h, from_w] = [kept.height, kept.width].map(|v| U32(v as u32));
                    let pictures = At(kept.bytes.address());
                    let args = [pictures, from_h, from_w, from, At(tables), to, rows, h, w, c];
                    shared.launch("input_views", shared.grid(pixels), &args)?;
                }
            }
        }
        slot.used.record(shared.stream(), false)
    }

    /// The values of bytes on the card, one table a channel.
    fn tables(&self, shared: &Shared, tables: &[[f32; 256]], desc: &TensorDesc) -> Result<u64, Error> {
        let values = tables.as_flattened();
        if tables.len() != desc.shape.c {
            let (expected, got) = (format!("{} tables of bytes' values", desc.shape.c), tables.len().to_string());
            return Err(Error::Size { op: "the network's input".into(), expected, got });
        }
        let mut kept = self.tables.borrow_mut();
        let mut inlet = match kept.take().filter(|t| t.room() == values.len()) {
            Some(inlet) => inlet,
            None => shared.inlet(values.len(), "the values of bytes")?,
        };
        if inlet.values() != values {
            shared.start()?;
            inlet.write(values, shared.stream())?;
        }
        Ok(kept.insert(inlet).address())
    }

    /// Brings pictures to the card for good, unless they would take more than half of what is free.
    pub fn keep(&self, shared: &Shared, pictures: &[u8], height: usize, width: usize) -> Result<bool, Error> {
        let (free, _) = shared.context().memory()?;
        if pictures.len() > free / 2 || height * width == 0 {
            return Ok(false);
        }
        let bytes = CudaBuf::unset(&shared.queues, pictures.len().div_ceil(4), "the data set")?;
        // in blocks, as page-locked memory is scarce
        let mut block: Pinned<u8> = shared.pinned(pictures.len().min(64 << 20), "the data set")?;
        for (i, part) in pictures.chunks(64 << 20).enumerate() {
            block.as_mut_slice()[..part.len()].copy_from_slice(part);
            block.send(part.len(), bytes.address() + (i as u64) * (64 << 20), shared.stream())?;
            shared.stream().wait()?;
        }
        debug_assert!(!bytes.is_empty());
        *self.kept.borrow_mut() = Some(Kept { bytes, height, width, len: pictures.len() });
        Ok(true)
    }
}
