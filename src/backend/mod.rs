//! What a device must be able to do, and nothing about any device: memory, planned operations, the few passes over flat
//! arenas. [`mod@reference`] is the oracle in plain loops, [`cpu`] runs on oneDNN. `nn` decides what runs when.

mod across;
pub mod arena;
pub mod cpu;
mod error;
pub mod op;
pub mod reference;
pub mod tensor;
mod update;

pub use across::Across;
pub use arena::{Arena, Slot};
pub use error::Error;
use op::{Op, Shape};
pub use tensor::TensorDesc;
pub use update::{RmsProp, Rule, Stretch, Update};

/// Device memory of f32 elements. It can move to the thread that owns MPI and back.
pub trait Buffer: Send + Default + 'static {
    /// Elements.
    fn len(&self) -> usize;

    /// Whether it holds nothing.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements, where the host can address them.
    fn host(&self) -> Option<&[f32]>;

    /// The elements for writing, where the host can address them.
    fn host_mut(&mut self) -> Option<&mut [f32]>;
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

/// A device and the way it computes.
pub trait Backend: Sized + 'static {
    /// Its memory.
    type Buf: Buffer;
    /// How a parameter lies in memory.
    type Format: Clone + PartialEq + std::fmt::Debug + Send;

    /// Device, library, version, instruction set, threads: one line for the log.
    fn describe(&self) -> String;

    /// One more instance, with one thread, for a thread of its own: it knows the formats of all others and can unpack their
    /// memory meanwhile.
    fn aside() -> Result<Self, Error>;

    /// Zeroed memory.
    fn alloc(&self, elems: usize) -> Result<Self::Buf, Error>;

    /// Plans one operation.
    fn plan(&self, request: &Request<'_, Self>) -> Result<Box<dyn Planned<Self>>, Error>;

    /// Elements that a parameter takes, padding included.
    fn format_elems(&self, format: &Self::Format) -> usize;

    /// Writes a plain parameter (PyTorch's layout) into its place.
    fn pack(&self, format: &Self::Format, plain: &[f32], arena: &mut Arena<Self>, slot: Slot) -> Result<(), Error>;

    /// Reads a parameter back into its plain layout.
    fn unpack(&self, format: &Self::Format, arena: &Arena<Self>, slot: Slot, plain: &mut [f32]) -> Result<(), Error>;

    /// Copies a batch of images (plain NCHW) to the device.
    fn upload(&self, images: &[f32], to: &mut Self::Buf) -> Result<(), Error>;

    /// Copies a tensor to the host as plain NCHW.
    fn download(&self, desc: &TensorDesc, from: &Self::Buf) -> Result<Vec<f32>, Error>;

    /// `to += from`.
    fn add(&self, to: &mut Self::Buf, from: &Self::Buf) -> Result<(), Error>;

    /// `to *= factor`.
    fn scale(&self, to: &mut Self::Buf, factor: f32) -> Result<(), Error>;

    /// One optimizer step over the stretches of a chunk, whose `slots` are those of the rule, in its order; tells whether all
    /// parameters are still finite.
    fn update(
        &self,
        update: &Update,
        stretches: &[Stretch],
        w: &mut Self::Buf,
        g: &Self::Buf,
        slots: &mut [&mut Self::Buf],
    ) -> Result<bool, Error>;

    /// Sum of squares of each range, in f64 and in an order that does not depend on threads.
    fn squares(&self, x: &Self::Buf, ranges: &[std::ops::Range<usize>]) -> Result<Vec<f64>, Error>;

    /// Moves every value into [-limit, limit]; NaN stays NaN.
    fn clamp(&self, x: &mut Self::Buf, limit: f32) -> Result<(), Error>;

    /// `to += weight * (from - to)`.
    fn lerp(&self, to: &mut Self::Buf, from: &Self::Buf, weight: f32) -> Result<(), Error>;

    /// Softmax cross-entropy of (rows, classes) scores; with `dx`, also its gradient times `scale`.
    fn cross_entropy(
        &self,
        desc: &TensorDesc,
        ask: CrossEntropy<'_>,
        x: &Self::Buf,
        dx: Option<&mut Self::Buf>,
    ) -> Result<LossSums, Error>;
}
