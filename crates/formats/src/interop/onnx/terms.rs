//! Numbers that the graph adds to the products of queries and keys, or multiplies them by: position biases, masks of
//! shifted windows, and the factors of cosines.

use std::rc::Rc;

use net::{MASK, MOST_SCALE, Windows};

use super::axes::{Axes, Dimension, Stride, has_images, size};
use super::tensor::Constant;

#[derive(Clone, Debug, Default)]
pub(crate) struct Terms {
    /// For each head, query and key.
    pub bias: Option<Rc<[f32]>>,
    /// For each window, query and key.
    pub mask: Option<Rc<[f32]>>,
    /// For each head.
    pub factors: Option<Rc<[f32]>>,
    /// The network that computes the bias.
    pub network: Option<Rc<Network>>,
}

/// The two linear layers of a continuous position bias, 16 sigmoid(W2 relu(W1 r + b1)).
#[derive(Debug)]
pub(crate) struct Network {
    /// W1 r + b1 for each difference of positions.
    pub units: Rc<Constant>,
    /// W2 with the shape (hidden units, heads).
    pub weight: Rc<Constant>,
}

/// How a constant applies to products.
pub(crate) struct Spread<'a> {
    constant: &'a Constant,
    axes: &'a Axes,
    /// The distance in the constant along each axis, 0 if it repeats.
    steps: Vec<usize>,
    of: Dimension,
}

impl<'a> Spread<'a> {
    /// `axes` are those of the products. `varies` says that the graph accepts any number of images.
    pub fn new(constant: &'a Constant, axes: &'a Axes, varies: bool) -> Result<Self, String> {
        let refuse = || {
            let sizes: Vec<usize> = axes.axes.iter().map(|axis| size(axis)).collect();
            format!(
                "it combines products of queries and keys of {sizes:?} with a weight of {:?}; supported are one for each head, query and \
                 key, or one for each window, query and key",
                constant.dims
            )
        };
        let rank = axes.axes.len();
        let missing = rank.checked_sub(constant.dims.len()).ok_or_else(refuse)?;
        let mut steps = vec![0; rank];
        let mut step = 1;
        let mut found = Vec::new();
        for (at, count) in constant.dims.iter().enumerate().rev().filter(|(_, count)| **count != 1) {
            let own = &axes.axes[missing + at];
            if *count != size(own) || (has_images(own) && varies) {
                return Err(refuse());
            }
            steps[missing + at] = step;
            step *= count;
            if missing + at + 2 < rank {
                found.extend(own.iter().filter(|stride| stride.size > 1).map(|stride| stride.of));
            }
        }
        let of = found.first().copied().unwrap_or(Dimension::Channels);
        match of == Dimension::Images || found.iter().any(|other| *other != of) {
            true => Err(refuse()),
            false => Ok(Self { constant, axes, steps, of }),
        }
    }

    pub fn is_of_windows(&self) -> bool {
        self.of == Dimension::Positions
    }

    /// Returns true if the constant does not depend on queries and keys.
    pub fn is_of_outer(&self) -> bool {
        self.steps.ends_with(&[0, 0])
    }

    fn outer(&self) -> &[Vec<Stride>] {
        &self.axes.axes[..self.axes.axes.len().saturating_sub(2)]
    }

    fn extent(&self, axis: &[Stride]) -> usize {
        axis.iter().filter(|stride| stride.of == self.of).map(|stride| stride.size).product()
    }

    /// Returns the numbers of heads or windows, of queries, and of keys.
    fn extents(&self) -> [usize; 3] {
        let [.., queries, keys] = &self.axes.axes[..] else { return [0; 3] };
        [self.outer().iter().map(|axis| self.extent(axis)).product(), size(queries), size(keys)]
    }

    /// Returns the number of values.
    pub fn count(&self) -> usize {
        self.extents().into_iter().fold(1, usize::saturating_mul)
    }

    /// Returns the place in the constant of the first product of a head or window.
    fn place(&self, mut number: usize) -> usize {
        let mut place = 0;
        for (axis, step) in self.outer().iter().zip(&self.steps).rev() {
            place += number % self.extent(axis) * step;
            number /= self.extent(axis);
        }
        place
    }

    /// Returns the value for each head or window, query and key.
    pub fn values(&self) -> Vec<f32> {
        let ([outer, queries, keys], values) = (self.extents(), self.constant.floats());
        let [.., query, key] = self.steps[..] else { return Vec::new() };
        let row = |from: usize| (0..keys).map(move |at| from + at * key);
        let places = (0..outer).flat_map(|number| (0..queries).map(move |at| (number, at)));
        places.flat_map(|(number, at)| row(self.place(number) + at * query)).map(|place| values[place]).collect()
    }

    /// Returns the value for each head or window.
    pub fn outer_values(&self) -> Vec<f32> {
        let values = self.constant.floats();
        (0..self.extents()[0]).map(|number| values[self.place(number)]).collect()
    }
}

