//! What a device must be able to do, and nothing about any device: memory, planned operations, the few passes over flat
//! arenas. [`mod@reference`] is the oracle in plain loops, [`cpu`] runs on oneDNN. `nn` decides what runs when.

mod across;
mod algorithms;
pub mod arena;
mod coder;
pub mod cpu;
pub mod cuda;
mod error;
pub mod op;
pub mod reference;
pub mod tensor;
pub mod update;

pub use crate::coding::{Codes, Coding, Draw, Form, Moments, Whole};
use crate::region::Region;
pub use across::Across;
pub use algorithms::Algorithms;
pub use arena::{Arena, Slot};
pub use coder::Coder;
pub use error::Error;
use op::{Op, Shape};
pub use tensor::TensorDesc;
pub use update::{Norms, RmsProp, Rule, Stretch, Update};

/// Device memory of f32 elements. It can move to the thread that owns MPI and back.
///
/// Its elements come to the host by [`Buffer::fetch`], [`Buffer::staged`] and [`Buffer::unstage`], from any thread; where the
/// host can address them this is no copy at all. A device starts copies of its own and orders them: what it does with the buffer
/// next waits for them, and they wait for what was enqueued before its last [`Backend::mark`].
pub trait Buffer: Send + Default + 'static {
    /// Elements.
    fn len(&self) -> usize;

    /// Whether it holds nothing.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Tells memories that are alive at the same time apart: an address.
    fn place(&self) -> usize;

    /// The elements, where the host can address them.
    fn host(&self) -> Option<&[f32]>;

    /// Starts the way of the elements to the host, and does not wait.
    fn fetch(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// The elements on the host, where they are once [`Buffer::fetch`] has brought them: waits for that. Without a `fetch` what
    /// they are before the first write is not said.
    fn staged(&mut self) -> Result<&mut [f32], Error>;

    /// Starts the way of what [`Buffer::staged`] gave back to the device, and does not wait.
    fn unstage(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// The elements as a library may be given them that takes memory of this device, once all before the last
    /// [`Backend::mark`] is done: waits for that. None where the host can address them, or where no library can be given them.
    fn region(&mut self) -> Result<Option<Region<'_>>, Error> {
        Ok(None)
    }

    /// Copies elements from `first` on to the host, as many as there is room for, once all that was enqueued to change them is
    /// done. On another thread than the one that enqueues, a [`Backend::mark`] must have come after the last change.
    fn read(&self, first: usize, to: &mut [f32]) -> Result<(), Error>;

    /// Copies elements from the host to those from `first` on, and waits for them, as [`Buffer::read`] does.
    fn write(&mut self, first: usize, from: &[f32]) -> Result<(), Error>;
}

/// What identifies the random draws of a pass: they are functions of (seed, epoch, sample, op), of nothing else.
#[derive(Clone, Copy, Debug)]
pub struct DrawKey<'a> {
    /// The run's seed.
    pub seed: u64,
    /// Epoch of these samples.
    pub epoch: u32,
    /// Sample id of each row of the batch.
    pub ids: &'a [u64],
}

/// The images of a pass, as the host hands them over.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// Plain NCHW, ready for the first layer.
    Values(&'a [f32]),
    /// Pixels, channels side by side (NHWC); byte b of channel c is the value `tables[c][b]`.
    Bytes {
        /// N times H times W times C.
        pixels: &'a [u8],
        /// One a channel.
        tables: &'a [[f32; 256]],
    },
    /// Parts of pictures that [`Backend::keep`] has brought to the device.
    Kept {
        /// One a row.
        views: &'a [View],
        /// As for bytes; pixels outside a picture are bytes of 0.
        tables: &'a [[f32; 256]],
    },
}

/// A part of a kept picture, of the size that the network takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct View {
    /// Which picture.
    pub picture: u32,
    /// Row of the picture that becomes the first; outside of it below 0 and beyond its height.
    pub top: i32,
    /// Column of the picture that becomes the first (or, mirrored, the last).
    pub left: i32,
    /// 1: the columns run from right to left.
    pub mirrored: u32,
}

/// Everything that changes from one pass to the next of the same kind. A device keeps what its operations need of it in memory
/// of its own: [`Backend::repeat`] replays them.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// One image a row.
    pub images: Input<'a>,
    /// Keys of the random draws; its ids tell the number of rows.
    pub key: DrawKey<'a>,
    /// What the loss will be asked for; none where only scores are wanted.
    pub loss: Option<CrossEntropy<'a>>,
    /// Running means and variances of all batch normalisations, see [`Pass::running_at`].
    pub running: &'a [f32],
    /// As in [`Pass`].
    pub training: bool,
}

/// Everything a planned operation may read during a pass, beside its tensors.
pub struct Pass<'a, B: Backend> {
    /// The device.
    pub backend: &'a B,
    /// All parameters.
    pub params: &'a Arena<B>,
    /// Where this op's parameters lie, in the order of [`Planned::formats`].
    pub slots: &'a [Slot],
    /// Running means, then variances, of this op's channels.
    pub running: &'a [f32],
    /// First of them in [`Start::running`].
    pub running_at: usize,
    /// Batch statistics and dropout (true), or running statistics and none (false).
    pub training: bool,
    /// Keys of the random draws.
    pub key: DrawKey<'a>,
    /// The other ranks that hold a part of the batch, where batch normalisation spans them.
    pub across: Option<&'a dyn Across>,
}

