//! Sums over all ranks with NCCL, from GPU to GPU. We look up NCCL's functions ourselves, because cudarc does not try
//! `libnccl.so.2`, the only name that NVIDIA's packages install. It is loaded only if at least two ranks sum on GPUs.
//!
//! The communicator does not block: a call that has to wait for other ranks returns `ncclInProgress`, and the caller
//! polls. Otherwise a rank that fails while the ranks join would make all others wait inside NCCL forever. This needs NCCL
//! 2.14. Older versions were only built for CUDA 11, which trireme does not support, so there is no fallback.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;
use std::thread::{sleep, yield_now};
use std::time::{Duration, Instant};

use super::device::Cuda;
use super::driver::library::nccl_version;
use super::driver::load::{Library, Loaded, loaded, words};
use super::driver::memory::CudaBuf;
use super::driver::stream::Stream;
use crate::{Collective, Error, Ready, Reduction};

/// Size in bytes of a communicator's id.
const ID: usize = 128;

/// The C type `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy)]
struct UniqueId([u8; ID]);

/// The C type `ncclComm_t`.
type Handle = *mut c_void;

/// `ncclSuccess` and `ncclInProgress`.
const SUCCESS: c_int = 0;
const IN_PROGRESS: c_int = 7;

/// The C type `ncclConfig_t` of NCCL 2.14. Later versions have more fields at the end. NCCL reads only the first `size`
/// bytes, and uses defaults for the other fields.
#[repr(C)]
struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    /// Padding in 2.14, which newer versions read as `cgaClusterSize`. It must contain NCCL's marker for a value that
    /// is not set.
    unset: c_int,
}

const _: () = assert!(size_of::<Config>() == 24 && std::mem::offset_of!(Config, blocking) == 16);

impl Config {
    fn without_blocking() -> Self {
        Self { size: size_of::<Self>(), magic: 0xcafe_beef, version: 21_400, blocking: 0, unset: c_int::MIN }
    }
}

/// Returns `ncclDataType_t`, `ncclRedOp_t` and the bytes per element.
fn numbers(reduction: Reduction) -> (c_int, c_int, usize) {
    const SUM: c_int = 0;
    const MAX: c_int = 2;
    match reduction {
        Reduction::SumI32 => (2, SUM, 4),
        Reduction::MaxU32 => (3, MAX, 4),
        Reduction::SumU64 => (5, SUM, 8),
        Reduction::SumF32 => (7, SUM, 4),
        Reduction::SumBf16 => (9, SUM, 2),
    }
}

type AllReduce = unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, Handle, *mut c_void) -> c_int;

/// The functions that we use, with their types since NCCL 2.14.
struct Functions {
    error: unsafe extern "C" fn(c_int) -> *const c_char,
    id: unsafe extern "C" fn(*mut UniqueId) -> c_int,
    join: unsafe extern "C" fn(*mut Handle, c_int, UniqueId, c_int, *mut Config) -> c_int,
    state: unsafe extern "C" fn(Handle, *mut c_int) -> c_int,
    allreduce: AllReduce,
    abort: unsafe extern "C" fn(Handle) -> c_int,
}

/// Loads the library and looks up its functions at the first call.
fn library() -> Result<&'static Functions, Error> {
    static FOUND: OnceLock<Functions> = OnceLock::new();
    if let Some(found) = FOUND.get() {
        return Ok(found);
    }
    let library = loaded(Library::Nccl)?;
    let lacks = || {
        let why =
            format!("{} lacks a function of NCCL 2.14; update NCCL, or use reduce.path = \"staged\"", library.words());
        Error::Absent { what: "NCCL".into(), why }
    };
    let functions = functions(library).ok_or_else(lacks)?;
    Ok(FOUND.get_or_init(|| functions))
}

fn functions(library: &Loaded) -> Option<Functions> {
    // SAFETY: the fields have the functions' types.
    unsafe {
        Some(Functions {
            error: library.find(c"ncclGetErrorString")?,
            id: library.find(c"ncclGetUniqueId")?,
            join: library.find(c"ncclCommInitRankConfig")?,
            state: library.find(c"ncclCommGetAsyncError")?,
            allreduce: library.find(c"ncclAllReduce")?,
            abort: library.find(c"ncclCommAbort")?,
        })
    }
}

