//! Pooling. The backward pass gathers: for each input cell it adds the gradients of all windows that contain the cell,
//! in a fixed order.

use std::rc::Rc;

use net::{OpSpec, Pool, PoolKind, Window};

use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::Activation;
use crate::cuda::kernels::kernel::kernels;
use crate::cuda::layout::channels_last;
use crate::cuda::shared::Shared;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc, Traffic};

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

pub struct Plan {
    shared: Rc<Shared>,
    kind: PoolKind,
    x: TensorDesc,
    y: TensorDesc,
    /// Windows along the rows and the columns, then the range of outputs for each input row and column.
    tables: [CudaBuf; 4],
    /// For each window, the index of its winning cell, which the gradient of the maximum needs.
    best: CudaBuf,
    byte_index: bool,
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

impl Plan {
    pub fn new(shared: &Rc<Shared>, op: &Pool, r: &PlanRequest<'_, Cuda>) -> Result<Self, Error> {
        let x = r.x[0];
        let wrong = |why| Error::Unsupported { op: r.name.into(), why };
        let shape = op.output(&[x.shape]).map_err(wrong)?;
        let (rows, columns) = (op.windows(x.shape, 0).map_err(wrong)?, op.windows(x.shape, 1).map_err(wrong)?);
        let longest = |windows: &[Window]| windows.iter().map(|w| w.to - w.from).max().unwrap_or(0);
        let byte_index = longest(&rows) * longest(&columns) <= 256;
        let y = channels_last(x.n, shape);
        let keeps = r.train && op.kind == PoolKind::Max;
        let words = if byte_index { y.elems().div_ceil(4) } else { y.elems() };
        let table = |values: Vec<u32>| shared.constant(&values, r.name);
        let tables = [
            table(windows_table(&rows))?,
            table(windows_table(&columns))?,
            table(holders_table(&rows, x.shape.h))?,
            table(holders_table(&columns, x.shape.w))?,
        ];
        let best = shared.alloc(if keeps { words } else { 0 }, r.name)?;
        Ok(Self { shared: shared.clone(), kind: op.kind, x, y, tables, best, byte_index })
    }

    /// Returns the number of images, then the sizes of x and y.
    fn sizes(&self) -> [u32; 6] {
        let (x, y) = (self.x.shape, self.y.shape);
        [self.x.n, x.h, x.w, x.c, y.h, y.w].map(|v| v as u32)
    }

    /// Returns the kernels' number for the kind.
    fn kind(&self) -> i32 {
        match self.kind {
            PoolKind::Max => 0,
            PoolKind::Avg => 1,
            PoolKind::AvgCountPad => 2,
        }
    }
}

pub fn plan(gpu: &Cuda, op: &Pool, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    Ok(Box::new(Plan::new(&gpu.shared, op, r)?))
}

impl Planned<Cuda> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn state_bytes(&self) -> usize {
        self.tables.iter().map(CudaBuf::bytes).sum::<usize>() + self.best.bytes()
    }

    fn keeps(&self) -> Keeps {
        // the gradient of the maximum needs only the indices in `best`
        Keeps::NOTHING
    }

    fn traffic(&self, _: bool) -> Option<Traffic> {
        let (both, best) = (self.x.elems() + self.y.elems(), self.best.bytes());
        let Traffic { forward, backward } = self.shared.traffic(both, both);
        Some(Traffic { forward: forward + best, backward: backward + best })
    }

    fn forward(&mut self, _: &Pass<'_, Cuda>, x: &[&CudaBuf], y: &mut CudaBuf) -> Result<(), Error> {
        let shared = &self.shared;
        let (x, y) = (shared.holds(x[0], self.x.elems())?, shared.holds(y, self.y.elems())?);
        let [rows, columns, ..] = self.tables.each_ref().map(CudaBuf::slice);
        let (best, byte_index, kind) = (self.best.optional(), i32::from(self.byte_index), self.kind());
        let [n, h, w, c, out_h, out_w] = self.sizes();
        shared.launch(&PoolForward { x, y, best, byte_index, rows, columns, n, h, w, c, out_h, out_w, kind })
    }

    fn backward(&mut self, _: &Pass<'_, Cuda>, mut g: Gradients<'_, Cuda>) -> Result<(), Error> {
        let Some(dx) = g.take_dx(0) else { return Ok(()) };
        let shared = &self.shared;
        let (dy, dx) = (shared.holds(g.dy, self.y.elems())?, shared.holds(dx, self.x.elems())?);
        let [rows, columns, over_rows, over_columns] = self.tables.each_ref().map(CudaBuf::slice);
        let [n, h, w, c, out_h, out_w] = self.sizes();
        shared.launch(&PoolBackward {
            dy,
            dx,
            best: self.best.optional(),
            byte_index: i32::from(self.byte_index),
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
            kind: self.kind(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use net::Shape;

    #[test]
    fn every_window_is_found_from_its_cells_and_from_no_others() {
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
