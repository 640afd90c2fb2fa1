//! Pooling, window by window.

use std::rc::Rc;

use net::{Pool, PoolKind, Window};

use super::device::Reference;
use crate::planned::unary;
use crate::{Error, Keeps, PlanRequest, Planned, TensorDesc};

/// Returns true if a value replaces the maximum so far. NaN does, as in PyTorch.
fn wins(v: f32, best: f32) -> bool {
    v > best || v.is_nan()
}

/// The windows of a plane with `plane` pixels in rows of `width`.
struct Grid {
    kind: PoolKind,
    rows: Vec<Window>,
    columns: Vec<Window>,
    plane: usize,
    width: usize,
}

impl Grid {
    /// Calls `f(first input index of the plane, output index, rows, columns)` for every window of this number of planes.
    fn each(&self, planes: usize, mut f: impl FnMut(usize, usize, Window, Window)) {
        let mut y = 0;
        for plane in 0..planes {
            for &r in &self.rows {
                for &c in &self.columns {
                    f(plane * self.plane, y, r, c);
                    y += 1;
                }
            }
        }
    }

    /// Returns the input indices of a window.
    fn cells(&self, plane: usize, r: Window, c: Window) -> impl Iterator<Item = usize> + use<> {
        let width = self.width;
        (r.from..r.to).flat_map(move |h| (c.from..c.to).map(move |w| plane + h * width + w))
    }

    fn divisor(&self, r: Window, c: Window) -> f64 {
        match self.kind {
            PoolKind::AvgCountPad => (r.padded * c.padded) as f64,
            _ => ((r.to - r.from) * (c.to - c.from)) as f64,
        }
    }
}

pub(super) fn plan(op: &Pool, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    let (x, wrong) = (r.x[0], |why| Error::Unsupported { op: r.name.into(), why });
    let (rows, columns) = (op.windows(x.shape, 0).map_err(wrong)?, op.windows(x.shape, 1).map_err(wrong)?);
    let grid = Rc::new(Grid { kind: op.kind, rows, columns, plane: x.shape.plane(), width: x.shape.w });
    let (back, planes) = (grid.clone(), x.n * x.shape.c);
    unary::<Reference>(
        TensorDesc::plain(x.n, r.output()?),
        Keeps::ALL,
        move |x, y| {
            grid.each(planes, |plane, to, r, c| {
                let cells = grid.cells(plane, r, c).map(|i| x.0[i]);
                y.0[to] = match grid.kind {
                    PoolKind::Max => cells.fold(f32::NEG_INFINITY, |best, v| if wins(v, best) { v } else { best }),
                    _ => (cells.map(f64::from).sum::<f64>() / grid.divisor(r, c)) as f32,
                };
            });
        },
        move |from, dy, dx| {
            dx.0[..x.elems()].fill(0.0);
            back.each(planes, |plane, at, r, c| match back.kind {
                PoolKind::Max => {
                    // the first of the largest cells gets the whole gradient, as in PyTorch
                    let best = back.cells(plane, r, c).fold(None, |best: Option<usize>, i| match best {
                        Some(b) if !wins(from.0[i], from.0[b]) => Some(b),
                        _ => Some(i),
                    });
                    if let Some(i) = best {
                        dx.0[i] += dy.0[at];
                    }
                }
                _ => {
                    let share = dy.0[at] / back.divisor(r, c) as f32;
                    back.cells(plane, r, c).for_each(|i| dx.0[i] += share);
                }
            });
        },
    )
}
