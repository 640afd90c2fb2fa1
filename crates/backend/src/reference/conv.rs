//! Convolution as seven nested loops.

use net::{Conv, OpSpec, Shape};

use super::activation::{mask, relu};
use super::device::{HostBuf, Reference};
use crate::memory::store;
use crate::planned::ClosurePlan;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc};

/// Calls `f(x index, w index, y index)` for every multiply-add of `n` images with input shape x and output shape y.
fn each(op: &Conv, n: usize, [x, y]: [Shape; 2], mut f: impl FnMut(usize, usize, usize)) {
    let ([kh, kw], [sh, sw], [dh, dw]) = (op.kernel, op.stride, op.dilation);
    let (ci, co) = (x.c / op.groups, y.c / op.groups);
    // the index of an input row or column, or `None` inside the padding
    let inside = |at: usize, pad: usize, size: usize| at.checked_sub(pad).filter(|at| *at < size);
    for (n, o) in (0..n).flat_map(|n| (0..y.c).map(move |o| (n, o))) {
        for (oh, ow) in (0..y.h).flat_map(|oh| (0..y.w).map(move |ow| (oh, ow))) {
            let yi = ((n * y.c + o) * y.h + oh) * y.w + ow;
            for (i, r) in (0..ci).flat_map(|i| (0..kh).map(move |r| (i, r))) {
                let Some(h) = inside(oh * sh + r * dh, op.pads[0], x.h) else { continue };
                let (row, wi) = ((n * x.c + o / co * ci + i) * x.h + h, ((o * ci + i) * kh + r) * kw);
                for c in 0..kw {
                    if let Some(w) = inside(ow * sw + c * dw, op.pads[1], x.w) {
                        f(row * x.w + w, wi + c, yi);
                    }
                }
            }
        }
    }
}

pub(super) fn plan(op: &Conv, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    let (x_desc, y_desc) = (r.x[0], TensorDesc::plain(r.x[0].n, r.output()?));
    let (n, shapes, y_elems) = (x_desc.n, [x_desc.shape, y_desc.shape], y_desc.elems());
    let channel = move |i: usize| i / y_desc.shape.plane() % y_desc.shape.c;
    let formats = op.params(x_desc.shape).iter().map(|p| p.elems()).collect();
    let (op, op_back) = (op.clone(), op.clone());
    let forward = move |pass: &Pass<'_, Reference>, x: &[&HostBuf], y: &mut HostBuf| {
        let w = pass.params.get(pass.slots[0]);
        let mut sums = vec![0f64; y_elems];
        if op.bias {
            let b = pass.params.get(pass.slots[1]);
            for (i, s) in sums.iter_mut().enumerate() {
                *s = b[channel(i)] as f64;
            }
        }
        each(&op, n, shapes, |xi, wi, yi| sums[yi] += x[0].0[xi] as f64 * w[wi] as f64);
        for (y, s) in y.0.iter_mut().zip(sums) {
            *y = if op.relu { relu(s as f32) } else { s as f32 };
        }
        Ok(())
    };
    let backward = move |pass: &Pass<'_, Reference>, mut g: Gradients<'_, Reference>| {
        let (op, wanted) = (&op_back, g.take_dx(0));
        if op.relu {
            mask(&mut g.dy.0[..y_elems], &g.y.0);
        }
        let (dy, x) = (&g.dy.0, &g.x[0].0);
        if !pass.frozen {
            let mut dw = vec![0f64; pass.slots[0].len];
            each(op, n, shapes, |xi, wi, yi| dw[wi] += x[xi] as f64 * dy[yi] as f64);
            store(g.dparams.get_mut(pass.slots[0]), &dw);
        }
        if op.bias && !pass.frozen {
            let mut db = vec![0f64; y_desc.shape.c];
            for (i, d) in dy[..y_elems].iter().enumerate() {
                db[channel(i)] += *d as f64;
            }
            db[op.zero_bias()].fill(0.0);
            store(g.dparams.get_mut(pass.slots[1]), &db);
        }
        if let Some(dx) = wanted {
            let w = pass.params.get(pass.slots[0]);
            let mut sums = vec![0f64; x_desc.elems()];
            each(op, n, shapes, |xi, wi, yi| sums[xi] += w[wi] as f64 * dy[yi] as f64);
            store(&mut dx.0, &sums);
        }
        Ok(())
    };
    Ok(Box::new(ClosurePlan { formats, ..ClosurePlan::new(y_desc, Keeps::ALL, forward, backward) }))
}
