//! Transfer of a batch to the GPU: two slots of page-locked memory, copies on their own stream, and a kernel that
//! converts the copy to the network's input. The same kernel also copies the pass's inbox.

use std::cell::RefCell;

use loaders::{Area, Dtype, Mix};

use crate::cuda::driver::memory::{CudaBuf, Inlet};
use crate::cuda::driver::pinned::Pinned;
use crate::cuda::driver::slice::{Activation, Slice};
use crate::cuda::driver::stream::Event;
use crate::cuda::kernels::declarations::{InputBytes, InputStored, InputValues, InputViews, MixRows};
use crate::cuda::shared::Shared;
use crate::{Buffer, CropRect, Error, Input, PassInput, TensorDesc};

/// Bytes of stored pictures to copy at a time. Limited because page-locked memory is scarce.
const BLOCK: usize = 64 << 20;

/// The memory through which batches reach the GPU: two slots for batches from the host, and pictures or a batch that
/// stay on the GPU.
#[derive(Default)]
pub struct Feed {
    slots: RefCell<[Option<Slot>; 2]>,
    next: std::cell::Cell<usize>,
    /// A table per channel for bytes, or a mean and a deviation per channel.
    tables: RefCell<Option<Inlet<f32>>>,
    kept: RefCell<Option<StoredPictures>>,
    held: RefCell<CudaBuf>,
}

/// Pictures that stay on the GPU.
struct StoredPictures {
    bytes: CudaBuf,
    height: usize,
    width: usize,
    len: usize,
}

/// Memory for one batch, on the host and on the GPU.
struct Slot {
    host: Pinned<u8>,
    device: CudaBuf,
    arrived: Event,
    used: Event,
    /// Host address and length of the batch that the slot contains.
    holds: Option<(usize, usize)>,
}

/// Returns the images as the bytes that are copied to the GPU.
fn bytes<'a>(images: &Input<'a>) -> &'a [u8] {
    let raw = |data: *const u8, len: usize| {
        // SAFETY: f32 and `CropRect` (four 32-bit words) have no padding, and the result borrows the slice that they
        // come from.
        unsafe { std::slice::from_raw_parts(data, len) }
    };
    match images {
        Input::Values(values) => raw(values.as_ptr().cast(), size_of_val(*values)),
        Input::Bytes { pixels, .. } | Input::Stored { pixels, .. } => pixels,
        Input::Kept { views, .. } => raw(views.as_ptr().cast(), size_of_val(*views)),
        Input::Held(_) => &[],
    }
}

/// Returns an error unless a batch has exactly the bytes of `desc.n` rows.
fn check_size(got: usize, images: &Input<'_>, desc: &TensorDesc) -> Result<(), Error> {
    let need = match images {
        Input::Values(_) => 4 * desc.elems(),
        Input::Bytes { .. } => desc.elems(),
        Input::Stored { dtype, .. } => dtype.bytes() * desc.elems(),
        Input::Kept { .. } => desc.n * size_of::<CropRect>(),
        Input::Held(_) => 0,
    };
    if got == need {
        return Ok(());
    }
    let (expected, got) = (format!("{need} bytes for {} rows", desc.n), got.to_string());
    Err(Error::Size { op: "a batch".into(), expected, got })
}

fn wrong(why: &str) -> Error {
    Error::Unsupported { op: "the network's input".into(), why: why.into() }
}

/// Enqueues the kernel that mixes the images of the network's input.
fn mix_rows(shared: &Shared, mix: Mix, desc: &TensorDesc, x: Slice<'_, Activation>) -> Result<(), Error> {
    let shape = desc.shape;
    let [rows, h, w, channels] = [desc.n, shape.h, shape.w, shape.c].map(|v| v as u32);
    let Area { top, bottom, left, right } = mix.area.unwrap_or(Area { top: 0, bottom: 0, left: 0, right: 0 });
    shared.launch(&MixRows { x, rows, h, w, channels, share: mix.share, top, bottom, left, right })
}

