//! Products of matrices by cuBLASLt, with bias and ReLU in the same pass. The library is column-major, and sees row-major matrices as
//! their transposes.

use std::cell::Cell;
use std::ffi::c_void;
use std::fmt;

use cudarc::cublaslt::sys::{
    self, cublasLtEpilogue_t, cublasLtMatmulDescAttributes_t as ProductAttribute, cudaDataType_t,
};

use super::algorithm::{Algorithm, Problem};
use super::descriptor::{Layout, ProductDescriptor, layout, product};
use super::handle::Handle;
use crate::Error;
use crate::cuda::driver::slice::Slice;
use crate::cuda::driver::status::cublaslt;
use crate::cuda::driver::stream::Stream;
use crate::cuda::settings::Precision;
use crate::cuda::shared::Shared;

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

    fn elems(&self) -> usize {
        self.rows * self.columns
    }
}

/// What comes behind the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Epilogue {
    Nothing,
    /// A bias of one value a column.
    Bias,
    /// The same, then max(., 0).
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

/// c = a b, to be planned.
pub struct Wanted<'a> {
    /// a and b.
    pub factors: [Factor; 2],
    /// Whether c is f32 whatever the precision.
    pub wide: bool,
    pub epilogue: Epilogue,
    /// The operation, by which its algorithm is known, and its number of images.
    pub operation: String,
    pub n: usize,
    /// For messages.
    pub name: &'a str,
}

/// Bytes that a product touches.
#[derive(Clone, Copy)]
struct Sizes {
    /// a, b and c.
    matrices: [usize; 3],
    /// 0 where it takes no bias.
    bias: usize,
}

/// c = a b, all row-major, planned.
pub struct Product {
    descriptor: ProductDescriptor,
    /// Of b, a and c: of the transposes, the second factor comes first.
    layouts: [Layout; 3],
    algorithm: Algorithm,
    sizes: Sizes,
    /// The bias of the last run.
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
    /// Plans a product in the settings' precision, by the algorithm that is in use for its operation.
    pub fn new(shared: &Shared, wanted: &Wanted<'_>) -> Result<Self, Error> {
        let (settings, [a, b]) = (&shared.settings, wanted.factors);
        let ((rows, inner), (_, columns)) = (a.size(), b.size());
        let kind = data_type(settings.precision);
        let out = if wanted.wide { Precision::F32 } else { settings.precision };
        let descriptor = product(settings)?;
        // c' = b' a': the second factor comes first
        descriptor.describe(ProductAttribute::CUBLASLT_MATMUL_DESC_TRANSA, i32::from(b.transposed))?;
        descriptor.describe(ProductAttribute::CUBLASLT_MATMUL_DESC_TRANSB, i32::from(a.transposed))?;
        descriptor.describe(ProductAttribute::CUBLASLT_MATMUL_DESC_EPILOGUE, wanted.epilogue.raw())?;
        let layouts = [
            layout(kind, b.rows, b.columns)?,
            layout(kind, a.rows, a.columns)?,
            layout(data_type(out), rows, columns)?,
        ];
        let name = format!("{} ({rows} x {inner} x {columns})", wanted.name);
        let problem = Problem { handle: shared.cublaslt()?, product: &descriptor, layouts: &layouts, settings };
        let propose = || problem.propose(&name).map(|found| (found.text(), found));
        let algorithm = shared.chosen.get(&wanted.operation, wanted.n, |text| problem.again(text), propose)?;
        let width = settings.precision.bytes();
        let sizes = Sizes {
            matrices: [width * a.elems(), width * b.elems(), out.bytes() * rows * columns],
            bias: if wanted.epilogue.takes_bias() { width * columns } else { 0 },
        };
        Ok(Self { descriptor, layouts, algorithm, sizes, bias: Cell::new(0), name })
    }

    /// Bytes of work space.
    pub fn workspace(&self) -> usize {
        self.algorithm.workspace
    }

    /// Fails where memory is smaller than the product needs.
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
            return Err(Error::Unsupported { op: self.name.clone(), why: "it was given no bias".into() });
        }
        space.require(self.algorithm.workspace, &self.name)
    }

    /// Enqueues c = a b over this memory, which is checked. The stream's context must be bound.
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
        // SAFETY: handle, descriptors and algorithm belong together; the memory is large enough (checked), and the driver frees it only
        // after the work that is enqueued on it; the factors of the sum are read in the call.
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
