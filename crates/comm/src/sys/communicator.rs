//! A communicator and its collectives with checked buffers, counts and return codes, and the element types and
//! operations that MPI can reduce.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::marker::PhantomData;
use std::ops::Range;

use base::bf16;
use base::device_region::DeviceRegion;
use mpi::ffi;

use crate::error::Error;

unsafe extern "C" {
    /// Returns the value of the macro `MPI_IN_PLACE` (see `header.c`).
    fn trireme_mpi_in_place() -> *mut c_void;
}

/// A communicator that must be freed with [`Communicator::free`].
pub(crate) struct Communicator {
    raw: ffi::MPI_Comm,
    pub(crate) rank: usize,
    pub(crate) size: usize,
    /// Makes the type `!Sync`. Some MPI libraries use integers as handles, which would be `Sync`.
    alone: PhantomData<*const ()>,
}

// SAFETY: after `initialize`, `World::open` checks that MPI grants at least MPI_THREAD_SERIALIZED, so any thread may
// call, one at a time. One at a time is ensured because the type is not `Sync`, and because `thread` keeps the only
// world behind a lock.
unsafe impl Send for Communicator {}

impl Communicator {
    /// Duplicates `MPI_COMM_WORLD`. Errors are returned instead of ending the process.
    pub(crate) fn world() -> Result<Self, Error> {
        // SAFETY: MPI is initialised, and `raw` lives through the call. A duplicate inherits the error handler.
        let duplicate = |raw: &mut _| unsafe { ffi::MPI_Comm_dup(ffi::RSMPI_COMM_WORLD, raw) };
        Self::create("MPI_Comm_dup", duplicate)
    }

    /// Returns a communicator of the ranks that share memory with this one.
    pub(crate) fn node(&self) -> Result<Self, Error> {
        let key = self.rank as c_int;
        Self::create("MPI_Comm_split_type", |raw| {
            // SAFETY: the communicator is alive, `raw` lives through the call, and the constants come from the shim.
            unsafe {
                let kind = ffi::RSMPI_COMM_TYPE_SHARED;
                ffi::MPI_Comm_split_type(self.raw, kind, key, ffi::RSMPI_INFO_NULL, raw)
            }
        })
    }

    /// Splits the ranks into those below `count` and the others, and returns the communicator that this rank belongs
    /// to. Collective.
    pub(crate) fn split(&self, count: usize) -> Result<Self, Error> {
        let (color, key) = (c_int::from(self.rank >= count), self.rank as c_int);
        // SAFETY: the communicator is alive, and `raw` lives through the call.
        Self::create("MPI_Comm_split", |raw| unsafe { ffi::MPI_Comm_split(self.raw, color, key, raw) })
    }

    fn create(call: &'static str, make: impl FnOnce(&mut ffi::MPI_Comm) -> c_int) -> Result<Self, Error> {
        // SAFETY: this reads a constant of the MPI shim.
        let mut raw = unsafe { ffi::RSMPI_COMM_NULL };
        check(call, make(&mut raw))?;
        let (mut rank, mut size): (c_int, c_int) = (0, 0);
        // SAFETY: `raw` was just created, and both integers live through the calls.
        unsafe {
            check("MPI_Comm_set_errhandler", ffi::MPI_Comm_set_errhandler(raw, ffi::RSMPI_ERRORS_RETURN))?;
            check("MPI_Comm_rank", ffi::MPI_Comm_rank(raw, &mut rank))?;
            check("MPI_Comm_size", ffi::MPI_Comm_size(raw, &mut size))?;
        }
        Ok(Self { raw, rank: rank as usize, size: size as usize, alone: PhantomData })
    }

    /// Frees the communicator. Collective.
    pub(crate) fn free(mut self) -> Result<(), Error> {
        // SAFETY: the handle is alive and not used again, because this function consumes `self`.
        check("MPI_Comm_free", unsafe { ffi::MPI_Comm_free(&mut self.raw) })
    }

    /// Reduces `values` over all ranks in place. At most `i32::MAX` elements.
    pub(crate) fn allreduce<T: Element>(&self, values: &mut [T], op: Op) -> Result<(), Error> {
        let count = count(values.len());
        // SAFETY: the buffer holds `count` values of the datatype and is not aliased while MPI writes to it.
        let code = unsafe {
            let into = values.as_mut_ptr().cast();
            ffi::MPI_Allreduce(trireme_mpi_in_place(), into, count, T::datatype(), op.raw(), self.raw)
        };
        check("MPI_Allreduce", code)
    }

