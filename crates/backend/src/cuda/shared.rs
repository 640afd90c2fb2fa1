//! What the operations of one backend share: the GPU, its queues, the kernels, the libraries' handles, work space, and the blocks
//! in which a pass finds what changes from one to the next.

use std::cell::{Cell, OnceCell, Ref, RefCell};
use std::sync::Arc;

use super::chosen::Chosen;
use super::cudnn::fastest::Fastest;
use super::driver::context::Context;
use super::driver::library;
use super::driver::memory::CudaBuf;
use super::driver::memory::Inlet;
use super::driver::pinned::Pinned;
use super::driver::slice::{Activation, Plain, Slice};
use super::driver::stream::{Queues, Stream};
use super::kernels::kernel::{Geometry, Kernel};
use super::kernels::module::Kernels;
use super::pass::PassBlocks;
use super::settings::Settings;
use super::step::StepLists;
use super::{cublaslt, cudnn};
use crate::{Buffer, Error, Slot, Traffic};

/// State that the operations of one backend share.
pub struct Shared {
    pub queues: Arc<Queues>,
    pub settings: Settings,
    pub chosen: Chosen,
    kernels: Arc<Kernels>,
    cudnn: OnceCell<cudnn::descriptor::Handle>,
    /// The fastest convolutions that are known.
    fastest: OnceCell<Fastest>,
    cublaslt: OnceCell<cublaslt::Handle>,
    /// One after another, operations use the same work space.
    scratch: RefCell<CudaBuf>,
    pub blocks: RefCell<PassBlocks>,
    pub lists: StepLists,
    pub halves: RefCell<NarrowParams>,
    /// What the computing queue does is being recorded, not done.
    pub recording: Cell<bool>,
    /// Grows whenever memory moves that a recorded pass may know.
    pub moved: Cell<u64>,
    /// Something was enqueued since the host last waited.
    busy: Cell<bool>,
}

impl Shared {
    pub fn new(context: &Arc<Context>, settings: Settings) -> Result<Self, Error> {
        let queues = Queues::new(context)?;
        let kernels = Arc::new(Kernels::load(context, settings.precision)?);
        let blocks = PassBlocks::new(&queues, settings.precision)?;
        let libraries = format!("cuDNN {}, cuBLASLt {}", library::cudnn_version(), library::cublaslt_version());
        Ok(Self {
            queues,
            settings,
            chosen: Chosen::new(format!("{}, {libraries}", context.gpu.name)),
            kernels,
            cudnn: OnceCell::new(),
            fastest: OnceCell::new(),
            cublaslt: OnceCell::new(),
            scratch: RefCell::default(),
            blocks: RefCell::new(blocks),
            lists: StepLists::default(),
            halves: RefCell::default(),
            recording: Cell::new(false),
            moved: Cell::new(0),
            busy: Cell::new(false),
        })
    }

    /// The queue on which everything is computed.
    pub fn stream(&self) -> &Stream {
        &self.queues.compute
    }

    pub fn context(&self) -> &Arc<Context> {
        self.queues.context()
    }

    /// For whoever enqueues them from another thread.
    pub fn kernels(&self) -> Arc<Kernels> {
        self.kernels.clone()
    }

    pub fn cudnn(&self) -> Result<&cudnn::descriptor::Handle, Error> {
        if self.cudnn.get().is_none() {
            let handle = cudnn::descriptor::Handle::new(self.stream())?;
            let _ = self.cudnn.set(handle);
        }
        self.cudnn.get().ok_or_else(|| impossible("cuDNN"))
    }

    /// The fastest convolutions that are known for this GPU. The first call reads their file.
    pub fn fastest(&self) -> &Fastest {
        self.fastest.get_or_init(|| Fastest::load(&self.context().gpu.name))
    }

    pub fn cublaslt(&self) -> Result<&cublaslt::Handle, Error> {
        if self.cublaslt.get().is_none() {
            let _ = self.cublaslt.set(cublaslt::Handle::open()?);
        }
        self.cublaslt.get().ok_or_else(|| impossible("cuBLASLt"))
    }

    /// Memory of its own for an operation.
    pub fn alloc(&self, elems: usize, what: &str) -> Result<CudaBuf, Error> {
        CudaBuf::zeroed(&self.queues, elems, what)
    }

    /// Memory of the host that kernels write.
    pub fn pinned<T: Plain>(&self, len: usize, what: &str) -> Result<Pinned<T>, Error> {
        Pinned::new(self.context(), len, what)
    }

    /// A block that the host writes anew before each pass.
    pub fn inlet<T: Plain>(&self, len: usize, what: &str) -> Result<Inlet<T>, Error> {
        Inlet::new(&self.queues, len, what)
    }

