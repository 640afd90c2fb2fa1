//! A bias after the library's own pass: its addition where no library fuses it, its gradient with ReLU's mask in the same pass.

use crate::Error;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::{Activation, Slice};
use crate::cuda::kernels::declarations::{BiasBackward, BiasForward};
use crate::cuda::kernels::kernel::Tiling;
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

// What the blocks of a pass that sums over rows leave for the last of them, which adds it.

/// Rows of a matrix as the kernels of columns.cuh count them; fails from 2^31 on.
pub fn rows_of(rows: usize, what: &str) -> Result<u32, Error> {
    let counted = i32::try_from(rows).map(i32::cast_unsigned);
    let size =
        || Error::Size { op: what.into(), expected: "fewer than 2^31 pixels a batch".into(), got: rows.to_string() };
    counted.map_err(|_| size())
}

/// Room for the sums of every block, and a counter a tile of the blocks that are through, zero between passes.
pub struct Parts {
    pub rows: u32,
    pub tiling: Tiling,
    sums: CudaBuf,
    arrivals: CudaBuf,
}

impl Parts {
    /// For passes over a matrix (rows, channels) with up to `each` sums a channel.
    pub fn new(shared: &Shared, rows: usize, channels: usize, each: usize, what: &str) -> Result<Self, Error> {
        let tiling = shared.geometry().tiling(rows, channels);
        let sums = shared.alloc(2 * tiling.parts(each), what)?;
        let rows = rows_of(rows, what)?;
        Ok(Self { rows, tiling, sums, arrivals: shared.alloc(tiling.tiles, what)? })
    }

    /// Channels of a tile, as kernels take it.
    pub fn width(&self) -> u32 {
        self.tiling.width as u32
    }

    pub fn sums(&self) -> Slice<'_, f64> {
        self.sums.slice()
    }

    pub fn arrivals(&self) -> Slice<'_, u32> {
        self.arrivals.slice()
    }

    pub fn bytes(&self) -> usize {
        self.sums.bytes() + self.arrivals.bytes()
    }
}
