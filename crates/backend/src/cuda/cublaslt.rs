//! Computes matrix products with cuBLASLt, optionally with bias and ReLU in the same call. This file has the library's
//! handle and descriptors, the choice of an algorithm, and the product itself. cuBLASLt is column-major, so it sees our
//! row-major matrices as their transposes.

use std::cell::Cell;
use std::ffi::c_void;
use std::fmt;

use crate::cuda::chosen::ChosenAlgorithms;
use crate::cuda::driver::calls::cublaslt::{
    self as sys, cublasComputeType_t, cublasLtEpilogue_t, cublasLtMatmulAlgo_t,
    cublasLtMatmulDescAttributes_t as ProductAttribute, cublasLtMatmulPreferenceAttributes_t as PreferenceAttribute,
    cublasStatus_t, cudaDataType_t,
};
use crate::cuda::driver::slice::Slice;
use crate::cuda::driver::status::{attempted, cublaslt};
use crate::cuda::driver::stream::Stream;
use crate::cuda::settings::{Settings, WORKSPACE};
use crate::{Error, Precision};

/// A row-major matrix in memory and whether the product transposes it.
#[derive(Clone, Copy, Debug)]
pub struct Factor {
    pub rows: usize,
    pub columns: usize,
    pub transposed: bool,
}

impl Factor {
    /// Returns rows and columns after the transposition.
    fn size(&self) -> (usize, usize) {
        if self.transposed { (self.columns, self.rows) } else { (self.rows, self.columns) }
    }

    fn elems(&self) -> usize {
        self.rows * self.columns
    }
}

/// The operation applied to the product's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Epilogue {
    Nothing,
    /// Adds one bias value per column.
    Bias,
    /// Adds the bias, then computes max(x, 0).
    BiasRelu,
    Relu,
}

impl Epilogue {
    fn raw(self) -> cublasLtEpilogue_t {
        match self {
            Epilogue::Nothing => cublasLtEpilogue_t::CUBLASLT_EPILOGUE_DEFAULT,
            Epilogue::Bias => cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS,
            Epilogue::BiasRelu => cublasLtEpilogue_t::CUBLASLT_EPILOGUE_RELU_BIAS,
            Epilogue::Relu => cublasLtEpilogue_t::CUBLASLT_EPILOGUE_RELU,
        }
    }

    fn takes_bias(self) -> bool {
        matches!(self, Epilogue::Bias | Epilogue::BiasRelu)
    }
}

impl fmt::Display for Epilogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Epilogue::Nothing => "",
            Epilogue::Bias => " with bias",
            Epilogue::BiasRelu => " with bias and ReLU",
            Epilogue::Relu => " with ReLU",
        })
    }
}

/// A request to plan the product c = a b.
pub struct ProductRequest<'a> {
    /// The factors a and b.
    pub factors: [Factor; 2],
    /// True if c is f32 in every precision.
    pub wide: bool,
    pub epilogue: Epilogue,
    /// Key under which the chosen algorithm is stored, together with `n`, the number of images.
    pub operation: String,
    pub n: usize,
    /// Name of the operation in messages.
    pub name: &'a str,
}

/// Sizes in bytes of a product's arguments.
#[derive(Clone, Copy)]
struct Sizes {
    /// Sizes of a, b and c in bytes.
    matrices: [usize; 3],
    /// 0 if the epilogue has no bias.
    bias: usize,
}

/// A planned product c = a b of row-major matrices.
pub struct Product {
    descriptor: ProductDescriptor,
    /// Layouts of b, a and c. cuBLASLt computes the transposed product, so the second factor comes first.
    layouts: [Layout; 3],
    algorithm: Algorithm,
    sizes: Sizes,
    /// Bias address that is set in the descriptor. It is set again only if the address changes.
    bias: Cell<u64>,
    name: String,
}

fn data_type(precision: Precision) -> cudaDataType_t {
    match precision {
        Precision::F32 => cudaDataType_t::CUDA_R_32F,
        Precision::Bf16 => cudaDataType_t::CUDA_R_16BF,
        Precision::F16 => cudaDataType_t::CUDA_R_16F,
    }
}

