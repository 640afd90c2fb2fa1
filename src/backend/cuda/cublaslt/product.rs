//! Products of matrices by cuBLASLt, with bias and ReLU in the same pass. Row-major matrices are given to it as the transposes that
//! they are in its column-major eyes.

use std::cell::Cell;
use std::ffi::c_void;
use std::fmt;

use cudarc::cublaslt::sys::{
    self, cublasComputeType_t, cublasLtEpilogue_t as Epilogue, cublasLtMatmulAlgo_t,
    cublasLtMatmulDescAttributes_t as Name, cublasLtMatmulPreferenceAttributes_t as Preference, cudaDataType_t,
};

use crate::backend::Error;
use crate::backend::cuda::driver::status::cublaslt;
use crate::backend::cuda::driver::stream::Stream;
use crate::backend::cuda::settings::{Precision, Settings};
use crate::backend::cuda::shared::Shared;

/// Bytes on which every matrix begins at least: a slot of an arena does.
const ALIGNMENT: u32 = 64;

/// Ways of adding the parts of a split product that give the same bits again: in the type of computation or of the output, not in
/// place, where the order is chance.
const ORDERED: u32 = 6;

/// The library.
pub struct Handle(sys::cublasLtHandle_t);

impl Handle {
    /// The context must be bound.
    pub fn new() -> Result<Self, Error> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the library is there, the pointer valid for the call; destroyed in `drop`.
        cublaslt(unsafe { sys::cublasLtCreate(&mut raw) }, "cublasLtCreate", "its handle")?;
        Ok(Self(raw))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: created by `new`.
        let _ = unsafe { sys::cublasLtDestroy(self.0) };
    }
}

/// A factor as it lies in memory, row-major.
#[derive(Clone, Copy, Debug)]
pub struct Factor {
    pub rows: usize,
    pub columns: usize,
    /// Whether the product takes its transpose.
    pub transposed: bool,
}

impl Factor {
    /// Rows and columns in the product.
    fn size(&self) -> (usize, usize) {
        if self.transposed { (self.columns, self.rows) } else { (self.rows, self.columns) }
    }
}

/// What comes behind the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    Nothing,
    /// A bias of one value a column.
    Bias,
    /// The same, then max(., 0).
    BiasRelu,
    Relu,
}

impl fmt::Display for After {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            After::Nothing => "",
            After::Bias => " with bias",
            After::BiasRelu => " with bias and ReLU",
            After::Relu => " with ReLU",
        })
    }
}

/// c = a b, all row-major, planned.
pub struct Product {
    desc: MatmulDesc,
    layouts: [Layout; 3],
    algorithm: cublasLtMatmulAlgo_t,
    workspace: usize,
    bias: Cell<u64>,
    name: String,
}

struct MatmulDesc(sys::cublasLtMatmulDesc_t);

impl MatmulDesc {
    fn set<T: Copy>(&self, name: Name, value: T) -> Result<(), Error> {
        let value: *const c_void = std::ptr::from_ref(&value).cast();
        // SAFETY: the descriptor lives; each caller gives a value of the attribute's type, `T`.
        let status = unsafe { sys::cublasLtMatmulDescSetAttribute(self.0, name, value, size_of::<T>()) };
        cublaslt(status, "cublasLtMatmulDescSetAttribute", &format!("{name:?}"))
    }
}

impl Drop for MatmulDesc {
    fn drop(&mut self) {
        // SAFETY: created by `Product::new`.
        let _ = unsafe { sys::cublasLtMatmulDescDestroy(self.0) };
    }
}

struct Layout(sys::cublasLtMatrixLayout_t);

impl Layout {
    /// Of a row-major matrix: in column-major eyes `columns` high and `rows` wide.
    fn new(kind: cudaDataType_t, rows: usize, columns: usize) -> Result<Self, Error> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is valid for the call; destroyed in `drop`.
        let status =
            unsafe { sys::cublasLtMatrixLayoutCreate(&mut raw, kind, columns as u64, rows as u64, columns as i64) };
        cublaslt(status, "cublasLtMatrixLayoutCreate", "a matrix")?;
        Ok(Self(raw))
    }
}

impl Drop for Layout {
    fn drop(&mut self) {
        // SAFETY: created by `new`.
        let _ = unsafe { sys::cublasLtMatrixLayoutDestroy(self.0) };
    }
}

struct Wish(sys::cublasLtMatmulPreference_t);

