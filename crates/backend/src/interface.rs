//! The trait that every backend implements, and its questions: what only some devices can do is an extension trait behind one of them.

use std::ops::{AddAssign, Range, Sub};

use base::code_spec::CodeSpec;
use net::{Op, Shape};

use super::algorithms::AlgorithmChoice;
use super::algorithms::Implementations;
use super::error::Error;
use super::losses::LossScaling;
use super::losses::SoftLoss;
use super::losses::{CrossEntropy, LossSums};
use super::memory::Arena;
use super::memory::DeviceMemory;
use super::memory::TensorDesc;
use super::planned::{Input, PassInput};
use super::planned::{PlanRequest, Planned, ShortcutOf};
use super::queue::Collectives;
use super::queue::DeviceCodec;
use super::queue::Queue;
use super::update::{Norms, ParamGroup, Units, Update};

/// A device and the way it computes.
pub trait Backend: DeviceMemory {
    /// Device, library, version, instruction set, threads: one line for the log.
    fn describe(&self) -> String;

    /// Layout of the network's input.
    fn input(&self, n: usize, shape: Shape) -> TensorDesc {
        TensorDesc::plain(n, shape)
    }

    /// Plans one operation.
    fn plan(&self, request: &PlanRequest<'_, Self>) -> Result<Box<dyn Planned<Self>>, Error>;

    /// Whether batch normalisation can read its residual, and the second summand of its gradient, through this shortcut: then the shortcut
    /// needs no pass of its own.
    fn reads_through(&self, _shortcut: &ShortcutOf) -> bool {
        false
    }

    /// Copies a batch of images (plain NCHW) to the device.
    fn upload(&self, images: &[f32], to: &mut Self::Buf) -> Result<(), Error>;

    /// Copies a tensor to the host as plain NCHW.
    fn download(&self, desc: &TensorDesc, from: &Self::Buf) -> Result<Vec<f32>, Error>;

    /// Makes a pass ready: puts the network's input into `to` in the layout of `desc`, and everything else that changes from pass to
    /// pass where the operations of this device read it.
    fn begin(&self, start: &PassInput<'_>, _desc: &TensorDesc, to: &mut Self::Buf) -> Result<(), Error> {
        match start.images {
            Input::Values(images) => self.upload(images, to),
            Input::Bytes { .. } | Input::Kept { .. } | Input::Held(_) => {
                let why = "this device takes images as values".into();
                Err(Error::Unsupported { op: "the network's input".into(), why })
            }
        }
    }

    /// Makes anew what the device keeps of the parameters in another form. Comes before their next pass, after anything but
    /// [`Backend::update`] has changed them or put others in their place.
    fn weights_changed(&self, _weights: &Arena<Self>) -> Result<(), Error> {
        Ok(())
    }

    /// Makes what the device keeps in another form of the parameters of a network that only runs, beside the one that [`Backend::update`]
    /// changes. Comes before their next pass after anything has changed them.
    fn weights_kept(&self, _weights: &Arena<Self>) -> Result<(), Error> {
        Ok(())
    }

    /// Completes a chunk of gradients once all operations that write it are done or enqueued; before, they may be elsewhere. It is left out
    /// where [`Backend::update`] comes next and nothing else reads them: then they are of no use after that.
    fn gradients_done(&self, _chunk: usize, _gradients: &mut Self::Buf) -> Result<(), Error> {
        Ok(())
    }

    /// `to += from` of activations or their gradients.
    fn add_tensors(&self, _desc: &TensorDesc, to: &mut Self::Buf, from: &Self::Buf) -> Result<(), Error> {
        self.add(to, from)
    }

    /// Whether the operation may be given this input in bf16, which it copies if it must.
    fn reads_bf16(&self, _op: &Op, _input: usize) -> bool {
        false
    }

    /// Softmax cross-entropy of (rows, classes) scores; with `dx`, also its gradient times `scale`. A device with a [`Queue`] reads
    /// the arguments of [`Backend::begin`] instead of `ask` where the pass was begun with a loss; it returns no sums here but later, by
    /// [`Queue::loss_sums`].
    fn cross_entropy(
        &self,
        desc: &TensorDesc,
        ask: CrossEntropy<'_>,
        x: &Self::Buf,
        dx: Option<&mut Self::Buf>,
    ) -> Result<Option<LossSums>, Error>;

    /// Loss of (rows, classes) scores against targets, which are in no device's layout, and a teacher's scores, which are laid out as `x`;
    /// with `dx`, also its gradient times `scale`. As for [`Backend::cross_entropy`], a device with a [`Queue`] reads labels, scale and
    /// targets of [`Backend::begin`], and returns no sums here.
    fn soft_loss(
        &self,
        desc: &TensorDesc,
        ask: SoftLoss<'_>,
        x: &Self::Buf,
        teacher: Option<&Self::Buf>,
        dx: Option<&mut Self::Buf>,
    ) -> Result<Option<LossSums>, Error>;

    /// Writes the [`rates`](super::update::rates) of a step to `to`. Sums of squares are in f64, and in an order that does not depend
    /// on the number of threads.
    fn rates(
        &self,
        norms: &Norms,
        update: &Update,
        weights: &Arena<Self>,
        gradients: &Arena<Self>,
        to: &mut Self::Buf,
    ) -> Result<(), Error>;

    /// Adaptive clipping of a chunk's gradients. Sums of squares are in f64, and in an order that does not depend on the number of threads.
    fn limit_units(&self, units: &Units, w: &Self::Buf, g: &mut Self::Buf) -> Result<(), Error>;

    /// One optimizer step over the parameter groups of a chunk by these [`rates`](super::update::rates); its `slots` are those of the
    /// rule, in its order. Returns whether all parameters are still finite, as far as is known by now (see [`Queue::loss_sums`]).
    fn update(
        &self,
        update: &Update,
        groups: &[ParamGroup],
        rates: &Self::Buf,
        w: &mut Self::Buf,
        g: &Self::Buf,
        slots: &mut [&mut Self::Buf],
    ) -> Result<bool, Error>;

    /// The queue of a device that computes later than it is called; none where every call returns with its result.
    fn queue(&self) -> Option<&dyn Queue<Self>> {
        None
    }

    /// The cores of a device that computes with threads of this process.
    fn cores(&self) -> Option<&dyn Cores> {
        None
    }

    /// Sums over ranks by the devices themselves; none where MPI must sum.
    fn collectives(&self) -> Option<&dyn Collectives<Self>> {
        None
    }

    /// The codec of a bucket of these workers' gradients on the device; none where the host must code.
    fn device_codec(
        &self,
        _spec: &CodeSpec,
        _workers: Range<usize>,
    ) -> Result<Option<Box<dyn DeviceCodec<Self>>>, Error> {
        Ok(None)
    }

    /// The choice among algorithms, where the device's libraries offer several for an operation.
    fn algorithm_choice(&self) -> Option<&dyn AlgorithmChoice> {
        None
    }

    /// The scale of the losses, where the type of the activations needs one.
    fn loss_scaling(&self) -> Option<&dyn LossScaling<Self>> {
        None
    }

    /// All implementations of an operation, to be measured, where the device has several.
    fn implementations(&self) -> Option<&dyn Implementations<Self>> {
        None
    }
}

// What the cores behind a device can do, for benches, and how often the device brings its threads together.

/// Parallel regions: all threads start, and the region ends when the last one is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Regions {
    /// Loops of our own.
    pub own: u64,
    /// Executions of a library's primitives; each is one region at least.
    pub library: u64,
}

impl Regions {
    /// Both.
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
    /// Compute threads.
    fn threads(&self) -> usize;

    /// Regions of the calling thread so far; with one thread, those that several would have.
    fn regions(&self) -> Regions;

    /// Seconds of a region with nothing in it.
    fn barrier(&self) -> f64;

    /// Multiply-adds in registers, of bf16 where products are of pairs of them, else of f32: operations a second of all threads together,
    /// a multiply-add counted as two.
    fn peak(&self) -> f64;

    /// Bytes a second that so many of the threads together read and write in arrays far larger than caches (two read, one written).
    fn bandwidth(&self, threads: usize) -> Result<f64, Error>;
}
