//! What cuBLASLt owns for us: its handle, and descriptors of a product, of a matrix, of what an algorithm must keep to. Each is
//! destroyed when it is dropped.

use std::ffi::c_void;
use std::fmt;

use cudarc::cublaslt::sys::{
    self, cublasComputeType_t, cublasLtMatmulDescAttributes_t as ProductAttribute,
    cublasLtMatmulPreferenceAttributes_t as PreferenceAttribute, cublasStatus_t, cudaDataType_t,
};

use crate::Error;
use crate::cuda::driver::status::cublaslt;
use crate::cuda::settings::{Precision, Settings};

/// Bytes on which every matrix begins at least: a slot of an arena in 16 bits does.
const ALIGNMENT: u32 = 32;

/// Ways of adding the parts of a split product that give the same bits again: in the type of computation or of the output, not in
/// place, where the order is chance.
const ORDERED: u32 = 6;

/// Something of the library's, and the call that destroys it.
pub struct Owned<T: Copy> {
    raw: T,
    destroy: unsafe fn(T) -> cublasStatus_t,
}

/// The name of a call that sets an attribute, and the call.
type Setter<T, A> = (&'static str, unsafe fn(T, A, *const c_void, usize) -> cublasStatus_t);

impl<T: Copy> Owned<T> {
    /// What `create`, the call of this name, has left in its argument.
    pub(super) fn new(
        none: T,
        call: &'static str,
        create: impl FnOnce(&mut T) -> cublasStatus_t,
        destroy: unsafe fn(T) -> cublasStatus_t,
    ) -> Result<Self, Error> {
        let mut raw = none;
        cublaslt(create(&mut raw), call, "a product of matrices")?;
        Ok(Self { raw, destroy })
    }

    /// For calls.
    pub fn raw(&self) -> T {
        self.raw
    }

    fn set<A: Copy + fmt::Debug, V: Copy>(&self, (call, set): Setter<T, A>, name: A, value: V) -> Result<(), Error> {
        let value: *const c_void = std::ptr::from_ref(&value).cast();
        // SAFETY: the descriptor lives; each caller gives a value of the attribute's type, `V`.
        let status = unsafe { set(self.raw, name, value, size_of::<V>()) };
        cublaslt(status, call, &format!("{name:?}"))
    }
}

impl<T: Copy> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: created by the library, and not used again.
        let _ = unsafe { (self.destroy)(self.raw) };
    }
}

/// What a product computes.
pub type ProductDescriptor = Owned<sys::cublasLtMatmulDesc_t>;

/// How a matrix lies.
pub type Layout = Owned<sys::cublasLtMatrixLayout_t>;

/// What an algorithm must keep to.
pub type Preference = Owned<sys::cublasLtMatmulPreference_t>;

/// Of a product that adds in f32, by TF32 where the settings allow it.
pub fn product(settings: &Settings) -> Result<ProductDescriptor, Error> {
    let compute = match settings.precision {
        Precision::F32 if settings.allow_tf32 => cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
        _ => cublasComputeType_t::CUBLAS_COMPUTE_32F,
    };
    // SAFETY: the pointer is valid for the call.
    let create = |raw: &mut _| unsafe { sys::cublasLtMatmulDescCreate(raw, compute, cudaDataType_t::CUDA_R_32F) };
    Owned::new(std::ptr::null_mut(), "cublasLtMatmulDescCreate", create, sys::cublasLtMatmulDescDestroy)
}

/// Of a row-major matrix: for the library, which is column-major, `columns` high and `rows` wide.
pub fn layout(kind: cudaDataType_t, rows: usize, columns: usize) -> Result<Layout, Error> {
    let (height, width, lead) = (columns as u64, rows as u64, columns as i64);
    // SAFETY: the pointer is valid for the call.
    let create = |raw: &mut _| unsafe { sys::cublasLtMatrixLayoutCreate(raw, kind, height, width, lead) };
    Owned::new(std::ptr::null_mut(), "cublasLtMatrixLayoutCreate", create, sys::cublasLtMatrixLayoutDestroy)
}

/// Algorithms within the settings' work space, whose sums come in a fixed order.
pub fn preference(settings: &Settings) -> Result<Preference, Error> {
    // SAFETY: the pointer is valid for the call.
    let create = |raw: &mut _| unsafe { sys::cublasLtMatmulPreferenceCreate(raw) };
    let call = "cublasLtMatmulPreferenceCreate";
    let preference = Owned::new(std::ptr::null_mut(), call, create, sys::cublasLtMatmulPreferenceDestroy)?;
    preference.prefer(PreferenceAttribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, settings.workspace as u64)?;
    preference.prefer(PreferenceAttribute::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, ORDERED)?;
    for matrix in [
        PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
    ] {
        preference.prefer(matrix, ALIGNMENT)?;
    }
    Ok(preference)
}

impl Preference {
    fn prefer<V: Copy>(&self, name: PreferenceAttribute, value: V) -> Result<(), Error> {
        let call = "cublasLtMatmulPreferenceSetAttribute";
        self.set((call, sys::cublasLtMatmulPreferenceSetAttribute), name, value)
    }
}

impl ProductDescriptor {
    /// Sets an attribute of a product, whose type `V` must be.
    pub fn describe<V: Copy>(&self, name: ProductAttribute, value: V) -> Result<(), Error> {
        self.set(("cublasLtMatmulDescSetAttribute", sys::cublasLtMatmulDescSetAttribute), name, value)
    }
}
