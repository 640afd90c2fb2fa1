//! State that the operations of a backend share: the GPU, its streams, the kernels, the libraries' handles, workspace,
//! and the blocks with the values that change between passes.

use std::cell::{Cell, OnceCell, Ref, RefCell};
use std::sync::Arc;

use super::chosen::ChosenAlgorithms;
use super::cudnn::fastest::Fastest;
use super::driver::context::Context;
use super::driver::library;
use super::driver::memory::{CudaBuf, Inlet};
use super::driver::pinned::Pinned;
use super::driver::slice::{Activation, Plain, Slice};
use super::driver::stream::{Queues, Stream};
use super::kernels::kernel::{Geometry, Kernel};
use super::kernels::module::Kernels;
use super::pass::PassBlocks;
use super::settings::Settings;
use super::step::{PieceList, StepLists};
use super::{cublaslt, cudnn};
use crate::{Buffer, Error, Slot, Traffic};

/// State that the operations of a backend share.
pub struct Shared {
    pub queues: Arc<Queues>,
    pub settings: Settings,
    pub chosen: ChosenAlgorithms,
    kernels: Arc<Kernels>,
    /// The kernels for batch normalisation in groups, once they are needed.
    grouped: OnceCell<Kernels>,
    cudnn: OnceCell<cudnn::descriptor::Handle>,
    fastest: OnceCell<Fastest>,
    cublaslt: OnceCell<cublaslt::Handle>,
    /// Workspace. All operations share it, because they run one after another.
    scratch: RefCell<CudaBuf>,
    pub blocks: RefCell<PassBlocks>,
    pub lists: StepLists,
    pub narrow_params: RefCell<NarrowParams>,
    /// True while the computing stream is being captured.
    pub recording: Cell<bool>,
    /// See [`Shared::moved`].
    moved: Cell<u64>,
    /// True if anything was enqueued since the host last waited.
    busy: Cell<bool>,
}

impl Shared {
    pub fn new(context: &Arc<Context>, settings: Settings) -> Result<Self, Error> {
        let queues = Queues::new(context)?;
        let kernels = Arc::new(Kernels::load(context, settings.precision, false)?);
        let blocks = PassBlocks::new(&queues, settings.precision)?;
        let libraries = format!("cuDNN {}, cuBLASLt {}", library::cudnn_version(), library::cublaslt_version());
        Ok(Self {
            queues,
            settings,
            chosen: ChosenAlgorithms::new(format!("{}, {libraries}", context.gpu.name)),
            kernels,
            grouped: OnceCell::new(),
            cudnn: OnceCell::new(),
            fastest: OnceCell::new(),
            cublaslt: OnceCell::new(),
            scratch: RefCell::default(),
            blocks: RefCell::new(blocks),
            lists: StepLists::default(),
            narrow_params: RefCell::default(),
            recording: Cell::new(false),
            moved: Cell::new(0),
            busy: Cell::new(false),
        })
    }

    /// Returns the computing stream.
    pub fn stream(&self) -> &Stream {
        &self.queues.compute
    }

    pub fn context(&self) -> &Arc<Context> {
        self.queues.context()
    }

    /// Returns the kernels for use from another thread.
    pub fn kernels(&self) -> Arc<Kernels> {
        self.kernels.clone()
    }

    pub fn cudnn(&self) -> Result<&cudnn::descriptor::Handle, Error> {
        get_or_create(&self.cudnn, || cudnn::descriptor::Handle::new(self.stream()))
    }

    /// Returns the fastest known convolutions for this GPU. The first call reads their file.
    pub fn fastest(&self) -> &Fastest {
        self.fastest.get_or_init(|| Fastest::load(&self.context().gpu.name))
    }

    pub fn cublaslt(&self) -> Result<&cublaslt::Handle, Error> {
        get_or_create(&self.cublaslt, cublaslt::Handle::open)
    }

    /// Allocates private memory for an operation, filled with zeros.
    pub fn alloc(&self, elems: usize, what: &str) -> Result<CudaBuf, Error> {
        CudaBuf::zeroed(&self.queues, elems, what)
    }

    /// Allocates page-locked host memory that kernels can write.
    pub fn pinned<T: Plain>(&self, len: usize, what: &str) -> Result<Pinned<T>, Error> {
        Pinned::new(self.context(), len, what)
    }

    /// Allocates a block that the host writes before each pass.
    pub fn inlet<T: Plain>(&self, len: usize, what: &str) -> Result<Inlet<T>, Error> {
        Inlet::new(&self.queues, len, what)
    }

    /// Copies values that never change to the GPU.
    pub fn constant<T: Plain>(&self, values: &[T], what: &str) -> Result<CudaBuf, Error> {
        let mut host = self.pinned(values.len(), what)?;
        host.as_mut_slice().copy_from_slice(values);
        let device = CudaBuf::unset(&self.queues, size_of_val(values).div_ceil(4), what)?;
        host.send(device.slice().range(0, values.len())?, self.stream())?;
        self.stream().wait()?;
        Ok(device)
    }

    /// Returns the f32 words that `elems` activations need.
    pub fn words(&self, elems: usize) -> usize {
        (elems * self.settings.precision.bytes()).div_ceil(4)
    }

