//! Convolution as seven nested loops.

use net::{Conv, OpSpec};

use super::activation::relu;
use super::device::{HostBuf, Reference};
use crate::memory::store;
use crate::{Error, Gradients, Pass, PlanRequest, Planned, TensorDesc};

pub(super) struct Plan {
    pub op: Conv,
    pub x: TensorDesc,
    pub y: TensorDesc,
}

impl Plan {
    /// Calls `f(x index, w index, y index)` for every multiply-add.
    fn each(&self, mut f: impl FnMut(usize, usize, usize)) {
        let (x, y) = (self.x.shape, self.y.shape);
        let ([kh, kw], [sh, sw], [dh, dw]) = (self.op.kernel, self.op.stride, self.op.dilation);
        let (ci, co) = (x.c / self.op.groups, y.c / self.op.groups);
        // the index of an input row or column, or `None` inside the padding
        let inside = |at: usize, pad: usize, size: usize| at.checked_sub(pad).filter(|at| *at < size);
        for (n, o) in (0..self.x.n).flat_map(|n| (0..y.c).map(move |o| (n, o))) {
            for (oh, ow) in (0..y.h).flat_map(|oh| (0..y.w).map(move |ow| (oh, ow))) {
                let yi = ((n * y.c + o) * y.h + oh) * y.w + ow;
                for (i, r) in (0..ci).flat_map(|i| (0..kh).map(move |r| (i, r))) {
                    let Some(h) = inside(oh * sh + r * dh, self.op.pads[0], x.h) else { continue };
                    let (row, wi) = ((n * x.c + o / co * ci + i) * x.h + h, ((o * ci + i) * kh + r) * kw);
                    for c in 0..kw {
                        if let Some(w) = inside(ow * sw + c * dw, self.op.pads[1], x.w) {
                            f(row * x.w + w, wi + c, yi);
                        }
                    }
                }
            }
        }
    }
}

pub(super) fn plan(op: &Conv, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    Ok(Box::new(Plan { op: op.clone(), x: r.x[0], y: TensorDesc::plain(r.x[0].n, r.output()?) }))
}

impl Planned<Reference> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn formats(&self) -> Vec<usize> {
        self.op.params(self.x.shape).iter().map(|p| p.elems()).collect()
    }

    fn forward(&mut self, pass: &Pass<'_, Reference>, x: &[&HostBuf], y: &mut HostBuf) -> Result<(), Error> {
        let w = pass.params.get(pass.slots[0]);
        let mut sums = vec![0f64; self.y.elems()];
        if self.op.bias {
            let b = pass.params.get(pass.slots[1]);
            for (i, s) in sums.iter_mut().enumerate() {
                *s = b[i / self.y.shape.plane() % self.y.shape.c] as f64;
            }
        }
        self.each(|xi, wi, yi| sums[yi] += x[0].0[xi] as f64 * w[wi] as f64);
        for (y, s) in y.0.iter_mut().zip(sums) {
            *y = if self.op.relu { relu(s as f32) } else { s as f32 };
        }
        Ok(())
    }

    fn backward(&mut self, pass: &Pass<'_, Reference>, mut g: Gradients<'_, Reference>) -> Result<(), Error> {
        let wanted = g.take_dx(0);
        if self.op.relu {
            super::activation::mask(&mut g.dy.0[..self.y.elems()], &g.y.0);
        }
        let (dy, x) = (&g.dy.0, &g.x[0].0);
        if !pass.frozen {
            let mut dw = vec![0f64; pass.slots[0].len];
            self.each(|xi, wi, yi| dw[wi] += x[xi] as f64 * dy[yi] as f64);
            store(g.dparams.get_mut(pass.slots[0]), &dw);
        }
        if self.op.bias && !pass.frozen {
            let mut db = vec![0f64; self.y.shape.c];
            for (i, d) in dy[..self.y.elems()].iter().enumerate() {
                db[i / self.y.shape.plane() % self.y.shape.c] += *d as f64;
            }
            db[self.op.zero_bias()].fill(0.0);
            store(g.dparams.get_mut(pass.slots[1]), &db);
        }
        if let Some(dx) = wanted {
            let w = pass.params.get(pass.slots[0]);
            let mut sums = vec![0f64; self.x.elems()];
            self.each(|xi, wi, yi| sums[xi] += w[wi] as f64 * dy[yi] as f64);
            store(&mut dx.0, &sums);
        }
        Ok(())
    }
}