    /// Values that never change, on the GPU.
    pub fn constant<T: Plain>(&self, values: &[T], what: &str) -> Result<CudaBuf, Error> {
        let mut host = self.pinned(values.len(), what)?;
        host.as_mut_slice().copy_from_slice(values);
        let device = CudaBuf::unset(&self.queues, size_of_val(values).div_ceil(4), what)?;
        host.send(device.slice().range(0, values.len())?, self.stream())?;
        self.stream().wait()?;
        Ok(device)
    }

    /// f32 words that this many activations take.
    pub fn words(&self, elems: usize) -> usize {
        (elems * self.settings.precision.bytes()).div_ceil(4)
    }

    /// What passes move that read and write so many activations.
    pub fn traffic(&self, forward: usize, backward: usize) -> Traffic {
        let bytes = self.settings.precision.bytes();
        Traffic { forward: forward * bytes, backward: backward * bytes }
    }

    /// The activations in a buffer; fails unless it holds this many.
    pub fn holds<'a>(&self, buffer: &'a CudaBuf, elems: usize) -> Result<Slice<'a, Activation>, Error> {
        buffer.check(0, self.words(elems))?;
        Ok(buffer.activations(self.settings.precision))
    }

    /// Makes room in the common work space.
    pub fn reserve(&self, bytes: usize, what: &str) -> Result<(), Error> {
        let words = bytes.div_ceil(4);
        let mut scratch = self.scratch.borrow_mut();
        if scratch.len() < words {
            // the old one goes first
            *scratch = CudaBuf::default();
            *scratch = CudaBuf::unset(&self.queues, words, &format!("work space of {what}"))?;
            self.moved.set(self.moved.get() + 1);
        }
        Ok(())
    }

    /// The common work space; what one operation leaves there means nothing to the next.
    pub fn scratch(&self) -> Ref<'_, CudaBuf> {
        self.scratch.borrow()
    }

    /// Bytes of the common work space.
    pub fn scratch_bytes(&self) -> usize {
        4 * self.scratch.borrow().len()
    }

    /// What grids on this GPU depend on.
    pub fn geometry(&self) -> &Geometry {
        self.kernels.geometry()
    }

    /// Enqueues a kernel.
    pub fn launch(&self, kernel: &impl Kernel) -> Result<(), Error> {
        self.start()?;
        self.kernels.launch(self.stream(), kernel)
    }

    /// Comes before anything that is enqueued to compute.
    pub fn start(&self) -> Result<(), Error> {
        self.context().bind()?;
        self.busy.set(true);
        if self.recording.get() { Ok(()) } else { self.queues.catch_up() }
    }

    /// From here on calls are recorded, or done again.
    pub fn record(&self, on: bool) {
        self.recording.set(on);
        self.context().launches.record(on);
    }

    /// Waits until the GPU is through with everything.
    pub fn settle(&self) -> Result<(), Error> {
        if self.busy.replace(false) {
            self.stream().wait()?;
        }
        Ok(())
    }
}

fn impossible(what: &str) -> Error {
    Error::Unsupported { op: what.into(), why: "it was not kept".into() }
}

/// Parameters and their gradients in the type of activations, where that is not f32: arenas in the layout of the f32 ones, which
/// [`ops::halves`](super::ops::halves) fills.
/// Empty where activations are f32.
#[derive(Default)]
pub struct NarrowParams {
    /// Chunk by chunk.
    pub weights: Vec<Half>,
    /// Those of networks that only run.
    pub kept: Vec<Half>,
    /// Chunk by chunk; what libraries leave there is brought to f32.
    pub gradients: Vec<CudaBuf>,
    /// Gradients that are in 16 bits alone, so far.
    pub open: Vec<Slot>,
    /// How those of each chunk are brought to f32.
    pub lists: Vec<Option<Pieces>>,
}

impl NarrowParams {
    /// Number of this chunk of weights; none where there are no copies of it.
    pub fn chunk(&self, weights: &CudaBuf) -> Option<usize> {
        self.weights.iter().position(|half| half.of == (weights.address(), weights.len()))
    }

    /// The parameters of a chunk whose gradients are in 16 bits alone, by their places. The caller sees to these gradients.
    pub fn take_open(&mut self, chunk: usize) -> Vec<Slot> {
        let mut open: Vec<Slot> = self.open.extract_if(.., |slot| slot.chunk == chunk).collect();
        open.sort_by_key(|slot| slot.offset);
        open
    }
}

/// A chunk of weights.
pub struct Half {
    /// Address and elements of the f32 ones.
    pub of: (u64, usize),
    pub values: CudaBuf,
}

/// Parameters of a chunk in pieces.
pub struct Pieces {
    /// What they were made of.
    pub of: Vec<Slot>,
    pub list: CudaBuf,
    pub count: usize,
    /// Elements that the chunk must hold.
    pub end: usize,
}
