//! A fully connected layer as three nested loops.

use net::Linear;

use super::activation::relu;
use super::device::{HostBuf, Reference};
use crate::memory::store;
use crate::{Error, Gradients, Pass, PlanRequest, Planned, TensorDesc};

pub(super) struct Plan {
    pub op: Linear,
    pub x: TensorDesc,
    pub y: TensorDesc,
}

pub(super) fn plan(op: &Linear, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    Ok(Box::new(Plan { op: op.clone(), x: r.x[0], y: TensorDesc::plain(r.x[0].n, r.output()?) }))
}

impl Planned<Reference> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn formats(&self) -> Vec<usize> {
        let (i, o) = (self.x.shape.elems(), self.op.out_features);
        if self.op.bias { vec![o * i, o] } else { vec![o * i] }
    }

    fn forward(&mut self, pass: &Pass<'_, Reference>, x: &[&HostBuf], y: &mut HostBuf) -> Result<(), Error> {
        let (inputs, outputs) = (self.x.shape.elems(), self.op.out_features);
        let w = pass.params.get(pass.slots[0]);
        for n in 0..self.x.n {
            let row = &x[0].0[n * inputs..][..inputs];
            for o in 0..outputs {
                let bias = if self.op.bias { pass.params.get(pass.slots[1])[o] as f64 } else { 0.0 };
                let dot: f64 = row.iter().zip(&w[o * inputs..]).map(|(a, b)| *a as f64 * *b as f64).sum();
                let v = (dot + bias) as f32;
                y.0[n * outputs + o] = if self.op.relu { relu(v) } else { v };
            }
        }
        Ok(())
    }

    fn backward(&mut self, pass: &Pass<'_, Reference>, mut g: Gradients<'_, Reference>) -> Result<(), Error> {
        let (inputs, outputs) = (self.x.shape.elems(), self.op.out_features);
        if self.op.relu {
            super::activation::mask(&mut g.dy.0[..self.y.elems()], &g.y.0);
        }
        let (dy, x) = (&g.dy.0, &g.x[0].0);
        let mut dw = vec![0f64; outputs * inputs];
        let mut db = vec![0f64; outputs];
        let mut dx = vec![0f64; self.x.elems()];
        let w = pass.params.get(pass.slots[0]);
        for n in 0..self.x.n {
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
        if self.op.bias && !pass.frozen {
            store(g.dparams.get_mut(pass.slots[1]), &db);
        }
        if let Some(to) = g.take_dx(0) {
            store(&mut to.0, &dx);
        }
        Ok(())
    }
}