impl Product {
    /// Plans a product in the settings' precision. Uses the algorithm that was already chosen for this operation, if
    /// there is one.
    pub fn new(
        handle: &Handle,
        settings: &Settings,
        chosen: &ChosenAlgorithms,
        request: &ProductRequest<'_>,
    ) -> Result<Self, Error> {
        let [a, b] = request.factors;
        let ((rows, inner), (_, columns)) = (a.size(), b.size());
        let kind = data_type(settings.precision);
        let out = if request.wide { Precision::F32 } else { settings.precision };
        let descriptor = product(settings)?;
        // c^T = b^T a^T: the second factor comes first
        descriptor.describe(ProductAttribute::CUBLASLT_MATMUL_DESC_TRANSA, i32::from(b.transposed))?;
        descriptor.describe(ProductAttribute::CUBLASLT_MATMUL_DESC_TRANSB, i32::from(a.transposed))?;
        descriptor.describe(ProductAttribute::CUBLASLT_MATMUL_DESC_EPILOGUE, request.epilogue.raw())?;
        let layouts = [
            layout(kind, b.rows, b.columns)?,
            layout(kind, a.rows, a.columns)?,
            layout(data_type(out), rows, columns)?,
        ];
        let name = format!("{} ({rows} x {inner} x {columns})", request.name);
        let problem = Problem { handle, product: &descriptor, layouts: &layouts, settings };
        let propose = || problem.propose(&name).map(|found| (found.text(), found));
        let algorithm = chosen.get(&request.operation, request.n, |text| problem.restore(text), propose)?;
        let width = settings.precision.bytes();
        let sizes = Sizes {
            matrices: [width * a.elems(), width * b.elems(), out.bytes() * rows * columns],
            bias: if request.epilogue.takes_bias() { width * columns } else { 0 },
        };
        Ok(Self { descriptor, layouts, algorithm, sizes, bias: Cell::new(0), name })
    }

    pub fn workspace(&self) -> usize {
        self.algorithm.workspace
    }

