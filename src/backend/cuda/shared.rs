//! What the operations of one backend share: the card, its queues, the kernels, the libraries' handles, work space, and the blocks
//! in which a pass finds what changes from one to the next.

use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;

use super::algorithms::Chosen;
use super::cublaslt::product as matmul;
use super::cudnn;
use super::driver::context::Context;
use super::driver::inlet::Inlet;
use super::driver::library;
use super::driver::memory::{CudaBuf, Queues};
use super::driver::pinned::Pinned;
use super::driver::stream::Stream;
use super::kernels::module::{Arg, Kernels, THREADS};
use super::pass::PassBlocks;
use super::settings::{Precision, Settings};
use crate::backend::Error;

/// Blocks of a grid for each multiprocessor; every kernel loops over what is left.
const BLOCKS: u32 = 8;

/// See the module.
pub struct Shared {
    pub queues: Arc<Queues>,
    pub settings: Settings,
    pub chosen: Chosen,
    kernels: Arc<Kernels>,
    cudnn: OnceCell<cudnn::Handle>,
    matmul: OnceCell<matmul::Handle>,
    /// One after another, operations use the same work space.
    scratch: RefCell<CudaBuf>,
    pub blocks: RefCell<PassBlocks>,
    pub lists: super::ops::update::Lists,
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
            chosen: Chosen::new(format!("{}, {libraries}", context.card.name)),
            kernels,
            cudnn: OnceCell::new(),
            matmul: OnceCell::new(),
            scratch: RefCell::default(),
            blocks: RefCell::new(blocks),
            lists: super::ops::update::Lists::default(),
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

    pub fn cudnn(&self) -> Result<&cudnn::Handle, Error> {
        if self.cudnn.get().is_none() {
            let handle = cudnn::Handle::new(self.stream())?;
            let _ = self.cudnn.set(handle);
        }
        self.cudnn.get().ok_or_else(|| impossible("cuDNN"))
    }

    pub fn matmul(&self) -> Result<&matmul::Handle, Error> {
        if self.matmul.get().is_none() {
            let _ = self.matmul.set(matmul::Handle::new()?);
        }
        self.matmul.get().ok_or_else(|| impossible("cuBLASLt"))
    }

    /// Memory of its own for an operation.
    pub fn alloc(&self, elems: usize, what: &str) -> Result<CudaBuf, Error> {
        CudaBuf::zeroed(&self.queues, elems, what)
    }

    /// Bytes that the host sees and kernels write.
    pub fn pinned<T: super::driver::pinned::Plain>(&self, len: usize, what: &str) -> Result<Pinned<T>, Error> {
        Pinned::new(self.context(), len, what)
    }

    /// A block that the host writes anew before each pass.
    pub fn inlet<T: super::driver::pinned::Plain>(&self, len: usize, what: &str) -> Result<Inlet<T>, Error> {
        Inlet::new(&self.queues, len, what)
    }

    /// Words that never change, on the card.
    pub fn constant(&self, words: &[u32], what: &str) -> Result<CudaBuf, Error> {
        let mut host = self.pinned(words.len(), what)?;
        host.as_mut_slice().copy_from_slice(words);
        let card = CudaBuf::unset(&self.queues, words.len(), what)?;
        host.send(words.len(), card.address(), self.stream())?;
        self.stream().wait()?;
        Ok(card)
    }

    /// f32 words that this many activations take.
    pub fn words(&self, elems: usize) -> usize {
        if self.settings.precision == Precision::F32 { elems } else { elems.div_ceil(2) }
    }

    /// Bytes of an activation.
    pub fn activation_bytes(&self) -> usize {
        if self.settings.precision == Precision::F32 { 4 } else { 2 }
    }

    /// Fails unless a buffer holds this many activations.
    pub fn holds(&self, buffer: &CudaBuf, elems: usize) -> Result<u64, Error> {
        buffer.check(0, self.words(elems))?;
        Ok(buffer.address())
    }

    /// Makes room in the common work space.
    pub fn reserve(&self, bytes: usize, what: &str) -> Result<(), Error> {
        let words = bytes.div_ceil(4);
        let mut scratch = self.scratch.borrow_mut();
        if crate::backend::Buffer::len(&*scratch) < words {
            // the old one goes first
            *scratch = CudaBuf::default();
            *scratch = CudaBuf::unset(&self.queues, words, &format!("work space of {what}"))?;
            self.moved.set(self.moved.get() + 1);
        }
        Ok(())
    }

    /// Where the common work space begins; what one operation leaves there means nothing to the next.
    pub fn scratch(&self) -> u64 {
        self.scratch.borrow().address()
    }

    /// Bytes of the common work space.
    pub fn scratch_bytes(&self) -> usize {
        4 * crate::backend::Buffer::len(&*self.scratch.borrow())
    }

    /// A grid for so many threads.
    pub fn grid(&self, threads: usize) -> (u32, u32) {
        let most = self.context().card.multiprocessors * BLOCKS;
        (threads.div_ceil(THREADS as usize).min(most as usize) as u32, 1)
    }

    /// A grid over a matrix (rows, channels) for the kernels of columns.cuh.
    pub fn column_grid(&self, rows: usize, channels: usize) -> (u32, u32) {
        let wide = 16 / self.activation_bytes();
        let columns = if channels.is_multiple_of(wide) { channels / wide } else { channels };
        let tile = columns.clamp(1, 32);
        let (tiles, lines) = (columns.div_ceil(tile), THREADS as usize / tile);
        let most = (self.context().card.multiprocessors * BLOCKS) as usize;
        // at least 16 rows a thread where there are so many, else the sums of blocks cost more than the blocks
        let splits = rows.div_ceil(lines * 16).min(most.div_ceil(tiles)).max(1);
        (tiles.min(most) as u32, splits as u32)
    }

    /// Enqueues a kernel.
    ///
    /// # Safety
    /// As for [`Kernels::launch`]: the caller has seen that the memory behind each address is large enough.
    pub unsafe fn launch(&self, name: &str, grid: (u32, u32), args: &[Arg]) -> Result<(), Error> {
        self.start()?;
        // SAFETY: as the caller promises.
        unsafe { self.kernels.launch(self.stream(), name, grid, args) }
    }

    /// Comes before anything that is enqueued to compute.
    pub fn start(&self) -> Result<(), Error> {
        self.context().bind()?;
        self.busy.set(true);
        if self.recording.get() { Ok(()) } else { self.queues.catch_up() }
    }

    /// Waits until the card is through with everything.
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