impl Feed {
    /// Starts the copy of a batch to the GPU and returns its slot.
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
                    device: CudaBuf::unset(&shared.queues, bytes.len().div_ceil(4), "a batch")?,
                    arrived: Event::new(context)?,
                    used: Event::new(context)?,
                    holds: None,
                }
            }
        };
        // wait until the batch that was in this slot before has been copied. The copying stream waits for the kernel
        // that reads that batch.
        slot.arrived.wait()?;
        slot.host.as_mut_slice()[..bytes.len()].copy_from_slice(bytes);
        shared.queues.up.wait_for(&slot.used)?;
        slot.host.send(slot.device.slice().range(0, bytes.len())?, &shared.queues.up)?;
        slot.arrived.record(&shared.queues.up, false)?;
        slot.holds = Some(place);
        slots[i] = Some(slot);
        self.next.set(1 - i);
        Ok(i)
    }

    /// Enqueues the kernel that writes the network's input to `to` and copies the pass's inbox. Sends the batch first
    /// if it has not been sent yet.
    pub fn take(&self, shared: &Shared, start: &PassInput<'_>, desc: &TensorDesc, to: &CudaBuf) -> Result<(), Error> {
        let images = &start.images;
        if let Input::Held(_) = images {
            return self.convert(shared, images, desc, &self.held.borrow(), shared.holds(to, desc.elems())?);
        }
        let data = bytes(images);
        let place = Some((data.as_ptr() as usize, data.len()));
        let sent = self.slots.borrow().iter().position(|s| s.as_ref().is_some_and(|s| s.holds == place));
        // batches that were sent ahead but are not used now are no longer valid
        for slot in self.slots.borrow_mut().iter_mut().flatten() {
            slot.holds = None;
        }
        let i = match sent {
            Some(i) => i,
            None => self.send(shared, images)?,
        };
        let to = shared.holds(to, desc.elems())?;
        match images {
            Input::Bytes { tables, .. } | Input::Kept { tables, .. } => {
                self.copy_tables(shared, tables, "tables of byte values", desc)?;
            }
            Input::Stored { pairs, .. } => self.copy_tables(shared, pairs, "means and deviations", desc)?,
            Input::Values(_) | Input::Held(_) => {}
        }
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = &mut slots[i] else { return Ok(()) };
        slot.holds = place.filter(|_| start.images_again);
        shared.start()?;
        shared.stream().wait_for(&slot.arrived)?;
        check_size(data.len(), images, desc)?;
        self.convert(shared, images, desc, &slot.device, to)?;
        images.mix().map_or(Ok(()), |mix| mix_rows(shared, mix, desc, to))?;
        slot.used.record(shared.stream(), false)
    }

    /// Enqueues the kernel that converts a batch on the GPU to the network's input and copies the pass's inbox.
    fn convert(
        &self,
        shared: &Shared,
        images: &Input<'_>,
        desc: &TensorDesc,
        from: &CudaBuf,
        to: Slice<'_, Activation>,
    ) -> Result<(), Error> {
        let shape = desc.shape;
        let [rows, channels, h, w, plane] = [desc.n, shape.c, shape.h, shape.w, shape.plane()].map(|v| v as u32);
        let tables = self.tables.borrow();
        let tables = tables
            .as_ref()
            .map(Inlet::slice)
            .ok_or_else(|| wrong("the images are stored values, but it is not known how to convert them"));
        let mut blocks = shared.blocks.borrow_mut();
        blocks.inbox.send_by(shared.stream(), |numbers, inbox| {
            let words = inbox.len() as u32;
            match images {
                Input::Bytes { .. } => {
                    let (pixels, tables, n) = (from.slice(), tables?, desc.elems() as u64);
                    shared.launch(&InputBytes { pixels, tables, to, n, channels, numbers, inbox, words })
                }
                Input::Stored { dtype, .. } => {
                    let (pixels, pairs, n, size) = (from.slice(), tables?, desc.elems() as u64, dtype.bytes());
                    let kind = match dtype {
                        Dtype::U16 => 0,
                        Dtype::I16 => 1,
                        Dtype::F32 => 2,
                        Dtype::U8 => return Err(wrong("bytes need tables")),
                    };
                    shared.launch(&InputStored { pixels, pairs, to, n, channels, kind, numbers, inbox, words, size })
                }
                Input::Kept { views, .. } => {
                    let used = views.iter().map(|v| v.picture as usize + 1).max().unwrap_or(0);
                    let kept = self.kept.borrow();
                    let holds = |k: &&StoredPictures| used <= k.len / (k.height * k.width * shape.c);
                    let kept = kept.as_ref().filter(holds);
                    let kept = kept.ok_or_else(|| wrong("the batch refers to pictures that are not on the GPU"))?;
                    shared.launch(&InputViews {
                        pictures: kept.bytes.slice(),
                        from_h: kept.height as u32,
                        from_w: kept.width as u32,
                        views: from.slice(),
                        tables: tables?,
                        to,
                        rows,
                        h,
                        w,
                        channels,
                        numbers,
                        inbox,
                        words,
                        pictures_used: used,
                    })
                }
                Input::Values(_) | Input::Held(_) => {
                    let images = from.slice();
                    shared.launch(&InputValues { images, to, rows, channels, plane, numbers, inbox, words })
                }
            }
        })
    }

    /// Copies numbers for each channel to the GPU. `what` names them in an error message.
    fn copy_tables<const N: usize>(
        &self,
        shared: &Shared,
        tables: &[[f32; N]],
        what: &str,
        desc: &TensorDesc,
    ) -> Result<(), Error> {
        let values = tables.as_flattened();
        if tables.len() != desc.shape.c {
            let (expected, got) = (format!("{} {what}", desc.shape.c), tables.len().to_string());
            return Err(Error::Size { op: "the network's input".into(), expected, got });
        }
        let mut kept = self.tables.borrow_mut();
        let inlet = kept.take().filter(|inlet| inlet.room() == values.len());
        let new = || shared.inlet(values.len(), "the conversion of stored values");
        let mut inlet = inlet.map_or_else(new, Ok)?;
        if inlet.values() != values {
            shared.start()?;
            inlet.write(values, shared.stream())?;
        }
        *kept = Some(inlet);
        Ok(())
    }

    /// Copies a batch to the GPU, where it stays.
    pub fn hold(&self, shared: &Shared, images: &[f32]) -> Result<(), Error> {
        *self.held.borrow_mut() = shared.constant(images, "a batch")?;
        Ok(())
    }

    /// Copies pictures to the GPU, where they stay. Returns false if they would need more than half of the free memory.
    pub fn keep(&self, shared: &Shared, pictures: &[u8], height: usize, width: usize) -> Result<bool, Error> {
        let (free, _) = shared.context().memory()?;
        if pictures.len() > free / 2 || height * width == 0 {
            return Ok(false);
        }
        let bytes = CudaBuf::unset(&shared.queues, pictures.len().div_ceil(4), "the data set")?;
        let mut block: Pinned<u8> = shared.pinned(pictures.len().min(BLOCK), "the data set")?;
        for (i, part) in pictures.chunks(BLOCK).enumerate() {
            block.as_mut_slice()[..part.len()].copy_from_slice(part);
            block.send(bytes.slice().range(i * BLOCK, part.len())?, shared.stream())?;
            shared.stream().wait()?;
        }
        debug_assert!(!bytes.is_empty());
        *self.kept.borrow_mut() = Some(StoredPictures { bytes, height, width, len: pictures.len() });
        Ok(true)
    }
}