    /// Returns the bytes that the forward and the backward pass read and write, from the numbers of activations.
    pub fn traffic(&self, forward: usize, backward: usize) -> Traffic {
        let bytes = self.settings.precision.bytes();
        Traffic { forward: forward * bytes, backward: backward * bytes }
    }

    /// Returns the activations in a buffer. Returns an error if it has fewer than `elems`.
    pub fn holds<'a>(&self, buffer: &'a CudaBuf, elems: usize) -> Result<Slice<'a, Activation>, Error> {
        buffer.check(0, self.words(elems))?;
        Ok(buffer.activations(self.settings.precision))
    }

    /// Enlarges the shared workspace to at least `bytes`.
    pub fn reserve(&self, bytes: usize, what: &str) -> Result<(), Error> {
        let words = bytes.div_ceil(4);
        let mut scratch = self.scratch.borrow_mut();
        if scratch.len() < words {
            // free the old workspace first, so that both need not fit into memory
            *scratch = CudaBuf::default();
            *scratch = CudaBuf::unset(&self.queues, words, &format!("workspace of {what}"))?;
            self.note_moved(true);
        }
        Ok(())
    }

    /// Returns the shared workspace. Operations must not rely on its content.
    pub fn scratch(&self) -> Ref<'_, CudaBuf> {
        self.scratch.borrow()
    }

    /// Returns the bytes of the shared workspace.
    pub fn scratch_bytes(&self) -> usize {
        4 * self.scratch.borrow().len()
    }

    /// Returns the GPU's properties that grids depend on.
    pub fn geometry(&self) -> &Geometry {
        self.kernels.geometry()
    }

    pub fn launch(&self, kernel: &impl Kernel) -> Result<(), Error> {
        self.start()?;
        self.kernels.launch(self.stream(), kernel)
    }

    /// Launches a norm.cu kernel that divides the images into groups.
    pub fn launch_grouped(&self, kernel: &impl Kernel) -> Result<(), Error> {
        self.start()?;
        self.grouped()?.launch(self.stream(), kernel)
    }

    /// Returns the kernels for batch normalisation in groups. The first call compiles them.
    pub fn grouped(&self) -> Result<&Kernels, Error> {
        get_or_create(&self.grouped, || Kernels::load(self.context(), self.settings.precision, true))
    }

    /// Returns how often memory that a captured pass may use was moved or replaced.
    pub fn moved(&self) -> u64 {
        self.moved.get()
    }

    /// Notes that memory that a captured pass may use was moved or replaced, if `moved` is set.
    pub fn note_moved(&self, moved: bool) {
        self.moved.set(self.moved.get() + u64::from(moved));
    }

    /// Must be called before anything is enqueued on the computing stream.
    pub fn start(&self) -> Result<(), Error> {
        self.context().bind()?;
        self.busy.set(true);
        if self.recording.get() { Ok(()) } else { self.queues.catch_up() }
    }

    /// Sets whether calls are captured instead of executed.
    pub fn record(&self, on: bool) {
        self.recording.set(on);
        self.context().launches.record(on);
    }

    /// Waits until the GPU has finished all work on the computing stream.
    pub fn settle(&self) -> Result<(), Error> {
        if self.busy.replace(false) {
            self.stream().wait()?;
        }
        Ok(())
    }
}

/// Returns the value of a cell. The first call creates it.
fn get_or_create<T>(cell: &OnceCell<T>, create: impl FnOnce() -> Result<T, Error>) -> Result<&T, Error> {
    match cell.get() {
        Some(value) => Ok(value),
        None => create().map(|value| cell.get_or_init(|| value)),
    }
}

/// Parameters and their gradients in the activations' 16-bit type. They are arenas with the layout of the f32 arenas,
/// and [`ops::narrow_params`](super::ops::narrow_params) fills them. Empty if activations are f32.
#[derive(Default)]
pub struct NarrowParams {
    pub weights: Vec<NarrowBucket>,
    /// 16-bit weights of networks that are not trained.
    pub untrained: Vec<NarrowBucket>,
    /// One per bucket. Gradients that libraries write here are converted to f32.
    pub gradients: Vec<CudaBuf>,
    /// Parameters whose gradients currently exist only in 16 bits.
    pub open: Vec<Slot>,
    /// Per bucket, the list for the conversion of its gradients to f32.
    pub lists: Vec<Option<CastList>>,
}

impl NarrowParams {
    /// Returns the index of the bucket with these f32 weights, or `None` if it has no 16-bit copy.
    pub fn bucket(&self, weights: &CudaBuf) -> Option<usize> {
        self.weights.iter().position(|copy| copy.source == (weights.address(), weights.len()))
    }

    /// Removes and returns the parameters of a bucket whose gradients exist only in 16 bits, sorted by offset. The
    /// caller must process these gradients.
    pub fn take_open(&mut self, bucket: usize) -> Vec<Slot> {
        let mut open: Vec<Slot> = self.open.extract_if(.., |slot| slot.bucket == bucket).collect();
        open.sort_by_key(|slot| slot.offset);
        open
    }
}

/// A bucket of weights, copied to 16 bits.
pub struct NarrowBucket {
    /// Address and length of the f32 bucket.
    pub source: (u64, usize),
    pub values: CudaBuf,
}

/// Parameters of a bucket, divided into pieces for the kernel that converts their gradients to f32.
pub struct CastList {
    /// The parameters that the list was made for.
    pub of: Vec<Slot>,
    pub list: PieceList,
}