impl Functions {
    /// Turns a failure status into an error. `stream` must be a stream of the GPU.
    fn check(&self, stream: &Stream, status: c_int, call: &'static str, op: &str) -> Result<(), Error> {
        if status == SUCCESS {
            return Ok(());
        }
        // SAFETY: the function takes a status and returns a constant string.
        let status = unsafe { words((self.error)(status)) };
        let foreign = Error::Foreign { library: "NCCL", call, op: op.into(), status };
        Err(stream.lost(call, op).unwrap_or(foreign))
    }
}

/// Names the communicator in errors.
const GROUP: &str = "the communicator of all ranks";

/// A rank that is ready to join a communicator.
pub struct Entry {
    library: &'static Functions,
    stream: Stream,
}

impl Entry {
    /// Returns an error if the library is missing.
    pub fn new(cuda: &Cuda) -> Result<Self, Error> {
        // on a stream with normal priority, sums would wait until computation leaves multiprocessors free
        Ok(Self { library: library()?, stream: Stream::urgent(cuda.shared.context())? })
    }
}

impl Ready<Cuda> for Entry {
    fn new_id(&self) -> Result<Vec<u8>, Error> {
        let mut id = UniqueId([0; ID]);
        // SAFETY: the pointer is valid for the call.
        let status = unsafe { (self.library.id)(&mut id) };
        self.library.check(&self.stream, status, "ncclGetUniqueId", GROUP)?;
        Ok(id.0.to_vec())
    }

    fn join(self: Box<Self>, id: &[u8], rank: usize, ranks: usize) -> Result<Box<dyn Collective<Cuda>>, Error> {
        let Self { library, stream } = *self;
        let Ok(id) = <[u8; ID]>::try_from(id) else {
            let (expected, got) = (format!("{ID} bytes"), id.len().to_string());
            return Err(Error::Size { op: "NCCL's id".into(), expected, got });
        };
        let mut ring = Ring { library, handle: std::ptr::null_mut(), stream };
        ring.stream.context().bind()?;
        let (id, ranks, rank) = (UniqueId(id), ranks as c_int, rank as c_int);
        // SAFETY: the pointers are valid for the call, and NCCL copies the configuration. `Ring::leave` frees the
        // communicator.
        let status = unsafe { (library.join)(&mut ring.handle, ranks, id, rank, &mut Config::without_blocking()) };
        let status = if status == IN_PROGRESS { SUCCESS } else { status };
        library.check(&ring.stream, status, "ncclCommInitRankConfig", GROUP)?;
        Ok(Box::new(ring))
    }
}

/// This rank's membership in a communicator.
struct Ring {
    library: &'static Functions,
    /// Null after `leave`.
    handle: Handle,
    stream: Stream,
}

// SAFETY: any thread may use a communicator, but only one at a time. `&mut self` guarantees that.
unsafe impl Send for Ring {}

/// Pause between two polls while a call is in progress. A sum is first polled for this time without pauses.
const PAUSE: Duration = Duration::from_millis(1);

/// Maximum time to wait for the last sums when the communicator is dropped. Other ranks need this rank's contribution
/// to these sums.
const LAST_SUMS: Duration = Duration::from_secs(10);

impl Ring {
    fn enqueue(&mut self, buffer: &mut CudaBuf, reduction: Reduction) -> Result<(), Error> {
        let (numbers, op, bytes) = numbers(reduction);
        buffer.wait_on(&self.stream)?;
        self.stream.context().bind()?;
        let (pointer, stream) = (buffer.address() as *mut c_void, self.stream.handle().cast());
        let (allreduce, elements) = (self.library.allreduce, buffer.bytes() / bytes);
        // SAFETY: the buffer holds that many elements and is borrowed exclusively. Work on it that was enqueued before or
        // is enqueued later is ordered by the waits between the streams.
        let status = unsafe { allreduce(pointer, pointer, elements, numbers, op, self.handle, stream) };
        if status == IN_PROGRESS {
            // An NCCL thread enqueues the sum, usually within 0.1 ms. If the host paused immediately, it would need more time
            // for a step's sums than the GPU. The watchdog reports a sum that is not enqueued in time.
            let since = Instant::now();
            while !self.is_ready()? {
                if since.elapsed() < PAUSE { yield_now() } else { sleep(PAUSE) }
            }
        } else {
            self.library.check(&self.stream, status, "ncclAllReduce", "a bucket of gradients")?;
        }
        buffer.come_after(&self.stream)
    }

