//! Multi-head self-attention, written directly from the definition.

use net::{Attention, LEAST_NORM, MASK, Windows};

use super::device::{HostBuf, Reference};
use crate::attention::{self, Mlp};
use crate::memory::store;
use crate::{Error, Gradients, Pass, PlanRequest, Planned, TensorDesc};

struct Plan {
    op: Attention,
    windows: Windows,
    x: TensorDesc,
    y: TensorDesc,
    formats: Vec<usize>,
}

pub(super) fn plan(op: &Attention, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    let x = r.x[0];
    let formats = r.op.params(x.shape).iter().map(net::ParamSpec::elems).collect();
    let windows = op.windows(x.shape);
    Ok(Box::new(Plan { op: *op, windows, x, y: TensorDesc::plain(x.n, r.output()?), formats }))
}

/// The queries, keys, values and output gradients of a head in a window. Each vector is a row.
struct Head {
    /// Index of the head.
    number: usize,
    window: usize,
    queries: Vec<Vec<f64>>,
    keys: Vec<Vec<f64>>,
    values: Vec<Vec<f64>>,
    /// Norms of the queries and of the keys. They are 1 unless the products are cosines.
    norms: [Vec<f64>; 2],
}

/// What the products of queries and keys become before the softmax.
struct Logits {
    /// The factor of each head.
    scales: Vec<f64>,
    /// The continuous bias's sigmoids for each position difference and head. Empty without a continuous bias.
    sigmoids: Vec<f64>,
    /// The bias for each difference of positions and head.
    bias: Option<Vec<f32>>,
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

impl Plan {
    fn channels(&self) -> usize {
        self.op.head_channels(self.x.shape.c)
    }

    /// Returns sample, window and head of every head in every window.
    fn items(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        let (n, windows, heads) = (self.x.n, self.windows.count(), self.op.heads);
        (0..n).flat_map(move |s| (0..windows).flat_map(move |w| (0..heads).map(move |head| (s, w, head))))
    }

    /// Returns the index of a channel of a cell in the input. `part` is 0 for queries, 1 for keys, 2 for values.
    fn input(&self, (sample, window, head): (usize, usize, usize), part: usize, cell: usize, c: usize) -> usize {
        let channel = (part * self.op.heads + head) * self.channels() + c;
        (sample * self.x.shape.c + channel) * self.x.shape.plane() + self.windows.input(window, cell)
    }

    /// Returns the index of a channel of a cell in the output, or `None` if the output leaves the cell out.
    fn output(&self, (sample, window, head): (usize, usize, usize), cell: usize, c: usize) -> Option<usize> {
        let first = (sample * self.y.shape.c + head * self.channels() + c) * self.y.shape.plane();
        self.windows.output(window, cell).map(|position| first + position)
    }

    fn head(&self, x: &[f32], item: (usize, usize, usize)) -> Head {
        let vector = |part, cell| {
            (0..self.channels()).map(|c| f64::from(x[self.input(item, part, cell, c)])).collect::<Vec<f64>>()
        };
        let [mut queries, mut keys, values] =
            [0, 1, 2].map(|part| (0..self.windows.area()).map(|cell| vector(part, cell)).collect::<Vec<_>>());
        let mut norms = [vec![1.0; queries.len()], vec![1.0; keys.len()]];
        if self.op.cosine {
            for (vectors, norms) in [&mut queries, &mut keys].into_iter().zip(&mut norms) {
                for (vector, norm) in vectors.iter_mut().zip(norms) {
                    *norm = dot(vector, vector).sqrt().max(LEAST_NORM);
                    vector.iter_mut().for_each(|value| *value /= *norm);
                }
            }
        }
        Head { number: item.2, window: item.1, queries, keys, values, norms }
    }

    fn logits(&self, pass: &Pass<'_, Reference>) -> Logits {
        let params: Vec<&[f32]> = pass.slots.iter().map(|slot| pass.params.get(*slot)).collect();
        let scales = match self.op.cosine {
            true => attention::cosine_factors(&self.op, &params).collect(),
            false => vec![self.op.scale(self.x.shape.c); self.op.heads],
        };
        let mut sigmoids = vec![0.0; attention::sigmoid_count(&self.op, &self.windows)];
        if let Some(mlp) = Mlp::new(&self.op, &params) {
            let rows = sigmoids.chunks_exact_mut(self.op.heads).zip(self.windows.coordinates());
            rows.for_each(|(row, difference)| mlp.sigmoids(difference, row));
        }
        Logits { scales, bias: attention::bias_table(&self.op, &params, &sigmoids), sigmoids }
    }

