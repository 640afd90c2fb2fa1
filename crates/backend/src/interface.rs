//! The trait that every backend implements. Features that only some devices have are separate traits, and `Backend` has
//! a method that returns each of them or `None`.

use std::ops::{AddAssign, Range, Sub};

use base::code_spec::CodeSpec;
use net::{Op, Shape};

use super::algorithms::{AlgorithmChoice, Implementations};
use super::error::Error;
use super::losses::{CrossEntropy, LossScaling, LossSums, SoftLoss};
use super::memory::{Arena, DeviceMemory, TensorDesc};
use super::planned::{Input, PassInput, PlanRequest, Planned, ShapedShortcut};
use super::queue::{Collectives, DeviceCodec, Queue};
use super::update::{Norms, ParamGroup, Units, Update};

/// A device with its memory and its computations.
pub trait Backend: DeviceMemory {
    /// Returns a line for the log: device, library, version, instruction set, threads.
    fn describe(&self) -> String;

    /// Returns the layout of the network's input.
    fn input(&self, n: usize, shape: Shape) -> TensorDesc {
        TensorDesc::plain(n, shape)
    }

    fn plan(&self, request: &PlanRequest<'_, Self>) -> Result<Box<dyn Planned<Self>>, Error>;

    /// Returns true if this shortcut needs no pass of its own, because the batch norms around it can do its work. In
    /// the forward pass, the norm after the shortcut reads its residual directly from the shortcut's input. In the
    /// backward pass, the norm before the shortcut adds the gradient of the shortcut's output to the gradient of its
    /// own output.
    fn reads_through(&self, _shortcut: &ShapedShortcut) -> bool {
        false
    }

    /// Copies a batch of images in NCHW order to the device.
    fn upload(&self, images: &[f32], to: &mut Self::Buf) -> Result<(), Error>;

    /// Copies a tensor to the host in NCHW order.
    fn download(&self, desc: &TensorDesc, from: &Self::Buf) -> Result<Vec<f32>, Error>;

    /// Prepares a pass: writes the network's input to `to` in the layout `desc`, and copies all other values that
    /// change between passes to where this device's operations read them.
    fn begin(&self, start: &PassInput<'_>, _desc: &TensorDesc, to: &mut Self::Buf) -> Result<(), Error> {
        match start.images {
            Input::Values(images) => self.upload(images, to),
            Input::Bytes { .. } | Input::Stored { .. } | Input::Kept { .. } | Input::Held(_) => {
                let why = "this device accepts images only as f32 values".into();
                Err(Error::Unsupported { op: "the network's input".into(), why })
            }
        }
    }

    /// Updates the device's other copies of the parameters, such as 16-bit ones. Must be called before the next pass if
    /// anything except [`Backend::update`] has changed or replaced the parameters.
    fn weights_changed(&self, _weights: &Arena<Self>) -> Result<(), Error> {
        Ok(())
    }

    /// Works like [`Backend::weights_changed`], for a second network that is not trained, such as averaged weights.
    /// Must be called before that network's next pass whenever its parameters have changed.
    fn untrained_weights_changed(&self, _weights: &Arena<Self>) -> Result<(), Error> {
        Ok(())
    }

    /// Completes a bucket of gradients when all operations that write it are done or enqueued. Until this call, the
    /// device may store the gradients elsewhere. The call may be skipped if [`Backend::update`] is next and nothing
    /// else reads the gradients. After that update, the gradients are undefined.
    fn gradients_done(&self, _bucket: usize, _gradients: &mut Self::Buf) -> Result<(), Error> {
        Ok(())
    }

    /// `to += from`, for activations or their gradients.
    fn add_tensors(&self, _desc: &TensorDesc, to: &mut Self::Buf, from: &Self::Buf) -> Result<(), Error> {
        self.add(to, from)
    }

    /// Returns true if the operation accepts this input in bf16, possibly by making a copy.
    fn reads_bf16(&self, _op: &Op, _input: usize) -> bool {
        false
    }

    /// Computes the softmax cross-entropy of (rows, classes) scores and, if `dx` is given, its gradient times `scale`.
    /// If the pass began with a loss, a device with a [`Queue`] uses the arguments of [`Backend::begin`] instead of
    /// `args`. It returns no sums here but later, from [`Queue::loss_sums`].
    fn cross_entropy(
        &self,
        desc: &TensorDesc,
        args: CrossEntropy<'_>,
        x: &Self::Buf,
        dx: Option<&mut Self::Buf>,
    ) -> Result<Option<LossSums>, Error>;

    /// Computes the loss of (rows, classes) scores with soft targets and, if `dx` is given, its gradient times `scale`.
    /// The targets have no device layout. A teacher's scores come with their own layout, which may differ from the
    /// layout of `x`. As in [`Backend::cross_entropy`], a device with a [`Queue`] uses labels, scale and targets of
    /// [`Backend::begin`] and returns no sums here.
    fn soft_loss(
        &self,
        desc: &TensorDesc,
        args: SoftLoss<'_>,
        x: &Self::Buf,
        teacher: Option<(&TensorDesc, &Self::Buf)>,
        dx: Option<&mut Self::Buf>,
    ) -> Result<Option<LossSums>, Error>;

    /// Writes a step's [`rates`](super::update::rates) to `to`. Sums of squares are f64, and their order does not
    /// depend on the number of threads.
    fn rates(
        &self,
        norms: &Norms,
        update: &Update,
        weights: &Arena<Self>,
        gradients: &Arena<Self>,
        to: &mut Self::Buf,
    ) -> Result<(), Error>;

    /// Applies adaptive gradient clipping to a bucket, see [`Units`]. Sums of squares are f64, and their order does not
    /// depend on the number of threads.
    fn limit_units(&self, units: &Units, w: &Self::Buf, g: &mut Self::Buf) -> Result<(), Error>;

    /// Performs an optimizer step on the parameter groups of a bucket with these [`rates`](super::update::rates).
    /// `slots` are the rule's slots, in order. Returns false if it is already known that a parameter is not finite (see
    /// [`Queue::loss_sums`]).
    fn update(
        &self,
        update: &Update,
        groups: &[ParamGroup],
        rates: &Self::Buf,
        w: &mut Self::Buf,
        g: &Self::Buf,
        slots: &mut [&mut Self::Buf],
    ) -> Result<bool, Error>;

    /// Returns the queue of a device that computes asynchronously, or `None` if every call returns with its result.
    fn queue(&self) -> Option<&dyn Queue<Self>> {
        None
    }

    /// Returns the cores, if the device computes with threads of this process.
    fn cores(&self) -> Option<&dyn Cores> {
        None
    }

    /// Returns the interface for sums over ranks that the devices compute themselves, or `None` if MPI must sum.
    fn collectives(&self) -> Option<&dyn Collectives<Self>> {
        None
    }

    /// Returns the device's codec for a bucket of these workers' gradients, or `None` if the host must encode.
    fn device_codec(
        &self,
        _spec: &CodeSpec,
        _workers: Range<usize>,
    ) -> Result<Option<Box<dyn DeviceCodec<Self>>>, Error> {
        Ok(None)
    }

    /// Returns how the device chooses algorithms, if its libraries offer several for an operation.
    fn algorithm_choice(&self) -> Option<&dyn AlgorithmChoice> {
        None
    }

    /// Returns the loss scaling, if the activations' type needs it.
    fn loss_scaling(&self) -> Option<&dyn LossScaling<Self>> {
        None
    }

    /// Returns an operation's implementations for measurements, if the device has several.
    fn implementations(&self) -> Option<&dyn Implementations<Self>> {
        None
    }
}

// For benchmarks: the cores of a CPU device, and how many parallel regions it has run.

/// Numbers of parallel regions. In a region, all threads run a loop together. The region ends when the last thread is
/// done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Regions {
    /// Number of parallel regions of our own loops.
    pub own: u64,
    /// Executions of a library's primitives. Each is at least one region.
    pub library: u64,
}

impl Regions {
    pub fn all(self) -> u64 {
        self.own + self.library
    }
}

impl AddAssign for Regions {
    fn add_assign(&mut self, other: Self) {
        self.own += other.own;
        self.library += other.library;
    }
}

impl Sub for Regions {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { own: self.own - other.own, library: self.library - other.library }
    }
}

/// The cores of a device that computes with threads of this process.
pub trait Cores {
    /// Returns the number of compute threads.
    fn threads(&self) -> usize;

    /// Returns the numbers of regions that the calling thread has started so far. With one thread, counts the regions
    /// that would run on two or more threads.
    fn regions(&self) -> Regions;

    /// Returns the seconds that an empty region takes.
    fn barrier(&self) -> f64;

    /// Measures multiply-adds in registers, with bf16 products if the device has them, otherwise in f32. Returns
    /// operations per second for all threads together. A multiply-add counts as two.
    fn peak(&self) -> f64;

    /// Returns the bytes per second that `threads` threads together read and write in arrays much larger than the
    /// caches. Two arrays are read and one is written.
    fn bandwidth(&self, threads: usize) -> Result<f64, Error>;
}
