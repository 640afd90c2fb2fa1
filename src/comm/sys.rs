//! The raw MPI calls, each with its return code checked, in release builds too.
//!
//! Everything `unsafe` in communication is in this file. Not here: splitting of long buffers and typed collectives
//! (`world`), and which thread calls (`thread`).

use std::ffi::{c_char, c_int, c_void};
use std::marker::PhantomData;
use std::ops::Range;

use mpi::ffi;

use super::Error;
use crate::bf16;
use crate::region::Region;

unsafe extern "C" {
    /// The value of the macro `MPI_IN_PLACE` (see `in_place.c`).
    fn trireme_mpi_in_place() -> *mut c_void;
}

/// What MPI allows threads to do (`MPI_THREAD_*`), lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThreadLevel {
    /// Only one thread may exist.
    Single,
    /// Only the thread that initialised MPI may call it.
    Funneled,
    /// Any thread may call, one at a time.
    Serialized,
    /// Any thread may call at any time.
    Multiple,
}

impl std::fmt::Display for ThreadLevel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Single => "MPI_THREAD_SINGLE",
            Self::Funneled => "MPI_THREAD_FUNNELED",
            Self::Serialized => "MPI_THREAD_SERIALIZED",
            Self::Multiple => "MPI_THREAD_MULTIPLE",
        })
    }
}

/// A reduction that MPI knows.
#[derive(Debug, Clone, Copy)]
pub(super) enum Op {
    Sum,
    Max,
    /// One of ours.
    Own(OwnOp),
}

/// A reduction that MPI was taught, freed by [`OwnOp::free`].
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnOp {
    raw: ffi::MPI_Op,
    /// As in [`Communicator`].
    alone: PhantomData<*const ()>,
}

// SAFETY: as for [`Communicator`], beside which it lives behind the same lock.
unsafe impl Send for OwnOp {}

impl OwnOp {
    /// The sum of bf16 numbers that travel as `u16`: each pair is added in f32 and rounded to bf16.
    pub(super) fn sum_bf16() -> Result<Self, Error> {
        // SAFETY: a constant of the MPI shim, which has none for no operation; the next call replaces it.
        let mut raw = unsafe { ffi::RSMPI_SUM };
        // SAFETY: the function lives as long as the program, and addition commutes.
        check("MPI_Op_create", unsafe { ffi::MPI_Op_create(Some(add_bf16), 1, &mut raw) })?;
        Ok(Self { raw, alone: PhantomData })
    }

    /// Frees the operation.
    pub(super) fn free(mut self) -> Result<(), Error> {
        // SAFETY: the handle is alive, and the only holder ends here.
        check("MPI_Op_free", unsafe { ffi::MPI_Op_free(&mut self.raw) })
    }
}

/// What MPI calls for [`OwnOp::sum_bf16`].
unsafe extern "C" fn add_bf16(from: *mut c_void, into: *mut c_void, length: *mut c_int, _: *mut ffi::MPI_Datatype) {
    // SAFETY: MPI gives two buffers of `length` elements of the datatype of the call, which is u16's; they do not overlap.
    let (from, into) = unsafe {
        let length = usize::try_from(*length).unwrap_or(0);
        (std::slice::from_raw_parts(from.cast::<u16>(), length), std::slice::from_raw_parts_mut(into.cast(), length))
    };
    bf16::add(into, from);
}

impl Op {
    fn raw(self) -> ffi::MPI_Op {
        // SAFETY: constants of the MPI shim, set by its own static initialisers and never written again.
        unsafe {
            match self {
                Self::Sum => ffi::RSMPI_SUM,
                Self::Max => ffi::RSMPI_MAX,
                Self::Own(op) => op.raw,
            }
        }
    }
}

/// A number type that MPI can reduce.
///
/// # Safety
/// `datatype` must describe exactly one value of `Self`.
pub(super) unsafe trait Element: Copy {
    fn datatype() -> ffi::MPI_Datatype;
}

