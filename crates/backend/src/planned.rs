//! Planned operations: the request for a plan, and the inputs of a pass.

use std::ops::Range;

use loaders::order::worker_positions;
use loaders::{CropRect, Dtype, Mix};
use net::{Op, Shape, Shortcut};

use super::across::Across;
use super::error::Error;
use super::losses::{CrossEntropy, SoftTargets};
use super::memory::{Arena, DeviceMemory, Slot, TensorDesc};
use crate::DrawKey;

/// Inputs of a pass besides the operation's tensors.
pub struct Pass<'a, B: DeviceMemory> {
    pub backend: &'a B,
    pub params: &'a Arena<B>,
    /// Slots of this operation's parameters, ordered like [`Planned::formats`].
    pub slots: &'a [Slot],
    /// This operation's running means, then its running variances.
    pub running: &'a [f32],
    /// Index of this operation's first running mean in [`PassInput::running`](super::PassInput::running).
    pub running_at: usize,
    /// True in training: batch statistics and dropout. False in evaluation: running statistics, no dropout.
    pub training: bool,
    /// True if this operation's parameters are frozen. Then backward does not write their gradients, and batch
    /// normalisation uses running statistics.
    pub frozen: bool,
    pub key: DrawKey<'a>,
    /// The group of ranks over which batch normalisation sums, or `None` if it uses only this rank's rows.
    pub across: Option<&'a dyn Across>,
}

impl<B: DeviceMemory> Pass<'_, B> {
    /// Returns true if batch normalisation uses the statistics of this batch.
    pub fn takes_statistics(&self) -> bool {
        self.training && !self.frozen
    }
}

/// The tensors of a forward pass that backward reads. All others may be freed before backward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keeps {
    /// Number of inputs, counted from the first.
    pub inputs: usize,
    pub output: bool,
}

impl Keeps {
    pub const ALL: Self = Self { inputs: usize::MAX, output: true };
    pub const NOTHING: Self = Self { inputs: 0, output: false };
    pub const INPUT: Self = Self { inputs: 1, output: false };
    pub const INPUTS: Self = Self { inputs: usize::MAX, output: false };
    pub const OUTPUT: Self = Self { inputs: 0, output: true };
}

/// The tensors of a backward pass.
pub struct Gradients<'a, B: DeviceMemory> {
    /// Inputs of the forward pass. An input is empty if [`Planned::tensors_for_backward`] does not include it.
    pub x: &'a [&'a B::Buf],
    /// Output of the forward pass, or empty if [`Planned::tensors_for_backward`] does not include it.
    pub y: &'a B::Buf,
    /// Gradient with respect to `y`. It may be overwritten, see [`Planned::input_with_gradient_in_dy`].
    pub dy: &'a mut B::Buf,
    /// A second gradient of `y` to add, only for operations that support it, see [`Planned::adds_two_gradients`].
    pub dy2: Option<&'a B::Buf>,
    /// Destinations of the inputs' gradients, in order. `None` for the input whose gradient overwrites `dy`, and for
    /// gradients that are not needed.
    pub dx: Vec<Option<&'a mut B::Buf>>,
    /// Destination of the parameters' gradients. This operation's slots are overwritten.
    pub dparams: &'a mut Arena<B>,
}

impl<'a, B: DeviceMemory> Gradients<'a, B> {
    /// Removes and returns the destination of an input's gradient.
    pub fn take_dx(&mut self, input: usize) -> Option<&'a mut B::Buf> {
        self.dx.get_mut(input)?.take()
    }
}

/// Bytes that the kernels of a training pass read and write: activations, their gradients and weights. A tensor counts
/// once for each kernel that accesses it, regardless of caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes in the forward pass.
    pub forward: usize,
    /// Bytes in the backward pass.
    pub backward: usize,
}

/// An operation planned for one batch size, with its primitives, layouts and private memory.
pub trait Planned<B: DeviceMemory> {
    /// Returns the layout of the output.
    fn output(&self) -> TensorDesc;

    /// Returns each parameter's memory format, ordered like [`OpSpec::params`](net::OpSpec::params).
    fn formats(&self) -> Vec<B::Format> {
        Vec::new()
    }

    /// Returns the bytes of private memory: statistics, masks, indices, workspace.
    fn state_bytes(&self) -> usize {
        0
    }

