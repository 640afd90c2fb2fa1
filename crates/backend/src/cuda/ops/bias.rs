//! A bias after the library's own pass: its addition where no library fuses it, its gradient with ReLU's mask in the same pass.

use super::parts::{Parts, rows_of};
use crate::Error;
use crate::cuda::driver::memory::{Activation, Slice};
use crate::cuda::kernels::declarations::{BiasBackward, BiasForward};
use crate::cuda::shared::Shared;

/// The output of an operation, (rows, channels).
pub struct Output<'a> {
    pub y: Slice<'a, Activation>,
    pub rows: usize,
    pub channels: usize,
    /// ReLU comes after the bias.
    pub relu: bool,
}

/// Adds `bias` to y.
pub fn forward(shared: &Shared, output: &Output<'_>, bias: Slice<'_, f32>) -> Result<(), Error> {
    let &Output { y, rows, channels, relu } = output;
    let width = shared.geometry().tiling(rows, channels).width as u32;
    let (rows, channels, with_relu) = (rows_of(rows, "a bias")?, channels as u32, i32::from(relu));
    shared.launch(&BiasForward { y, bias, rows, channels, width, with_relu })
}

/// Masks `dy` where y is zero (with ReLU) and leaves its sums over the rows in `dbias`.
pub fn backward(
    shared: &Shared,
    output: &Output<'_>,
    dy: Slice<'_, Activation>,
    parts: &Parts,
    dbias: Slice<'_, f32>,
) -> Result<(), Error> {
    let &Output { y, channels, relu, .. } = output;
    let (rows, channels, width, with_relu) = (parts.rows, channels as u32, parts.width(), i32::from(relu));
    let (partial, arrivals) = (parts.sums(), parts.arrivals());
    shared.launch(&BiasBackward { y, dy, partial, arrivals, rows, channels, width, with_relu, dbias })
}

/// Activations that a backward pass reads and writes for bias and ReLU, of an output of `y` elements.
pub fn traffic(bias: bool, relu: bool, y: usize) -> usize {
    match (bias, relu) {
        (_, true) => 3 * y,
        (true, false) => y,
        (false, false) => 0,
    }
}
