//! NCCL: sums over all ranks, from GPU to GPU. Its functions are looked up here: cudarc's own module does not try libnccl.so.2, the only
//! name that NVIDIA's packages install, and the library is not needed before it is requested.

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use super::device::Cuda;
use super::driver::library::nccl_version;
use super::driver::load::Loaded;
use super::driver::load::{Library, loaded, words};
use super::driver::memory::CudaBuf;
use super::driver::stream::Stream;
use crate::{Buffer, Collective, Error, Ready};

/// Bytes of the id of a communicator.
const ID: usize = 128;

/// `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy)]
struct UniqueId([u8; ID]);

/// `ncclComm_t`.
type Handle = *mut c_void;

/// `ncclFloat32` and `ncclSum`.
const FLOAT: c_int = 7;
const SUM: c_int = 0;

/// The functions that are used, with the types that they have had since NCCL 2.0.
struct Functions {
    error: unsafe extern "C" fn(c_int) -> *const c_char,
    id: unsafe extern "C" fn(*mut UniqueId) -> c_int,
    join: unsafe extern "C" fn(*mut Handle, c_int, UniqueId, c_int) -> c_int,
    allreduce: unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, Handle, *mut c_void) -> c_int,
    abort: unsafe extern "C" fn(Handle) -> c_int,
}

/// Finds the library once.
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
    /// `stream` is one of the GPU.
    fn check(&self, stream: &Stream, status: c_int, call: &'static str, op: &str) -> Result<(), Error> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the function takes a status and gives a constant string.
        let status = unsafe { words((self.error)(status)) };
        let foreign = Error::Foreign { library: "NCCL", call, op: op.into(), status };
        Err(stream.lost(call, op).unwrap_or(foreign))
    }
}

/// A rank that can join a communicator.
pub struct Entry {
    library: &'static Functions,
    stream: Stream,
}

impl Entry {
    /// Fails where the library is missing.
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
        // SAFETY: the pointer is valid for the call; freed by `Ring::leave`.
        let status = unsafe { (library.join)(&mut handle, ranks as c_int, UniqueId(id), rank as c_int) };
        library.check(&stream, status, "ncclCommInitRank", "the communicator of all ranks")?;
        Ok(Box::new(Ring { library, handle, stream }))
    }
}

/// This rank of a communicator.
struct Ring {
    library: &'static Functions,
    /// Null once it was left.
    handle: Handle,
    stream: Stream,
}

// SAFETY: a communicator may be used from any thread, by one at a time, which `&mut self` sees to.
unsafe impl Send for Ring {}

impl Ring {
    fn enqueue(&self, buffer: &mut CudaBuf) -> Result<(), Error> {
        let (address, len) = (buffer.address(), buffer.len());
        buffer.wait_on(&self.stream)?;
        self.stream.context().bind()?;
        let (pointer, stream) = (address as *mut c_void, self.stream.handle().cast());
        // SAFETY: the buffer holds `len` f32, is borrowed exclusively, and what is enqueued for it comes before and after, as the
        // streams wait for one another.
        let status = unsafe { (self.library.allreduce)(pointer, pointer, len, FLOAT, SUM, self.handle, stream) };
        self.library.check(&self.stream, status, "ncclAllReduce", "a bucket of gradients")?;
        buffer.come_after(&self.stream)
    }

    /// Ends what is under way without waiting for it: where another rank is gone, its sums end only by this.
    fn leave(&mut self) {
        let handle = std::mem::replace(&mut self.handle, std::ptr::null_mut());
        // on a GPU that has failed the library may not come back
        if !handle.is_null() && self.stream.lost("ncclCommAbort", "the communicator of all ranks").is_none() {
            // SAFETY: joined by `Entry`, and left once.
            unsafe { (self.library.abort)(handle) };
        }
    }
}

impl Collective<Cuda> for Ring {
    fn sum(&mut self, buffer: &mut CudaBuf) -> Result<(), Error> {
        let summed = self.enqueue(buffer);
        if summed.is_err() {
            // at once: whoever gives memory back next would wait for what is under way
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
        // the last sums of a run that ends well may be under way on this rank, and other ranks need them
        if !self.handle.is_null() && self.stream.wait().is_ok() {
            self.leave();
        }
    }
}
