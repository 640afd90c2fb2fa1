//! A device that computes later than it is called: its operations are enqueued, and the host goes on.

use std::time::Instant;

use base::code_spec::{Codes, Draw};

use super::error::Error;
use super::losses::LossSums;
use super::memory::DeviceMemory;
use super::planned::Input;
use super::update::Update;

/// The queue of such a device. Finished gradients leave when their whole pass is enqueued, and images may be given as bytes.
pub trait Queue<D: DeviceMemory> {
    /// Starts copying images to the device whose [`Backend::begin`](super::Backend::begin) is likely the next one; they must stay in
    /// place until then. A `begin` of other images forgets them.
    fn prefetch(&self, images: &Input<'_>) -> Result<(), Error>;

    /// Copies pictures of one size (bytes, HWC) to the device for the whole run, for [`Input::Kept`]; false where they do not fit.
    fn keep(&self, pictures: &[u8], height: usize, width: usize) -> Result<bool, Error>;

    /// Runs `work`, or replays what it enqueued before under the same `key`; `name` is for the log. Equal keys must mean the same memory;
    /// everything else that `work` reads is given to [`Backend::begin`](super::Backend::begin) or [`Queue::begin_update`] before. `work`
    /// is called at most once, or twice where it cannot be recorded.
    fn repeat(&self, name: &str, key: u64, work: &mut dyn FnMut() -> Result<(), Error>) -> Result<(), Error>;

    /// Lines for the log since the last call: what the device does otherwise than planned.
    fn take_notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Enqueues a note of the time at which the device gets here.
    fn stamp(&self) -> Result<(), Error>;

    /// Waits for everything enqueued and returns the times of the stamps since the last call, in their order.
    fn take_stamps(&self) -> Result<Vec<Instant>, Error>;
    /// Copies a batch of images (plain NCHW) to the device for the whole run, for [`Input::Held`].
    fn hold(&self, _images: &[f32]) -> Result<(), Error> {
        Err(Error::Unsupported { op: "a batch".into(), why: "this device does not keep one".into() })
    }

    /// How many passes may be enqueued before the sums of an earlier one are read by [`Queue::loss_sums`], in their order.
    fn passes_ahead(&self) -> usize {
        0
    }

    /// Marks the buffer as finished for this pass: copies of it to the host wait for everything enqueued before, and for nothing
    /// enqueued later.
    fn mark(&self, buffer: &mut D::Buf) -> Result<(), Error>;

    /// Makes an optimizer step ready with everything that changes from step to step: the arguments of
    /// [`Backend::rates`](super::Backend::rates) and [`Backend::update`](super::Backend::update), and `average`, the weight of
    /// [`DeviceMemory::lerp`].
    fn begin_update(&self, update: &Update, average: f32) -> Result<(), Error>;

    /// The same for a step that belongs to the pass which is begun next: its numbers go to the device with those of the pass.
    fn announce_update(&self, update: &Update, average: f32) -> Result<(), Error> {
        self.begin_update(update, average)
    }

    /// Kernels, copies and fills that were enqueued so far, those of replayed passes included.
    fn launches(&self) -> u64 {
        0
    }

    /// Waits for the oldest pass whose sums were not read, and for all before it, and returns the sums of its
    /// [`Backend::cross_entropy`](super::Backend::cross_entropy); where there is none, waits for everything and returns zeros. The
    /// statistics of [`Planned::pool_statistics`](super::Planned::pool_statistics) are that pass's then. The loss is NaN if an update
    /// before the pass has left a parameter that is not finite.
    fn loss_sums(&self) -> Result<LossSums, Error>;
}

// Sums over ranks by the devices themselves, beside MPI.

/// A device that can join the other ranks' devices.
pub trait Collectives<D: DeviceMemory> {
    /// Everything of this rank's own that can be missing for a group. Whoever joins waits for all ranks without end, so none may begin
    /// before all are ready.
    fn ready(&self) -> Result<Box<dyn Ready<D>>, Error>;
}

/// A rank that can join a group.
pub trait Ready<D: DeviceMemory> {
    /// The id of a new group of ranks, made by rank 0 and needed by all of them.
    fn new_id(&self) -> Result<Vec<u8>, Error>;

    /// Joins the group of rank 0's id; collective.
    fn join(self: Box<Self>, id: &[u8], rank: usize, ranks: usize) -> Result<Box<dyn Collective<D>>, Error>;
}

/// A joined group.
pub trait Collective<D: DeviceMemory>: Send {
    /// Replaces the elements by their sums over all ranks, once everything before the buffer's last [`mark`](super::Queue::mark) is
    /// done; later work of the device on it waits. All ranks call it in the same order. Sums are in f32, in an order of its own.
    fn sum(&mut self, buffer: &mut D::Buf) -> Result<(), Error>;

    /// Library and version, for the log.
    fn describe(&self) -> String;
}

// The phases of a codec on a device, so that only codes cross the link to the host.

/// The codec of one bucket, on any thread. Its phases run once a step in the order of the methods, with the same shares: one buffer for
/// each worker of this rank.
pub trait DeviceCodec<D: DeviceMemory>: Send {
    /// Waits until the shares are finished, as their last [`mark`](super::Queue::mark) says.
    fn begin(&mut self, shares: &[D::Buf]) -> Result<(), Error>;

    /// Writes the largest scale of each tensor over all shares, see [`Moments::scale`](super::Moments::scale); none where the codec
    /// needs no scales.
    fn measure(&mut self, shares: &mut [D::Buf], scales: &mut Vec<u32>) -> Result<(), Error>;

    /// Copies the sum of the shares' codes to the host; `scales` are the largest of all ranks.
    fn encode(&mut self, shares: &mut [D::Buf], scales: &[u32], draw: Draw) -> Result<(), Error>;

    /// The codes on the host.
    fn codes(&mut self) -> Codes<'_>;

    /// Starts turning the codes into gradients and does not wait; later work of the device on the buffer does.
    fn decode(&mut self, into: &mut D::Buf) -> Result<(), Error>;

    /// What this worker carries over to the next step, in the bucket's layout; none without error feedback, and for workers of other
    /// ranks.
    fn residual(&mut self, worker: usize) -> Option<&mut D::Buf>;

    /// Bytes of its memory on the device and on the host.
    fn memory(&self) -> usize;
}
