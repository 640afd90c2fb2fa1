//! Pooling. The backward pass gathers: for each input cell it adds the gradients of all windows that contain the cell,
//! in a fixed order.

use std::rc::Rc;

use net::{OpSpec, Pool, PoolKind, Window};

use super::unary;
use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::{Activation, Slice};
use crate::cuda::kernels::kernel::kernels;
use crate::cuda::layout::channels_last;
use crate::cuda::shared::Shared;
use crate::{Error, PlanRequest, Planned, Traffic};

// The tables of windows never refer to cells outside an image.
kernels! {
    /// Computes y from x. `best` gets each window's winning cell, in one byte or four.
    pool_forward: PoolForward over threads(n * out_h * out_w * c) {
        x: [Activation; n * h * w * c],
        y: [Activation; n * out_h * out_w * c],
        best: (null or [u8; n * out_h * out_w * c * if byte_index == 0 { 4 } else { 1 }]),
        byte_index: i32,
        rows: [i32; 3 * out_h],
        columns: [i32; 3 * out_w],
        n: u32,
        h: u32,
        w: u32,
        c: u32,
        out_h: u32,
        out_w: u32,
        kind: i32,
    }

    /// Gathers dx from the windows that contain each cell.
    pool_backward: PoolBackward over threads(n * h * w * c) {
        dy: [Activation; n * out_h * out_w * c],
        dx: [Activation; n * h * w * c],
        best: (null or [u8; n * out_h * out_w * c * if byte_index == 0 { 4 } else { 1 }]),
        byte_index: i32,
        rows: [i32; 3 * out_h],
        columns: [i32; 3 * out_w],
        over_rows: [i32; 2 * h],
        over_columns: [i32; 2 * w],
        n: u32,
        h: u32,
        w: u32,
        c: u32,
        out_h: u32,
        out_w: u32,
        kind: i32,
    }
}

/// The private memory of a pool.
struct Memory {
    /// Windows along the rows and the columns, then the range of outputs for each input row and column.
    tables: [CudaBuf; 4],
    /// For each window, the index of its winning cell, which the gradient of the maximum needs.
    best: CudaBuf,
}

/// Returns first cell, end, and number of cells with padding, for each window.
fn windows_table(windows: &[Window]) -> Vec<u32> {
    windows.iter().flat_map(|w| [w.from as u32, w.to as u32, w.padded as u32]).collect()
}

/// For each of `size` cells, returns the first output with a window that contains the cell, and the output after the
/// last one. Windows must begin and end in order.
fn holders_table(windows: &[Window], size: usize) -> Vec<u32> {
    let holders = |cell: usize| {
        let first = windows.partition_point(|w| w.to <= cell);
        let last = windows.partition_point(|w| w.from <= cell);
        [first as u32, last.max(first) as u32]
    };
    (0..size).flat_map(holders).collect()
}

pub fn plan(gpu: &Cuda, op: &Pool, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    let (shared, x) = (&gpu.shared, r.x[0]);
    let wrong = |why| Error::Unsupported { op: r.name.into(), why };
    let shape = op.output(&[x.shape]).map_err(wrong)?;
    let (rows, columns) = (op.windows(x.shape, 0).map_err(wrong)?, op.windows(x.shape, 1).map_err(wrong)?);
    let longest = |windows: &[Window]| windows.iter().map(|w| w.to - w.from).max().unwrap_or(0);
    let in_bytes = longest(&rows) * longest(&columns) <= 256;
    let y = channels_last(x.n, shape);
    let words = if in_bytes { y.elems().div_ceil(4) } else { y.elems() };
    let table = |values: Vec<u32>| shared.constant(&values, r.name);
    let tables = [
        table(windows_table(&rows))?,
        table(windows_table(&columns))?,
        table(holders_table(&rows, x.shape.h))?,
        table(holders_table(&columns, x.shape.w))?,
    ];
    let best = shared.alloc(if r.train && op.kind == PoolKind::Max { words } else { 0 }, r.name)?;
    let (best_bytes, both) = (best.bytes(), x.elems() + y.elems());
    let bytes = tables.iter().map(CudaBuf::bytes).sum::<usize>() + best_bytes;
    let Traffic { forward, backward } = shared.traffic(both, both);
    let traffic = Traffic { forward: forward + best_bytes, backward: backward + best_bytes };
    // the kernels' number for the kind
    let kind = match op.kind {
        PoolKind::Max => 0,
        PoolKind::Avg => 1,
        PoolKind::AvgCountPad => 2,
    };
    let [n, h, w, c, out_h, out_w] = [x.n, x.shape.h, x.shape.w, x.shape.c, shape.h, shape.w].map(|v| v as u32);
    let (byte_index, memory) = (i32::from(in_bytes), Rc::new(Memory { tables, best }));
    let memory_of_backward = memory.clone();
    let forward = move |shared: &Shared, x: Slice<'_, Activation>, y: Slice<'_, Activation>| {
        let Memory { tables, best } = &*memory;
        let ([rows, columns, ..], best) = (tables.each_ref().map(CudaBuf::slice), best.optional());
        shared.launch(&PoolForward { x, y, best, byte_index, rows, columns, n, h, w, c, out_h, out_w, kind })
    };
    let backward = move |shared: &Shared, dy: Slice<'_, Activation>, dx: Slice<'_, Activation>| {
        let Memory { tables, best } = &*memory_of_backward;
        let [rows, columns, over_rows, over_columns] = tables.each_ref().map(CudaBuf::slice);
        shared.launch(&PoolBackward {
            dy,
            dx,
            best: best.optional(),
            byte_index,
            rows,
            columns,
            over_rows,
            over_columns,
            n,
            h,
            w,
            c,
            out_h,
            out_w,
            kind,
        })
    };
    unary::plan(gpu, [x, y], traffic, bytes, forward, backward)
}

#[cfg(test)]
mod tests {
    use super::*;
    use net::Shape;

    #[test]
    fn each_cell_finds_exactly_the_pool_windows_that_contain_it() {
        let shape = Shape::image(1, 11, 9);
        let pools = [
            Pool::new(PoolKind::Max, 3, 2).pads([1; 4]),
            Pool::new(PoolKind::Avg, 2, 3).ceil(),
            Pool::new(PoolKind::Max, 3, 1),
            Pool::global(),
            Pool::adaptive(4),
        ];
        for pool in pools {
            for (axis, size) in [(0, shape.h), (1, shape.w)] {
                let windows = pool.windows(shape, axis).unwrap();
                let table = holders_table(&windows, size);
                for cell in 0..size {
                    let found: Vec<usize> = (table[2 * cell] as usize..table[2 * cell + 1] as usize).collect();
                    let holds = |i: &usize| (windows[*i].from..windows[*i].to).contains(&cell);
                    let want: Vec<usize> = (0..windows.len()).filter(holds).collect();
                    assert_eq!(found, want, "{pool:?}, axis {axis}, cell {cell}");
                }
            }
        }
    }
}
