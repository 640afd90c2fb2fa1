//! Multi-head self-attention, written directly from the definition.

use net::Attention;

use super::device::HostBuf;
use super::device::Reference;
use crate::{Error, Gradients, Pass, PlanRequest, Planned, TensorDesc};

struct Plan {
    op: Attention,
    x: TensorDesc,
    y: TensorDesc,
}

pub(super) fn plan(op: &Attention, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    Ok(Box::new(Plan { op: *op, x: r.x[0], y: TensorDesc::plain(r.x[0].n, r.output()?) }))
}

/// Index where a head's queries, keys or values begin.
#[derive(Clone, Copy)]
struct Head {
    queries: usize,
    keys: usize,
    values: usize,
    output: usize,
}

impl Plan {
    /// Returns where each head's values begin, in each sample.
    fn heads(&self) -> Vec<Head> {
        let (d, plane) = (self.op.head_channels(self.x.shape.c) * self.x.shape.plane(), self.y.shape.elems());
        let head = |n: usize, head: usize| {
            let first = n * 3 * plane + head * d;
            Head { queries: first, keys: first + plane, values: first + 2 * plane, output: n * plane + head * d }
        };
        (0..self.x.n).flat_map(|n| (0..self.op.heads).map(move |h| head(n, h))).collect()
    }

    /// Returns a query's attention weights over all positions.
    fn weights(&self, x: &[f32], head: Head, query: usize) -> Vec<f64> {
        let scale = self.op.scale(self.x.shape.c);
        let products: Vec<f64> =
            (0..self.plane()).map(|key| scale * self.product(x, (head.queries, query), x, (head.keys, key))).collect();
        let most = products.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let powers: Vec<f64> = products.iter().map(|product| (product - most).exp()).collect();
        let sum: f64 = powers.iter().sum();
        powers.iter().map(|power| power / sum).collect()
    }

    /// Returns the product of two vectors. Each is identified by its head's first index and its position.
    fn product(&self, a: &[f32], (a_first, p): (usize, usize), b: &[f32], (b_first, q): (usize, usize)) -> f64 {
        let plane = self.plane();
        let channels = self.op.head_channels(self.x.shape.c);
        (0..channels).map(|c| f64::from(a[a_first + c * plane + p]) * f64::from(b[b_first + c * plane + q])).sum()
    }

    fn plane(&self) -> usize {
        self.x.shape.plane()
    }
}

impl Planned<Reference> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn forward(&mut self, _: &Pass<'_, Reference>, x: &[&HostBuf], y: &mut HostBuf) -> Result<(), Error> {
        let (x, plane) = (&x[0].0, self.plane());
        for (head, query) in self.heads().into_iter().flat_map(|head| (0..plane).map(move |query| (head, query))) {
            let weights = self.weights(x, head, query);
            for c in 0..self.op.head_channels(self.x.shape.c) {
                let values = &x[head.values + c * plane..][..plane];
                let sum: f64 = values.iter().zip(&weights).map(|(value, weight)| f64::from(*value) * weight).sum();
                y.0[head.output + c * plane + query] = sum as f32;
            }
        }
        Ok(())
    }

    fn backward(&mut self, _: &Pass<'_, Reference>, mut g: Gradients<'_, Reference>) -> Result<(), Error> {
        let Some(dx) = g.take_dx(0) else { return Ok(()) };
        let (x, dy, plane) = (&g.x[0].0, &g.dy.0, self.plane());
        let (channels, scale) = (self.op.head_channels(self.x.shape.c), self.op.scale(self.x.shape.c));
        let mut sums = vec![0.0; self.x.elems()];
        for (head, query) in self.heads().into_iter().flat_map(|head| (0..plane).map(move |query| (head, query))) {
            let weights = self.weights(x, head, query);
            let slope = |key| self.product(dy, (head.output, query), x, (head.values, key));
            let slopes: Vec<f64> = (0..plane).map(slope).collect();
            let mean: f64 = weights.iter().zip(&slopes).map(|(weight, slope)| weight * slope).sum();
            for key in 0..plane {
                let product = weights[key] * (slopes[key] - mean) * scale;
                for c in (0..channels).map(|c| c * plane) {
                    sums[head.queries + c + query] += product * f64::from(x[head.keys + c + key]);
                    sums[head.keys + c + key] += product * f64::from(x[head.queries + c + query]);
                    sums[head.values + c + key] += weights[key] * f64::from(dy[head.output + c + query]);
                }
            }
        }
        super::conv::store(&mut dx.0, &sums);
        Ok(())
    }
}
