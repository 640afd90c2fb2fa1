//! Bias kernels for operations of the libraries: the addition, if no library fuses it, and the gradient together with
//! ReLU's mask.

use crate::Error;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::{Activation, Slice};
use crate::cuda::kernels::declarations::{BiasBackward, BiasForward};
use crate::cuda::kernels::kernel::Tiling;
use crate::cuda::shared::Shared;

/// Adds `bias` to y, which has shape (rows, channels), then applies ReLU if `relu` is set.
pub fn forward(
    shared: &Shared,
    y: Slice<'_, Activation>,
    [rows, channels]: [usize; 2],
    relu: bool,
    bias: Slice<'_, f32>,
) -> Result<(), Error> {
    let width = shared.geometry().tiling(rows, channels).width as u32;
    let (rows, channels, with_relu) = (rows_of(rows, "a bias")?, channels as u32, i32::from(relu));
    shared.launch(&BiasForward { y, bias, rows, channels, width, with_relu })
}

/// Writes the sums of `dy` over the rows to `dbias`. `relu_output` is the output of the ReLU that follows the bias, if
/// there is one. Then `dy` is first set to zero where this output is zero.
pub fn backward(
    shared: &Shared,
    relu_output: Option<Slice<'_, Activation>>,
    dy: Slice<'_, Activation>,
    channels: usize,
    parts: &PartialSums,
    dbias: Slice<'_, f32>,
) -> Result<(), Error> {
    let (y, with_relu) = (relu_output, i32::from(relu_output.is_some()));
    let (rows, channels, width) = (parts.rows, channels as u32, parts.width());
    let (partial, arrivals) = (parts.sums(), parts.arrivals());
    shared.launch(&BiasBackward { y, dy, partial, arrivals, rows, channels, width, with_relu, dbias })
}

/// Returns the number of activations that a backward pass reads and writes for bias and ReLU. The output has `y`
/// elements.
pub fn traffic(bias: bool, relu: bool, y: usize) -> usize {
    match (bias, relu) {
        (_, true) => 3 * y,
        (true, false) => y,
        (false, false) => 0,
    }
}

// Partial results in a pass that sums over rows. Each block writes its sums, and the last block adds them.

/// Converts the number of rows to the type that columns.cuh uses. Returns an error from 2^31 on.
pub fn rows_of(rows: usize, what: &str) -> Result<u32, Error> {
    let counted = i32::try_from(rows).map(i32::cast_unsigned);
    let size =
        || Error::Size { op: what.into(), expected: "fewer than 2^31 pixels per batch".into(), got: rows.to_string() };
    counted.map_err(|_| size())
}

/// Memory for each block's sums, and a counter of finished blocks per tile. The counters are zero between passes.
pub struct PartialSums {
    pub rows: u32,
    pub tiling: Tiling,
    sums: CudaBuf,
    arrivals: CudaBuf,
}

impl PartialSums {
    /// Allocates memory for passes over a (rows, channels) matrix, as a whole or as `groups` groups of rows, with up to
    /// `each` sums per channel.
    pub fn new(
        shared: &Shared,
        rows: usize,
        groups: usize,
        channels: usize,
        each: usize,
        what: &str,
    ) -> Result<Self, Error> {
        let tiling = shared.geometry().tiling(rows, channels);
        let of_groups = groups * shared.geometry().group_tiling(rows, channels, groups).parts(each);
        let sums = shared.alloc(2 * of_groups.max(tiling.parts(each)), what)?;
        let rows = rows_of(rows, what)?;
        Ok(Self { rows, tiling, sums, arrivals: shared.alloc(tiling.tiles * groups, what)? })
    }

    /// Returns the channels per tile as kernels expect them.
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
