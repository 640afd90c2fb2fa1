//! Blurred downsampling. It processes the plane of a channel block at a time.

use base::simd;
use net::BlurPool;

use super::buf::AlignedBuf;
use super::device::Cpu;
use super::lanes::by_block;
use super::threads::Threads;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc};

struct Plan {
    threads: Threads,
    x: TensorDesc,
    y: TensorDesc,
    grid: Grid,
}

/// The input rows and columns that each output row and column reads, and the filter's weights.
struct Grid {
    rows: Vec<Vec<usize>>,
    columns: Vec<Vec<usize>>,
    weights: Vec<f32>,
    /// Width of an input plane in pixels.
    width: usize,
}

simd! {
    fn blur_plane<B: usize>(g: &Grid, x: &[f32], y: &mut [f32]) {
        let mut y = y.chunks_exact_mut(B);
        for row in &g.rows {
            for (column, y) in g.columns.iter().zip(&mut y) {
                let mut sum = [0f32; B];
                for (h, v) in row.iter().zip(&g.weights) {
                    for (w, u) in column.iter().zip(&g.weights) {
                        let (x, weight) = (&x[(h * g.width + w) * B..][..B], u * v);
                        for lane in 0..B {
                            sum[lane] = x[lane].mul_add(weight, sum[lane]);
                        }
                    }
                }
                y.copy_from_slice(&sum);
            }
        }
    }
}

simd! {
    fn blur_plane_back<B: usize>(g: &Grid, dy: &[f32], dx: &mut [f32]) {
        dx.fill(0.0);
        let mut dy = dy.chunks_exact(B);
        for row in &g.rows {
            for (column, dy) in g.columns.iter().zip(&mut dy) {
                for (h, v) in row.iter().zip(&g.weights) {
                    for (w, u) in column.iter().zip(&g.weights) {
                        let (dx, weight) = (&mut dx[(h * g.width + w) * B..][..B], u * v);
                        for lane in 0..B {
                            dx[lane] = dy[lane].mul_add(weight, dx[lane]);
                        }
                    }
                }
            }
        }
    }
}

pub(super) fn plan(cpu: &Cpu, op: &BlurPool, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    let (x, wrong) = (r.x[0], |why| Error::Unsupported { op: r.name.into(), why });
    let (rows, columns) = (op.cells(x.shape, 0).map_err(wrong)?, op.cells(x.shape, 1).map_err(wrong)?);
    let grid = Grid { rows, columns, weights: op.weights(), width: x.shape.w };
    Ok(Box::new(Plan { threads: cpu.threads, x, y: x.with_shape(r.output()?), grid }))
}

impl Plan {
    /// Returns the elements per channel-block plane, first in the input, then in the output.
    fn planes(&self) -> (usize, usize) {
        (self.x.shape.plane() * self.x.block, self.y.shape.plane() * self.y.block)
    }
}

impl Planned<Cpu> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn keeps(&self) -> Keeps {
        Keeps::NOTHING
    }

    fn forward(&mut self, _: &Pass<'_, Cpu>, x: &[&AlignedBuf], y: &mut AlignedBuf) -> Result<(), Error> {
        let ((px, py), n, grid, x) = (self.planes(), self.y.elems(), &self.grid, x[0].as_slice());
        self.threads.split(&mut y.as_mut_slice()[..n], py, |first, run| {
            for (p, y) in (first..).zip(run.chunks_exact_mut(py)) {
                by_block!(self.x.block, blur_plane(grid, &x[p * px..][..px], y));
            }
        });
        Ok(())
    }

    fn backward(&mut self, _: &Pass<'_, Cpu>, mut g: Gradients<'_, Cpu>) -> Result<(), Error> {
        let Some(dx) = g.take_dx(0) else { return Ok(()) };
        let ((px, py), n, grid, dy) = (self.planes(), self.x.elems(), &self.grid, g.dy.as_slice());
        self.threads.split(&mut dx.as_mut_slice()[..n], px, |first, run| {
            for (p, dx) in (first..).zip(run.chunks_exact_mut(px)) {
                by_block!(self.x.block, blur_plane_back(grid, &dy[p * py..][..py], dx));
            }
        });
        Ok(())
    }
}
