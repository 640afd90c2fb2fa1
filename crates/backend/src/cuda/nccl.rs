//! Sums over all ranks with NCCL, from GPU to GPU. We look up NCCL's functions ourselves, because cudarc does not try
//! `libnccl.so.2`, the only name that NVIDIA's packages install. The library is only needed if a run requests it.

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use super::device::Cuda;
use super::driver::library::nccl_version;
use super::driver::load::Loaded;
use super::driver::load::{Library, loaded, words};
use super::driver::memory::CudaBuf;
use super::driver::stream::Stream;
use crate::{Buffer, Collective, Error, Ready};

/// Size in bytes of a communicator's id.
const ID: usize = 128;

/// The C type `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy)]
struct UniqueId([u8; ID]);

/// The C type `ncclComm_t`.
type Handle = *mut c_void;

/// `ncclFloat32` and `ncclSum`.
const FLOAT: c_int = 7;
const SUM: c_int = 0;

/// The functions that we use, with their types since NCCL 2.0.
struct Functions {
    error: unsafe extern "C" fn(c_int) -> *const c_char,
    id: unsafe extern "C" fn(*mut UniqueId) -> c_int,
    join: unsafe extern "C" fn(*mut Handle, c_int, UniqueId, c_int) -> c_int,
    allreduce: unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, Handle, *mut c_void) -> c_int,
    abort: unsafe extern "C" fn(Handle) -> c_int,
}

/// Loads the library and looks up its functions at the first call.
fn library() -> Result<&'static Functions, Error> {
    static FOUND: OnceLock<Functions> = OnceLock::new();
    if let Some(found) = FOUND.get() {
        return Ok(found);
    }
    let library = loaded(Library::Nccl)?;
    let lacks =
        || Error::Absent { what: "NCCL".into(), why: format!("{} lacks a function of NCCL 2", library.words()) };
    let functions = functions(library).ok_or_else(lacks)?;
    Ok(FOUND.get_or_init(|| functions))
}

fn functions(library: &Loaded) -> Option<Functions> {
    // SAFETY: the fields have the functions' types.
    unsafe {
        Some(Functions {
            error: library.find(c"ncclGetErrorString")?,
            id: library.find(c"ncclGetUniqueId")?,
            join: library.find(c"ncclCommInitRank")?,
            allreduce: library.find(c"ncclAllReduce")?,
            abort: library.find(c"ncclCommAbort")?,
        })
    }
}

impl Functions {
    /// Turns a failure status into an error. `stream` must be a stream of the GPU.
    fn check(&self, stream: &Stream, status: c_int, call: &'static str, op: &str) -> Result<(), Error> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the function takes a status and returns a constant string.
        let status = unsafe { words((self.error)(status)) };
        let foreign = Error::Foreign { library: "NCCL", call, op: op.into(), status };
        Err(stream.lost(call, op).unwrap_or(foreign))
    }
}

/// A rank that is ready to join a communicator.
pub struct Entry {
    library: &'static Functions,
    stream: Stream,
}

impl Entry {
    /// Returns an error if the library is missing.
    pub fn new(cuda: &Cuda) -> Result<Self, Error> {
        Ok(Self { library: library()?, stream: Stream::new(cuda.shared.context())? })
    }
}

impl Ready<Cuda> for Entry {
    fn new_id(&self) -> Result<Vec<u8>, Error> {
        let mut id = UniqueId([0; ID]);
        // SAFETY: the pointer is valid for the call.
        let status = unsafe { (self.library.id)(&mut id) };
        self.library.check(&self.stream, status, "ncclGetUniqueId", "the communicator of all ranks")?;
        Ok(id.0.to_vec())
    }

    fn join(self: Box<Self>, id: &[u8], rank: usize, ranks: usize) -> Result<Box<dyn Collective<Cuda>>, Error> {
        let Self { library, stream } = *self;
        let Ok(id) = <[u8; ID]>::try_from(id) else {
            let (expected, got) = (format!("{ID} bytes"), id.len().to_string());
            return Err(Error::Size { op: "NCCL's id".into(), expected, got });
        };
        let mut handle = std::ptr::null_mut();
        stream.context().bind()?;
        // SAFETY: the pointer is valid for the call. `Ring::leave` frees the communicator.
        let status = unsafe { (library.join)(&mut handle, ranks as c_int, UniqueId(id), rank as c_int) };
        library.check(&stream, status, "ncclCommInitRank", "the communicator of all ranks")?;
        Ok(Box::new(Ring { library, handle, stream }))
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

impl Ring {
    fn enqueue(&self, buffer: &mut CudaBuf) -> Result<(), Error> {
        let (address, len) = (buffer.address(), buffer.len());
        buffer.wait_on(&self.stream)?;
        self.stream.context().bind()?;
        let (pointer, stream) = (address as *mut c_void, self.stream.handle().cast());
        // SAFETY: the buffer holds `len` f32 values and is borrowed exclusively. Work on it that was enqueued before or
        // is enqueued later is ordered by the waits between the streams.
        let status = unsafe { (self.library.allreduce)(pointer, pointer, len, FLOAT, SUM, self.handle, stream) };
        self.library.check(&self.stream, status, "ncclAllReduce", "a bucket of gradients")?;
        buffer.come_after(&self.stream)
    }

    /// Aborts the communicator without waiting for its sums. If another rank is gone, they would never end otherwise.
    fn leave(&mut self) {
        let handle = std::mem::replace(&mut self.handle, std::ptr::null_mut());
        // if the GPU has failed, ncclCommAbort may never return
        if !handle.is_null() && self.stream.lost("ncclCommAbort", "the communicator of all ranks").is_none() {
            // SAFETY: `Entry` joined it, and it is left only once.
            unsafe { (self.library.abort)(handle) };
        }
    }
}

impl Collective<Cuda> for Ring {
    fn sum(&mut self, buffer: &mut CudaBuf) -> Result<(), Error> {
        let summed = self.enqueue(buffer);
        if summed.is_err() {
            // abort now, because freeing memory would wait for the unfinished sums
            self.leave();
        }
        summed
    }

    fn describe(&self) -> String {
        nccl_version().map_or_else(|e| e.to_string(), |version| format!("NCCL {version}"))
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // wait for the last sums of a successful run, because other ranks need this rank's part
        if !self.handle.is_null() && self.stream.wait().is_ok() {
            self.leave();
        }
    }
}