    /// Sums the elements `part` of a device buffer over all ranks in place. At most `i32::MAX` elements. The MPI
    /// library must accept device memory.
    pub(crate) fn allreduce_region(&self, region: &mut DeviceRegion<'_>, part: Range<usize>) -> Result<(), Error> {
        let (count, address) = (count(part.len()), region.address() + 4 * part.start);
        // SAFETY: the region consists of `len` f32 elements that nothing else accesses meanwhile (the contract of
        // `DeviceRegion`), and `part` is inside it. The caller passes a device address only if the library claims or
        // has proved that it accepts one. Otherwise the library would read host memory at that address, and the process
        // would end with a signal.
        let code = unsafe {
            let into = std::ptr::with_exposed_provenance_mut(address);
            ffi::MPI_Allreduce(trireme_mpi_in_place(), into, count, f32::datatype(), Op::Sum.raw(), self.raw)
        };
        check("MPI_Allreduce of device memory", code)
    }

    /// Sends `values` of rank 0 to all ranks. At most `i32::MAX` elements.
    pub(crate) fn broadcast<T: Element>(&self, values: &mut [T]) -> Result<(), Error> {
        let count = count(values.len());
        // SAFETY: the buffer holds `count` values of the datatype and is not aliased while MPI writes to it.
        let code = unsafe {
            let buffer = values.as_mut_ptr().cast();
            ffi::MPI_Bcast(buffer, count, T::datatype(), 0, self.raw)
        };
        check("MPI_Bcast", code)
    }

    /// Gathers one value per rank on rank 0. Returns an empty vector on the other ranks.
    pub(crate) fn gather_one(&self, mine: u64) -> Result<Vec<u64>, Error> {
        let mut all = vec![0u64; if self.rank == 0 { self.size } else { 0 }];
        let kind = u64::datatype();
        // SAFETY: one value is sent. Rank 0 has room for one value per rank, and MPI writes nowhere else.
        let code = unsafe {
            let into = all.as_mut_ptr().cast();
            ffi::MPI_Gather((&raw const mine).cast(), 1, kind, into, 1, kind, 0, self.raw)
        };
        check("MPI_Gather", code).map(|()| all)
    }

    /// Gathers bytes on rank 0: `counts[r]` bytes from rank r, stored in `into` in rank order.
    ///
    /// `counts` and `into` are used only on rank 0. The sum of the counts must be at most `i32::MAX`.
    pub(crate) fn gather_bytes(&self, mine: &[u8], counts: &[usize], into: &mut Vec<u8>) -> Result<(), Error> {
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
        // The address of an empty slice is arbitrary and might equal MPI_IN_PLACE.
        static SOMEWHERE: [u8; 1] = [0];
        let mine = if mine.is_empty() { &SOMEWHERE[..0] } else { mine };
        // SAFETY: on rank 0, `into` has room for the sum of all counts at the given offsets, and both arrays have one
        // entry per rank. On other ranks MPI does not read them.
        let code = unsafe {
            let send = mine.as_ptr().cast();
            let (counts, offsets) = (counts.as_ptr(), offsets.as_ptr());
            let into = into.as_mut_ptr().cast();
            ffi::MPI_Gatherv(send, count(mine.len()), kind, into, counts, offsets, kind, 0, self.raw)
        };
        check("MPI_Gatherv", code)
    }

    /// Waits until all ranks have called this.
    pub(crate) fn barrier(&self) -> Result<(), Error> {
        // SAFETY: the communicator is alive.
        check("MPI_Barrier", unsafe { ffi::MPI_Barrier(self.raw) })
    }
}

/// Converts a length to MPI's type.
///
/// # Panics
///
/// Panics above `i32::MAX`. `World` splits longer buffers. Sending a truncated count would be worse than a panic.
fn count(length: usize) -> c_int {
    c_int::try_from(length).expect("buffers are split below 2^31 elements")
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Op {
    Sum,
    Max,
    /// An operation registered by this crate.
    Own(OwnOp),
}

/// A reduction registered with MPI. It must be freed with [`OwnOp::free`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnOp {
    raw: ffi::MPI_Op,
    /// Makes the type `!Sync`, as in [`Communicator`].
    alone: PhantomData<*const ()>,
}

// SAFETY: as for `Communicator`. `World` stores both, behind the same lock.
unsafe impl Send for OwnOp {}