    /// Returns the names of the primitives that the operation uses, for tables.
    fn implementation(&self) -> String {
        B::LOOPS.into()
    }

    /// Returns the index of the input whose gradient `backward` writes over `dy`. `None` if it overwrites no `dy`.
    fn input_with_gradient_in_dy(&self) -> Option<usize> {
        None
    }

    /// Returns true if `forward` writes the output. If not, the only reader of the output gets this operation's first
    /// input instead, and computes the output while it reads.
    fn writes_output(&self) -> bool {
        true
    }

    /// Returns true if `backward` accepts two gradients of `y`, [`Gradients::dy`] and [`Gradients::dy2`], and adds them
    /// itself.
    fn adds_two_gradients(&self) -> bool {
        false
    }

    /// Returns the tensors of the forward pass that `backward` reads.
    fn tensors_for_backward(&self) -> Keeps {
        Keeps::ALL
    }

    /// Returns true if [`Planned::recompute`] works. It costs no more than reading the inputs and writing the output.
    fn can_recompute_output(&self) -> bool {
        false
    }

    /// Recomputes the output of the last forward pass from the same inputs. The result is bit-identical, and nothing
    /// else changes.
    fn recompute(&mut self, _pass: &Pass<'_, B>, _x: &[&B::Buf], _y: &mut B::Buf) -> Result<(), Error> {
        let why = "its output cannot be recomputed".into();
        Err(Error::Unsupported { op: self.implementation(), why })
    }

    /// Returns the traffic of a training pass, if it is known. `_second` tells whether `backward` adds a second
    /// gradient.
    fn traffic(&self, _second: bool) -> Option<Traffic> {
        None
    }

    fn forward(&mut self, pass: &Pass<'_, B>, x: &[&B::Buf], y: &mut B::Buf) -> Result<(), Error>;

    /// Computes the gradients. `forward` must have run for the same batch.
    fn backward(&mut self, pass: &Pass<'_, B>, g: Gradients<'_, B>) -> Result<(), Error>;

    /// For batch normalisation: adds this batch's `n d` and `M2 + n d^2` per channel to `_sums` (first all `n d`, then
    /// the others). Here d = batch mean - running mean and M2 = sum of squared deviations from the batch mean. Returns
    /// n.
    fn pool_statistics(&self, _running: &[f32], _sums: &mut [f64]) -> u64 {
        0
    }
}

/// A shortcut and the shape of its input.
#[derive(Clone, Copy, Debug)]
pub struct ShapedShortcut {
    pub shortcut: Shortcut,
    pub x: Shape,
}

/// Shortcuts that need no pass of their own, because a batch norm does their work. See
/// [`Backend::reads_through`](super::Backend::reads_through).
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadThrough {
    /// The shortcut whose input is passed as the residual.
    pub residual: Option<ShapedShortcut>,
    /// The shortcut whose output's gradient is passed as the second gradient.
    pub second: Option<ShapedShortcut>,
}

pub struct PlanRequest<'a, B: DeviceMemory> {
    /// Name of the node, for messages.
    pub name: &'a str,
    pub op: &'a Op,
    /// Logical shapes of the inputs. A flattened image is a vector.
    pub shapes: &'a [Shape],
    /// Memory layouts of the inputs.
    pub x: &'a [TensorDesc],
    /// Shortcuts that need no pass of their own, because this operation does their work. Used only by batch
    /// normalisation.
    pub through: ReadThrough,
    /// Number of groups into which batch normalisation divides the rows in training, see [`PlanRequest::norm_groups`].
    pub bn_groups: usize,
    /// State shared with the operation that produces the first input. Present only if this operation is the input's
    /// only reader and nothing reads the input after the pass.
    pub input_fusion: Option<&'a B::Fusion>,
    /// State shared with the reader of the output, under the same conditions.
    pub output_fusion: Option<&'a B::Fusion>,
    /// True if all readers of the output accept bf16, see [`Backend::reads_bf16`](super::Backend::reads_bf16), and
    /// nothing reads the output after the pass.
    pub may_write_bf16: bool,
    /// True if `backward` will be called.
    pub train: bool,
    /// True if the gradient of the first input is needed.
    pub wants_dx: bool,
    /// Formats that the parameters already have. `None` lets the operation choose.
    pub formats: Option<&'a [B::Format]>,
    /// Identifies this operation in the key for random draws.
    pub index: u16,
}

