//! What a device must be able to do, and nothing about any device: memory, planned operations, the few passes over flat
//! arenas. [`mod@reference`] is the oracle in plain loops, [`cpu`] runs on oneDNN. `nn` decides what runs when.

mod across;
mod algorithms;
pub mod arena;
mod buffer;
mod coder;
mod collective;
pub mod cpu;
pub mod cuda;
mod error;
mod loss;
pub mod op;
mod planned;
mod precision;
pub mod reference;
mod start;
pub mod tensor;
pub mod update;

pub use crate::coding::{Codes, Coding, Draw, Form, Moments, Whole};
pub use across::Across;
pub use algorithms::Algorithms;
pub use arena::{Arena, Slot};
pub use buffer::Buffer;
pub use coder::Coder;
pub use collective::Collective;
pub use error::Error;
pub use loss::{CrossEntropy, LossScale, LossSums};
use op::Shape;
pub use planned::{Gradients, Pass, Planned, Request};
pub use precision::Precision;
pub use start::{DrawKey, Input, Start, View};
pub use tensor::TensorDesc;
pub use update::{Norms, ParamGroup, Rule, Update};

/// A device and the way it computes.
pub trait Backend: Sized + 'static {
    /// Its memory.
    type Buf: Buffer;
    /// How a parameter lies in memory.
    type Format: Clone + PartialEq + std::fmt::Debug + Send;

    /// Device, library, version, instruction set, threads: one line for the log.
    fn describe(&self) -> String;

    /// Bytes of the work space that all operations share.
    fn scratch_bytes(&self) -> usize {
        0
    }

    /// Bytes that are free, where the device's memory is its own.
    fn free_bytes(&self) -> Result<Option<usize>, Error> {
        Ok(None)
    }

    /// Zeroed memory.
    fn alloc(&self, elems: usize) -> Result<Self::Buf, Error>;

    /// f32 words that so many activations take.
    fn words(&self, elems: usize) -> usize {
        elems
    }

    /// Layout of the network's input.
    fn input(&self, n: usize, shape: Shape) -> TensorDesc {
        TensorDesc::plain(n, shape)
    }

    /// What all ranks must know to meet in a [`Collective`], made by rank 0; none where this kind of device has none, and the
    /// error says why.
    fn collective_id() -> Result<Option<Vec<u8>>, Error> {
        Ok(None)
    }

    /// Joins all ranks' devices, each with rank 0's id; collective.
    fn collective(&self, _id: &[u8], _rank: usize, _ranks: usize) -> Result<Box<dyn Collective<Self>>, Error> {
        let why = "devices of this kind do not sum among themselves".into();
        Err(Error::Unsupported { op: "the exchange of gradients".into(), why })
    }

    /// What codes a bucket of gradients of these workers where it lies, for a device that does; none where the host must.
    fn coder(&self, _coding: &Coding, _workers: std::ops::Range<usize>) -> Result<Option<Box<dyn Coder<Self>>>, Error> {
        Ok(None)
    }

    /// The algorithms in use, where the device's libraries offer several for an operation.
    fn algorithms(&self) -> Option<Algorithms> {
        None
    }

    /// Uses these for what is planned from now on, as far as they are of such a device and run on it.
    fn adopt(&self, _algorithms: &Algorithms) {}

    /// Plans one operation.
    fn plan(&self, request: &Request<'_, Self>) -> Result<Box<dyn Planned<Self>>, Error>;

    /// Elements that a parameter takes, padding included.
    fn format_elems(&self, format: &Self::Format) -> usize;

    /// Turns a plain parameter (PyTorch's layout) into what its place in the arena is to hold. On the host, on any thread, like
    /// its inverse; an arena does the rest ([`Arena::pack`], [`Arena::unpack`]).
    fn pack(format: &Self::Format, plain: &[f32], packed: &mut [f32]) -> Result<(), Error>;

    /// Turns what a parameter's place holds back into its plain layout.
    fn unpack(format: &Self::Format, packed: &[f32], plain: &mut [f32]) -> Result<(), Error>;

    /// Copies a batch of images (plain NCHW) to the device.
    fn upload(&self, images: &[f32], to: &mut Self::Buf) -> Result<(), Error>;

    /// Makes a pass ready: the network's input in `to`, laid out as `desc` says, and all else that changes from pass to pass where
    /// the operations of this device look for it.
    fn begin(&self, start: &Start<'_>, _desc: &TensorDesc, to: &mut Self::Buf) -> Result<(), Error> {
        match start.images {
            Input::Values(images) => self.upload(images, to),
            Input::Bytes { .. } | Input::Kept { .. } => {
                let why = "this device takes images as values".into();
                Err(Error::Unsupported { op: "the network's input".into(), why })
            }
        }
    }

    /// Whether operations are enqueued and done later: then finished gradients leave when their whole pass is enqueued, and the
    /// device may be given images as bytes.
    fn queues(&self) -> bool {
        false
    }

    /// Starts the way of images to the device whose [`Backend::begin`] is likely the next one; they stay where they lie until then.
    /// A `begin` of other images forgets them.
    fn prefetch(&self, _images: &Input<'_>) -> Result<(), Error> {
        Ok(())
    }

    /// Brings pictures of one size (bytes, HWC) to the device for good, for [`Input::Kept`]; false where they do not fit.
    fn keep(&self, _pictures: &[u8], _height: usize, _width: usize) -> Result<bool, Error> {
        Ok(false)
    }

    /// Does `work`, or what it enqueued before under the same `key`: then the same memory is meant, and what else `work` reads
    /// was given to [`Backend::begin`] or [`Backend::begin_update`] before. `work` is not called, or once, or again where it cannot be recorded.
    fn repeat<E: From<Error>>(&self, _key: u64, work: &mut dyn FnMut() -> Result<(), E>) -> Result<(), E> {
        work()
    }

    /// Notes that the buffer is finished as far as this pass goes: copies of it to the host wait for all that was enqueued
    /// before, and for nothing that comes later.
    fn mark(&self, _buffer: &mut Self::Buf) -> Result<(), Error> {
        Ok(())
    }

    /// For a device that enqueues: the sums of the last [`Backend::cross_entropy`] that gave none (zeros, where there was none),
    /// once the device is through with all that was enqueued; the statistics of [`Planned::pool_statistics`] are there then,
    /// too. The loss is NaN if an update before it has left a parameter that is not finite.
    fn sums(&self) -> Result<LossSums, Error> {
        let why = "no sums are outstanding on this device".into();
        Err(Error::Unsupported { op: "cross-entropy".into(), why })
    }

    /// Copies a tensor to the host as plain NCHW.
    fn download(&self, desc: &TensorDesc, from: &Self::Buf) -> Result<Vec<f32>, Error>;

    /// `to = from`.
    fn copy(&self, to: &mut Self::Buf, from: &Self::Buf) -> Result<(), Error>;

    /// `to = 0`.
    fn zero(&self, to: &mut Self::Buf) -> Result<(), Error>;

    /// `to += from`.
    fn add(&self, to: &mut Self::Buf, from: &Self::Buf) -> Result<(), Error>;

    /// `to += from` of activations or their gradients.
    fn add_tensors(&self, to: &mut Self::Buf, from: &Self::Buf) -> Result<(), Error> {
        self.add(to, from)
    }

    /// `to *= factor`.
    fn scale(&self, to: &mut Self::Buf, factor: f32) -> Result<(), Error>;

    /// Looks at all gradients of a step before its updates: a device that scales its losses settles whether the step is left out.
    fn inspect(&self, _gradients: &[Self::Buf]) -> Result<(), Error> {
        Ok(())
    }

    /// The scale of the losses, where a device scales them, once it is through with all that was enqueued.
    fn loss_scale(&self) -> Result<Option<LossScale>, Error> {
        Ok(None)
    }

    /// Goes on with such a scale.
    fn set_loss_scale(&self, _scale: LossScale) -> Result<(), Error> {
        Ok(())
    }

    /// Makes an optimizer step ready: all that changes from one to the next. [`Backend::rates`], [`Backend::update`] and
    /// [`Backend::lerp`] are given the same, and a device that enqueues takes it from here; `average` is the weight of the last.
    fn begin_update(&self, _update: &Update, _average: f32) -> Result<(), Error> {
        Ok(())
    }

    /// Leaves the [`rates`](update::rates) of a step in `to`. Sums of squares are in f64, and in an order that does not depend on
    /// threads.
    fn rates(
        &self,
        norms: &Norms,
        update: &Update,
        weights: &Arena<Self>,
        gradients: &Arena<Self>,
        to: &mut Self::Buf,
    ) -> Result<(), Error>;

    /// One optimizer step over the parameter groups of a chunk by these [`rates`](update::rates); its `slots` are those of the rule, in its
    /// order. Tells whether all parameters are still finite, as far as is known by now (see [`Backend::sums`]).
    fn update(
        &self,
        update: &Update,
        groups: &[ParamGroup],
        rates: &Self::Buf,
        w: &mut Self::Buf,
        g: &Self::Buf,
        slots: &mut [&mut Self::Buf],
    ) -> Result<bool, Error>;

    /// Moves every value into [-limit, limit]; NaN stays NaN.
    fn clamp(&self, x: &mut Self::Buf, limit: f32) -> Result<(), Error>;

    /// `to += weight * (from - to)`.
    fn lerp(&self, to: &mut Self::Buf, from: &Self::Buf, weight: f32) -> Result<(), Error>;

    /// Softmax cross-entropy of (rows, classes) scores; with `dx`, also its gradient times `scale`. A device that enqueues takes
    /// `ask` from [`Backend::begin`] where it was given there, and gives the sums later, by [`Backend::sums`].
    fn cross_entropy(
        &self,
        desc: &TensorDesc,
        ask: CrossEntropy<'_>,
        x: &Self::Buf,
        dx: Option<&mut Self::Buf>,
    ) -> Result<Option<LossSums>, Error>;
}
