//! What clipping by norm and layer-wise learning rates make of a step, from the norms of tensors.

use std::ops::Range;

use super::group::Update;
use super::rates;

/// One tensor, as far as its norms go.
#[derive(Clone, Debug, PartialEq)]
pub struct Normed {
    /// Its place in the chunk.
    pub range: Range<usize>,
    /// As in its parameter group.
    pub weight_decay: f64,
    /// Whether the rule may give it a learning rate of its own.
    pub adapts: bool,
    /// Factor on its learning rate.
    pub factor: f32,
}

/// The tensors whose norms a step needs, and the limit of all together.
#[derive(Clone, Debug, Default)]
pub struct Norms {
    /// Chunk by chunk.
    pub tensors: Vec<Vec<Normed>>,
    /// Largest norm of all gradients together.
    pub limit: Option<f64>,
}

impl Norms {
    /// Added to the norm before a limit is divided by it, as in PyTorch's `clip_grad_norm_`.
    pub const EPS: f64 = 1e-6;

    /// The [`rates`] of a step, from the sums of squares of all tensors: `gradients`, and, where the rule adapts rates, `weights`.
    pub fn rates(&self, update: &Update, gradients: &[f64], weights: &[f64]) -> Vec<f32> {
        let norm = gradients.iter().sum::<f64>().sqrt();
        // a norm that is NaN must reach the parameters, where it is found
        let part = self.limit.map(|limit| limit / (norm + Self::EPS)).filter(|part| *part < 1.0 || part.is_nan());
        let part = part.unwrap_or(1.0);
        let mut values = rates::plain(self.tensors.iter().flatten().map(|tensor| tensor.factor));
        (values[rates::GRADIENT], values[rates::NORM]) = (part as f32, norm as f32);
        let squares = self.tensors.iter().flatten().zip(gradients.iter().zip(weights));
        for (rate, (tensor, (g, w))) in values[rates::FIRST..].iter_mut().zip(squares).filter(|(_, (t, _))| t.adapts) {
            *rate *= update.rule.trust(w.sqrt(), part * g.sqrt(), tensor.weight_decay, update.lr) as f32;
        }
        values
    }
}