impl<'a, B: DeviceMemory> PlanRequest<'a, B> {
    /// Returns a request for training a single operation. It shares nothing with neighbours and chooses its parameters'
    /// formats.
    pub fn alone(name: &'a str, op: &'a Op, shapes: &'a [Shape], x: &'a [TensorDesc]) -> Self {
        Self {
            name,
            op,
            shapes,
            x,
            through: ReadThrough::default(),
            bn_groups: 1,
            input_fusion: None,
            output_fusion: None,
            may_write_bf16: false,
            train: true,
            wants_dx: true,
            formats: None,
            index: 0,
        }
    }

    /// Returns the row range of each group. Batch normalisation computes statistics per group. The rows are divided in
    /// the same way as a step is divided among workers. Groups without rows are left out.
    pub fn norm_groups(&self) -> impl Iterator<Item = Range<usize>> + use<B> {
        let (rows, groups) = (self.x[0].n, self.bn_groups);
        (0..groups).map(move |group| worker_positions(rows, group, groups)).filter(|rows| !rows.is_empty())
    }

    /// Returns the logical shape of the output.
    pub fn output(&self) -> Result<Shape, Error> {
        self.op.output(self.shapes).map_err(|why| Error::Unsupported { op: self.name.into(), why })
    }
}

/// The images of a pass on the host.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// One f32 per pixel and channel in NCHW order.
    Values(&'a [f32]),
    /// Pixels in NHWC order. Byte b of channel c has the value `tables[c][b]`.
    Bytes {
        pixels: &'a [u8],
        tables: &'a [[f32; 256]],
        /// How to mix the images with each other, if at all.
        mix: Option<Mix>,
    },
    /// Stored values that are not bytes, in NHWC order and little-endian. Value x of channel c becomes (x - mean) /
    /// deviation in f32.
    Stored {
        pixels: &'a [u8],
        dtype: Dtype,
        /// Mean and deviation of each channel.
        pairs: &'a [[f32; 2]],
        /// How to mix the images with each other, if at all.
        mix: Option<Mix>,
    },
    /// Crops of pictures that [`Queue::keep`](super::Queue::keep) has copied to the device.
    Kept {
        /// One crop per row of the batch.
        views: &'a [CropRect],
        /// One table per channel, as in `Bytes`. Pixels outside a picture are bytes of 0.
        tables: &'a [[f32; 256]],
        /// How to mix the images with each other, if at all.
        mix: Option<Mix>,
    },
    /// The batch that [`Queue::hold`](super::Queue::hold) has copied to the device. The value is its number of rows.
    Held(usize),
}

impl Input<'_> {
    /// Returns how the device must mix the images with each other, if at all.
    pub fn mix(&self) -> Option<Mix> {
        match self {
            Input::Bytes { mix, .. } | Input::Stored { mix, .. } | Input::Kept { mix, .. } => *mix,
            Input::Values(_) | Input::Held(_) => None,
        }
    }
}

/// Everything that differs between passes of the same kind. A device with a queue copies what its operations need to
/// fixed addresses, because [`Queue::repeat`](super::Queue::repeat) replays the operations with the same addresses.
#[derive(Clone, Copy, Debug)]
pub struct PassInput<'a> {
    /// One image per row.
    pub images: Input<'a>,
    /// True if the next pass on this device reads the same images, so that the device keeps its copy of them.
    pub images_again: bool,
    /// Key of the random draws, with a sample id per row.
    pub key: DrawKey<'a>,
    /// Arguments of the loss, or `None` if only scores are needed.
    pub loss: Option<CrossEntropy<'a>>,
    /// The targets, for a loss with soft targets. `loss` then has labels and scale.
    pub targets: Option<SoftTargets<'a>>,
    /// Running means and variances of all batch normalisations, see [`Pass::running_at`](super::Pass::running_at).
    pub running: &'a [f32],
    /// True if every batch normalisation uses the statistics of this batch, so that `running` is not read.
    pub training: bool,
}

// Plans made of closures. A closure can own device memory, which `state_bytes` then counts, but it cannot change a field. If a pass must
// change a field, implement [`Planned`] for a new type.