    /// Returns an error if an argument is smaller than the product needs.
    fn check(
        &self,
        matrices: [Slice<'_, u8>; 3],
        bias: Option<Slice<'_, u8>>,
        space: Slice<'_, u8>,
    ) -> Result<(), Error> {
        for (matrix, need) in matrices.iter().zip(self.sizes.matrices) {
            matrix.require(need, &self.name)?;
        }
        if let Some(bias) = bias {
            bias.require(self.sizes.bias, &self.name)?;
        } else if self.sizes.bias > 0 {
            return Err(Error::Unsupported {
                op: self.name.clone(),
                why: "its epilogue needs a bias, but none was passed".into(),
            });
        }
        space.require(self.algorithm.workspace, &self.name)
    }

    /// Enqueues c = a b after checking the sizes of the arguments. The stream's context must be bound.
    pub fn run(
        &self,
        handle: &Handle,
        stream: &Stream,
        [a, b, c]: [Slice<'_, u8>; 3],
        bias: Option<Slice<'_, u8>>,
        space: Slice<'_, u8>,
    ) -> Result<(), Error> {
        self.check([a, b, c], bias, space)?;
        if let Some(bias) = bias.map(|b| b.address())
            && self.bias.replace(bias) != bias
        {
            self.descriptor.describe(ProductAttribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias)?;
        }
        let (one, zero) = (1f32, 0f32);
        let number = |v: &f32| std::ptr::from_ref(v).cast::<c_void>();
        let [a, b, c, space] = [a, b, c, space].map(|slice| slice.address() as *mut c_void);
        let [b_layout, a_layout, c_layout] = self.layouts.each_ref().map(Layout::raw);
        // SAFETY: handle, descriptors and algorithm belong together. The buffers are large enough (checked), and the
        // driver frees them only after the enqueued work. The call reads the scale factors before it returns.
        let status = unsafe {
            sys::cublasLtMatmul(
                handle.raw(),
                self.descriptor.raw(),
                number(&one),
                b,
                b_layout,
                a,
                a_layout,
                number(&zero),
                c,
                c_layout,
                c,
                c_layout,
                &self.algorithm.raw,
                space,
                self.algorithm.workspace,
                stream.handle().cast(),
            )
        };
        cublaslt(status, "cublasLtMatmul", &self.name)?;
        stream.settle(&self.name)
    }
}

// The algorithm of a product: cuBLASLt's first proposal, or an earlier choice that was stored as text.

pub struct Algorithm {
    pub raw: cublasLtMatmulAlgo_t,
    pub workspace: usize,
}

/// The product to find an algorithm for. The layouts are those of b, a and c, in this order.
pub struct Problem<'a> {
    pub handle: &'a Handle,
    pub product: &'a ProductDescriptor,
    pub layouts: &'a [Layout; 3],
    pub settings: &'a Settings,
}

/// An empty result for the library to fill.
const NO_RESULT: sys::cublasLtMatmulHeuristicResult_t = sys::cublasLtMatmulHeuristicResult_t {
    algo: cublasLtMatmulAlgo_t { data: [0; 8] },
    workspaceSize: 0,
    state: sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS,
    wavesCount: 0.0,
    reserved: [0; 4],
};

impl Algorithm {
    /// Returns the eight words of the algorithm in hexadecimal. cuBLASLt's manual allows storing them for the same
    /// version.
    pub fn text(&self) -> String {
        self.raw.data.map(|word| format!("{word:x}")).join(" ")
    }
}

fn parse(text: &str) -> Option<cublasLtMatmulAlgo_t> {
    let words: Option<Vec<u64>> = text.split(' ').map(|word| u64::from_str_radix(word, 16).ok()).collect();
    Some(cublasLtMatmulAlgo_t { data: words?.try_into().ok()? })
}

impl Problem<'_> {
    /// Returns cuBLASLt's first proposal. `name` is used in messages.
    pub fn propose(&self, name: &str) -> Result<Algorithm, Error> {
        let preference = preference()?;
        let (mut found, mut count) = (NO_RESULT, 0);
        let [b, a, c] = self.layouts.each_ref().map(Layout::raw);
        let (handle, product) = (self.handle.raw(), self.product.raw());
        // SAFETY: handle and descriptors are alive, and there is room for one result, the most that the call may
        // return.
        let status = unsafe {
            let preference = preference.raw();
            sys::cublasLtMatmulAlgoGetHeuristic(handle, product, b, a, c, c, preference, 1, &mut found, &mut count)
        };
        cublaslt(status, "cublasLtMatmulAlgoGetHeuristic", name)?;
        if count < 1 {
            let why = format!(
                "cuBLASLt has no algorithm for this matrix product on this GPU in {}; try another batch or precision",
                self.settings.precision
            );
            return Err(Error::Unsupported { op: name.into(), why });
        }
        Ok(Algorithm { raw: found.algo, workspace: found.workspaceSize })
    }

    /// Returns the algorithm that `text` describes, or `None` if it cannot run here. Returns an error if the GPU has
    /// failed.
    pub fn restore(&self, text: &str) -> Result<Option<Algorithm>, Error> {
        let Some(raw) = parse(text) else { return Ok(None) };
        let mut found = NO_RESULT;
        let [b, a, c] = self.layouts.each_ref().map(Layout::raw);
        let (handle, product) = (self.handle.raw(), self.product.raw());
        // SAFETY: handle and descriptors are alive. cuBLASLt checks the algorithm's words.
        let status = unsafe { sys::cublasLtMatmulAlgoCheck(handle, product, b, a, c, c, &raw, &mut found) };
        let runs =
            attempted(cublaslt(status, "cublasLtMatmulAlgoCheck", "an algorithm that was chosen before"))?.is_some();
        let workspace = found.workspaceSize;
        Ok((runs && workspace <= WORKSPACE).then_some(Algorithm { raw, workspace }))
    }
}

// Objects of cuBLASLt. Dropping one destroys it.

/// Minimum alignment of a matrix in bytes. Parameters in the 16-bit copy of an arena have only this alignment.
const ALIGNMENT: u32 = 32;

/// Mask of the reduction schemes for split products that are reproducible: COMPUTE_TYPE (2) and OUTPUT_TYPE (4). The
/// in-place scheme adds in no fixed order.
const ORDERED: u32 = 6;

/// An object of the library and the function that destroys it.
pub struct Owned<T: Copy> {
    raw: T,
    destroy: unsafe fn(T) -> cublasStatus_t,
}

