//! A device that computes later than it is called: its operations are enqueued, and the host goes on.

use std::time::Instant;

use super::device_memory::DeviceMemory;
use super::error::Error;
use super::loss::LossSums;
use super::pass_input::Input;
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
