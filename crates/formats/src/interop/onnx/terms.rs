//! Numbers that the graph adds to attention scores or multiplies them by: position biases, masks for shifted windows,
//! and factors for cosines. Attention scores are the products of queries and keys.

use std::rc::Rc;

use net::{MASK, MOST_SCALE, Windows};

use super::axes::{Axes, Dimension, Stride, has_images, size};
use super::tensor::Constant;

#[derive(Clone, Debug, Default)]
pub(crate) struct Terms {
    /// A value per head, query and key.
    pub bias: Option<Rc<[f32]>>,
    /// A value per window, query and key.
    pub mask: Option<Rc<[f32]>>,
    /// A value per head.
    pub factors: Option<Rc<[f32]>>,
    /// The network that computes the bias.
    pub network: Option<Rc<Network>>,
}

/// The network that computes a continuous position bias as 16 sigmoid(W2 relu(W1 r + b1)).
#[derive(Debug)]
pub(crate) struct Network {
    /// W1 r + b1 for each position difference r.
    pub units: Rc<Constant>,
    /// W2 with the shape (hidden units, heads).
    pub weight: Rc<Constant>,
}

/// Says which value of a constant applies to which attention score.
pub(crate) struct Spread<'a> {
    constant: &'a Constant,
    axes: &'a Axes,
    /// The step in the constant along each axis. It is 0 if the constant repeats.
    steps: Vec<usize>,
    of: Dimension,
}

