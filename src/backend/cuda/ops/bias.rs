//! The gradient of a bias, with ReLU's mask in the same pass.

use crate::backend::Error;
use crate::backend::cuda::driver::memory::CudaBuf;
use crate::backend::cuda::driver::slice::{Activation, Slice};
use crate::backend::cuda::kernels::bias::{BiasBackward, BiasGradient};
use crate::backend::cuda::shared::Shared;

/// The output of an operation and its gradient, (rows, channels).
pub struct Output<'a> {
    pub y: Slice<'a, Activation>,
    pub dy: Slice<'a, Activation>,
    pub rows: usize,
    pub channels: usize,
}

/// Room for the parts of the gradient: a sum for each channel of each block row.
pub fn partial(shared: &Shared, rows: usize, channels: usize, what: &str) -> Result<CudaBuf, Error> {
    shared.alloc(2 * shared.geometry().columns(rows, channels).y * channels, what)
}

/// Masks `dy` where `y` is zero (with `relu`) and leaves its sums over the rows in `dbias`.
pub fn backward(
    shared: &Shared,
    output: Output<'_>,
    relu: bool,
    partial: &CudaBuf,
    dbias: Slice<'_, f32>,
) -> Result<(), Error> {
    let Output { y, dy, rows, channels } = output;
    let splits = shared.geometry().columns(rows, channels).y as u32;
    let (partial, channels, with_relu) = (partial.slice(), channels as u32, i32::from(relu));
    shared.launch(&BiasBackward { y, dy, partial, rows: rows as u64, channels, with_relu })?;
    shared.launch(&BiasGradient { partial, splits, dbias, channels })
}