/// Adds values to those that are already there.
pub(crate) fn sum(own: &mut Option<Rc<[f32]>>, more: Vec<f32>) {
    *own = Some(match own.take() {
        Some(own) => own.iter().zip(more).map(|(a, b)| a + b).collect(),
        None => more.into(),
    });
}

impl Terms {
    pub fn is_empty(&self) -> bool {
        self.bias.is_none() && self.mask.is_none()
    }

    /// Returns the bias for each difference of positions and head.
    pub fn table(&self, windows: &Windows, heads: usize) -> Result<Option<Vec<f32>>, String> {
        let Some(bias) = &self.bias else { return Ok(None) };
        let area = windows.area();
        let mut table = vec![None; windows.differences() * heads];
        for (at, value) in bias.iter().enumerate() {
            let (head, query, key) = (at / (area * area), at / area % area, at % area);
            let own = table[windows.difference(query, key) * heads + head].get_or_insert(*value);
            if *own != *value {
                return Err(format!(
                    "its position bias differs for pairs of positions with the same distance: {own} and {value} in head {head}; supported \
                     is a bias that depends on the difference of rows and the difference of columns"
                ));
            }
        }
        Ok(Some(table.into_iter().map(|value| value.unwrap_or(0.0)).collect()))
    }

    /// Returns true if exactly the pairs from different parts of a window are masked.
    pub fn masks_parts(&self, windows: &Windows) -> bool {
        let area = windows.area();
        let part = |window: usize, cell: usize| windows.part(window, cell);
        match &self.mask {
            None => (0..windows.count()).all(|window| (0..area).all(|cell| part(window, cell) == 0)),
            Some(mask) => mask.iter().enumerate().all(|(at, value)| {
                let (window, query, key) = (at / (area * area), at / area % area, at % area);
                if part(window, query) == part(window, key) { *value == 0.0 } else { *value <= MASK }
            }),
        }
    }

    /// Returns the learned factor of each head, the logarithm of the factor of its cosines.
    pub fn logit_scale(&self, factor: f64, heads: usize) -> Result<Vec<f32>, String> {
        let factors = self.factors.as_ref().map_or_else(|| vec![1.0; heads], |factors| factors.to_vec());
        let scales: Vec<f64> = factors.into_iter().map(|own| f64::from(own) * factor).collect();
        match scales.iter().all(|scale| *scale > 0.0 && *scale <= MOST_SCALE * 1.00001) {
            true => Ok(scales.into_iter().map(|scale| scale.ln() as f32).collect()),
            false => Err(format!("it multiplies cosines by {scales:?}; supported are numbers up to {MOST_SCALE}")),
        }
    }
}

/// Largest difference between a bias and that of the network found for it, relative to the factor 16.
const TOLERANCE: f64 = 1e-5;

impl Network {
    /// Returns W1, b1 and W2 in PyTorch's order, and the number of hidden units. Returns `None` if they do not give this
    /// table.
    pub fn parameters(&self, windows: &Windows, heads: usize, table: &[f32]) -> Option<(usize, [Vec<f32>; 3])> {
        let (differences, [h, w]) = (windows.differences(), [windows.height(), windows.width()]);
        let (units, weight) = (self.units.floats(), self.weight.floats());
        let hidden = weight.len().checked_div(heads)?;
        if h < 2 || w < 2 || hidden == 0 || hidden * heads != weight.len() || hidden * differences != units.len() {
            return None;
        }
        let (coordinates, columns) = (windows.coordinates(), 2 * w - 1);
        // r is 0 for the difference 0, and for the largest difference along one axis the other coordinate is 0
        let (centre, below, right) = ((h - 1) * columns + w - 1, (2 * h - 2) * columns + w - 1, h * columns - 1);
        let row = |at: usize| &units[at * hidden..][..hidden];
        let slope = |at: usize, axis: usize, unit: usize| {
            (f64::from(row(at)[unit]) - f64::from(row(centre)[unit])) / f64::from(coordinates[at][axis])
        };
        let slopes: Vec<[f64; 2]> = (0..hidden).map(|unit| [slope(below, 0, unit), slope(right, 1, unit)]).collect();
        let near = |difference: usize, head: usize| {
            let unit = |unit: usize| {
                let [down, across] = [0, 1].map(|axis| slopes[unit][axis] * f64::from(coordinates[difference][axis]));
                (down + across + f64::from(row(centre)[unit])).max(0.0) * f64::from(weight[unit * heads + head])
            };
            let value = 1.0 / (1.0 + (-(0..hidden).map(unit).sum::<f64>()).exp());
            (value - f64::from(table[difference * heads + head]) / 16.0).abs() <= TOLERANCE
        };
        if !(0..differences).all(|difference| (0..heads).all(|head| near(difference, head))) {
            return None;
        }
        let turned = (0..heads).flat_map(|head| weight.iter().skip(head).step_by(heads)).copied().collect();
        let slopes = slopes.iter().flatten().map(|slope| *slope as f32).collect();
        Some((hidden, [slopes, row(centre).to_vec(), turned]))
    }
}