impl Wish {
    fn new(settings: &Settings) -> Result<Self, Error> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is valid for the call; destroyed in `drop`.
        let status = unsafe { sys::cublasLtMatmulPreferenceCreate(&mut raw) };
        cublaslt(status, "cublasLtMatmulPreferenceCreate", "a product")?;
        let wish = Self(raw);
        wish.set(Preference::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, settings.workspace as u64)?;
        wish.set(Preference::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, ORDERED)?;
        for matrix in [
            Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
            Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
            Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
            Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
        ] {
            wish.set(matrix, ALIGNMENT)?;
        }
        Ok(wish)
    }

    fn set<T: Copy>(&self, name: Preference, value: T) -> Result<(), Error> {
        let value: *const c_void = std::ptr::from_ref(&value).cast();
        // SAFETY: the preference lives; each caller gives a value of the attribute's type, `T`.
        let status = unsafe { sys::cublasLtMatmulPreferenceSetAttribute(self.0, name, value, size_of::<T>()) };
        cublaslt(status, "cublasLtMatmulPreferenceSetAttribute", &format!("{name:?}"))
    }
}

impl Drop for Wish {
    fn drop(&mut self) {
        // SAFETY: created by `new`.
        let _ = unsafe { sys::cublasLtMatmulPreferenceDestroy(self.0) };
    }
}

fn data_type(precision: Precision) -> cudaDataType_t {
    match precision {
        Precision::F32 => cudaDataType_t::CUDA_R_32F,
        Precision::Bf16 => cudaDataType_t::CUDA_R_16BF,
        Precision::F16 => cudaDataType_t::CUDA_R_16F,
    }
}

/// Result of a question about algorithms, before it is asked.
const NO_RESULT: sys::cublasLtMatmulHeuristicResult_t = sys::cublasLtMatmulHeuristicResult_t {
    algo: cublasLtMatmulAlgo_t { data: [0; 8] },
    workspaceSize: 0,
    state: sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS,
    wavesCount: 0.0,
    reserved: [0; 4],
};

/// An algorithm and its work space in bytes.
type Algorithm = (cublasLtMatmulAlgo_t, usize);

/// The algorithm as a text: its eight words, which cuBLASLt's manual allows to be kept for the same version.
fn print(algorithm: &cublasLtMatmulAlgo_t) -> String {
    algorithm.data.map(|word| format!("{word:x}")).join(" ")
}

fn parse(text: &str) -> Option<cublasLtMatmulAlgo_t> {
    let words: Option<Vec<u64>> = text.split(' ').map(|word| u64::from_str_radix(word, 16).ok()).collect();
    Some(cublasLtMatmulAlgo_t { data: words?.try_into().ok()? })
}

/// Asks cuBLASLt for the best algorithm; `name` is for messages.
fn propose(
    handle: &Handle,
    desc: &MatmulDesc,
    layouts: &[Layout; 3],
    settings: &Settings,
    name: &str,
) -> Result<Algorithm, Error> {
    let wish = Wish::new(settings)?;
    let (mut found, mut count) = (NO_RESULT, 0);
    // SAFETY: handle and descriptors live, and there is room for the one result that is asked for.
    let status = unsafe {
        let [b, a, c] = layouts.each_ref().map(|l| l.0);
        sys::cublasLtMatmulAlgoGetHeuristic(handle.0, desc.0, b, a, c, c, wish.0, 1, &mut found, &mut count)
    };
    cublaslt(status, "cublasLtMatmulAlgoGetHeuristic", name)?;
    if count < 1 {
        let why = format!("cuBLASLt has no algorithm for this product on this card, in {}", settings.precision);
        return Err(Error::Unsupported { op: name.into(), why });
    }
    Ok((found.algo, found.workspaceSize))
}

/// An algorithm that was chosen before, if it runs.
fn again(
    handle: &Handle,
    desc: &MatmulDesc,
    layouts: &[Layout; 3],
    settings: &Settings,
    text: &str,
) -> Option<Algorithm> {
    let (algorithm, mut found) = (parse(text)?, NO_RESULT);
    // SAFETY: handle and descriptors live; cuBLASLt checks what the algorithm says.
    let status = unsafe {
        let [b, a, c] = layouts.each_ref().map(|l| l.0);
        sys::cublasLtMatmulAlgoCheck(handle.0, desc.0, b, a, c, c, &algorithm, &mut found)
    };
    let runs = status == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS && found.workspaceSize <= settings.workspace;
    runs.then_some((algorithm, found.workspaceSize))
}

