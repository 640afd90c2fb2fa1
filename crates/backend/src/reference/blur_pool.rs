//! Blurred downsampling.

use std::rc::Rc;

use net::{BlurPool, Shape};

use super::device::Reference;
use crate::memory::store;
use crate::planned::unary;
use crate::{Error, Keeps, PlanRequest, Planned, TensorDesc};

/// The input rows and columns that each output row and column reads, and the filter's weights.
struct Grid {
    x: Shape,
    rows: Vec<Vec<usize>>,
    columns: Vec<Vec<usize>>,
    weights: Vec<f32>,
}

pub(super) fn plan(op: &BlurPool, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    let (x, y, wrong) =
        (r.x[0], TensorDesc::plain(r.x[0].n, r.output()?), |why| Error::Unsupported { op: r.name.into(), why });
    let (rows, columns) = (op.cells(x.shape, 0).map_err(wrong)?, op.cells(x.shape, 1).map_err(wrong)?);
    let grid = Rc::new(Grid { x: x.shape, rows, columns, weights: op.weights() });
    let (grid_back, planes) = (grid.clone(), x.n * x.shape.c);
    unary::<Reference>(
        y,
        Keeps::ALL,
        move |from, to| {
            let mut sums = vec![0f64; y.elems()];
            grid.each(planes, |x, y, weight| sums[y] += weight * f64::from(from.0[x]));
            store(&mut to.0, &sums);
        },
        move |_, dy, dx| {
            let mut sums = vec![0f64; x.elems()];
            grid_back.each(planes, |x, y, weight| sums[x] += weight * f64::from(dy.0[y]));
            store(&mut dx.0, &sums);
        },
    )
}

impl Grid {
    /// Calls `f(element of x, element of y, weight)` for every product in this number of planes.
    fn each(&self, planes: usize, mut f: impl FnMut(usize, usize, f64)) {
        let (x, mut to) = (self.x, 0);
        for plane in 0..planes {
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
