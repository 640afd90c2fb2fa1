//! Planned operations: the request for a plan, and the inputs of its passes.

use loaders::Mix;
use net::{Op, Shape, Shortcut};

use super::across::Across;
use super::error::Error;
use super::losses::{CrossEntropy, SoftTargets};
use super::memory::{Arena, DeviceMemory, Slot, TensorDesc};
use crate::DrawKey;

/// Inputs of a pass beside the tensors of the operation.
pub struct Pass<'a, B: DeviceMemory> {
    /// The device.
    pub backend: &'a B,
    /// All parameters.
    pub params: &'a Arena<B>,
    /// Places of this op's parameters, in the order of [`Planned::formats`].
    pub slots: &'a [Slot],
    /// Running means, then variances, of this op's channels.
    pub running: &'a [f32],
    /// First of them in [`PassInput::running`](super::PassInput::running).
    pub running_at: usize,
    /// Batch statistics and dropout (true), or running statistics and none (false).
    pub training: bool,
    /// Whether none of this op's parameters is trained: backward leaves their gradients alone, and batch normalisation keeps to running
    /// statistics.
    pub frozen: bool,
    /// Keys of the random draws.
    pub key: DrawKey<'a>,
    /// The other ranks that hold a part of the batch, where batch normalisation spans them.
    pub across: Option<&'a dyn Across>,
}

impl<B: DeviceMemory> Pass<'_, B> {
    /// Whether batch normalisation takes the statistics of this batch.
    pub fn takes_statistics(&self) -> bool {
        self.training && !self.frozen
    }
}

/// Tensors of the forward pass that backward reads; all others may be gone by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keeps {
    /// So many of the inputs, the first ones.
    pub inputs: usize,
    /// The output.
    pub output: bool,
}

impl Keeps {
    /// Everything.
    pub const ALL: Self = Self { inputs: usize::MAX, output: true };
    /// Nothing.
    pub const NOTHING: Self = Self { inputs: 0, output: false };
    /// The first input.
    pub const INPUT: Self = Self { inputs: 1, output: false };
    /// All inputs.
    pub const INPUTS: Self = Self { inputs: usize::MAX, output: false };
    /// The output alone.
    pub const OUTPUT: Self = Self { inputs: 0, output: true };
}

/// The tensors of a backward pass.
pub struct Gradients<'a, B: DeviceMemory> {
    /// Inputs of the forward pass; empty where [`Planned::keeps`] does not name them.
    pub x: &'a [&'a B::Buf],
    /// Its output; empty likewise.
    pub y: &'a B::Buf,
    /// Gradient with respect to `y`; may be overwritten, see [`Planned::alias`].
    pub dy: &'a mut B::Buf,
    /// A second summand of the gradient, only for ops that take it, see [`Planned::adds`].
    pub dy2: Option<&'a B::Buf>,
    /// Destination of each input's gradient, in their order; none for the aliased one, and where none is wanted.
    pub dx: Vec<Option<&'a mut B::Buf>>,
    /// Destination of the parameters' gradients; this op's ranges are overwritten.
    pub dparams: &'a mut Arena<B>,
}

impl<'a, B: DeviceMemory> Gradients<'a, B> {
    /// Takes out the destination of an input's gradient.
    pub fn take_dx(&mut self, input: usize) -> Option<&'a mut B::Buf> {
        self.dx.get_mut(input)?.take()
    }
}

/// Bytes of activations, their gradients and weights that the kernels of a training pass read and write: every tensor once for each kernel
/// that touches it, whatever caches make of that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Of the forward pass.
    pub forward: usize,
    /// Of the backward pass.
    pub backward: usize,
}

/// One operation for one batch size, with its primitives, layouts and private memory.
pub trait Planned<B: DeviceMemory> {
    /// Layout of the output.
    fn output(&self) -> TensorDesc;

    /// Memory format of each parameter, in the order of [`OpSpec::params`](net::OpSpec::params).
    fn formats(&self) -> Vec<B::Format>;

    /// Bytes of private memory: statistics, masks, indices, work space.
    fn state_bytes(&self) -> usize;

    /// Names of the primitives behind it, for tables.
    fn implementation(&self) -> String;

    /// The input whose gradient `backward` leaves in `dy`'s own memory.
    fn alias(&self) -> Option<usize> {
        None
    }

    /// Whether `forward` writes the output. If not, the operation that alone reads it is given this one's first input in its place, and
    /// computes the output as it reads that.
    fn writes(&self) -> bool {
        true
    }

    /// Whether `backward` adds a second gradient of `y` by itself.
    fn adds(&self) -> bool {
        false
    }

    /// What `backward` reads of the forward pass.
    fn keeps(&self) -> Keeps {
        Keeps::ALL
    }

    /// Whether [`Planned::recompute`] makes the output anew, at no more than the cost of reading the inputs and writing it.
    fn recomputes(&self) -> bool {
        false
    }

    /// Makes the output of the last forward pass anew from the same inputs, bit for bit, and changes nothing else.
    fn recompute(&mut self, _pass: &Pass<'_, B>, _x: &[&B::Buf], _y: &mut B::Buf) -> Result<(), Error> {
        let why = "its output is not made anew".into();
        Err(Error::Unsupported { op: self.implementation(), why })
    }

