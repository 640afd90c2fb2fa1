//! A GPU and this process's context on it: name, compute capability, multiprocessors, memory and number of launches.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::text::plural;
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUdevice_attribute, CUgraphNodeType as Node};

use super::load::{Library, require, words};
use super::status::{checked, driver};
use crate::Error;

#[derive(Clone, Debug, PartialEq)]
pub struct Gpu {
    pub name: String,
    /// Major and minor compute capability.
    pub capability: (i32, i32),
    pub multiprocessors: u32,
    /// Bytes in total.
    pub memory: usize,
    /// Unique for each GPU, and for each part of a GPU (MIG).
    pub uuid: [u8; 16],
    /// The PCI address, which all parts of a GPU share.
    pub bus: String,
}

/// The primary context of a GPU. A thread must bind it before use.
pub struct Context {
    device: sys::CUdevice,
    handle: Raw<sys::CUctx_st>,
    pub gpu: Gpu,
    pub launches: Launches,
}

thread_local! {
    /// The context that this thread bound last.
    static BOUND: Cell<sys::CUcontext> = const { Cell::new(std::ptr::null_mut()) };
}

/// Returns the number of GPUs that this process sees. Returns [`Error::Absent`] if there is no driver, and another error if
/// the driver does not start.
pub fn gpu_count() -> Result<usize, Error> {
    require(Library::Driver)?;
    match result::init() {
        // this is also the answer if CUDA_VISIBLE_DEVICES hides all GPUs
        Err(DriverError(sys::CUresult::CUDA_ERROR_NO_DEVICE)) => return Ok(0),
        Err(DriverError(sys::CUresult::CUDA_ERROR_STUB_LIBRARY)) => {
            let why = "the libcuda that was found is the stub of a CUDA toolkit, not NVIDIA's driver; remove the toolkit's folder \
                       `stubs` from LD_LIBRARY_PATH";
            return Err(Error::Absent { what: "CUDA".into(), why: why.into() });
        }
        started => checked(started, "cuInit", "the driver")?,
    }
    let count = checked(result::device::get_count(), "cuDeviceGetCount", "the number of GPUs")?;
    Ok(count.max(0) as usize)
}

fn attribute(device: sys::CUdevice, attribute: CUdevice_attribute) -> Result<i32, Error> {
    // SAFETY: the driver returned the device.
    checked(unsafe { result::device::get_attribute(device, attribute) }, "cuDeviceGetAttribute", "the GPU")
}

