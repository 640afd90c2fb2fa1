//! Convolution as seven nested loops.

use super::activation::relu;
use super::device::Reference;
use super::host_buf::HostBuf;
use crate::backend::op::{Conv, OpSpec};
use crate::backend::{Error, Gradients, Pass, PlanRequest, Planned, TensorDesc};

/// A convolution of known sizes.
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
        for n in 0..self.x.n {
            for o in 0..y.c {
                for p in 0..y.plane() {
                    let (oh, ow) = (p / y.w, p % y.w);
                    for k in 0..ci * kh * kw {
                        let (i, r, c) = (k / (kh * kw), k / kw % kh, k % kw);
                        let (h, w) = (oh * sh + r * dh, ow * sw + c * dw);
                        let inside = h >= self.op.pads[0] && w >= self.op.pads[1];
                        let (h, w) = (h.wrapping_sub(self.op.pads[0]), w.wrapping_sub(self.op.pads[1]));
                        if inside && h < x.h && w < x.w {
                            let channel = o / co * ci + i;
                            f(
                                ((n * x.c + channel) * x.h + h) * x.w + w,
                                o * ci * kh * kw + k,
                                (n * y.c + o) * y.plane() + p,
                            );
                        }
                    }
                }
            }
        }
    }
}

/// Plans the op.
pub(super) fn plan(op: &Conv, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    Ok(Box::new(Plan { op: op.clone(), x: r.x[0], y: TensorDesc::plain(r.x[0].n, r.output()?) }))
}

impl Planned<Reference> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn formats(&self) -> Vec<usize> {
        self.op_params()
    }

    fn state_bytes(&self) -> usize {
        0
    }

    fn implementation(&self) -> String {
        "loops".into()
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

impl Plan {
    fn op_params(&self) -> Vec<usize> {
        self.op.params(self.x.shape).iter().map(|p| p.elems()).collect()
    }
}

/// Rounds sums to f32.
pub(super) fn store(to: &mut [f32], sums: &[f64]) {
    for (t, s) in to.iter_mut().zip(sums) {
        *t = *s as f32;
    }
}
