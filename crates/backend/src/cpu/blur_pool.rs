//! Blurred downsampling. It processes the plane of a channel block at a time.

use std::rc::Rc;

use base::simd;
use net::BlurPool;

use super::device::Cpu;
use super::lanes::by_block;
use crate::planned::unary;
use crate::{Error, Keeps, PlanRequest, Planned};

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
    let grid = Rc::new(Grid { rows, columns, weights: op.weights(), width: x.shape.w });
    let (threads, y, grid_back) = (cpu.threads, x.with_shape(r.output()?), grid.clone());
    let [x_plane, y_plane] = [x, y].map(|desc| desc.shape.plane() * desc.block);
    unary::<Cpu>(
        y,
        Keeps::NOTHING,
        move |from, to| {
            let (grid, from) = (&*grid, from.as_slice());
            threads.each_item(&mut to.as_mut_slice()[..y.elems()], y_plane, |p, to| {
                by_block!(x.block, blur_plane(grid, &from[p * x_plane..][..x_plane], to));
            });
        },
        move |_, dy, dx| {
            let (grid, dy) = (&*grid_back, dy.as_slice());
            threads.each_item(&mut dx.as_mut_slice()[..x.elems()], x_plane, |p, dx| {
                by_block!(x.block, blur_plane_back(grid, &dy[p * y_plane..][..y_plane], dx));
            });
        },
    )
}