type Buf<B> = <B as DeviceMemory>::Buf;
type Forward<B> = dyn Fn(&Pass<'_, B>, &[&Buf<B>], &mut Buf<B>) -> Result<(), Error>;
type Backward<B> = dyn Fn(&Pass<'_, B>, Gradients<'_, B>) -> Result<(), Error>;

/// An operation planned for a fixed batch size: a closure for each pass, and what [`Planned`]'s other methods return.
pub struct ClosurePlan<B: DeviceMemory> {
    pub output: TensorDesc,
    pub formats: Vec<B::Format>,
    pub tensors_for_backward: Keeps,
    /// True if `backward` writes the first input's gradient over the output's gradient.
    pub in_place: bool,
    pub state_bytes: usize,
    pub traffic: Option<Traffic>,
    pub forward: Box<Forward<B>>,
    pub backward: Box<Backward<B>>,
}

impl<B: DeviceMemory> ClosurePlan<B> {
    /// Creates a plan without parameters and private memory. Its `backward` does not write over the output's gradient.
    pub fn new(
        output: TensorDesc,
        tensors_for_backward: Keeps,
        forward: impl Fn(&Pass<'_, B>, &[&Buf<B>], &mut Buf<B>) -> Result<(), Error> + 'static,
        backward: impl Fn(&Pass<'_, B>, Gradients<'_, B>) -> Result<(), Error> + 'static,
    ) -> Self {
        Self {
            output,
            formats: Vec::new(),
            tensors_for_backward,
            in_place: false,
            state_bytes: 0,
            traffic: None,
            forward: Box::new(forward),
            backward: Box::new(backward),
        }
    }
}

impl<B: DeviceMemory> Planned<B> for ClosurePlan<B> {
    fn output(&self) -> TensorDesc {
        self.output
    }

    fn formats(&self) -> Vec<B::Format> {
        self.formats.clone()
    }

    fn state_bytes(&self) -> usize {
        self.state_bytes
    }

    fn input_with_gradient_in_dy(&self) -> Option<usize> {
        self.in_place.then_some(0)
    }

    fn tensors_for_backward(&self) -> Keeps {
        self.tensors_for_backward
    }

    fn traffic(&self, _: bool) -> Option<Traffic> {
        self.traffic
    }

    fn forward(&mut self, pass: &Pass<'_, B>, x: &[&B::Buf], y: &mut B::Buf) -> Result<(), Error> {
        (self.forward)(pass, x, y)
    }

    fn backward(&mut self, pass: &Pass<'_, B>, g: Gradients<'_, B>) -> Result<(), Error> {
        (self.backward)(pass, g)
    }
}

/// Plans an element-wise operation without parameters from its first input's layout, which is the output's too, and its
/// two passes. `backward` writes the first input's gradient over the output's gradient.
pub fn elementwise<B: DeviceMemory>(
    x: TensorDesc,
    tensors_for_backward: Keeps,
    traffic: Option<Traffic>,
    forward: impl Fn(&Pass<'_, B>, &[&Buf<B>], &mut Buf<B>) -> Result<(), Error> + 'static,
    backward: impl Fn(&Pass<'_, B>, Gradients<'_, B>) -> Result<(), Error> + 'static,
) -> Result<Box<dyn Planned<B>>, Error> {
    let plan = ClosurePlan::new(x, tensors_for_backward, forward, backward);
    Ok(Box::new(ClosurePlan { in_place: true, traffic, ..plan }))
}

/// Plans an operation with one input and no parameters from its output's layout and its two passes. `forward(x, y)`
/// writes y. `backward(x, dy, dx)` writes dx, and its x is empty unless `tensors_for_backward` includes the input.
pub fn unary<B: DeviceMemory>(
    y: TensorDesc,
    tensors_for_backward: Keeps,
    forward: impl Fn(&Buf<B>, &mut Buf<B>) + 'static,
    backward: impl Fn(&Buf<B>, &Buf<B>, &mut Buf<B>) + 'static,
) -> Result<Box<dyn Planned<B>>, Error> {
    let forward = move |_: &Pass<'_, B>, x: &[&Buf<B>], y: &mut Buf<B>| {
        forward(x[0], y);
        Ok(())
    };
    let backward = move |_: &Pass<'_, B>, mut g: Gradients<'_, B>| {
        if let Some(dx) = g.take_dx(0) {
            backward(g.x[0], g.dy, dx);
        }
        Ok(())
    };
    Ok(Box::new(ClosurePlan::new(y, tensors_for_backward, forward, backward)))
}
