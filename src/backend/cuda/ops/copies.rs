//! Parameters in the type of activations, where that is not f32: the libraries read copies, which every forward pass makes anew.

use crate::backend::Error;
use crate::backend::cuda::driver::memory::CudaBuf;
use crate::backend::cuda::driver::slice::Slice;
use crate::backend::cuda::kernels::elementwise::{CastGradients, CastWeights};
use crate::backend::cuda::settings::Precision;
use crate::backend::cuda::shared::Shared;

/// Copies of one layer's parameters.
pub struct Copies {
    pub weights: CudaBuf,
    /// The gradient of the weights; empty where a library writes it in f32.
    pub gradient: CudaBuf,
    pub bias: CudaBuf,
}

/// Elements of each copy.
pub struct Sizes {
    pub weights: usize,
    pub gradient: usize,
    pub bias: usize,
}

impl Copies {
    /// None where activations are f32.
    pub fn new(shared: &Shared, sizes: Sizes, what: &str) -> Result<Option<Self>, Error> {
        if shared.settings.precision == Precision::F32 {
            return Ok(None);
        }
        let half = |elems: usize| shared.alloc(elems.div_ceil(2), what);
        Ok(Some(Self { weights: half(sizes.weights)?, gradient: half(sizes.gradient)?, bias: half(sizes.bias)? }))
    }

    /// Bytes of all copies.
    pub fn bytes(&self) -> usize {
        self.weights.bytes() + self.gradient.bytes() + self.bias.bytes()
    }
}

/// A parameter as the libraries read it: itself, or its copy, made anew.
pub fn copied<'a>(shared: &Shared, from: Slice<'a, f32>, copy: Option<&'a CudaBuf>) -> Result<Slice<'a, u8>, Error> {
    let Some(copy) = copy else { return Ok(from.bytes()) };
    let to = copy.activations(shared.settings.precision);
    shared.launch(&CastWeights { from, to, n: from.len() as u64 })?;
    Ok(to.bytes())
}

/// Brings a gradient from its copy to its place among the parameters' gradients.
pub fn restore(shared: &Shared, copy: &CudaBuf, to: Slice<'_, f32>) -> Result<(), Error> {
    let from = copy.activations(shared.settings.precision);
    shared.launch(&CastGradients { from, to, n: to.len() as u64 })
}
