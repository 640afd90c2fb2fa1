//! A device that computes asynchronously: it enqueues operations, and the host continues.

use std::time::Instant;

use base::code_spec::{Codes, Draw};

use super::error::Error;
use super::losses::LossSums;
use super::memory::DeviceMemory;
use super::planned::Input;
use super::update::Update;

/// The queue of an asynchronous device. The caller may send gradients as soon as the whole pass that computes them is
/// enqueued, and may pass images as bytes.
pub trait Queue<D: DeviceMemory> {
    /// Starts to copy images to the device for the next [`Backend::begin`](super::Backend::begin). The images must not
    /// move until then. A `begin` with other images discards the copy.
    fn prefetch(&self, images: &Input<'_>) -> Result<(), Error>;

    /// Copies pictures of one size (bytes, HWC) to the device for the whole run, for [`Input::Kept`]. Returns false if
    /// they do not fit.
    fn keep(&self, pictures: &[u8], height: usize, width: usize) -> Result<bool, Error>;

    /// Runs `work`, or replays what an earlier call with the same `key` enqueued. `name` is used in the log. Calls with
    /// the same key must use the same memory. Everything else that `work` reads must have been passed to
    /// [`Backend::begin`](super::Backend::begin) or [`Queue::begin_update`]. `work` is not called if a recorded graph
    /// is replayed. Otherwise it is called once, or a second time if the device refuses to record it.
    fn repeat(&self, name: &str, key: u64, work: &mut dyn FnMut() -> Result<(), Error>) -> Result<(), Error>;

    /// Returns new lines for the log about deviations from the plan.
    fn take_notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Enqueues a time stamp that records when the device reaches this point.
    fn stamp(&self) -> Result<(), Error>;

    /// Waits for everything enqueued and returns the times of the stamps since the last call, in order.
    fn take_stamps(&self) -> Result<Vec<Instant>, Error>;

    /// Copies a batch of images in NCHW order to the device for the whole run, for [`Input::Held`].
    fn hold(&self, _images: &[f32]) -> Result<(), Error> {
        Err(Error::Unsupported { op: "a batch".into(), why: "this device cannot keep a batch".into() })
    }

    /// Returns how many passes may be enqueued while the sums of earlier ones are unread, see [`Queue::loss_sums`].
    fn passes_ahead(&self) -> usize {
        0
    }

    /// Marks the buffer as finished for this pass. Copies to the host wait for everything enqueued before the mark, and
    /// for nothing enqueued later.
    fn mark(&self, buffer: &mut D::Buf) -> Result<(), Error>;

    /// Marks the end of the pass that was enqueued last, for [`Queue::wait_for_pass`].
    fn mark_pass(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Waits for the mark of the oldest pass with unread sums. Returns at once if that pass has no mark.
    /// [`Queue::loss_sums`] also waits for the work between that mark and the next pass.
    fn wait_for_pass(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Prepares an optimizer step: passes all numbers that change between steps to the device. `update` has the numbers
    /// for [`Backend::rates`](super::Backend::rates) and [`Backend::update`](super::Backend::update). `average` is the
    /// weight for [`DeviceMemory::lerp`].
    fn begin_update(&self, update: &Update, average: f32) -> Result<(), Error>;

    /// Works like [`Self::begin_update`], for the step after the next pass. The numbers of the step are copied to the
    /// device together with those of the pass.
    fn announce_update(&self, update: &Update, average: f32) -> Result<(), Error> {
        self.begin_update(update, average)
    }

    /// Returns the number of kernels, copies and fills enqueued so far, including replayed passes.
    fn launches(&self) -> u64 {
        0
    }

    /// Waits for the oldest pass whose sums were not read yet and returns its sums of
    /// [`Backend::cross_entropy`](super::Backend::cross_entropy). If there is no such pass, waits for everything and
    /// returns zeros. After this, [`Planned::pool_statistics`](super::Planned::pool_statistics) returns the statistics
    /// of that pass. The loss is NaN if an update before the pass has produced a parameter that is not finite.
    fn loss_sums(&self) -> Result<LossSums, Error>;
}

// Sums over ranks that the devices compute themselves, without MPI.

/// A device that can join a group with the other ranks' devices.
pub trait Collectives<D: DeviceMemory> {
    /// Returns everything that this rank needs to join a group. No rank may join before all are ready, because a group
    /// without one of its ranks never forms.
    fn ready(&self) -> Result<Box<dyn Ready<D>>, Error>;
}

/// A rank that is ready to join a group.
pub trait Ready<D: DeviceMemory> {
    /// Returns the id of a new group. Rank 0 creates it and all ranks need it.
    fn new_id(&self) -> Result<Vec<u8>, Error>;

    /// Begins to join the group with rank 0's id, without waiting for the other ranks. All ranks must call this. The
    /// group can be used when [`Collective::is_ready`] returns true.
    fn join(self: Box<Self>, id: &[u8], rank: usize, ranks: usize) -> Result<Box<dyn Collective<D>>, Error>;
}

/// The operation of a reduction over ranks, and the type of its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    SumF32,
    SumBf16,
    SumI32,
    SumU64,
    MaxU32,
}

/// A group of ranks that this rank has joined.
pub trait Collective<D: DeviceMemory>: Send {
    /// Returns true if the group can be used, and false while ranks still join. Returns an error if the group has
    /// failed, also if a sum fails after it was enqueued.
    fn is_ready(&mut self) -> Result<bool, Error>;

    /// Enqueues a reduction in place over all ranks. It waits for the work before the buffer's last
    /// [`mark`](super::Queue::mark), and the device's later work on the buffer waits for it. All ranks must call it in
    /// the same order. The library chooses the order of additions.
    fn reduce(&mut self, buffer: &mut D::Buf, reduction: Reduction) -> Result<(), Error>;

    /// Returns library and version for the log.
    fn describe(&self) -> String;
}

// The phases of a gradient codec on a device. If the device encodes, only encoded gradients (codes) are copied to the
// host.

/// A bucket's codec. It can be used on any thread. Each step calls its methods in the order given here, with the same
/// shares: one buffer for each worker of this rank.
pub trait DeviceCodec<D: DeviceMemory>: Send {
    /// Waits until the shares are finished, according to their last [`mark`](super::Queue::mark).
    fn begin(&mut self, shares: &[D::Buf]) -> Result<(), Error>;

    /// Writes the largest scale of each tensor over all shares, see [`Moments::scale`](super::Moments::scale). Writes
    /// nothing if the codec needs no scales.
    fn measure(&mut self, shares: &mut [D::Buf], scales: &mut Vec<u32>) -> Result<(), Error>;

    /// Copies the sum of the shares' codes to the host. `scales` are the largest scales over all ranks.
    fn encode(&mut self, shares: &mut [D::Buf], scales: &[u32], draw: Draw) -> Result<(), Error>;

    /// Returns the codes on the host.
    fn codes(&mut self) -> Codes<'_>;

    /// Starts to convert the codes to gradients and returns without waiting. The device's later work on the buffer
    /// waits for the gradients.
    fn decode(&mut self, into: &mut D::Buf) -> Result<(), Error>;

    /// Enqueues all phases and returns without waiting. `group` reduces the scales and codes over the ranks. Returns
    /// the number of bytes that this rank passes to the group. If a scale is not finite, its tensor becomes NaN.
    fn sum_in(&mut self, group: &mut dyn Collective<D>, shares: &mut [D::Buf], draw: Draw) -> Result<usize, Error>;

    /// Waits for the scales that [`DeviceCodec::sum_in`] has computed in step `step`, and returns them. `step` must be
    /// the last step or the step before it.
    fn scales(&mut self, step: u64) -> Result<&[u32], Error>;

    /// Returns this worker's residual in the bucket's layout. Returns `None` without error feedback, and for workers of
    /// other ranks.
    fn residual(&mut self, worker: usize) -> Option<&mut D::Buf>;

    /// Returns the bytes of the codec's memory on the device and on the host.
    fn memory(&self) -> usize;
}
