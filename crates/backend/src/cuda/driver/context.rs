//! A GPU and this process's context on it: name, compute capability, multiprocessors, memory, and the number of launches.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUdevice_attribute, CUgraphNodeType as Node};

use super::load::{Library, require};
use super::status::{checked, driver};
use crate::Error;

/// The properties of a GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Gpu {
    /// As the driver names it.
    pub name: String,
    /// Compute capability.
    pub capability: (i32, i32),
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of its memory.
    pub memory: usize,
    /// Its UUID: no two GPUs have the same.
    pub uuid: [u8; 16],
}

/// The primary context of one GPU; it may be used from any thread that has bound it.
pub struct Context {
    device: sys::CUdevice,
    handle: Raw<sys::CUctx_st>,
    /// The GPU.
    pub gpu: Gpu,
    /// What was enqueued on it.
    pub launches: Launches,
}

thread_local! {
    /// The context that this thread has bound last.
    static BOUND: Cell<sys::CUcontext> = const { Cell::new(std::ptr::null_mut()) };
}

/// How many GPUs this process sees; fails where there is no driver.
pub fn gpu_count() -> Result<usize, Error> {
    require(Library::Driver)?;
    let started = result::init();
    if started == Err(DriverError(sys::CUresult::CUDA_ERROR_NO_DEVICE)) {
        // also where CUDA_VISIBLE_DEVICES hides them all
        return Ok(0);
    }
    checked(started, "cuInit", "the driver")?;
    let count = checked(result::device::get_count(), "cuDeviceGetCount", "the number of GPUs")?;
    Ok(count.max(0) as usize)
}

fn attribute(device: sys::CUdevice, attribute: CUdevice_attribute) -> Result<i32, Error> {
    // SAFETY: the device is one of the driver's.
    checked(unsafe { result::device::get_attribute(device, attribute) }, "cuDeviceGetAttribute", "the GPU")
}

