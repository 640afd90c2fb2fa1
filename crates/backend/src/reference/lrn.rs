//! Local response normalisation, written directly from the formula.

use net::Lrn;

use super::device::Reference;
use crate::planned::unary;
use crate::{Error, Keeps, PlanRequest, Planned, TensorDesc};

#[derive(Clone, Copy)]
struct Loops {
    op: Lrn,
    x: TensorDesc,
}

impl Loops {
    /// Returns k + alpha * (sum of squares around channel c).
    fn base(&self, x: &[f32], n: usize, c: usize, p: usize) -> f64 {
        let sum: f64 = self.window(c).map(|j| (x[self.at(n, j, p)] as f64).powi(2)).sum();
        self.op.k as f64 + self.op.alpha as f64 * sum
    }

    fn window(&self, c: usize) -> std::ops::Range<usize> {
        c.saturating_sub(self.op.radius)..(c + self.op.radius + 1).min(self.x.shape.c)
    }

    fn at(&self, n: usize, c: usize, p: usize) -> usize {
        (n * self.x.shape.c + c) * self.x.shape.plane() + p
    }

    fn each(&self, mut f: impl FnMut(usize, usize, usize)) {
        for n in 0..self.x.n {
            for c in 0..self.x.shape.c {
                (0..self.x.shape.plane()).for_each(|p| f(n, c, p));
            }
        }
    }

    fn forward(&self, x: &[f32], y: &mut [f32]) {
        self.each(|n, c, p| {
            let i = self.at(n, c, p);
            y[i] = (x[i] as f64 * self.base(x, n, c, p).powf(-self.op.beta as f64)) as f32;
        });
    }

    fn backward(&self, x: &[f32], dy: &[f32], dx: &mut [f32]) {
        let beta = self.op.beta as f64;
        self.each(|n, c, p| {
            let i = self.at(n, c, p);
            let around: f64 = self
                .window(c)
                .map(|j| {
                    let k = self.at(n, j, p);
                    dy[k] as f64 * x[k] as f64 * self.base(x, n, j, p).powf(-beta - 1.0)
                })
                .sum();
            let direct = dy[i] as f64 * self.base(x, n, c, p).powf(-beta);
            dx[i] = (direct - 2.0 * self.op.alpha as f64 * beta * x[i] as f64 * around) as f32;
        });
    }
}

pub(super) fn plan(op: &Lrn, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    let loops = Loops { op: *op, x: r.x[0] };
    unary::<Reference>(
        loops.x,
        Keeps::ALL,
        move |x, y| loops.forward(&x.0, &mut y.0),
        move |x, dy, dx| loops.backward(&x.0, &dy.0, &mut dx.0),
    )
}