    /// What a training pass moves, where it was counted; `second`: `backward` adds a second gradient.
    fn traffic(&self, _second: bool) -> Option<Traffic> {
        None
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

/// A shortcut, and the shape of its input.
#[derive(Clone, Copy, Debug)]
pub struct ShortcutOf {
    /// The operation.
    pub shortcut: Shortcut,
    /// What it reads.
    pub x: Shape,
}

/// Shortcuts that batch normalisation reads through, since they have no pass of their own, see
/// [`Backend::reads_through`](super::Backend::reads_through).
#[derive(Clone, Copy, Debug, Default)]
pub struct Through {
    /// The residual is given as this shortcut's input.
    pub residual: Option<ShortcutOf>,
    /// The second summand of the gradient is given as the gradient of this shortcut's output.
    pub second: Option<ShortcutOf>,
}

/// A request for a plan.
pub struct PlanRequest<'a, B: DeviceMemory> {
    /// Name of the node, for messages.
    pub name: &'a str,
    /// The computation.
    pub op: &'a Op,
    /// Logical shape of the inputs (a flattened image is a vector).
    pub shapes: &'a [Shape],
    /// Memory layout of the inputs.
    pub x: &'a [TensorDesc],
    /// Only of batch normalisation.
    pub through: Through,
    /// Where this operation alone reads its first input, and no other after the pass: what it shares with the one that makes it.
    pub before: Option<&'a B::Fusion>,
    /// The same of its output: what it shares with the operation that alone reads it.
    pub behind: Option<&'a B::Fusion>,
    /// Whether all who read its output take it in bf16, see [`Backend::reads_bf16`](super::Backend::reads_bf16), and nobody reads it after
    /// the pass.
    pub may_narrow: bool,
    /// Whether `backward` will be called.
    pub train: bool,
    /// Whether the gradient of the first input is wanted.
    pub wants_dx: bool,
    /// Formats that the parameters already have; `None` = choose.
    pub formats: Option<&'a [B::Format]>,
    /// Index that keys this op's random draws.
    pub index: u16,
}

impl<'a, B: DeviceMemory> PlanRequest<'a, B> {
    /// For training an operation by itself: it shares nothing with neighbours, and chooses its parameters' formats.
    pub fn alone(name: &'a str, op: &'a Op, shapes: &'a [Shape], x: &'a [TensorDesc]) -> Self {
        Self {
            name,
            op,
            shapes,
            x,
            through: Through::default(),
            before: None,
            behind: None,
            may_narrow: false,
            train: true,
            wants_dx: true,
            formats: None,
            index: 0,
        }
    }

    /// Logical shape of the output.
    pub fn output(&self) -> Result<Shape, Error> {
        self.op.output(self.shapes).map_err(|why| Error::Unsupported { op: self.name.into(), why })
    }
}

// The inputs of a pass: images, keys of the random draws, labels, statistics.

/// The images of a pass on the host.
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
        /// How the values are mixed with each other, if they are.
        mix: Option<Mix>,
    },
    /// Crops of pictures that [`Queue::keep`](super::Queue::keep) has copied to the device.
    Kept {
        /// One a row.
        views: &'a [CropRect],
        /// As for bytes; pixels outside a picture are bytes of 0.
        tables: &'a [[f32; 256]],
        /// As for bytes.
        mix: Option<Mix>,
    },
    /// The batch that [`Queue::hold`](super::Queue::hold) has copied to the device, of so many rows.
    Held(usize),
}

impl Input<'_> {
    /// How the device is to mix the images with each other, if it is.
    pub fn mix(&self) -> Option<Mix> {
        match self {
            Input::Bytes { mix, .. } | Input::Kept { mix, .. } => *mix,
            Input::Values(_) | Input::Held(_) => None,
        }
    }
}

/// A crop of a kept picture, of the size of the network's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CropRect {
    /// Which picture.
    pub picture: u32,
    /// Row of the picture that becomes the first; outside of it below 0 and beyond its height.
    pub top: i32,
    /// Column of the picture that becomes the first (or, mirrored, the last).
    pub left: i32,
    /// 1: the columns run from right to left.
    pub mirrored: u32,
}

/// Everything that differs between passes of the same kind. A device with a queue copies what its operations
/// need to fixed places: [`Queue::repeat`](super::Queue::repeat) replays them.
#[derive(Clone, Copy, Debug)]
pub struct PassInput<'a> {
    /// One image a row.
    pub images: Input<'a>,
    /// Keys of the random draws; one id per row.
    pub key: DrawKey<'a>,
    /// Arguments of the loss; none if only scores are wanted.
    pub loss: Option<CrossEntropy<'a>>,
    /// Targets, where the loss is one against targets; `loss` then says labels and scale.
    pub targets: Option<SoftTargets<'a>>,
    /// Running means and variances of all batch normalisations, see [`Pass::running_at`](super::Pass::running_at).
    pub running: &'a [f32],
    /// Whether every batch normalisation takes the statistics of this batch, so that `running` is not read.
    pub training: bool,
}
