//! An NVIDIA GPU as a device: its settings, finding it and opening it.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use super::driver::context::{Context, Gpu, gpu_count, properties};
use super::driver::library;
use super::driver::memory::CudaBuf;
use super::driver::slice::Slice;
use super::driver::stream::Event;
use super::driver::switches::switches;
use super::ops::input;
use super::record;
use super::settings::Settings;
use super::shared::Shared;
use crate::{Arena, DeviceKind, DeviceSettings, Error, Precision, Slot, Unavailable};

/// An open GPU. Only the thread that opened it may use it, but its buffers may move to other threads.
pub struct Cuda {
    pub(super) shared: Rc<Shared>,
    pub(super) feed: input::Feed,
    pub(super) records: record::Records,
    pub(super) clock: Clock,
}

impl Cuda {
    /// Opens the GPU with this number among those in CUDA_VISIBLE_DEVICES.
    ///
    /// # Errors
    ///
    /// Returns an error with advice if a library, the driver or the GPU is missing or too old.
    pub fn open(ordinal: usize, settings: Settings) -> Result<Self, Error> {
        library::require_all()?;
        let context = Context::open(ordinal)?;
        let shared = Rc::new(Shared::new(&context, settings)?);
        let (feed, records, clock) = (input::Feed::default(), record::Records::default(), Clock::default());
        Ok(Self { shared, feed, records, clock })
    }

    pub fn gpu(&self) -> &Gpu {
        &self.shared.context().gpu
    }
}

/// Returns the multiply-add rates of the tensor cores in 16 bits and, if supported, in TF32. The unit is the rate of the
/// f32 units. Source: NVIDIA's whitepapers on Volta, Turing, Ampere, Ada and Hopper.
fn tensor_core_rates(capability: (i32, i32)) -> Option<(u32, Option<u32>)> {
    match capability {
        (7, _) => Some((8, None)),
        (8, 0) | (9, 0) => Some((16, Some(8))),
        (8, _) => Some((4, Some(2))),
        _ => None,
    }
}

/// Returns the note for runs in f32 without TF32. `gpu` is the first GPU, if its properties are known.
fn tensor_core_note(gpu: Option<&Gpu>) -> String {
    let name = gpu.map_or("the GPU", |gpu| &gpu.name);
    let faster = match gpu.and_then(|gpu| tensor_core_rates(gpu.capability)) {
        Some((halves, Some(tf32))) => {
            format!(
                "up to {halves} times as fast in bf16 (precision = \"bf16\") and {tf32} times in tf32 (tf32 = true)"
            )
        }
        Some((halves, None)) => format!("up to {halves} times as fast in f16 (precision = \"f16\")"),
        None => "many times as fast in bf16 (precision = \"bf16\") and tf32 (tf32 = true)".into(),
    };
    format!(
        "note: precision = \"f32\" does not use the tensor cores of {name}. They multiply {faster}. To set this only for GPUs, write it \
         into the section [cuda] of the recipe"
    )
}

impl Arena<Cuda> {
    /// Returns the elements of a slot.
    pub(super) fn at(&self, slot: Slot) -> Result<Slice<'_, f32>, Error> {
        let bucket: &CudaBuf = &self.buckets[slot.bucket];
        bucket.slice().range(slot.offset, slot.len)
    }
}

/// The device kind for NVIDIA's GPUs.
pub struct CudaDevice {
    notes: Vec<String>,
}

/// Returns the value of CUDA_VISIBLE_DEVICES for messages, or an empty string if it is not set.
pub fn visible() -> String {
    std::env::var("CUDA_VISIBLE_DEVICES").map_or(String::new(), |list| format!(" (CUDA_VISIBLE_DEVICES is \"{list}\")"))
}

impl DeviceKind for CudaDevice {
    type Backend = Cuda;
    const NAME: &'static str = "cuda";
    const ABOUT: &'static str = "An NVIDIA GPU";
    const REMOVABLE: bool = true;
    const USES_CORES: bool = false;
    const LAYOUT_CURE: &'static str = "the ranks' GPUs or their libraries differ; use nodes of the same kind";

    fn find(notes: Vec<String>) -> Result<Self, Unavailable> {
        let count = gpu_count();
        // a driver that does not start is a fault of a machine with a GPU, so `--device auto` must report it
        let present = !matches!(count, Ok(0) | Err(Error::Absent { .. }));
        let unavailable = |why: String| Err(Unavailable { why, present });
        match library::require_all().and(count) {
            Ok(1..) => Ok(Self { notes }),
            Ok(_) => unavailable(format!(
                "this process sees no GPU{}; `nvidia-smi -L` lists the GPUs of this machine",
                visible()
            )),
            Err(error) => unavailable(error.to_string()),
        }
    }

