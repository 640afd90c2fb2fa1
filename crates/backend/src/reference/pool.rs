//! Pooling, window by window.

use net::{Pool, PoolKind, Window};

use super::device::{HostBuf, Reference};
use crate::{Error, Gradients, Pass, PlanRequest, Planned, TensorDesc};

/// Returns true if a value replaces the maximum so far. NaN does, as in PyTorch.
fn wins(v: f32, best: f32) -> bool {
    v > best || v.is_nan()
}

pub(super) struct Plan {
    pub op: Pool,
    pub x: TensorDesc,
    pub y: TensorDesc,
}

impl Plan {
    /// Calls `f(first input index of the plane, output index, rows, columns)` for every window.
    fn each(&self, mut f: impl FnMut(usize, usize, Window, Window)) -> Result<(), Error> {
        let wrong = |why| Error::Unsupported { op: "pool".into(), why };
        let rows = self.op.windows(self.x.shape, 0).map_err(wrong)?;
        let columns = self.op.windows(self.x.shape, 1).map_err(wrong)?;
        let mut y = 0;
        for plane in 0..self.x.n * self.x.shape.c {
            for &r in &rows {
                for &c in &columns {
                    f(plane * self.x.shape.plane(), y, r, c);
                    y += 1;
                }
            }
        }
        Ok(())
    }

    /// Returns the input indices of a window.
    fn cells(&self, plane: usize, r: Window, c: Window) -> impl Iterator<Item = usize> + use<> {
        let width = self.x.shape.w;
        (r.from..r.to).flat_map(move |h| (c.from..c.to).map(move |w| plane + h * width + w))
    }

    fn divisor(&self, r: Window, c: Window) -> f64 {
        match self.op.kind {
            PoolKind::AvgCountPad => (r.padded * c.padded) as f64,
            _ => ((r.to - r.from) * (c.to - c.from)) as f64,
        }
    }
}

pub(super) fn plan(op: &Pool, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    Ok(Box::new(Plan { op: op.clone(), x: r.x[0], y: TensorDesc::plain(r.x[0].n, r.output()?) }))
}

impl Planned<Reference> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn forward(&mut self, _: &Pass<'_, Reference>, x: &[&HostBuf], y: &mut HostBuf) -> Result<(), Error> {
        self.each(|plane, to, r, c| {
            let cells = self.cells(plane, r, c).map(|i| x[0].0[i]);
            y.0[to] = match self.op.kind {
                PoolKind::Max => cells.fold(f32::NEG_INFINITY, |best, v| if wins(v, best) { v } else { best }),
                _ => (cells.map(f64::from).sum::<f64>() / self.divisor(r, c)) as f32,
            };
        })
    }

    fn backward(&mut self, _: &Pass<'_, Reference>, mut g: Gradients<'_, Reference>) -> Result<(), Error> {
        let Some(dx) = g.take_dx(0) else { return Ok(()) };
        dx.0[..self.x.elems()].fill(0.0);
        let (x, dy) = (&g.x[0].0, &g.dy.0);
        self.each(|plane, from, r, c| match self.op.kind {
            PoolKind::Max => {
                // the first of the largest cells gets the whole gradient, as in PyTorch
                let best = self.cells(plane, r, c).fold(None, |best: Option<usize>, i| match best {
                    Some(b) if !wins(x[i], x[b]) => Some(b),
                    _ => Some(i),
                });
                if let Some(i) = best {
                    dx.0[i] += dy[from];
                }
            }
            _ => {
                let share = dy[from] / self.divisor(r, c) as f32;
                self.cells(plane, r, c).for_each(|i| dx.0[i] += share);
            }
        })
    }
}
