//! Local response normalisation, written directly from the formula.

use net::Lrn;

use super::device::{HostBuf, Reference};
use crate::{Error, Gradients, Pass, PlanRequest, Planned, TensorDesc};

pub(super) struct Plan {
    pub op: Lrn,
    pub x: TensorDesc,
}

impl Plan {
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
}

pub(super) fn plan(op: &Lrn, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    Ok(Box::new(Plan { op: *op, x: r.x[0] }))
}

impl Planned<Reference> for Plan {
    fn output(&self) -> TensorDesc {
        self.x
    }

    fn forward(&mut self, _: &Pass<'_, Reference>, x: &[&HostBuf], y: &mut HostBuf) -> Result<(), Error> {
        let x = &x[0].0;
        self.each(|n, c, p| {
            let i = self.at(n, c, p);
            y.0[i] = (x[i] as f64 * self.base(x, n, c, p).powf(-self.op.beta as f64)) as f32;
        });
        Ok(())
    }

    fn backward(&mut self, _: &Pass<'_, Reference>, mut g: Gradients<'_, Reference>) -> Result<(), Error> {
        let Some(dx) = g.take_dx(0) else { return Ok(()) };
        let (x, dy, beta) = (&g.x[0].0, &g.dy.0, self.op.beta as f64);
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
            dx.0[i] = (direct - 2.0 * self.op.alpha as f64 * beta * x[i] as f64 * around) as f32;
        });
        Ok(())
    }
}