impl OwnOp {
    /// Registers the sum of bf16 numbers stored as `u16`. Each pair is added in f32 and rounded to bf16.
    pub(crate) fn sum_bf16() -> Result<Self, Error> {
        // SAFETY: this reads a constant of the MPI shim. The shim has no constant for a null operation; the next call
        // overwrites this one.
        let mut raw = unsafe { ffi::RSMPI_SUM };
        // SAFETY: the function lives as long as the program, and the addition is commutative.
        check("MPI_Op_create", unsafe { ffi::MPI_Op_create(Some(add_bf16), 1, &mut raw) })?;
        Ok(Self { raw, alone: PhantomData })
    }

    pub(crate) fn free(mut self) -> Result<(), Error> {
        // SAFETY: the handle is alive. `World` frees it once, when the world ends.
        check("MPI_Op_free", unsafe { ffi::MPI_Op_free(&mut self.raw) })
    }
}

/// Adds two bf16 vectors. MPI calls this function for [`OwnOp::sum_bf16`].
unsafe extern "C" fn add_bf16(from: *mut c_void, into: *mut c_void, length: *mut c_int, _: *mut ffi::MPI_Datatype) {
    // SAFETY: MPI passes two buffers with `length` elements each. Their datatype is that of the call (u16), and they do
    // not overlap.
    let (from, into) = unsafe {
        let length = usize::try_from(*length).unwrap_or(0);
        (std::slice::from_raw_parts(from.cast::<u16>(), length), std::slice::from_raw_parts_mut(into.cast(), length))
    };
    bf16::add(into, from);
}

impl Op {
    pub(super) fn raw(self) -> ffi::MPI_Op {
        // SAFETY: these are constants of the MPI shim, set by its static initialisers and never written again.
        unsafe {
            match self {
                Self::Sum => ffi::RSMPI_SUM,
                Self::Max => ffi::RSMPI_MAX,
                Self::Own(op) => op.raw,
            }
        }
    }
}

/// An element type that MPI can reduce.
///
/// # Safety
///
/// `datatype` must describe exactly one value of `Self`.
pub(crate) unsafe trait Element: Copy {
    fn datatype() -> ffi::MPI_Datatype;
}

macro_rules! element {
    ($($type:ty => $datatype:ident),*) => {$(
        // SAFETY: the MPI type has the same size and meaning as the Rust type.
        unsafe impl Element for $type {
            fn datatype() -> ffi::MPI_Datatype {
                // SAFETY: this reads a constant of the MPI shim.
                unsafe { ffi::$datatype }
            }
        }
    )*};
}
element!(f32 => RSMPI_FLOAT, f64 => RSMPI_DOUBLE, i32 => RSMPI_INT32_T, i64 => RSMPI_INT64_T, u8 => RSMPI_UINT8_T,
    u16 => RSMPI_UINT16_T, u32 => RSMPI_UINT32_T, u64 => RSMPI_UINT64_T);

/// Reinterprets the bits of the values as integers.
pub(crate) fn integers(values: &mut [f32]) -> &mut [i32] {
    // SAFETY: both types have four bytes and the same alignment, and all bit patterns are valid for both. The result
    // keeps the mutable borrow.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), values.len()) }
}

/// Converts a return code to an error with the library's description.
pub(super) fn check(call: &'static str, code: c_int) -> Result<(), Error> {
    if code == ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    let mut class = code;
    // SAFETY: `class` lives through the call. If the call fails, `class` keeps the code itself.
    unsafe { ffi::MPI_Error_class(code, &mut class) };
    let text = read_text(ffi::MPI_MAX_ERROR_STRING as usize, |text, length| {
        // SAFETY: `read_text` passes a buffer of more than MPI_MAX_ERROR_STRING bytes, the most that this call writes.
        unsafe { ffi::MPI_Error_string(code, text, length) }
    });
    let text = text.unwrap_or_else(|code| format!("error code {code}"));
    Err(Error::Call { operation: current().unwrap_or("MPI"), call, class, text })
}

/// Reads a string from an MPI call that fills a buffer of `capacity` bytes. Returns the call's code if it fails.
pub(super) fn read_text(capacity: usize, call: impl FnOnce(*mut c_char, *mut c_int) -> c_int) -> Result<String, c_int> {
    // One byte more than the capacity, because some libraries count the closing NUL and some do not.
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

thread_local! {
    static CURRENT: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Returns the name of this thread's operation, or `None` outside of operations.
pub(crate) fn current() -> Option<&'static str> {
    CURRENT.get()
}

/// Runs `work` as the operation `name`.
pub(crate) fn within<R>(name: &'static str, work: impl FnOnce() -> R) -> R {
    let outer = CURRENT.replace(Some(name));
    let result = work();
    CURRENT.set(outer);
    result
}