impl Product {
    /// Plans c = a b, with c in the settings' precision, or in f32 (`wide`), by the algorithm that is in use for
    /// the operation `of` over n images; `name` is for messages.
    pub fn new(
        shared: &Shared,
        [a, b]: [Factor; 2],
        wide: bool,
        after: After,
        (of, n): (&str, usize),
        name: &str,
    ) -> Result<Self, Error> {
        let (handle, settings) = (shared.matmul()?, &shared.settings);
        let ((rows, inner), (_, columns)) = (a.size(), b.size());
        let kind = data_type(settings.precision);
        let out = if wide { cudaDataType_t::CUDA_R_32F } else { kind };
        let compute = match settings.precision {
            Precision::F32 if settings.allow_tf32 => cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            _ => cublasComputeType_t::CUBLAS_COMPUTE_32F,
        };
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is valid for the call; destroyed by `MatmulDesc`.
        let status = unsafe { sys::cublasLtMatmulDescCreate(&mut raw, compute, cudaDataType_t::CUDA_R_32F) };
        cublaslt(status, "cublasLtMatmulDescCreate", name)?;
        let desc = MatmulDesc(raw);
        // c' = b' a': the second factor comes first
        desc.set(Name::CUBLASLT_MATMUL_DESC_TRANSA, i32::from(b.transposed))?;
        desc.set(Name::CUBLASLT_MATMUL_DESC_TRANSB, i32::from(a.transposed))?;
        let epilogue = match after {
            After::Nothing => Epilogue::CUBLASLT_EPILOGUE_DEFAULT,
            After::Bias => Epilogue::CUBLASLT_EPILOGUE_BIAS,
            After::BiasRelu => Epilogue::CUBLASLT_EPILOGUE_RELU_BIAS,
            After::Relu => Epilogue::CUBLASLT_EPILOGUE_RELU,
        };
        desc.set(Name::CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue)?;
        let layouts = [
            Layout::new(kind, b.rows, b.columns)?,
            Layout::new(kind, a.rows, a.columns)?,
            Layout::new(out, rows, columns)?,
        ];
        let name = format!("{name} ({rows} x {inner} x {columns})");
        let (algorithm, workspace) = shared.chosen.get(
            of,
            n,
            |text| again(handle, &desc, &layouts, settings, text),
            || propose(handle, &desc, &layouts, settings, &name).map(|found| (print(&found.0), found)),
        )?;
        Ok(Self { desc, layouts, algorithm, workspace, bias: Cell::new(0), name })
    }

    /// Bytes of work space.
    pub fn workspace(&self) -> usize {
        self.workspace
    }

    /// Enqueues c = a b over these addresses.
    ///
    /// # Safety
    /// The addresses must be of memory as large as the matrices, the bias (where it takes one) and the work space, until the stream
    /// is through.
    pub unsafe fn run(
        &self,
        handle: &Handle,
        stream: &Stream,
        [a, b, c]: [u64; 3],
        bias: Option<u64>,
        space: u64,
    ) -> Result<(), Error> {
        if let Some(bias) = bias
            && self.bias.replace(bias) != bias
        {
            self.desc.set(Name::CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias)?;
        }
        let (one, zero) = (1f32, 0f32);
        let pointer = |v: &f32| std::ptr::from_ref(v).cast::<c_void>();
        let [b_layout, a_layout, c_layout] = self.layouts.each_ref().map(|l| l.0);
        // SAFETY: handle, descriptors and algorithm belong together; the factors of the sum are read in the call; the rest as the
        // caller promises.
        let status = unsafe {
            sys::cublasLtMatmul(
                handle.0,
                self.desc.0,
                pointer(&one),
                b as *const c_void,
                b_layout,
                a as *const c_void,
                a_layout,
                pointer(&zero),
                c as *const c_void,
                c_layout,
                c as *mut c_void,
                c_layout,
                &self.algorithm,
                space as *mut c_void,
                self.workspace,
                stream.handle().cast(),
            )
        };
        cublaslt(status, "cublasLtMatmul", &self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn algorithms_survive_as_text() {
        let algorithm = cublasLtMatmulAlgo_t { data: [1, u64::MAX, 0, 7, 0, 0, 0, 0x1f] };
        assert_eq!(parse(&print(&algorithm)).map(|a| a.data), Some(algorithm.data));
        for odd in ["", "1 2 3", "1 2 3 4 5 6 7 x", "1 2 3 4 5 6 7 8 9"] {
            assert!(parse(odd).is_none(), "{odd:?}");
        }
    }
}