fn describe(device: sys::CUdevice) -> Result<Gpu, Error> {
    let name = checked(result::device::get_name(device), "cuDeviceGetName", "the GPU's name")?;
    let uuid = checked(result::device::get_uuid(device), "cuDeviceGetUuid_v2", "the GPU's UUID")?;
    // SAFETY: the device is one of the driver's.
    let memory = checked(unsafe { result::device::total_mem(device) }, "cuDeviceTotalMem_v2", "the GPU's memory")?;
    let major = attribute(device, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(device, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let multiprocessors = attribute(device, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
    let uuid = uuid.bytes.map(|b| b as u8);
    Ok(Gpu { name, capability: (major, minor), multiprocessors: multiprocessors.max(1) as u32, memory, uuid })
}

/// The error for a GPU beyond those that this process sees.
fn unseen(ordinal: usize, count: usize) -> Error {
    let visible = match std::env::var("CUDA_VISIBLE_DEVICES") {
        Ok(list) => format!("CUDA_VISIBLE_DEVICES is \"{list}\""),
        Err(_) => "CUDA_VISIBLE_DEVICES is not set".into(),
    };
    let why = format!("GPU {ordinal} was requested, this process sees {count}; {visible}, `nvidia-smi -L` lists all");
    Error::Absent { what: "CUDA".into(), why }
}

impl Context {
    /// On the GPU of this number among those that CUDA_VISIBLE_DEVICES leaves, bound to this thread.
    pub fn open(ordinal: usize) -> Result<Arc<Self>, Error> {
        let count = gpu_count()?;
        if ordinal >= count {
            return Err(unseen(ordinal, count));
        }
        let device = checked(result::device::get(ordinal as i32), "cuDeviceGet", format!("GPU {ordinal}"))?;
        let gpu = describe(device)?;
        if gpu.capability < (7, 0) {
            let ((major, minor), name) = (gpu.capability, &gpu.name);
            let why =
                format!("{name} has compute capability {major}.{minor}, at least 7.0 is needed; use --device cpu");
            return Err(Error::Absent { what: "CUDA".into(), why });
        }
        // SAFETY: the device is one of the driver's; given back in `drop`.
        let retained = unsafe { result::primary_ctx::retain(device) };
        let handle = Raw(checked(retained, "cuDevicePrimaryCtxRetain", gpu.name.clone())?);
        let context = Arc::new(Self { device, handle, gpu, launches: Launches::default() });
        context.bind()?;
        Ok(context)
    }

    /// Makes it this thread's; cheap if it is already.
    pub fn bind(&self) -> Result<(), Error> {
        if BOUND.get() == self.handle.0 {
            return Ok(());
        }
        // SAFETY: the context lives as long as `self`.
        let bound = unsafe { result::ctx::set_current(self.handle.0) };
        checked(bound, "cuCtxSetCurrent", self.gpu.name.clone())?;
        BOUND.set(self.handle.0);
        Ok(())
    }

    /// Bytes that are free and bytes in all.
    pub fn memory(&self) -> Result<(usize, usize), Error> {
        self.bind()?;
        checked(result::mem_get_info(), "cuMemGetInfo_v2", "the GPU's memory")
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if BOUND.get() == self.handle.0 {
            BOUND.set(std::ptr::null_mut());
        }
        // SAFETY: retained by `open`; a failure at the end of the process changes nothing.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

/// A context, stream, event, module or function of the driver's. The owner destroys it.
#[derive(PartialEq, Eq)]
pub struct Raw<T>(pub *mut T);

// SAFETY: the driver's objects may be used from any thread that has bound their context, and the driver locks them; their owners bind
// the context before each call.
unsafe impl<T> Send for Raw<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Raw<T> {}

// How much the GPU is given to do: kernels, copies and fills, each of which costs it a few microseconds however small it is.

/// Those that were enqueued on a GPU so far. A call of cuDNN or cuBLASLt counts as one; in a recorded pass each of their kernels does.
#[derive(Default)]
pub struct Launches {
    made: AtomicU64,
    recording: AtomicBool,
}

impl Launches {
    /// So many more were enqueued; nothing that is only recorded is counted.
    pub fn add(&self, launches: u64) {
        if !self.recording.load(Ordering::Relaxed) {
            self.made.fetch_add(launches, Ordering::Relaxed);
        }
    }

    /// Whether calls are recorded from now on instead of done.
    pub fn record(&self, on: bool) {
        self.recording.store(on, Ordering::Relaxed);
    }

    /// All until now.
    pub fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }
}

/// The kernels, copies and fills of a recorded pass; events, which cost next to nothing, are left out.
///
/// # Safety
/// The graph must be alive.
pub unsafe fn launches_of_graph(graph: sys::CUgraph) -> Result<u64, Error> {
    let mut count = 0;
    // SAFETY: the graph lives; without an array the call only counts.
    let status = unsafe { sys::cuGraphGetNodes(graph, std::ptr::null_mut(), &mut count) };
    driver(status, "cuGraphGetNodes", "a recorded pass")?;
    let mut nodes = vec![std::ptr::null_mut(); count];
    // SAFETY: the array has room for `count` nodes.
    let status = unsafe { sys::cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count) };
    driver(status, "cuGraphGetNodes", "a recorded pass")?;
    let mut launches = 0;
    for node in nodes.into_iter().take(count) {
        // the number that it is in C: a newer driver may have types that this crate does not know
        let mut kind = Node::CU_GRAPH_NODE_TYPE_EMPTY as u32;
        // SAFETY: a node of the living graph, and a place for its type, which is as wide.
        let status = unsafe { sys::cuGraphNodeGetType(node, (&raw mut kind).cast()) };
        driver(status, "cuGraphNodeGetType", "a recorded pass")?;
        let counts =
            [Node::CU_GRAPH_NODE_TYPE_KERNEL, Node::CU_GRAPH_NODE_TYPE_MEMCPY, Node::CU_GRAPH_NODE_TYPE_MEMSET];
        launches += u64::from(counts.into_iter().any(|counted| counted as u32 == kind));
    }
    Ok(launches)
}