    fn open(&self, settings: &DeviceSettings) -> Result<Cuda, Error> {
        let DeviceSettings { precision, tf32, deterministic, node_rank, .. } = *settings;
        let settings = Settings { precision, allow_tf32: tf32, deterministic };
        // some launchers show each rank only one GPU, so the node rank can exceed the number of GPUs
        let gpus = gpu_count()?.max(1);
        Cuda::open(node_rank % gpus, settings)
    }

    fn notes(&self, precision: Precision, tf32: bool) -> Vec<String> {
        let slow = (precision == Precision::F32 && !tf32).then(|| tensor_core_note(properties(0).ok().as_ref()));
        self.notes.iter().cloned().chain(switches().notes()).chain(slow).collect()
    }

    fn gpu(&self, backend: &Cuda) -> Option<crate::Gpu> {
        let properties = backend.gpu();
        let uuid: String = properties.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        let (name, bus) = (properties.name.clone(), properties.bus.clone());
        Some(crate::Gpu { host: String::new(), name, uuid: format!("GPU-{uuid}"), bus })
    }
}

// Measures with events when the GPU reaches points of its stream, and converts these times to the host's clock.

/// Times at which the GPU reaches points of its stream, on the host's clock.
#[derive(Default)]
pub struct Clock {
    /// A point that the GPU has passed, and the host's time at that moment.
    origin: RefCell<Option<(Event, Instant)>>,
    /// Points enqueued since the last `take` call.
    stamps: RefCell<Vec<Event>>,
    /// Events that were read and can be recorded again.
    free: RefCell<Vec<Event>>,
}

impl Clock {
    /// Enqueues a point. The first call waits for the GPU.
    pub fn stamp(&self, shared: &Shared) -> Result<(), Error> {
        shared.start()?;
        let mut origin = self.origin.borrow_mut();
        if origin.is_none() {
            shared.stream().wait()?;
            // the stream is empty, so the GPU reaches the event at once
            let first = Event::timed(shared.context())?;
            first.record(shared.stream(), false)?;
            first.wait()?;
            *origin = Some((first, Instant::now()));
        }
        let event = self.free.borrow_mut().pop().map_or_else(|| Event::timed(shared.context()), Ok)?;
        event.record(shared.stream(), shared.recording.get())?;
        self.stamps.borrow_mut().push(event);
        Ok(())
    }

    /// Waits for the GPU. Returns the times at which the GPU reached the points that were recorded since the last call.
    pub fn take(&self, shared: &Shared) -> Result<Vec<Instant>, Error> {
        shared.settle()?;
        let mut stamps = self.stamps.take();
        let mut origin = self.origin.borrow_mut();
        let Some((first, start)) = origin.take() else { return Ok(Vec::new()) };
        let times = stamps.iter().map(|stamp| Ok(start + first.time_until(stamp)?));
        let times = times.collect::<Result<Vec<_>, Error>>()?;
        // The driver returns f32 milliseconds, so only short times are precise. The last point becomes the next origin.
        *origin = Some(match stamps.pop().zip(times.last()) {
            Some((last, when)) => {
                stamps.push(first);
                (last, *when)
            }
            None => (first, start),
        });
        self.free.borrow_mut().extend(stamps);
        Ok(times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_note_about_f32_has_the_rates_of_the_gpu() {
        let note = |capability| {
            let gpu = Gpu {
                name: "NVIDIA X".into(),
                capability,
                multiprocessors: 1,
                memory: 0,
                uuid: [0; 16],
                bus: String::new(),
            };
            tensor_core_note(Some(&gpu))
        };
        for (capability, parts) in [
            ((7, 5), ["up to 8 times", "f16 (precision = \"f16\")"]),
            ((8, 0), ["up to 16 times", "8 times in tf32"]),
            ((8, 9), ["up to 4 times", "2 times in tf32"]),
            ((9, 0), ["of NVIDIA X. They multiply up to 16 times", "bf16 (precision = \"bf16\")"]),
            ((12, 0), ["many times as fast", "tf32 = true"]),
        ] {
            let note = note(capability);
            assert!(parts.iter().all(|part| note.contains(part)) && note.contains("[cuda]"), "{note}");
        }
        assert!(!note((7, 0)).contains("tf32") && tensor_core_note(None).contains("cores of the GPU. "));
    }
}