/// The tensors of a backward pass.
pub struct Gradients<'a, B: Backend> {
    /// Inputs of the forward pass.
    pub x: &'a [&'a B::Buf],
    /// Its output.
    pub y: &'a B::Buf,
    /// Gradient with respect to `y`; may be overwritten, see [`Planned::alias`].
    pub dy: &'a mut B::Buf,
    /// A second summand of the gradient, only for ops that take it, see [`Planned::adds`].
    pub dy2: Option<&'a B::Buf>,
    /// Where the gradient of the one input that is not aliased goes, if anyone wants it.
    pub dx: Option<&'a mut B::Buf>,
    /// Where the parameters' gradients go; this op's ranges are overwritten.
    pub dparams: &'a mut Arena<B>,
}

/// One operation for one batch size: its primitives, layouts and private memory are settled.
pub trait Planned<B: Backend> {
    /// Layout of the output.
    fn output(&self) -> TensorDesc;

    /// Memory format of each parameter, in the order of [`Op::params`].
    fn formats(&self) -> Vec<B::Format>;

    /// Bytes of private memory: statistics, masks, indices, work space.
    fn state_bytes(&self) -> usize;

    /// Names of the primitives behind it, for tables.
    fn implementation(&self) -> String;

    /// The input whose gradient `backward` leaves in `dy`'s own memory.
    fn alias(&self) -> Option<usize> {
        None
    }

    /// Whether `backward` adds a second gradient of `y` by itself.
    fn adds(&self) -> bool {
        false
    }

    /// Computes `y` from `x`.
    fn forward(&mut self, pass: &Pass<'_, B>, x: &[&B::Buf], y: &mut B::Buf) -> Result<(), Error>;

    /// Computes the gradients; `forward` of the same batch came before.
    fn backward(&mut self, pass: &Pass<'_, B>, g: Gradients<'_, B>) -> Result<(), Error>;

    /// For batch normalisation: adds this batch's `n d` and `M2 + n d^2` per channel to `sums` (first all of the one, then of
    /// the other), where d = batch mean - running mean and M2 = sum of squared offsets from the batch mean; gives n.
    fn pool_statistics(&self, _running: &[f32], _sums: &mut [f64]) -> u64 {
        0
    }
}

/// What to plan.
pub struct Request<'a, B: Backend> {
    /// Name of the node, for messages.
    pub name: &'a str,
    /// The computation.
    pub op: &'a Op,
    /// Logical shape of the inputs (a flattened image is a vector).
    pub shapes: &'a [Shape],
    /// Layout of the inputs as they lie in memory.
    pub x: &'a [TensorDesc],
    /// Whether `backward` will be called.
    pub train: bool,
    /// Whether the gradient of the first input is wanted.
    pub wants_dx: bool,
    /// Formats that the parameters already have; `None` = choose.
    pub formats: Option<&'a [B::Format]>,
    /// Index that keys this op's random draws.
    pub index: u16,
}

/// What the loss asks for.
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropy<'a> {
    /// Class of each row.
    pub labels: &'a [u32],
    /// Weight spread evenly over all classes.
    pub smoothing: f32,
    /// Factor of the gradient: 1 / (true number of samples of the whole step).
    pub scale: f32,
}

/// Sums over the rows of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LossSums {
    /// Sum of the losses.
    pub loss: f64,
    /// Rows whose class has the highest score.
    pub top1: u64,
    /// Rows whose class is among the five highest scores.
    pub top5: u64,
    /// Rows.
    pub count: u64,
}

/// The factor of the losses of a device whose activations are of a type with a short range, and how it came to be.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LossScale {
    /// The factor.
    pub scale: f32,
    /// Good steps since it last grew.
    pub good: u32,
    /// Steps in a row, up to the last one, that were left out because a gradient was Inf or NaN.
    pub bad: u32,
    /// Steps that were left out in all.
    pub lost: u32,
}

impl LossScale {
    /// Below this, halving the scale has not helped: the values themselves are not finite.
    pub const LEAST: f32 = 1.0 / 1024.0;
}

/// A sum over all ranks that devices make among themselves, beside MPI.
pub trait Collective<B: Backend>: Send {
    /// Replaces the elements by their sums over all ranks, once all before the buffer's last [`Backend::mark`] is done; what the
    /// device does with it next waits. All ranks call it in the same order. In f32, the order of additions is its own.
    fn sum(&mut self, buffer: &mut B::Buf) -> Result<(), Error>;

    /// Library and version, for the log.
    fn describe(&self) -> String;
}

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

    /// Makes a pass ready: the network's input in `to`, laid out as `desc` says, and all else that changes from pass to pass where the operations of
    /// this device look for it.
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
    /// was given to [`Backend::begin`] or [`Backend::begin_update`] before. `work` is called once or not at all.
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
    /// too. The loss is NaN if an update before it has left a parameter that is not
    /// finite.
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

    /// One optimizer step over the stretches of a chunk by these [`rates`](update::rates); its `slots` are those of the rule, in its
    /// order. Tells whether all parameters are still finite, as far as is known by now (see [`Backend::sums`]).
    fn update(
        &self,
        update: &Update,
        stretches: &[Stretch],
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