macro_rules! element {
    ($($type:ty => $datatype:ident),*) => {$(
        // SAFETY: the MPI type named has the size and meaning of the Rust type.
        unsafe impl Element for $type {
            fn datatype() -> ffi::MPI_Datatype {
                // SAFETY: a constant of the MPI shim.
                unsafe { ffi::$datatype }
            }
        }
    )*};
}
element!(f32 => RSMPI_FLOAT, f64 => RSMPI_DOUBLE, i32 => RSMPI_INT32_T, i64 => RSMPI_INT64_T, u8 => RSMPI_UINT8_T,
    u16 => RSMPI_UINT16_T, u32 => RSMPI_UINT32_T, u64 => RSMPI_UINT64_T);

/// Turns a return code into an error with the library's words.
fn check(call: &'static str, code: c_int) -> Result<(), Error> {
    if code == ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    let mut class = code;
    // SAFETY: `class` lives through the call. On failure it keeps the code itself.
    unsafe { ffi::MPI_Error_class(code, &mut class) };
    let text = read_text(ffi::MPI_MAX_ERROR_STRING as usize, |text, length| {
        // SAFETY: `read_text` gives a buffer of MPI_MAX_ERROR_STRING bytes, the most that this call writes.
        unsafe { ffi::MPI_Error_string(code, text, length) }
    });
    let text = text.unwrap_or_else(|code| format!("error code {code}"));
    Err(Error::Call { operation: "MPI", call, class, text })
}

/// Reads a string from an MPI call that fills a buffer of `capacity` bytes; the error is the call's code.
fn read_text(capacity: usize, call: impl FnOnce(*mut c_char, *mut c_int) -> c_int) -> Result<String, c_int> {
    // One byte more than asked for: some libraries count the closing NUL, some do not.
    let mut buffer = vec![0u8; capacity + 1];
    let mut length: c_int = 0;
    let code = call(buffer.as_mut_ptr().cast(), &mut length);
    if code != ffi::MPI_SUCCESS as c_int {
        return Err(code);
    }
    let length = usize::try_from(length).unwrap_or(0).min(capacity);
    let text = String::from_utf8_lossy(&buffer[..length]);
    Ok(text.trim_end_matches('\0').trim().to_string())
}

/// Whether MPI is initialised and not yet finalised. Callable from any thread at any time.
pub(super) fn is_alive() -> bool {
    let (mut initialized, mut finalized): (c_int, c_int) = (0, 0);
    // SAFETY: both may be called at any time, before MPI_Init and after MPI_Finalize too, from any thread.
    unsafe {
        ffi::MPI_Initialized(&mut initialized);
        ffi::MPI_Finalized(&mut finalized);
    }
    initialized != 0 && finalized == 0
}

/// Ends all ranks with exit code `code`. Returns only where the MPI library fails to end the process.
pub(super) fn abort(code: i32) {
    // SAFETY: called only while MPI is alive. That other threads may be inside MPI meanwhile is outside the standard
    // below MPI_THREAD_MULTIPLE; what is lost with the process is lost in any case.
    unsafe { ffi::MPI_Abort(ffi::RSMPI_COMM_WORLD, code) };
}

/// A function of the MPI library that not every library has.
fn optional(name: &std::ffi::CStr) -> Option<std::ptr::NonNull<c_void>> {
    // SAFETY: the name is a C string; the program's own symbols and those of its libraries are searched.
    std::ptr::NonNull::new(unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) })
}

/// What `MPIX_Query_cuda_support` answers (Open MPI, MPICH, MVAPICH); none where there is no such function.
pub(super) fn query_cuda_support() -> Option<bool> {
    let function = optional(c"MPIX_Query_cuda_support")?;
    // SAFETY: wherever it exists it is `int MPIX_Query_cuda_support(void)`.
    let query: extern "C" fn() -> c_int = unsafe { std::mem::transmute(function.as_ptr()) };
    Some(query() == 1)
}

