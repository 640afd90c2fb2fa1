//! Computes, in plain loops on the host, what attention needs from its parameters. This is the bias for relative
//! positions, and the factor of each head if its products are cosines. The bias is a table with a row for each
//! difference of two positions and a column for each head. Also computes the gradients of the parameters.

use net::{Attention, MOST_SCALE, PositionBias, Windows};

/// A continuous bias is this number times a sigmoid, as in torchvision.
const FACTOR: f64 = 16.0;

/// Returns the factor of each head for an operation with cosines. `params` are the layer's parameters in PyTorch's order.
pub fn cosine_factors(op: &Attention, params: &[&[f32]]) -> impl Iterator<Item = f64> {
    params[op.leading_parameters() - 1].iter().map(|scale| f64::from(*scale).min(MOST_SCALE.ln()).exp())
}

/// Returns the number of sigmoids in the layer's continuous bias, which has a sigmoid for each position difference and
/// head. Returns 0 if the layer has no continuous bias.
pub fn sigmoid_count(op: &Attention, windows: &Windows) -> usize {
    match op.position_bias {
        Some(PositionBias::Continuous(_)) => windows.differences() * op.heads,
        Some(PositionBias::Table) | None => 0,
    }
}

/// Returns the table of the bias, or `None` if the layer has no bias. `params` are as in [`cosine_factors`]. `sigmoids`
/// has a row for each difference of positions, computed with [`Mlp::sigmoids`], and is empty without a continuous bias.
pub fn bias_table(op: &Attention, params: &[&[f32]], sigmoids: &[f64]) -> Option<Vec<f32>> {
    Some(match op.position_bias? {
        PositionBias::Table => params[0].to_vec(),
        PositionBias::Continuous(_) => sigmoids.iter().map(|s| (FACTOR * s) as f32).collect(),
    })
}

/// Computes the gradients of all parameters, in PyTorch's order. `sigmoids` are as in [`bias_table`]. `dtable` has the
/// gradients of the bias table. `dscales` has a gradient for the logarithm of each head's factor.
pub fn gradients(
    op: &Attention,
    windows: &Windows,
    params: &[&[f32]],
    sigmoids: &[f64],
    dtable: &[f64],
    mut dscales: Vec<f64>,
) -> Vec<Vec<f64>> {
    let mut gradients = bias_gradients(op, windows, params, sigmoids, dtable);
    if op.cosine {
        let at = op.leading_parameters() - 1;
        let clamped = |scale: &f32| f64::from(*scale) > MOST_SCALE.ln();
        dscales.iter_mut().zip(params[at]).filter(|(_, scale)| clamped(scale)).for_each(|(d, _)| *d = 0.0);
        gradients.insert(at, dscales);
    }
    gradients
}

fn bias_gradients(
    op: &Attention,
    windows: &Windows,
    params: &[&[f32]],
    sigmoids: &[f64],
    dtable: &[f64],
) -> Vec<Vec<f64>> {
    let Some(mlp) = Mlp::new(op, params) else {
        return op.position_bias.map(|_| dtable.to_vec()).into_iter().collect();
    };
    let hidden = mlp.hidden;
    let (mut dw1, mut db1, mut dw2) = (vec![0.0; 2 * hidden], vec![0.0; hidden], vec![0.0; op.heads * hidden]);
    let rows = sigmoids.chunks_exact(op.heads).zip(dtable.chunks_exact(op.heads));
    for (r, (sigmoids, drow)) in windows.coordinates().into_iter().zip(rows) {
        let units = mlp.units(r);
        let dsums: Vec<f64> = sigmoids.iter().zip(drow).map(|(s, d)| d * FACTOR * s * (1.0 - s)).collect();
        for (unit, value) in units.iter().enumerate().filter(|(_, value)| **value != 0.0) {
            let mut slope = 0.0;
            for (head, dsum) in dsums.iter().enumerate() {
                dw2[head * hidden + unit] += dsum * value;
                slope += dsum * f64::from(mlp.w2[head * hidden + unit]);
            }
            dw1[2 * unit] += slope * f64::from(r[0]);
            dw1[2 * unit + 1] += slope * f64::from(r[1]);
            db1[unit] += slope;
        }
    }
    vec![dw1, db1, dw2]
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The two linear layers of a continuous bias.
pub struct Mlp<'a> {
    hidden: usize,
    w1: &'a [f32],
    b1: &'a [f32],
    w2: &'a [f32],
}

impl<'a> Mlp<'a> {
    /// Returns `None` if the layer has no continuous bias. `params` are as in [`cosine_factors`].
    pub fn new(op: &Attention, params: &[&'a [f32]]) -> Option<Self> {
        let Some(PositionBias::Continuous(hidden)) = op.position_bias else { return None };
        let first = op.leading_parameters();
        Some(Self { hidden, w1: params[first], b1: params[first + 1], w2: params[first + 2] })
    }

    /// Computes each head's sigmoid for the position difference `r`, which comes from [`Windows::coordinates`].
    pub fn sigmoids(&self, r: [f32; 2], of_heads: &mut [f64]) {
        let units = self.units(r);
        of_heads.iter_mut().enumerate().for_each(|(head, to)| *to = sigmoid(self.sum(&units, head)));
    }

    /// Returns the hidden units for a difference of positions.
    fn units(&self, r: [f32; 2]) -> Vec<f64> {
        let [down, across] = r.map(f64::from);
        let weights = self.w1.as_chunks::<2>().0.iter().zip(self.b1);
        let sums = weights.map(|(w, b)| f64::from(w[0]) * down + f64::from(w[1]) * across + f64::from(*b));
        sums.map(|sum| if sum <= 0.0 { 0.0 } else { sum }).collect()
    }

    /// Returns a head's input of the sigmoid.
    fn sum(&self, units: &[f64], head: usize) -> f64 {
        let weights = &self.w2[head * self.hidden..][..self.hidden];
        weights.iter().zip(units).map(|(w, unit)| f64::from(*w) * unit).sum()
    }
}