/// Name and address of a function that sets an attribute.
type Setter<T, A> = (&'static str, unsafe fn(T, A, *const c_void, usize) -> cublasStatus_t);

impl<T: Copy> Owned<T> {
    /// Creates an object with `create`. `call` is the function's name for messages.
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

    pub fn raw(&self) -> T {
        self.raw
    }

    fn set<A: Copy + fmt::Debug, V: Copy>(&self, (call, set): Setter<T, A>, name: A, value: V) -> Result<(), Error> {
        let value: *const c_void = std::ptr::from_ref(&value).cast();
        // SAFETY: the descriptor is alive, and each caller passes a value of the attribute's type `V`.
        let status = unsafe { set(self.raw, name, value, size_of::<V>()) };
        cublaslt(status, call, &format!("{name:?}"))
    }
}

impl<T: Copy> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: the library created the object, and it is not used again.
        let _ = unsafe { (self.destroy)(self.raw) };
    }
}

pub type ProductDescriptor = Owned<sys::cublasLtMatmulDesc_t>;

pub type Layout = Owned<sys::cublasLtMatrixLayout_t>;

pub type Preference = Owned<sys::cublasLtMatmulPreference_t>;

/// Creates the descriptor of a product that accumulates in f32. It uses TF32 if the settings allow it.
pub fn product(settings: &Settings) -> Result<ProductDescriptor, Error> {
    let compute = match settings.precision {
        Precision::F32 if settings.allow_tf32 => cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
        _ => cublasComputeType_t::CUBLAS_COMPUTE_32F,
    };
    // SAFETY: the pointer is valid for the call.
    let create = |raw: &mut _| unsafe { sys::cublasLtMatmulDescCreate(raw, compute, cudaDataType_t::CUDA_R_32F) };
    Owned::new(std::ptr::null_mut(), "cublasLtMatmulDescCreate", create, sys::cublasLtMatmulDescDestroy)
}

/// Creates the layout of a row-major matrix. For the column-major library it has `columns` rows and `rows` columns.
pub fn layout(kind: cudaDataType_t, rows: usize, columns: usize) -> Result<Layout, Error> {
    let (height, width, lead) = (columns as u64, rows as u64, columns as i64);
    // SAFETY: the pointer is valid for the call.
    let create = |raw: &mut _| unsafe { sys::cublasLtMatrixLayoutCreate(raw, kind, height, width, lead) };
    Owned::new(std::ptr::null_mut(), "cublasLtMatrixLayoutCreate", create, sys::cublasLtMatrixLayoutDestroy)
}

/// Restricts algorithms to [`WORKSPACE`] and to reductions in a fixed order.
pub fn preference() -> Result<Preference, Error> {
    // SAFETY: the pointer is valid for the call.
    let create = |raw: &mut _| unsafe { sys::cublasLtMatmulPreferenceCreate(raw) };
    let call = "cublasLtMatmulPreferenceCreate";
    let preference = Owned::new(std::ptr::null_mut(), call, create, sys::cublasLtMatmulPreferenceDestroy)?;
    preference.prefer(PreferenceAttribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, WORKSPACE as u64)?;
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
    /// Sets an attribute of a product. `V` must be the attribute's type.
    pub fn describe<V: Copy>(&self, name: ProductAttribute, value: V) -> Result<(), Error> {
        self.set(("cublasLtMatmulDescSetAttribute", sys::cublasLtMatmulDescSetAttribute), name, value)
    }
}

pub type Handle = Owned<sys::cublasLtHandle_t>;

impl Handle {
    /// Creates a handle. The context must be bound.
    pub fn open() -> Result<Self, Error> {
        // SAFETY: the library is loaded, and the pointer is valid for the call.
        let create = |raw: &mut _| unsafe { sys::cublasLtCreate(raw) };
        Owned::new(std::ptr::null_mut(), "cublasLtCreate", create, sys::cublasLtDestroy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_algorithm_is_parsed_from_its_own_text() {
        let raw = cublasLtMatmulAlgo_t { data: [1, u64::MAX, 0, 7, 0, 0, 0, 0x1f] };
        let text = Algorithm { raw, workspace: 0 }.text();
        assert_eq!(parse(&text).map(|a| a.data), Some(raw.data));
        for odd in ["", "1 2 3", "1 2 3 4 5 6 7 x", "1 2 3 4 5 6 7 8 9"] {
            assert!(parse(odd).is_none(), "{odd:?}");
        }
    }
}