/// What `MPIX_GPU_query_support(MPIX_GPU_SUPPORT_CUDA)` answers (MPICH and its kin).
pub(super) fn query_gpu_support() -> Option<bool> {
    /// MPIX_GPU_SUPPORT_CUDA.
    const CUDA: c_int = 0;
    let function = optional(c"MPIX_GPU_query_support")?;
    // SAFETY: wherever it exists it is `int MPIX_GPU_query_support(int gpu_type, int *is_supported)`.
    let query: extern "C" fn(c_int, *mut c_int) -> c_int = unsafe { std::mem::transmute(function.as_ptr()) };
    let mut yes = 0;
    (query(CUDA, &mut yes) == ffi::MPI_SUCCESS as c_int).then_some(yes != 0)
}

/// Whether Cray's GPU transport layer for CUDA is loaded into this process.
pub(super) fn has_cray_gtl() -> bool {
    std::fs::read_to_string("/proc/self/maps").is_ok_and(|maps| maps.contains("libmpi_gtl_cuda"))
}

/// Ends this process now, without running the exit handlers of libraries whose threads are still at work.
pub(super) fn exit_now(code: i32) -> ! {
    // SAFETY: _exit touches nothing of this process.
    unsafe { libc::_exit(code) }
}

/// Initialises MPI on the calling thread and makes its errors return; the answer is the thread level granted.
pub(super) fn initialize() -> Result<ThreadLevel, Error> {
    let mut granted: c_int = 0;
    // SAFETY: called once per process (`thread` sees to it). MPI allows null for both arguments.
    let code = unsafe {
        ffi::MPI_Init_thread(std::ptr::null_mut(), std::ptr::null_mut(), ffi::RSMPI_THREAD_MULTIPLE, &mut granted)
    };
    check("MPI_Init_thread", code)?;
    // Errors that belong to no communicator go to MPI_COMM_WORLD's handler up to MPI 3.1, to MPI_COMM_SELF's from 4.0 on.
    // SAFETY: both communicators exist once MPI is initialised; the constants are the shim's.
    let codes = unsafe {
        [ffi::RSMPI_COMM_WORLD, ffi::RSMPI_COMM_SELF]
            .map(|comm| ffi::MPI_Comm_set_errhandler(comm, ffi::RSMPI_ERRORS_RETURN))
    };
    for code in codes {
        check("MPI_Comm_set_errhandler", code)?;
    }
    // SAFETY: constants of the MPI shim.
    let levels = unsafe {
        [
            (ffi::RSMPI_THREAD_MULTIPLE, ThreadLevel::Multiple),
            (ffi::RSMPI_THREAD_SERIALIZED, ThreadLevel::Serialized),
            (ffi::RSMPI_THREAD_FUNNELED, ThreadLevel::Funneled),
        ]
    };
    let level = levels.iter().find(|(raw, _)| granted >= *raw);
    Ok(level.map_or(ThreadLevel::Single, |(_, level)| *level))
}

/// Finalises MPI; the calling thread must be the one that initialised it, and every other rank must do the same.
pub(super) fn finalize() -> Result<(), Error> {
    // SAFETY: called by `thread` after the last communicator is freed.
    check("MPI_Finalize", unsafe { ffi::MPI_Finalize() })
}

/// Name and version of the MPI library, as it reports them.
pub(super) fn library_version() -> String {
    let capacity = ffi::MPI_MAX_LIBRARY_VERSION_STRING as usize;
    read_text(capacity, |text, length| {
        // SAFETY: `read_text` gives a buffer of MPI_MAX_LIBRARY_VERSION_STRING bytes.
        unsafe { ffi::MPI_Get_library_version(text, length) }
    })
    .unwrap_or_else(|_| "unknown MPI".into())
}

/// This node's name (`MPI_Get_processor_name`).
pub(super) fn processor_name() -> Result<String, Error> {
    let mut outcome = Ok(());
    let text = read_text(ffi::MPI_MAX_PROCESSOR_NAME as usize, |text, length| {
        // SAFETY: `read_text` gives a buffer of MPI_MAX_PROCESSOR_NAME bytes.
        let code = unsafe { ffi::MPI_Get_processor_name(text, length) };
        outcome = check("MPI_Get_processor_name", code);
        code
    });
    outcome.map(|()| text.unwrap_or_default())
}

