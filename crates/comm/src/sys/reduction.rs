//! What MPI reduces, and how: number types and operations, one of them ours.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;

use base::bf16;
use mpi::ffi;

use super::status::check;
use crate::error::Error;

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
    /// As in [`Communicator`](super::communicator::Communicator).
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
