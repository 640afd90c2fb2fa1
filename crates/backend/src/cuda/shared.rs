//! What the operations of one backend share: the GPU, its queues, the kernels, the libraries' handles, work space, and the blocks
//! in which a pass finds what changes from one to the next.

use std::cell::{Cell, OnceCell, Ref, RefCell};
use std::sync::Arc;

use super::device::Settings;
use super::driver::context::Context;
use super::driver::library;
use super::driver::memory::{Activation, CudaBuf, Plain, Slice};
use super::driver::pinned::{Inlet, Pinned};
use super::driver::stream::{Queues, Stream};
use super::kernels::kernel::{Geometry, Kernel};
use super::kernels::module::Kernels;
use super::pass::PassBlocks;
use super::step::StepLists;
use super::{cublaslt, cudnn};
use crate::{Algorithms, Buffer, Error, Slot, Traffic};

/// State that the operations of one backend share.
pub struct Shared {
    pub queues: Arc<Queues>,
    pub settings: Settings,
    pub chosen: Chosen,
    kernels: Arc<Kernels>,
    cudnn: OnceCell<cudnn::descriptor::Handle>,
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

/// The algorithms by which NVIDIA's libraries run operations: those in use, and those that another rank or an earlier start wants used.
pub struct Chosen {
    wanted: RefCell<Algorithms>,
    used: RefCell<Algorithms>,
}

impl Chosen {
    /// None yet, on this GPU with these libraries.
    pub fn new(on: String) -> Self {
        let none = Algorithms { on, ..Algorithms::default() };
        Self { wanted: RefCell::new(none.clone()), used: RefCell::new(none) }
    }

    /// Wants these used, if they are of such a GPU with such libraries.
    pub fn adopt(&self, wanted: &Algorithms) {
        if wanted.on == self.used.borrow().on {
            *self.wanted.borrow_mut() = wanted.clone();
        }
    }

    /// Those in use.
    pub fn used(&self) -> Algorithms {
        self.used.borrow().clone()
    }

    /// The algorithm of an operation: the one in use for it, else the one wanted, else a new choice. All numbers of images share one; a
    /// number `n` for which that does not run has one of its own. `made` prepares an algorithm, if it runs; its error ends the choice.
    pub fn get<T, E>(
        &self,
        of: &str,
        n: usize,
        made: impl Fn(&str) -> Result<Option<T>, E>,
        choose: impl FnOnce() -> Result<(String, T), E>,
    ) -> Result<T, E> {
        let for_n = format!("{of}, {n} images");
        for name in [of, &for_n] {
            let known = |from: &RefCell<Algorithms>| from.borrow().by_operation.get(name).cloned();
            let Some(algorithm) = known(&self.used).or_else(|| known(&self.wanted)) else { continue };
            if let Some(ready) = made(&algorithm)? {
                self.used.borrow_mut().by_operation.insert(name.into(), algorithm);
                return Ok(ready);
            }
        }
        let (algorithm, ready) = choose()?;
        let used = &mut self.used.borrow_mut().by_operation;
        let name = if used.contains_key(of) { &for_n } else { of };
        used.insert(name.into(), algorithm);
        Ok(ready)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wanted_algorithm_is_used_where_it_runs() {
        let get = |chosen: &Chosen, of: &str, n: usize, runs: &[&str]| {
            let made = |name: &str| Ok::<_, ()>(runs.contains(&name).then(|| name.to_string()));
            chosen.get(of, n, made, || Ok(("own".into(), "own".into()))).unwrap()
        };
        let wanted = |on: &str| Algorithms::parse(&format!("{on}\nfirst\ta\nfifth\ta, 5 images\nsecond\tb\n"));
        let chosen = Chosen::new("gpu".into());
        chosen.adopt(&wanted("another gpu"));
        assert_eq!(get(&chosen, "a", 9, &["first"]), "own");
        let chosen = Chosen::new("gpu".into());
        chosen.adopt(&wanted("gpu"));
        assert_eq!(get(&chosen, "a", 9, &["first"]), "first");
        assert_eq!(get(&chosen, "a", 5, &["fifth"]), "fifth");
        // where it does not run: there and only there
        assert_eq!(get(&chosen, "a", 3, &[]), "own");
        assert_eq!(get(&chosen, "a", 3, &["own"]), "own");
        assert_eq!(get(&chosen, "a", 9, &["first"]), "first");
        assert_eq!(wanted("gpu").differs(&chosen.used()), None);
        // never: another is used from then on
        assert_eq!(get(&chosen, "b", 9, &[]), "own");
        assert_eq!(get(&chosen, "b", 3, &["own"]), "own");
        assert_eq!(wanted("gpu").differs(&chosen.used()), Some(("b", 1)));
        let all = "gpu\nfirst\ta\nown\ta, 3 images\nfifth\ta, 5 images\nown\tb\n";
        assert_eq!(chosen.used().to_string(), all);
    }
    #[test]
    fn an_error_of_an_algorithm_ends_the_choice() {
        let chosen = Chosen::new("gpu".into());
        chosen.adopt(&Algorithms::parse("gpu\nfirst\ta\n"));
        let never = || -> Result<(String, ()), &str> { panic!("another algorithm was chosen") };
        assert_eq!(chosen.get("a", 9, |_| Err("the GPU is gone"), never), Err("the GPU is gone"));
    }
}
