//! Pooling in any layout, with PyTorch's rules for padding and ceil mode. It processes the plane of a channel block at
//! a time. The kernels process some channels of a block, and `step` is the number of elements from a pixel to the next.

use std::rc::Rc;

use base::simd;
use net::{Pool, PoolKind, Window};

use super::buf::AlignedBuf;
use super::device::Cpu;
use super::divide::Items;
use super::fusion::OfferedRelu;
use super::lanes::{by_block, each_stretch};
use super::threads::Threads;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc};

/// Stands for the winner of a window that passes no gradient.
const NONE: u32 = u32::MAX;

/// A pooling planned for a fixed batch size. Max pooling remembers which cell of each window had the maximum (the
/// winner).
struct Plan {
    threads: Threads,
    kind: PoolKind,
    x: TensorDesc,
    y: TensorDesc,
    grid: Grid,
    winners: Vec<u32>,
    /// The ReLU of the previous operation, if this pooling also computes its gradient.
    relu: Option<Rc<OfferedRelu>>,
}

/// The windows along both axes of a plane with `width` columns.
struct Grid {
    rows: Vec<Window>,
    columns: Vec<Window>,
    width: usize,
    /// Number of columns in the widest window. It is used to number the cells of a window.
    stride: usize,
    /// True if each pixel is in exactly one window, so that gradients need not be added.
    partition: bool,
}

/// Returns true if each of `pixels` positions is in exactly one window.
fn is_partition(windows: &[Window], pixels: usize) -> bool {
    let end = windows.iter().try_fold(0, |end, window| (window.from == end).then_some(window.to));
    end == Some(pixels)
}

simd! {
    /// Computes max pooling of a plane. If `masks_relu` is set, windows with a maximum of at most 0 have no winner.
    fn max_plane<B: usize>(g: &Grid, step: usize, masks_relu: bool, x: &[f32], y: &mut [f32], winners: &mut [u32]) {
        let mut out = 0;
        for r in &g.rows {
            for c in &g.columns {
                let (mut best, mut who) = ([f32::NEG_INFINITY; B], [0u32; B]);
                for h in r.from..r.to {
                    for w in c.from..c.to {
                        let cell = ((h - r.from) * g.stride + w - c.from) as u32;
                        let x = &x[(h * g.width + w) * step..][..B];
                        for lane in 0..B {
                            let wins = x[lane] > best[lane] || x[lane].is_nan();
                            best[lane] = if wins { x[lane] } else { best[lane] };
                            who[lane] = if wins { cell } else { who[lane] };
                        }
                    }
                }
                y[out..out + B].copy_from_slice(&best);
                if let Some(to) = winners.get_mut(out..out + B) {
                    for lane in 0..B {
                        who[lane] = if masks_relu && best[lane] <= 0.0 { NONE } else { who[lane] };
                    }
                    to.copy_from_slice(&who);
                }
                out += step;
            }
        }
    }
}

simd! {
    fn max_plane_back<B: usize>(g: &Grid, step: usize, dy: &[f32], winners: &[u32], dx: &mut [f32]) {
        let mut out = 0;
        for r in &g.rows {
            for c in &g.columns {
                let (dy, who) = (&dy[out..out + B], &winners[out..out + B]);
                for h in r.from..r.to {
                    for w in c.from..c.to {
                        let cell = ((h - r.from) * g.stride + w - c.from) as u32;
                        let dx = &mut dx[(h * g.width + w) * step..][..B];
                        for lane in 0..B {
                            // A mask instead of a branch, so that all lanes are computed at once.
                            let mask = u32::from(who[lane] == cell).wrapping_neg();
                            let won = f32::from_bits(dy[lane].to_bits() & mask);
                            dx[lane] = if g.partition { won } else { dx[lane] + won };
                        }
                    }
                }
                out += step;
            }
        }
    }
}

simd! {
    fn mean_plane<B: usize>(g: &Grid, step: usize, padded: bool, x: &[f32], y: &mut [f32]) {
        let mut out = 0;
        for r in &g.rows {
            for c in &g.columns {
                let mut sum = [0f32; B];
                for h in r.from..r.to {
                    for w in c.from..c.to {
                        let x = &x[(h * g.width + w) * step..][..B];
                        for lane in 0..B {
                            sum[lane] += x[lane];
                        }
                    }
                }
                let share = share(*r, *c, padded);
                for (y, s) in y[out..out + B].iter_mut().zip(sum) {
                    *y = s * share;
                }
                out += step;
            }
        }
    }
}