impl<'a> Spread<'a> {
    /// `axes` belong to the attention scores. `varies` is true if the graph accepts any number of images.
    pub fn new(constant: &'a Constant, axes: &'a Axes, varies: bool) -> Result<Self, String> {
        let refuse = || {
            let sizes: Vec<usize> = axes.axes.iter().map(|axis| size(axis)).collect();
            format!(
                "it combines attention scores {sizes:?} with a weight {:?}; supported are weights with a value per head, query and \
                 key, or per window, query and key",
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

    /// Returns the number of heads or windows, the number of queries and the number of keys.
    fn extents(&self) -> [usize; 3] {
        let [.., queries, keys] = &self.axes.axes[..] else { return [0; 3] };
        [self.outer().iter().map(|axis| self.extent(axis)).product(), size(queries), size(keys)]
    }

    /// Returns the number of values.
    pub fn count(&self) -> usize {
        self.extents().into_iter().fold(1, usize::saturating_mul)
    }

    /// Returns the index in the constant for the first attention score of a head or window.
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

/// Adds values to the existing values, if there are any.
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

    /// Returns the bias for each position difference and head.
    pub fn table(&self, windows: &Windows, heads: usize) -> Result<Option<Vec<f32>>, String> {
        let Some(bias) = &self.bias else { return Ok(None) };
        let area = windows.area();
        let mut table = vec![None; windows.differences() * heads];
        for (at, value) in bias.iter().enumerate() {
            let (head, query, key) = (at / (area * area), at / area % area, at % area);
            let own = table[windows.difference(query, key) * heads + head].get_or_insert(*value);
            if *own != *value {
                return Err(format!(
                    "its position bias differs between pairs with the same row and column difference: {own} and {value} in head {head}; it \
                     must only depend on these differences"
                ));
            }
        }
        Ok(Some(table.into_iter().map(|value| value.unwrap_or(0.0)).collect()))
    }

    /// Returns true if the mask hides exactly the pairs that belong to different parts of a window.
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

    /// Returns `logit_scale`, the logarithm of the factor for cosines, for each head.
    pub fn logit_scale(&self, factor: f64, heads: usize) -> Result<Vec<f32>, String> {
        let factors = self.factors.as_ref().map_or_else(|| vec![1.0; heads], |factors| factors.to_vec());
        let scales: Vec<f64> = factors.into_iter().map(|own| f64::from(own) * factor).collect();
        match scales.iter().all(|scale| *scale > 0.0 && *scale <= MOST_SCALE * 1.00001) {
            true => Ok(scales.into_iter().map(|scale| scale.ln() as f32).collect()),
            false => {
                Err(format!("it multiplies cosines by {scales:?}, but only numbers up to {MOST_SCALE} are supported"))
            }
        }
    }
}

/// Largest allowed difference between a bias and the output of the network that was found for it, divided by 16.
const TOLERANCE: f64 = 1e-5;

impl Network {
    /// Returns the number of hidden units, and W1, b1 and W2 in PyTorch's order. Returns `None` if they do not produce
    /// this table.
    pub fn parameters(&self, windows: &Windows, heads: usize, table: &[f32]) -> Option<(usize, [Vec<f32>; 3])> {
        let (differences, [h, w]) = (windows.differences(), [windows.height(), windows.width()]);
        let (units, weight) = (self.units.floats(), self.weight.floats());
        let hidden = weight.len().checked_div(heads)?;
        if h < 2 || w < 2 || hidden == 0 || hidden * heads != weight.len() || hidden * differences != units.len() {
            return None;
        }
        let (coordinates, columns) = (windows.coordinates(), 2 * w - 1);
        // In the centre, r is 0. In the other two places, r has a coordinate that is 0.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interop::onnx::axes::{channels, positions};
    use crate::interop::onnx::tensor::Values;
    use net::{Attention, Shape};

    fn constant(dims: &[usize], values: Vec<f32>) -> Constant {
        Constant { dims: dims.to_vec(), values: Values::Floats(values) }
    }

    /// Returns the axes of attention scores in two 2x2 windows with three heads.
    fn products() -> Axes {
        let windows = vec![Stride { of: Dimension::Positions, size: 2, step: 4 }];
        Axes { axes: vec![windows, channels(3), positions(4), positions(4)], ..Axes::default() }
    }

    fn windows(shift: usize) -> Windows {
        let op = Attention { window: Some([2, 2]), shift: [0, shift], ..Attention::new(3) };
        op.windows(Shape::image(9, 2, 4))
    }

    #[test]
    fn constants_vary_by_head_or_by_window() {
        let axes = products();
        let spread = |dims: &[usize]| {
            let count: usize = dims.iter().product();
            let constant = constant(dims, (0..count).map(|at| at as f32).collect());
            Spread::new(&constant, &axes, false).map(|spread| (spread.is_of_windows(), spread.values()))
        };
        let (of_windows, values) = spread(&[3, 4, 4]).unwrap();
        assert_eq!((of_windows, values.len(), values[17]), (false, 48, 17.0));
        let (of_windows, values) = spread(&[2, 1, 1, 4]).unwrap();
        assert_eq!((of_windows, values.len(), values[21]), (true, 32, 5.0));
        for dims in [&[2, 3, 4, 4][..], &[2, 4, 4], &[1, 2, 3, 4, 4]] {
            assert!(spread(dims).unwrap_err().contains("combines attention scores"), "{dims:?}");
        }
    }

    #[test]
    fn a_bias_must_depend_on_the_difference_only() {
        let windows = windows(0);
        let value = |at: usize| windows.difference(at / 4 % 4, at % 4) as f32 + 10.0 * (at / 16) as f32;
        let mut bias: Vec<f32> = (0..48).map(value).collect();
        let table = |bias: &[f32]| Terms { bias: Some(bias.into()), ..Terms::default() }.table(&windows, 3);
        assert_eq!(table(&bias).unwrap().unwrap()[..6], [0.0, 10.0, 20.0, 1.0, 11.0, 21.0]);
        bias[5] += 1.0;
        assert!(table(&bias).unwrap_err().contains("same row and column difference"));
    }

    #[test]
    fn only_the_mask_of_shifted_windows_is_accepted() {
        let (plain, shifted) = (windows(0), windows(1));
        let part = |at: usize| shifted.part(at / 16, at / 4 % 4) != shifted.part(at / 16, at % 4);
        let mask: Vec<f32> = (0..32).map(|at| if part(at) { -100.0 } else { 0.0 }).collect();
        let masks = |mask: Option<&[f32]>, windows: &Windows| {
            Terms { mask: mask.map(Into::into), ..Terms::default() }.masks_parts(windows)
        };
        assert!(masks(Some(&mask), &shifted) && !masks(Some(&mask), &plain));
        assert!(masks(None, &plain) && !masks(None, &shifted));
    }

    /// Uses W1 = (0.5, -2) and b1 = 0.25 with 2x2 windows.
    #[test]
    fn the_continuous_bias_network_is_recovered() {
        let windows = windows(0);
        let units: Vec<f32> =
            windows.coordinates().iter().map(|[down, across]| 0.5 * down - 2.0 * across + 0.25).collect();
        let heads = [1.0, -0.5, 2.0];
        let value = |unit: &f32, head: f32| 16.0 / (1.0 + (-unit.max(0.0) * head).exp());
        let mut table: Vec<f32> = units.iter().flat_map(|unit| heads.map(|head| value(unit, head))).collect();
        let network =
            Network { units: Rc::new(constant(&[9, 1], units)), weight: Rc::new(constant(&[1, 3], heads.to_vec())) };
        let (hidden, [first, bias, second]) = network.parameters(&windows, 3, &table).unwrap();
        assert!((first[0] - 0.5).abs() < 1e-6 && (first[1] + 2.0).abs() < 1e-6);
        assert_eq!((hidden, bias, second), (1, vec![0.25], heads.to_vec()));
        table[4] += 1.0;
        assert!(network.parameters(&windows, 3, &table).is_none());
    }
}
