//! NCCL: sums over all ranks, from GPU to GPU. Its six functions are looked up here: cudarc's own module does not try libnccl.so.2, the
//! only name that NVIDIA's packages install, and the library is not needed before it is requested.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

use super::device::Cuda;
use super::driver::lookup::words;
use super::driver::memory::CudaBuf;
use super::driver::status::lost;
use super::driver::stream::Stream;
use crate::backend::{Buffer, Collective, Error};

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

/// Names under which the library is looked for, before the folders of [`FOLDERS`].
const NAMES: [&CStr; 2] = [c"libnccl.so.2", c"libnccl.so"];

/// Where NVIDIA's packages and toolkits put it, beyond what the loader knows.
const FOLDERS: [&str; 3] = ["/usr/lib/x86_64-linux-gnu", "/usr/local/cuda/lib64", "/opt/nvidia/nccl/lib"];

/// The functions that are used, with the types that they have had since NCCL 2.0.
struct Library {
    version: unsafe extern "C" fn(*mut c_int) -> c_int,
    error: unsafe extern "C" fn(c_int) -> *const c_char,
    id: unsafe extern "C" fn(*mut UniqueId) -> c_int,
    join: unsafe extern "C" fn(*mut Handle, c_int, UniqueId, c_int) -> c_int,
    allreduce: unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, Handle, *mut c_void) -> c_int,
    abort: unsafe extern "C" fn(Handle) -> c_int,
}

/// Finds the library once.
fn library() -> Result<&'static Library, Error> {
    static FOUND: OnceLock<Option<Library>> = OnceLock::new();
    let why = || {
        let why = format!(
            "libnccl.so.2 is not there, or does not load; looked for it in LD_LIBRARY_PATH, the system's folders and {}; load \
             NCCL's module, or `pip install nvidia-nccl-cu13` and put its lib folder into LD_LIBRARY_PATH",
            FOLDERS.join(", ")
        );
        Error::Absent { what: "NCCL".into(), why }
    };
    FOUND.get_or_init(open).as_ref().ok_or_else(why)
}

fn open() -> Option<Library> {
    let further = FOLDERS.iter().filter_map(|folder| CString::new(format!("{folder}/libnccl.so.2")).ok());
    let names = NAMES.iter().map(|name| CString::from(*name)).chain(further);
    // SAFETY: the names are C strings; NCCL's constructors do no harm.
    let load = |name: CString| unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    let library = names.map(load).find(|library| !library.is_null())?;
    // SAFETY: the library is open and stays so, and the fields have the functions' types.
    unsafe {
        Some(Library {
            version: find(library, c"ncclGetVersion")?,
            error: find(library, c"ncclGetErrorString")?,
            id: find(library, c"ncclGetUniqueId")?,
            join: find(library, c"ncclCommInitRank")?,
            allreduce: find(library, c"ncclAllReduce")?,
            abort: find(library, c"ncclCommAbort")?,
        })
    }
}

/// A function of an open library.
///
/// # Safety
/// `F` is the type of a pointer to the function, and the library stays open.
unsafe fn find<F: Copy>(library: *mut c_void, name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the library is open, the name a C string; the rest as the caller promises.
    unsafe {
        let function = libc::dlsym(library, name.as_ptr());
        (!function.is_null()).then(|| std::mem::transmute_copy(&function))
    }
}

impl Library {
    fn check(&self, status: c_int, call: &'static str, op: &str) -> Result<(), Error> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the function takes a status and gives a constant string.
        let status = unsafe { words((self.error)(status)) };
        let foreign = Error::Foreign { library: "NCCL", call, op: op.into(), status };
        Err(lost(call, op).unwrap_or(foreign))
    }
}

/// An id for a new communicator.
pub fn new_id() -> Result<Vec<u8>, Error> {
    let library = library()?;
    let mut id = UniqueId([0; ID]);
    // SAFETY: the pointer is valid for the call.
    library.check(unsafe { (library.id)(&mut id) }, "ncclGetUniqueId", "the communicator of all ranks")?;
    Ok(id.0.to_vec())
}

/// This rank of a communicator.
pub struct Ring {
    library: &'static Library,
    handle: Handle,
    stream: Stream,
}

// SAFETY: a communicator may be used from any thread, by one at a time, which `&mut self` sees to.
unsafe impl Send for Ring {}

impl Ring {
    /// Joins as `rank` of `ranks`; all must.
    pub fn join(cuda: &Cuda, id: &[u8], rank: usize, ranks: usize) -> Result<Self, Error> {
        let library = library()?;
        let context = cuda.shared.context();
        let Ok(id) = <[u8; ID]>::try_from(id) else {
            let (expected, got) = (format!("{ID} bytes"), id.len().to_string());
            return Err(Error::Size { op: "NCCL's id".into(), expected, got });
        };
        let stream = Stream::new(context)?;
        let mut handle = std::ptr::null_mut();
        context.bind()?;
        // SAFETY: the pointer is valid for the call; freed in `drop`.
        let status = unsafe { (library.join)(&mut handle, ranks as c_int, UniqueId(id), rank as c_int) };
        library.check(status, "ncclCommInitRank", "the communicator of all ranks")?;
        Ok(Self { library, handle, stream })
    }
}

impl Collective<Cuda> for Ring {
    fn sum(&mut self, buffer: &mut CudaBuf) -> Result<(), Error> {
        let (address, len) = (buffer.address(), buffer.len());
        buffer.wait_on(&self.stream)?;
        self.stream.context().bind()?;
        let (pointer, stream) = (address as *mut c_void, self.stream.handle().cast());
        // SAFETY: the buffer holds `len` f32, is borrowed exclusively, and what is enqueued for it comes before and after, as the
        // streams wait for one another.
        let status = unsafe { (self.library.allreduce)(pointer, pointer, len, FLOAT, SUM, self.handle, stream) };
        self.library.check(status, "ncclAllReduce", "a bucket of gradients")?;
        buffer.come_after(&self.stream)
    }

    fn describe(&self) -> String {
        let mut version = 0;
        // SAFETY: the pointer is valid for the call; where it fails the version stays 0.
        unsafe { (self.library.version)(&mut version) };
        // from 2.9 on the parts have two digits more
        let parts = if version < 10_000 { (1_000, 100) } else { (10_000, 100) };
        format!("NCCL {}.{}.{}", version / parts.0, version % parts.0 / parts.1, version % parts.1)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.stream.wait().is_ok() {
            // SAFETY: joined by `join`, and no work of it is left.
            unsafe { (self.library.abort)(self.handle) };
        }
    }
}
