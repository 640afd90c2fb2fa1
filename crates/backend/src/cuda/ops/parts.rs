//! What the blocks of a pass that sums over rows leave for the last of them, which adds it.

use crate::Error;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::memory::Slice;
use crate::cuda::kernels::kernel::Tiling;
use crate::cuda::shared::Shared;

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