simd! {
    fn mean_plane_back<B: usize>(g: &Grid, step: usize, padded: bool, dy: &[f32], dx: &mut [f32]) {
        let mut out = 0;
        for r in &g.rows {
            for c in &g.columns {
                let share = share(*r, *c, padded);
                let dy = &dy[out..out + B];
                for h in r.from..r.to {
                    for w in c.from..c.to {
                        let dx = &mut dx[(h * g.width + w) * step..][..B];
                        for lane in 0..B {
                            dx[lane] = dy[lane].mul_add(share, dx[lane]);
                        }
                    }
                }
                out += step;
            }
        }
    }
}

/// Returns 1 / divisor of an average.
fn share(r: Window, c: Window, padded: bool) -> f32 {
    let cells = if padded { r.padded * c.padded } else { (r.to - r.from) * (c.to - c.from) };
    1.0 / cells as f32
}

pub(super) fn plan(cpu: &Cpu, op: &Pool, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    let x = r.x[0];
    let wrong = |why| Error::Unsupported { op: r.name.into(), why };
    let (rows, columns) = (op.windows(x.shape, 0).map_err(wrong)?, op.windows(x.shape, 1).map_err(wrong)?);
    let [_, stride] = op.extent(x.shape);
    let y = x.with_shape(r.output()?);
    let remember = r.train && op.kind == PoolKind::Max;
    let count = if remember { y.elems() } else { 0 };
    let mut winners = Vec::new();
    let memory = |_| Error::Memory { what: r.name.into(), bytes: count * 4 };
    winners.try_reserve_exact(count).map_err(memory)?;
    winners.resize(count, 0);
    let relu = r.input_fusion.filter(|_| remember).and_then(|fusion| fusion.relu.get().cloned());
    relu.iter().for_each(|relu| relu.accept());
    let partition = is_partition(&rows, x.shape.h) && is_partition(&columns, x.shape.w);
    let grid = Grid { rows, columns, width: x.shape.w, stride, partition };
    Ok(Box::new(Plan { threads: cpu.threads, kind: op.kind, x, y, grid, winners, relu }))
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

    fn state_bytes(&self) -> usize {
        self.winners.len() * 4
    }

    fn tensors_for_backward(&self) -> Keeps {
        Keeps::NOTHING
    }

    fn implementation(&self) -> String {
        self.relu.as_ref().map_or_else(|| "own".into(), |relu| format!("own + ReLU's gradient of {}", relu.op_name))
    }

    fn forward(&mut self, _: &Pass<'_, Cpu>, x: &[&AlignedBuf], y: &mut AlignedBuf) -> Result<(), Error> {
        let (px, py) = self.planes();
        let x = x[0].as_slice();
        let parts = (Items::new(y.as_mut_slice(), py), Items::new(&mut self.winners, py));
        let (grid, block, kind) = (&self.grid, self.x.block, self.kind);
        let masks_relu = self.relu.is_some();
        self.threads.divide(self.x.n * self.x.blocks(), parts, |planes, (y, winners)| {
            let mut winners = winners.chunks_exact_mut(py);
            for (p, y) in planes.zip(y.chunks_exact_mut(py)) {
                let (x, winners) = (&x[p * px..][..px], winners.next().unwrap_or_default());
                each_stretch(block, |first, width| {
                    let (x, y, winners) = (&x[first..], &mut y[first..], winners.get_mut(first..).unwrap_or_default());
                    if kind == PoolKind::Max {
                        by_block!(width, max_plane(grid, block, masks_relu, x, y, winners));
                    } else {
                        by_block!(width, mean_plane(grid, block, kind == PoolKind::AvgCountPad, x, y));
                    }
                });
            }
        });
        Ok(())
    }

    fn backward(&mut self, _: &Pass<'_, Cpu>, mut g: Gradients<'_, Cpu>) -> Result<(), Error> {
        let Some(dx) = g.take_dx(0) else { return Ok(()) };
        let (px, py) = self.planes();
        let (grid, block, kind) = (&self.grid, self.x.block, self.kind);
        let (dy, winners) = (g.dy.as_slice(), &self.winners);
        let count = self.x.n * self.x.blocks();
        self.threads.each_item(&mut dx.as_mut_slice()[..count * px], px, |p, dx| {
            if !(grid.partition && kind == PoolKind::Max) {
                dx.fill(0.0);
            }
            each_stretch(block, |first, width| {
                let (at, dx) = (p * py + first..(p + 1) * py, &mut dx[first..]);
                if kind == PoolKind::Max {
                    by_block!(width, max_plane_back(grid, block, &dy[at.clone()], &winners[at], dx));
                } else {
                    by_block!(width, mean_plane_back(grid, block, kind == PoolKind::AvgCountPad, &dy[at], dx));
                }
            });
        });
        Ok(())
    }
}