/// A communicator of our own, freed by [`Communicator::free`].
pub(super) struct Communicator {
    raw: ffi::MPI_Comm,
    pub(super) rank: usize,
    pub(super) size: usize,
    /// Some MPI libraries have integers for handles, which would be `Sync`.
    alone: PhantomData<*const ()>,
}

// SAFETY: `initialize` is followed by a check that MPI grants MPI_THREAD_SERIALIZED at least: any thread may call, one at a time.
// That it is one at a time is seen to by the type's not being `Sync`, and by `thread`, which has one world behind one lock.
unsafe impl Send for Communicator {}

impl Communicator {
    /// A duplicate of `MPI_COMM_WORLD`, with errors that return.
    pub(super) fn world() -> Result<Self, Error> {
        // SAFETY: MPI is initialised; `raw` lives through the call. A duplicate inherits the error handler.
        let duplicate = |raw: &mut _| unsafe { ffi::MPI_Comm_dup(ffi::RSMPI_COMM_WORLD, raw) };
        Self::create("MPI_Comm_dup", duplicate)
    }

    /// The ranks of `self` that share memory with this one.
    pub(super) fn node(&self) -> Result<Self, Error> {
        let key = self.rank as c_int;
        Self::create("MPI_Comm_split_type", |raw| {
            // SAFETY: the communicator is alive; `raw` lives through the call; the constants are the shim's.
            unsafe {
                let kind = ffi::RSMPI_COMM_TYPE_SHARED;
                ffi::MPI_Comm_split_type(self.raw, kind, key, ffi::RSMPI_INFO_NULL, raw)
            }
        })
    }

    /// The ranks below `count` as a communicator of their own, and all others as another; collective.
    pub(super) fn split(&self, count: usize) -> Result<Self, Error> {
        let (color, key) = (c_int::from(self.rank >= count), self.rank as c_int);
        // SAFETY: the communicator is alive; `raw` lives through the call.
        Self::create("MPI_Comm_split", |raw| unsafe { ffi::MPI_Comm_split(self.raw, color, key, raw) })
    }

    fn create(call: &'static str, make: impl FnOnce(&mut ffi::MPI_Comm) -> c_int) -> Result<Self, Error> {
        // SAFETY: a constant of the MPI shim.
        let mut raw = unsafe { ffi::RSMPI_COMM_NULL };
        check(call, make(&mut raw))?;
        let (mut rank, mut size): (c_int, c_int) = (0, 0);
        // SAFETY: `raw` was just made; both integers live through the calls.
        unsafe {
            check("MPI_Comm_set_errhandler", ffi::MPI_Comm_set_errhandler(raw, ffi::RSMPI_ERRORS_RETURN))?;
            check("MPI_Comm_rank", ffi::MPI_Comm_rank(raw, &mut rank))?;
            check("MPI_Comm_size", ffi::MPI_Comm_size(raw, &mut size))?;
        }
        Ok(Self { raw, rank: rank as usize, size: size as usize, alone: PhantomData })
    }

    /// Frees the communicator; collective.
    pub(super) fn free(mut self) -> Result<(), Error> {
        // SAFETY: the handle is alive and not used again, since `self` ends here.
        check("MPI_Comm_free", unsafe { ffi::MPI_Comm_free(&mut self.raw) })
    }

    /// Reduces `values` over all ranks, in place. At most `i32::MAX` elements.
    pub(super) fn allreduce<T: Element>(&self, values: &mut [T], op: Op) -> Result<(), Error> {
        let count = count(values.len());
        // SAFETY: the buffer holds `count` values of the datatype and is not aliased while MPI writes to it.
        let code = unsafe {
            let into = values.as_mut_ptr().cast();
            ffi::MPI_Allreduce(trireme_mpi_in_place(), into, count, T::datatype(), op.raw(), self.raw)
        };
        check("MPI_Allreduce", code)
    }