    /// Aborts the communicator without waiting for its sums. If another rank is gone, the sums would never end.
    fn leave(&mut self) {
        let handle = std::mem::replace(&mut self.handle, std::ptr::null_mut());
        // if the GPU has failed, ncclCommAbort may never return
        if !handle.is_null() && self.stream.lost("ncclCommAbort", GROUP).is_none() {
            // SAFETY: `Entry` joined it, and it is left only once.
            unsafe { (self.library.abort)(handle) };
        }
    }
}

impl Collective<Cuda> for Ring {
    fn is_ready(&mut self) -> Result<bool, Error> {
        if self.handle.is_null() {
            // an earlier call failed, returned the error and left the communicator
            return Ok(false);
        }
        let mut state = SUCCESS;
        // SAFETY: the communicator was not left, and the pointer is valid for the call.
        let status = unsafe { (self.library.state)(self.handle, &mut state) };
        self.library.check(&self.stream, status, "ncclCommGetAsyncError", GROUP)?;
        match state {
            IN_PROGRESS => Ok(false),
            state => self.library.check(&self.stream, state, "ncclCommGetAsyncError", GROUP).map(|()| true),
        }
    }

    fn reduce(&mut self, buffer: &mut CudaBuf, reduction: Reduction) -> Result<(), Error> {
        let enqueued = self.enqueue(buffer, reduction);
        if enqueued.is_err() {
            // abort now, because freeing memory would wait for the unfinished sums
            self.leave();
        }
        enqueued
    }

    fn describe(&self) -> String {
        nccl_version().map_or_else(|e| e.to_string(), |version| format!("NCCL {version}"))
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let since = Instant::now();
        while !self.handle.is_null() && matches!(self.stream.is_done(), Ok(false)) && since.elapsed() < LAST_SUMS {
            sleep(PAUSE);
        }
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use cudarc::nccl::sys::{ncclConfig_t, ncclDataType_t as Type, ncclRedOp_t as Op, ncclResult_t, ncclUniqueId};

    use super::*;

    /// cudarc generates its declarations from NCCL's header.
    #[test]
    fn numbers_and_structures_are_those_of_the_header() {
        for (reduction, element, op) in [
            (Reduction::SumI32, Type::ncclInt32, Op::ncclSum),
            (Reduction::MaxU32, Type::ncclUint32, Op::ncclMax),
            (Reduction::SumU64, Type::ncclUint64, Op::ncclSum),
            (Reduction::SumF32, Type::ncclFloat32, Op::ncclSum),
            (Reduction::SumBf16, Type::ncclBfloat16, Op::ncclSum),
        ] {
            let (number, operation, _) = numbers(reduction);
            assert_eq!((number, operation), (element as c_int, op as c_int), "{reduction:?}");
        }
        let statuses = [ncclResult_t::ncclSuccess as c_int, ncclResult_t::ncclInProgress as c_int];
        assert_eq!([SUCCESS, IN_PROGRESS], statuses);
        assert_eq!(size_of::<UniqueId>(), size_of::<ncclUniqueId>());
        let own = [offset_of!(Config, magic), offset_of!(Config, version), offset_of!(Config, blocking)];
        let header =
            [offset_of!(ncclConfig_t, magic), offset_of!(ncclConfig_t, version), offset_of!(ncclConfig_t, blocking)];
        assert_eq!(own, header);
        assert_eq!(offset_of!(Config, unset), offset_of!(ncclConfig_t, cgaClusterSize));
    }
}
