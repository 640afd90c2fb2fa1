//! Limits on gradients: clipping by norm, layer-wise learning rates, and adaptive clipping by output units.

use std::ops::Range;

use super::list::Update;
use super::rates;
use crate::error::Error;
use crate::memory::ParamFormat;

/// A tensor whose norm is needed.
#[derive(Clone, Debug, PartialEq)]
pub struct NormedTensor {
    /// The tensor's elements in the bucket.
    pub range: Range<usize>,
    /// The weight decay of the tensor's parameter group.
    pub weight_decay: f64,
    /// True if the update rule may adapt this tensor's learning rate.
    pub adapts: bool,
    /// Factor on the tensor's learning rate.
    pub factor: f32,
}

/// The tensors for which a step needs norms, and the limit for the norm of all gradients together.
#[derive(Clone, Debug, Default)]
pub struct Norms {
    pub tensors: Vec<Vec<NormedTensor>>,
    /// Largest allowed norm of all gradients together.
    pub limit: Option<f64>,
}

impl Norms {
    /// Added to the norm before the limit is divided by it, as in PyTorch's `clip_grad_norm_`.
    pub const EPS: f64 = 1e-6;

    /// Returns a step's [`rates`]. `gradients` and `weights` have each tensor's sum of squares. `weights` is used only
    /// if the rule adapts rates.
    pub fn rates(&self, update: &Update, gradients: &[f64], weights: &[f64]) -> Vec<f32> {
        let norm = gradients.iter().sum::<f64>().sqrt();
        // a NaN norm must reach the parameters, where it is detected
        let part = self.limit.map(|limit| limit / (norm + Self::EPS)).filter(|part| *part < 1.0 || part.is_nan());
        let part = part.unwrap_or(1.0);
        let mut values = rates::plain(self.tensors.iter().flatten().map(|tensor| tensor.factor));
        (values[rates::GRADIENT], values[rates::NORM]) = (part as f32, norm as f32);
        let squares = self.tensors.iter().flatten().zip(gradients.iter().zip(weights));
        for (rate, (tensor, (g, w))) in values[rates::FIRST..].iter_mut().zip(squares).filter(|(_, (t, _))| t.adapts) {
            let lr = update.lr * f64::from(tensor.factor);
            *rate *= update.rule.trust(w.sqrt(), part * g.sqrt(), tensor.weight_decay, lr) as f32;
        }
        values
    }
}

// Adaptive gradient clipping by output units (Brock et al. 2021, arXiv 2102.06171, as in timm's adaptive_clip_grad). It
// limits the norm of a unit's gradient relative to the norm of the unit's weights. Each output of a convolution or
// linear layer is a unit. A parameter with one dimension is a single unit.

/// Marks padding elements, which belong to no unit.
const NONE: u32 = u32::MAX;

/// A parameter that is clipped by units.
#[derive(Clone, Debug, PartialEq)]
pub struct UnitTensor {
    /// The parameter's elements in the bucket.
    pub range: Range<usize>,
    pub count: usize,
}

/// The units by which the parameters in a bucket are clipped.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Units {
    /// In memory order, without overlaps.
    pub tensors: Vec<UnitTensor>,
    /// For each tensor, the unit of each of its elements. Units are numbered within a tensor.
    index: Vec<Vec<u32>>,
    /// Largest allowed ratio between the norms of gradient and weights.
    pub part: f64,
}

impl Units {
    /// Smallest norm of weights. It replaces smaller norms, so that weights that are zero can change.
    pub const LEAST: f64 = 1e-3;
    /// Smallest divisor of a limit. It replaces gradient norms that are smaller.
    pub const TINY: f64 = 1e-6;

    /// Creates an empty list. `part` must be positive.
    pub fn new(part: f64) -> Self {
        Self { part, ..Self::default() }
    }

    /// Adds a parameter. `shape` has no padding. `range` is its place in the bucket.
    pub fn add<F: ParamFormat>(&mut self, format: &F, shape: &[usize], range: Range<usize>) -> Result<(), Error> {
        let elems: usize = shape.iter().product();
        let count = if shape.len() > 1 { shape[0] } else { 1 };
        let each = (elems / count.max(1)).max(1);
        // unit numbers are packed as f32, which is exact up to 2^24
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

    /// Limits the gradients `g` of tensor number `tensor`. `w` and `g` are this tensor's range of the bucket. Sums are
    /// in f64, in memory order.
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

    /// Returns the factor for a unit's gradient, from both norms.
    fn factor(&self, weights: f64, gradient: f64) -> f32 {
        let most = self.part * weights.max(Self::LEAST);
        let divisor = if gradient < Self::TINY { Self::TINY } else { gradient };
        // written so that a NaN norm gives a NaN factor
        if gradient < most { 1.0 } else { (most / divisor) as f32 }
    }

    /// Returns the units as ranges of the bucket, or `None` if a unit is not contiguous.
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
    use crate::update::{LarsRule, Rule};

    /// LARC limits the rate of a tensor to the rate of its parameter group.
    #[test]
    fn larc_limits_the_rate_of_a_group() {
        let rule = Rule::Lars(LarsRule { momentum: 0.9, eta: 0.01, larc: true, corrected: false });
        for (factor, expected) in [(10.0, 0.08), (1.0, 0.01), (0.5, 0.005)] {
            let tensor = NormedTensor { range: 0..1, weight_decay: 0.0, adapts: true, factor };
            let norms = Norms { tensors: vec![vec![tensor]], limit: None };
            // |w| = 4 and |g| = 0.5, so lambda = 0.01 * 4 / 0.5 = 0.08
            let update = Update { rule, lr: 0.01 };
            let rate = 0.01 * norms.rates(&update, &[0.25], &[16.0])[rates::FIRST];
            assert!((rate - expected).abs() < 1e-7, "factor {factor}: {rate}");
        }
    }

    #[test]
    fn unit_clipping_matches_a_hand_computed_example() {
        let mut units = Units::new(0.5);
        units.add(&6usize, &[2, 3], 16..22).unwrap();
        units.add(&4usize, &[4], 32..36).unwrap();
        assert_eq!(units.ranges(), Some(vec![16..19, 19..22, 32..36]));
        // the norms of the weights are 2 and 0, so the limits are 1 and 0.0005
        let (w, mut g) = ([2.0, 0.0, 0.0, 0.0, 0.0, 0.0], [3.0, 0.0, 4.0, 0.0, 0.25, 0.0]);
        units.limit(0, &w, &mut g);
        assert_eq!(g, [0.6, 0.0, 0.8, 0.0, 0.0005, 0.0]);
        // a gradient below its limit does not change, and NaN stays NaN
        let mut small = [0.5, 0.5, 0.0, f32::NAN, 1.0, 1.0];
        units.limit(0, &[2.0; 6], &mut small);
        assert!(small[..3] == [0.5, 0.5, 0.0] && small[3..].iter().all(|g| g.is_nan()), "{small:?}");
    }
}