    /// Sums elements of a device's memory over all ranks, in place, where the MPI library takes such memory; from `first` on, at
    /// most `i32::MAX`.
    pub(super) fn allreduce_region(&self, region: &mut Region<'_>, part: Range<usize>) -> Result<(), Error> {
        let (count, address) = (count(part.len()), region.address() + 4 * part.start);
        // SAFETY: the region is `len` f32 elements that nobody else touches meanwhile (its maker's promise), and `part` lies in
        // it. MPI is told of a device address only after it said or proved that it takes such (the caller's matter: a library
        // that does not would read host memory of that address and end the process by a signal).
        let code = unsafe {
            let into = std::ptr::with_exposed_provenance_mut(address);
            ffi::MPI_Allreduce(trireme_mpi_in_place(), into, count, f32::datatype(), Op::Sum.raw(), self.raw)
        };
        check("MPI_Allreduce of device memory", code)
    }

    /// Sends `values` of rank `root` to all. At most `i32::MAX` elements.
    pub(super) fn broadcast<T: Element>(&self, values: &mut [T], root: usize) -> Result<(), Error> {
        let count = count(values.len());
        // SAFETY: the buffer holds `count` values of the datatype and is not aliased while MPI writes to it. A root that
        // is no rank is refused by MPI itself with MPI_ERR_ROOT.
        let code = unsafe {
            let buffer = values.as_mut_ptr().cast();
            ffi::MPI_Bcast(buffer, count, T::datatype(), rank_number(root), self.raw)
        };
        check("MPI_Bcast", code)
    }

    /// Gathers one value of each rank on rank 0; the answer is empty elsewhere.
    pub(super) fn gather_one<T: Element + Default>(&self, mine: T) -> Result<Vec<T>, Error> {
        let mut all = vec![T::default(); if self.rank == 0 { self.size } else { 0 }];
        let kind = T::datatype();
        // SAFETY: one value is sent; rank 0 has room for one of each rank, and MPI writes nowhere else.
        let code = unsafe {
            let into = all.as_mut_ptr().cast();
            ffi::MPI_Gather((&raw const mine).cast(), 1, kind, into, 1, kind, 0, self.raw)
        };
        check("MPI_Gather", code).map(|()| all)
    }

    /// Gathers bytes on rank 0, `counts[r]` of them from rank r, one rank's after another's in `into`.
    ///
    /// `counts` and `into` matter on rank 0 only. The sum of the counts must be at most `i32::MAX`.
    pub(super) fn gather_bytes(&self, mine: &[u8], counts: &[usize], into: &mut Vec<u8>) -> Result<(), Error> {
        let mut offsets = Vec::with_capacity(counts.len());
        let mut total = 0;
        for &bytes in counts {
            offsets.push(count(total));
            total += bytes;
        }
        count(total);
        let counts: Vec<c_int> = counts.iter().map(|&c| count(c)).collect();
        into.clear();
        into.resize(total, 0);
        let kind = u8::datatype();
        // an empty slice's address is made up, and may be the very one that means MPI_IN_PLACE
        static SOMEWHERE: [u8; 1] = [0];
        let mine = if mine.is_empty() { &SOMEWHERE[..0] } else { mine };
        // SAFETY: rank 0 has room for the sum of all counts, at the offsets given; both arrays have one entry a rank
        // there. Elsewhere MPI reads none of them.
        let code = unsafe {
            let send = mine.as_ptr().cast();
            let (counts, offsets) = (counts.as_ptr(), offsets.as_ptr());
            let into = into.as_mut_ptr().cast();
            ffi::MPI_Gatherv(send, count(mine.len()), kind, into, counts, offsets, kind, 0, self.raw)
        };
        check("MPI_Gatherv", code)
    }

    /// Waits until every rank is here.
    pub(super) fn barrier(&self) -> Result<(), Error> {
        // SAFETY: the communicator is alive.
        check("MPI_Barrier", unsafe { ffi::MPI_Barrier(self.raw) })
    }
}

/// A length as MPI counts it.
///
/// # Panics
/// Above `i32::MAX`; `World` splits before. Sending a truncated count would be worse.
fn count(length: usize) -> c_int {
    c_int::try_from(length).expect("buffers are split below 2^31 elements")
}

/// A rank as MPI numbers it; one beyond `i32::MAX` is no rank, and -1 is none either.
fn rank_number(rank: usize) -> c_int {
    c_int::try_from(rank).unwrap_or(-1)
}
