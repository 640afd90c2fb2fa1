//! Limits on gradients: clipping by their norm, layer-wise learning rates, and adaptive clipping by output units.

use std::ops::Range;

use super::list::Update;
use super::rates;
use crate::error::Error;
use crate::memory::ParamFormat;

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

// Adaptive clipping of gradients by output units (Brock et al. 2021, arXiv 2102.06171, as timm's adaptive_clip_grad): the norm of a unit's
// gradient is at most a part of the norm of its weights. A unit is one output of a convolution or of a linear layer; a parameter of one
// dimension is a unit by itself.

/// No unit: padding.
const NONE: u32 = u32::MAX;

/// A parameter whose units are limited.
#[derive(Clone, Debug, PartialEq)]
pub struct UnitTensor {
    /// Its place in the chunk.
    pub range: Range<usize>,
    /// Number of its units.
    pub count: usize,
}

/// The units of a chunk of parameters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Units {
    /// In the order of memory; they do not overlap.
    pub tensors: Vec<UnitTensor>,
    /// Unit of each element of each tensor, one tensor after another, counted within it.
    index: Vec<Vec<u32>>,
    /// Largest norm of a gradient as a part of that of the weights.
    pub part: f64,
}

impl Units {
    /// Least norm of weights that counts, so that those that are zero can move.
    pub const LEAST: f64 = 1e-3;
    /// Least norm of a gradient that a limit is divided by.
    pub const TINY: f64 = 1e-6;

    /// None yet; `part`, > 0.
    pub fn new(part: f64) -> Self {
        Self { part, ..Self::default() }
    }

    /// Adds a parameter of this unpadded shape, which lies in `range` of the chunk.
    pub fn add<F: ParamFormat>(&mut self, format: &F, shape: &[usize], range: Range<usize>) -> Result<(), Error> {
        let elems: usize = shape.iter().product();
        let count = if shape.len() > 1 { shape[0] } else { 1 };
        let each = (elems / count.max(1)).max(1);
        // f32 counts so far
        if count >= 1 << 24 {
            let (expected, got) = (format!("fewer than {} units", 1 << 24), count.to_string());
            return Err(Error::Size { op: "adaptive clipping".into(), expected, got });
        }
        let plain: Vec<f32> = (0..elems).map(|i| (i / each + 1) as f32).collect();
        let mut packed = vec![0.0; format.elems()];
        format.pack(&plain, &mut packed)?;
        self.index.push(packed.iter().map(|unit| if *unit == 0.0 { NONE } else { *unit as u32 - 1 }).collect());
        self.tensors.push(UnitTensor { range, count });
        Ok(())
    }

    /// Limits the gradients `g` of tensor number `tensor`, whose weights are `w`: both are its range of the chunk. Sums are in f64, in the
    /// order of memory.
    pub fn limit(&self, tensor: usize, w: &[f32], g: &mut [f32]) {
        let index = &self.index[tensor];
        let mut sums = vec![[0f64; 2]; self.tensors[tensor].count];
        let squares = index.iter().zip(w.iter().zip(g.iter())).filter(|(unit, _)| **unit != NONE);
        for (unit, (w, g)) in squares {
            let [weights, gradients] = &mut sums[*unit as usize];
            *weights = f64::from(*w).mul_add(f64::from(*w), *weights);
            *gradients = f64::from(*g).mul_add(f64::from(*g), *gradients);
        }
        let factors: Vec<f32> = sums.iter().map(|[w, g]| self.factor(w.sqrt(), g.sqrt())).collect();
        for (unit, g) in index.iter().zip(g).filter(|(unit, _)| **unit != NONE) {
            *g *= factors[*unit as usize];
        }
    }

    /// What is left of a gradient.
    fn factor(&self, weights: f64, gradient: f64) -> f32 {
        let most = self.part * weights.max(Self::LEAST);
        let divisor = if gradient < Self::TINY { Self::TINY } else { gradient };
        // one that is no number stays one
        if gradient < most { 1.0 } else { (most / divisor) as f32 }
    }

    /// The units as ranges of the chunk, where each lies in one piece; none where some unit does not.
    pub fn ranges(&self) -> Option<Vec<Range<usize>>> {
        let mut ranges = Vec::new();
        for (tensor, index) in self.tensors.iter().zip(&self.index) {
            let before = ranges.len();
            let mut start = 0;
            for run in index.chunk_by(|a, b| a == b) {
                let place = tensor.range.start + start;
                start += run.len();
                if run[0] != NONE {
                    ranges.push(place..place + run.len());
                }
            }
            if ranges.len() - before != tensor.count {
                return None;
            }
        }
        Some(ranges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_by_hand() {
        let mut units = Units::new(0.5);
        units.add(&6usize, &[2, 3], 16..22).unwrap();
        units.add(&4usize, &[4], 32..36).unwrap();
        assert_eq!(units.ranges(), Some(vec![16..19, 19..22, 32..36]));
        // norms of the weights 2 and 0: limits 1 and 0.0005
        let (w, mut g) = ([2.0, 0.0, 0.0, 0.0, 0.0, 0.0], [3.0, 0.0, 4.0, 0.0, 0.25, 0.0]);
        units.limit(0, &w, &mut g);
        assert_eq!(g, [0.6, 0.0, 0.8, 0.0, 0.0005, 0.0]);
        // below its limit a gradient stays; what is no number, too
        let mut small = [0.5, 0.5, 0.0, f32::NAN, 1.0, 1.0];
        units.limit(0, &[2.0; 6], &mut small);
        assert!(small[..3] == [0.5, 0.5, 0.0] && small[3..].iter().all(|g| g.is_nan()), "{small:?}");
    }
}
