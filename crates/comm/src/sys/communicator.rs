//! A communicator and its collectives, with buffers, counts and return codes checked; the number types and operations that MPI reduces.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::marker::PhantomData;
use std::ops::Range;

use base::bf16;
use base::device_region::DeviceRegion;
use mpi::ffi;

use crate::error::Error;

unsafe extern "C" {
    /// The value of the macro `MPI_IN_PLACE` (see `header.c`).
    fn trireme_mpi_in_place() -> *mut c_void;
}

/// A communicator of our own, freed by [`Communicator::free`].
pub(crate) struct Communicator {
    raw: ffi::MPI_Comm,
    pub(crate) rank: usize,
    pub(crate) size: usize,
    /// Some MPI libraries have integers for handles, which would be `Sync`.
    alone: PhantomData<*const ()>,
}

// SAFETY: `initialize` is followed by a check that MPI grants MPI_THREAD_SERIALIZED at least: any thread may call, one at a time.
// That it is one at a time is seen to by the type's not being `Sync`, and by `thread`, which has one world behind one lock.
unsafe impl Send for Communicator {}

impl Communicator {
    /// A duplicate of `MPI_COMM_WORLD`, with errors that return.
    pub(crate) fn world() -> Result<Self, Error> {
        // SAFETY: MPI is initialised; `raw` lives through the call. A duplicate inherits the error handler.
        let duplicate = |raw: &mut _| unsafe { ffi::MPI_Comm_dup(ffi::RSMPI_COMM_WORLD, raw) };
        Self::create("MPI_Comm_dup", duplicate)
    }

    /// The ranks of `self` that share memory with this one.
    pub(crate) fn node(&self) -> Result<Self, Error> {
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
    pub(crate) fn split(&self, count: usize) -> Result<Self, Error> {
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
    pub(crate) fn free(mut self) -> Result<(), Error> {
        // SAFETY: the handle is alive and not used again, since `self` ends here.
        check("MPI_Comm_free", unsafe { ffi::MPI_Comm_free(&mut self.raw) })
    }

    /// Reduces `values` over all ranks, in place. At most `i32::MAX` elements.
    pub(crate) fn allreduce<T: Element>(&self, values: &mut [T], op: Op) -> Result<(), Error> {
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
    pub(crate) fn allreduce_region(&self, region: &mut DeviceRegion<'_>, part: Range<usize>) -> Result<(), Error> {
        let (count, address) = (count(part.len()), region.address() + 4 * part.start);
        // SAFETY: the region is `len` f32 elements that nobody else touches meanwhile (the contract of `DeviceRegion`), and `part` lies in
        // it. The caller passes a device address only to a library that claims or has proved to take such: another would
        // read host memory of that address and end the process by a signal.
        let code = unsafe {
            let into = std::ptr::with_exposed_provenance_mut(address);
            ffi::MPI_Allreduce(trireme_mpi_in_place(), into, count, f32::datatype(), Op::Sum.raw(), self.raw)
        };
        check("MPI_Allreduce of device memory", code)
    }

    /// Sends `values` of rank `root` to all. At most `i32::MAX` elements.
    pub(crate) fn broadcast<T: Element>(&self, values: &mut [T], root: usize) -> Result<(), Error> {
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
    pub(crate) fn gather_one<T: Element + Default>(&self, mine: T) -> Result<Vec<T>, Error> {
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
        // the address of an empty slice is arbitrary, and may be that of MPI_IN_PLACE
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
    pub(crate) fn barrier(&self) -> Result<(), Error> {
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

/// A reduction that MPI knows.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Op {
    Sum,
    Max,
    /// One of ours.
    Own(OwnOp),
}

/// A reduction registered with MPI, freed by [`OwnOp::free`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnOp {
    raw: ffi::MPI_Op,
    /// As in [`Communicator`](Communicator).
    alone: PhantomData<*const ()>,
}

// SAFETY: as for `Communicator`, beside which it lives behind the same lock.
unsafe impl Send for OwnOp {}

impl OwnOp {
    /// The sum of bf16 numbers that travel as `u16`: each pair is added in f32 and rounded to bf16.
    pub(crate) fn sum_bf16() -> Result<Self, Error> {
        // SAFETY: a constant of the MPI shim, which has none for no operation; the next call replaces it.
        let mut raw = unsafe { ffi::RSMPI_SUM };
        // SAFETY: the function lives as long as the program, and addition commutes.
        check("MPI_Op_create", unsafe { ffi::MPI_Op_create(Some(add_bf16), 1, &mut raw) })?;
        Ok(Self { raw, alone: PhantomData })
    }

    /// Frees the operation.
    pub(crate) fn free(mut self) -> Result<(), Error> {
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
    pub(super) fn raw(self) -> ffi::MPI_Op {
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
pub(crate) unsafe trait Element: Copy {
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

/// The same memory as integers.
pub(crate) fn integers(values: &mut [f32]) -> &mut [i32] {
    // SAFETY: both types are four bytes, aligned alike, and any bits are a value of either; the borrow goes over to the result.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), values.len()) }
}

/// Turns a return code into an error with the library's words.
pub(super) fn check(call: &'static str, code: c_int) -> Result<(), Error> {
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
    Err(Error::Call { operation: current().unwrap_or("MPI"), call, class, text })
}

/// Reads a string from an MPI call that fills a buffer of `capacity` bytes; the error is the call's code.
pub(super) fn read_text(capacity: usize, call: impl FnOnce(*mut c_char, *mut c_int) -> c_int) -> Result<String, c_int> {
    // one byte more than the capacity: some libraries count the closing NUL, some do not
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

/// Name of this thread's operation.
pub(crate) fn current() -> Option<&'static str> {
    CURRENT.get()
}

/// Does `work` as the operation `name`.
pub(crate) fn within<R>(name: &'static str, work: impl FnOnce() -> R) -> R {
    let outer = CURRENT.replace(Some(name));
    let result = work();
    CURRENT.set(outer);
    result
}
