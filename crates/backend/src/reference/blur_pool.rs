//! Blurred downsampling.

use net::BlurPool;

use super::conv::store;
use super::device::HostBuf;
use super::device::Reference;
use crate::{Error, Gradients, Pass, PlanRequest, Planned, TensorDesc};

struct Plan {
    x: TensorDesc,
    y: TensorDesc,
    weights: Vec<f32>,
    rows: Vec<Vec<usize>>,
    columns: Vec<Vec<usize>>,
}

pub(super) fn plan(op: &BlurPool, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    let (x, wrong) = (r.x[0], |why| Error::Unsupported { op: r.name.into(), why });
    let (rows, columns) = (op.cells(x.shape, 0).map_err(wrong)?, op.cells(x.shape, 1).map_err(wrong)?);
    Ok(Box::new(Plan { x, y: TensorDesc::plain(x.n, r.output()?), weights: op.weights(), rows, columns }))
}

impl Plan {
    /// Calls `f(element of x, element of y, weight)` for every product.
    fn each(&self, mut f: impl FnMut(usize, usize, f64)) {
        let (x, mut to) = (self.x.shape, 0);
        for plane in 0..self.x.n * x.c {
            for (row, column) in self.rows.iter().flat_map(|row| self.columns.iter().map(move |column| (row, column))) {
                for (h, v) in row.iter().zip(&self.weights) {
                    for (w, u) in column.iter().zip(&self.weights) {
                        f(plane * x.plane() + h * x.w + w, to, f64::from(*v) * f64::from(*u));
                    }
                }
                to += 1;
            }
        }
    }
}

impl Planned<Reference> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn forward(&mut self, _: &Pass<'_, Reference>, x: &[&HostBuf], y: &mut HostBuf) -> Result<(), Error> {
        let mut sums = vec![0f64; self.y.elems()];
        self.each(|from, to, weight| sums[to] += weight * f64::from(x[0].0[from]));
        store(&mut y.0, &sums);
        Ok(())
    }

    fn backward(&mut self, _: &Pass<'_, Reference>, mut g: Gradients<'_, Reference>) -> Result<(), Error> {
        let Some(dx) = g.take_dx(0) else { return Ok(()) };
        let mut sums = vec![0f64; self.x.elems()];
        self.each(|to, from, weight| sums[to] += weight * f64::from(g.dy.0[from]));
        store(&mut dx.0, &sums);
        Ok(())
    }
}