    /// Returns a query's attention weights over all cells of its window.
    fn weights(&self, logits: &Logits, head: &Head, query: usize) -> Vec<f64> {
        let logit = |key: usize| {
            let mut logit = logits.scales[head.number] * dot(&head.queries[query], &head.keys[key]);
            if let Some(bias) = &logits.bias {
                logit += f64::from(bias[self.windows.difference(query, key) * self.op.heads + head.number]);
            }
            let masked = self.windows.part(head.window, query) != self.windows.part(head.window, key);
            logit + if masked { f64::from(MASK) } else { 0.0 }
        };
        let logits: Vec<f64> = (0..self.windows.area()).map(logit).collect();
        let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let powers: Vec<f64> = logits.iter().map(|logit| (logit - most).exp()).collect();
        let sum: f64 = powers.iter().sum();
        powers.iter().map(|power| power / sum).collect()
    }
}

impl Planned<Reference> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn formats(&self) -> Vec<usize> {
        self.formats.clone()
    }

    fn forward(&mut self, pass: &Pass<'_, Reference>, x: &[&HostBuf], y: &mut HostBuf) -> Result<(), Error> {
        let logits = self.logits(pass);
        for item in self.items() {
            let head = self.head(&x[0].0, item);
            for query in 0..self.windows.area() {
                let weights = self.weights(&logits, &head, query);
                for c in 0..self.channels() {
                    if let Some(at) = self.output(item, query, c) {
                        y.0[at] = head.values.iter().zip(&weights).map(|(value, w)| value[c] * w).sum::<f64>() as f32;
                    }
                }
            }
        }
        Ok(())
    }

    fn backward(&mut self, pass: &Pass<'_, Reference>, mut g: Gradients<'_, Reference>) -> Result<(), Error> {
        let (logits, x, dy, area) = (self.logits(pass), &g.x[0].0, &g.dy.0, self.windows.area());
        let mut sums = vec![0.0; self.x.elems()];
        let mut dbias = vec![0.0; self.windows.differences() * self.op.heads];
        let mut dscales = vec![0.0; self.op.heads];
        for item in self.items() {
            let head = self.head(x, item);
            let scale = logits.scales[head.number];
            let [mut dqueries, mut dkeys] =
                [&head.queries, &head.keys].map(|vectors| vec![vec![0.0; vectors[0].len()]; area]);
            for query in 0..area {
                let weights = self.weights(&logits, &head, query);
                let dy = |c| self.output(item, query, c).map_or(0.0, |at| f64::from(dy[at]));
                let dy: Vec<f64> = (0..self.channels()).map(dy).collect();
                let slopes: Vec<f64> = head.values.iter().map(|value| dot(&dy, value)).collect();
                let mean = dot(&weights, &slopes);
                for key in 0..area {
                    let dlogit = weights[key] * (slopes[key] - mean);
                    dbias[self.windows.difference(query, key) * self.op.heads + head.number] += dlogit;
                    dscales[head.number] += dlogit * scale * dot(&head.queries[query], &head.keys[key]);
                    for c in 0..self.channels() {
                        dqueries[query][c] += dlogit * scale * head.keys[key][c];
                        dkeys[key][c] += dlogit * scale * head.queries[query][c];
                        sums[self.input(item, 2, key, c)] += weights[key] * dy[c];
                    }
                }
            }
            for (part, (slopes, vectors)) in [(dqueries, &head.queries), (dkeys, &head.keys)].into_iter().enumerate() {
                for (cell, (slope, vector)) in slopes.iter().zip(vectors).enumerate() {
                    // the norm does not change along the vector
                    let along = if self.op.cosine { dot(slope, vector) } else { 0.0 };
                    for c in 0..self.channels() {
                        sums[self.input(item, part, cell, c)] +=
                            (slope[c] - along * vector[c]) / head.norms[part][cell];
                    }
                }
            }
        }
        if let Some(dx) = g.take_dx(0) {
            store(&mut dx.0, &sums);
        }
        if !pass.frozen {
            let params: Vec<&[f32]> = pass.slots.iter().map(|slot| pass.params.get(*slot)).collect();
            let gradients = attention::gradients(&self.op, &self.windows, &params, &logits.sigmoids, &dbias, dscales);
            gradients.iter().zip(pass.slots).for_each(|(gradient, slot)| store(g.dparams.get_mut(*slot), gradient));
        }
        Ok(())
    }
}
