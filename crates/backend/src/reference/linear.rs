//! A fully connected layer as three nested loops.

use net::Linear;

use super::activation::{mask, relu};
use super::device::{HostBuf, Reference};
use crate::memory::store;
use crate::planned::ClosurePlan;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc};

pub(super) fn plan(op: &Linear, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    let (x_desc, y_desc) = (r.x[0], TensorDesc::plain(r.x[0].n, r.output()?));
    let (rows, inputs, outputs) = (x_desc.n, x_desc.shape.elems(), op.out_features);
    let Linear { bias: with_bias, relu: with_relu, .. } = *op;
    let formats = if with_bias { vec![outputs * inputs, outputs] } else { vec![outputs * inputs] };
    let forward = move |pass: &Pass<'_, Reference>, x: &[&HostBuf], y: &mut HostBuf| {
        let w = pass.params.get(pass.slots[0]);
        for n in 0..rows {
            let row = &x[0].0[n * inputs..][..inputs];
            for o in 0..outputs {
                let bias = if with_bias { pass.params.get(pass.slots[1])[o] as f64 } else { 0.0 };
                let dot: f64 = row.iter().zip(&w[o * inputs..]).map(|(a, b)| *a as f64 * *b as f64).sum();
                let v = (dot + bias) as f32;
                y.0[n * outputs + o] = if with_relu { relu(v) } else { v };
            }
        }
        Ok(())
    };
    let backward = move |pass: &Pass<'_, Reference>, mut g: Gradients<'_, Reference>| {
        if with_relu {
            mask(&mut g.dy.0[..y_desc.elems()], &g.y.0);
        }
        let (dy, x) = (&g.dy.0, &g.x[0].0);
        let mut dw = vec![0f64; outputs * inputs];
        let mut db = vec![0f64; outputs];
        let mut dx = vec![0f64; x_desc.elems()];
        let w = pass.params.get(pass.slots[0]);
        for n in 0..rows {
            for o in 0..outputs {
                let d = dy[n * outputs + o] as f64;
                db[o] += d;
                for i in 0..inputs {
                    dw[o * inputs + i] += d * x[n * inputs + i] as f64;
                    dx[n * inputs + i] += d * w[o * inputs + i] as f64;
                }
            }
        }
        if !pass.frozen {
            store(g.dparams.get_mut(pass.slots[0]), &dw);
        }
        if with_bias && !pass.frozen {
            store(g.dparams.get_mut(pass.slots[1]), &db);
        }
        if let Some(to) = g.take_dx(0) {
            store(&mut to.0, &dx);
        }
        Ok(())
    };
    Ok(Box::new(ClosurePlan { formats, ..ClosurePlan::new(y_desc, Keeps::ALL, forward, backward) }))
}