fn describe(device: sys::CUdevice) -> Result<Gpu, Error> {
    let name = checked(result::device::get_name(device), "cuDeviceGetName", "the GPU's name")?;
    let uuid = checked(result::device::get_uuid(device), "cuDeviceGetUuid_v2", "the GPU's UUID")?;
    // SAFETY: the driver returned the device.
    let memory = checked(unsafe { result::device::total_mem(device) }, "cuDeviceTotalMem_v2", "the GPU's memory")?;
    let major = attribute(device, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(device, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let multiprocessors = attribute(device, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
    let uuid = uuid.bytes.map(|b| b as u8);
    let mut bus = [0 as std::ffi::c_char; 32];
    // SAFETY: the driver returned the device, and writes a string of at most this length.
    let bus = unsafe {
        let status = sys::cuDeviceGetPCIBusId(bus.as_mut_ptr(), bus.len() as i32, device);
        driver(status, "cuDeviceGetPCIBusId", "the GPU's PCI address")?;
        words(bus.as_ptr())
    };
    Ok(Gpu { name, capability: (major, minor), multiprocessors: multiprocessors.max(1) as u32, memory, uuid, bus })
}

/// Returns the error for a GPU number that this process does not see.
fn unseen(ordinal: usize, count: usize) -> Error {
    let visible = match std::env::var("CUDA_VISIBLE_DEVICES") {
        Ok(list) => format!("CUDA_VISIBLE_DEVICES is \"{list}\""),
        Err(_) => "CUDA_VISIBLE_DEVICES is not set".into(),
    };
    let why = format!(
        "GPU {ordinal} was requested, but this process sees {}; {visible}; `nvidia-smi -L` lists all GPUs",
        plural(count, "GPU")
    );
    Error::Absent { what: "CUDA".into(), why }
}

/// Returns the GPU with this number among those in CUDA_VISIBLE_DEVICES.
fn device(ordinal: usize) -> Result<sys::CUdevice, Error> {
    let count = gpu_count()?;
    if ordinal >= count {
        return Err(unseen(ordinal, count));
    }
    checked(result::device::get(ordinal as i32), "cuDeviceGet", format!("GPU {ordinal}"))
}

/// Returns the properties of the GPU with this number in CUDA_VISIBLE_DEVICES, without opening it.
pub fn properties(ordinal: usize) -> Result<Gpu, Error> {
    describe(device(ordinal)?)
}

impl Context {
    /// Opens the GPU with this number among those in CUDA_VISIBLE_DEVICES and binds the context to this thread.
    pub fn open(ordinal: usize) -> Result<Arc<Self>, Error> {
        let device = device(ordinal)?;
        let gpu = describe(device)?;
        if gpu.capability < (7, 0) {
            let ((major, minor), name) = (gpu.capability, &gpu.name);
            let why = format!(
                "{name} has compute capability {major}.{minor}, but at least 7.0 is required; use --device cpu"
            );
            return Err(Error::Absent { what: "CUDA".into(), why });
        }
        // a thread that waits sleeps, so that loader threads can use its core
        let sleeps = sys::CUctx_flags_enum::CU_CTX_SCHED_BLOCKING_SYNC as u32;
        // SAFETY: the driver returned the device.
        let status = unsafe { sys::cuDevicePrimaryCtxSetFlags_v2(device, sleeps) };
        driver(status, "cuDevicePrimaryCtxSetFlags_v2", gpu.name.clone())?;
        // SAFETY: the driver returned the device. `drop` releases the context.
        let retained = unsafe { result::primary_ctx::retain(device) };
        let handle = Raw(checked(retained, "cuDevicePrimaryCtxRetain", gpu.name.clone())?);
        let context = Arc::new(Self { device, handle, gpu, launches: Launches::default() });
        context.bind()?;
        Ok(context)
    }

    /// Makes this the current context of the calling thread. Cheap if it already is.
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

    /// Waits for all work on all streams. Returns false if the GPU has failed. Call this before freeing memory, because
    /// the driver does not promise to wait for the work that uses the memory.
    pub fn is_idle_after_waiting(&self) -> bool {
        self.bind().is_ok() && result::ctx::synchronize().is_ok()
    }

    /// Returns free and total bytes.
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
        // SAFETY: `open` retained it. A failure at the end of the process has no effect.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

/// A pointer to a context, stream, event, module or function of the driver. The owner destroys the object.
#[derive(PartialEq, Eq)]
pub struct Raw<T>(pub *mut T);

// SAFETY: any thread that has bound their context may use the driver's objects, and the driver locks them. The owners
// bind the context before each call.
unsafe impl<T> Send for Raw<T> {}
// SAFETY: as for `Send`, the driver locks its objects.
unsafe impl<T> Sync for Raw<T> {}

// Number of kernels, copies and fills. Each costs the GPU a few microseconds, even if it is small.

/// Counts the launches on a GPU. A call of cuDNN or cuBLASLt counts as one launch. In a captured pass, each kernel of
/// such a call counts.
#[derive(Default)]
pub struct Launches {
    made: AtomicU64,
    recording: AtomicBool,
}

impl Launches {
    /// Adds launches, unless calls are being captured.
    pub fn add(&self, launches: u64) {
        if !self.recording.load(Ordering::Relaxed) {
            self.made.fetch_add(launches, Ordering::Relaxed);
        }
    }

    /// Sets whether the following calls are captured instead of executed.
    pub fn record(&self, on: bool) {
        self.recording.store(on, Ordering::Relaxed);
    }

    /// Returns the number of launches so far.
    pub fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }
}

/// Counts the kernels, copies and fills of a captured pass. Events cost almost nothing and are not counted.
///
/// # Safety
/// The graph must be alive.
pub unsafe fn launches_of_graph(graph: sys::CUgraph) -> Result<u64, Error> {
    let mut count = 0;
    // SAFETY: the graph is alive. Without an array the call only counts.
    let status = unsafe { sys::cuGraphGetNodes(graph, std::ptr::null_mut(), &mut count) };
    driver(status, "cuGraphGetNodes", "a recorded pass")?;
    let mut nodes = vec![std::ptr::null_mut(); count];
    // SAFETY: the array has room for `count` nodes.
    let status = unsafe { sys::cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count) };
    driver(status, "cuGraphGetNodes", "a recorded pass")?;
    let mut launches = 0;
    for node in nodes.into_iter().take(count) {
        // a plain number, because newer drivers may have types that are missing in cudarc's enum
        let mut kind = Node::CU_GRAPH_NODE_TYPE_EMPTY as u32;
        // SAFETY: the node belongs to the graph, which is alive. The enum in C is as wide as `u32`.
        let status = unsafe { sys::cuGraphNodeGetType(node, (&raw mut kind).cast()) };
        driver(status, "cuGraphNodeGetType", "a recorded pass")?;
        let counts =
            [Node::CU_GRAPH_NODE_TYPE_KERNEL, Node::CU_GRAPH_NODE_TYPE_MEMCPY, Node::CU_GRAPH_NODE_TYPE_MEMSET];
        launches += u64::from(counts.into_iter().any(|counted| counted as u32 == kind));
    }
    Ok(launches)
}
