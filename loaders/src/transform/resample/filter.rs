//! Filters for resizing, and their weights along one axis.
//!
//! The filters have the names and formulas of PIL. When an image becomes smaller, they are widened.

use std::f64::consts::PI;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Filter {
    /// The triangle filter, which interpolates linearly.
    #[default]
    Bilinear,
    /// The cubic filter of Keys with a = -1/2.
    Bicubic,
    /// A sinc, windowed to three of its zeros on each side.
    Lanczos,
}

impl Filter {
    /// All filters by name. The default comes first.
    pub const NAMES: &'static [(&'static str, Self)] =
        &[("bilinear", Self::Bilinear), ("bicubic", Self::Bicubic), ("lanczos", Self::Lanczos)];

    /// Returns the text that selects the filter as the last argument of a transform, such as `, bicubic`. Empty for the
    /// default.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Bilinear => "",
            Self::Bicubic => ", bicubic",
            Self::Lanczos => ", lanczos",
        }
    }

    /// Returns the distance from the centre beyond which the filter is 0.
    pub fn support(self) -> f64 {
        match self {
            Self::Bilinear => 1.0,
            Self::Bicubic => 2.0,
            Self::Lanczos => 3.0,
        }
    }

    /// Returns the filter's value at a distance from its centre.
    pub fn at(self, distance: f64) -> f64 {
        let x = distance.abs();
        match self {
            Self::Bilinear => (1.0 - x).max(0.0),
            Self::Bicubic if x < 1.0 => (1.5 * x - 2.5) * x * x + 1.0,
            Self::Bicubic if x < 2.0 => ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0,
            Self::Lanczos if x < 3.0 => sinc(x) * sinc(x / 3.0),
            _ => 0.0,
        }
    }

    /// Returns the range to which pixel values are clamped, on the scale 0 to 255. Filters with negative weights
    /// overshoot and need it.
    pub fn limits(self) -> (f32, f32) {
        match self {
            Self::Bilinear => (f32::NEG_INFINITY, f32::INFINITY),
            Self::Bicubic | Self::Lanczos => (0.0, 255.0),
        }
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 { 1.0 } else { (PI * x).sin() / (PI * x) }
}

/// Number of outputs in a row that are summed together.
pub(super) const GROUP: usize = 8;

/// The number 1 in the fixed-point format of [`Axis::fixed`].
pub(super) const ONE: i32 = 1 << 14;

/// The weights of the inputs for each output along one axis.
#[derive(Debug, Default)]
pub(crate) struct Axis {
    /// Number of inputs per output, including inputs with weight 0.
    pub taps: usize,
    /// First input of each output.
    pub first: Vec<usize>,
    /// End of the inputs that any output reads: the maximum of `first`, plus `taps`.
    pub end: usize,
    /// `taps` weights for each output.
    pub weights: Vec<f32>,
    /// The same weights, rearranged for whole groups: the first weights of [`GROUP`] outputs, then their second
    /// weights, and so on.
    pub grouped: Vec<f32>,
    /// The same weights in fixed point.
    pub fixed: Vec<i16>,
    /// For each output, the range of inputs with a weight other than 0.
    reaches: Vec<(usize, usize)>,
    /// The weights of the output that is being planned.
    exact: Vec<f64>,
    /// The range to which sums are clamped.
    pub limits: (f32, f32),
}

/// The part of the input along one axis that is resized, in pixels. Its ends may be fractions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub start: f64,
    pub length: f64,
    pub filter: Filter,
}

impl Span {
    /// Returns the span `from..to` of an image, in a version of the image that is `reduction` times smaller.
    pub fn reduced(from: usize, to: usize, reduction: u32, filter: Filter) -> Self {
        let by = f64::from(reduction);
        Self { start: from as f64 / by, length: (to - from) as f64 / by, filter }
    }

    /// Returns the range of inputs that outputs `first..last` of `outputs` depend on.
    pub fn support(self, outputs: usize, first: usize, last: usize) -> (usize, usize) {
        if first >= last {
            let start = self.start.floor() as usize;
            return (start, start + 1);
        }
        let grid = Grid::new(self, outputs);
        (grid.reach(first).0, grid.reach(last - 1).1)
    }
}

/// The positions of a span's outputs in the input.
#[derive(Debug, Clone, Copy)]
struct Grid {
    span: Span,
    /// Span length divided by the number of outputs.
    scale: f64,
    /// The distance from its centre up to which an output depends on inputs.
    support: f64,
    /// The first input and the end of the inputs.
    ends: (usize, usize),
}

impl Grid {
    fn new(span: Span, outputs: usize) -> Self {
        let scale = span.length / outputs as f64;
        let support = scale.max(1.0) * span.filter.support();
        let ends = (span.start.floor().max(0.0) as usize, (span.start + span.length).ceil() as usize);
        Self { span, scale, support, ends }
    }

    fn centre(&self, output: usize) -> f64 {
        self.span.start + (output as f64 + 0.5) * self.scale
    }

    /// Returns the range of inputs that an output depends on. It has at least one input.
    fn reach(&self, output: usize) -> (usize, usize) {
        let (centre, (least, most)) = (self.centre(output), self.ends);
        let from = ((centre - self.support + 0.5).max(0.0) as usize).max(least);
        let to = ((centre + self.support + 0.5) as usize).min(most);
        (from.min(most - 1), to.max(from + 1).min(most))
    }
}

impl Axis {
    /// Computes the weights for the outputs `first..last` of the `outputs` of `span`, in reverse order if `reversed` is
    /// set. Inputs are counted from `origin`.
    pub fn plan(&mut self, span: Span, outputs: usize, (first, last): (usize, usize), reversed: bool, origin: usize) {
        self.first.clear();
        self.weights.clear();
        self.fixed.clear();
        self.limits = span.filter.limits();
        let (least, most) = span.support(outputs, first, last);
        let grid = Grid::new(span, outputs);
        let position = |i: usize| if reversed { last - 1 - i } else { first + i };
        self.reaches.clear();
        self.reaches.extend((0..last - first).map(|i| grid.reach(position(i))));
        self.taps = self.reaches.iter().map(|(from, to)| to - from).max().unwrap_or(1);
        for i in 0..last - first {
            let (from, to) = self.reaches[i];
            // All taps must be inside the input, even if this output needs fewer of them.
            let start = from.min(most - self.taps).max(least);
            self.weigh(&grid, position(i), start, (from, to));
            self.first.push(start - origin);
            self.weights.extend(self.exact.iter().map(|&weight| weight as f32));
            self.fix();
        }
        self.end = self.first.iter().max().map_or(0, |first| first + self.taps);
    }

    /// Computes the exact weights of one output for `taps` inputs starting at `start`. They are 0 outside `from..to`.
    fn weigh(&mut self, grid: &Grid, output: usize, start: usize, (from, to): (usize, usize)) {
        let steepness = 1.0 / grid.scale.max(1.0);
        let centre = grid.centre(output);
        self.exact.clear();
        self.exact.extend((start..start + self.taps).map(|at| match (from..to).contains(&at) {
            true => grid.span.filter.at((at as f64 + 0.5 - centre) * steepness),
            false => 0.0,
        }));
        let sum: f64 = self.exact.iter().sum();
        self.exact.iter_mut().for_each(|weight| *weight /= sum);
    }

    pub fn group(&mut self) {
        self.grouped.clear();
        for weights in self.weights.chunks_exact(GROUP * self.taps) {
            for k in 0..self.taps {
                self.grouped.extend(weights.iter().skip(k).step_by(self.taps));
            }
        }
    }

    /// Appends the weights of one output in fixed point. The rounding error is added to the largest weight, so that the
    /// sum is exact.
    fn fix(&mut self) {
        let begin = self.fixed.len();
        self.fixed.extend(self.exact.iter().map(|weight| (weight * f64::from(ONE)).round_ties_even() as i16));
        let fixed = &mut self.fixed[begin..];
        let left = ONE - fixed.iter().map(|&w| i32::from(w)).sum::<i32>();
        if let Some(largest) = fixed.iter_mut().max() {
            *largest = (i32::from(*largest) + left) as i16;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_1_at_the_centre_and_0_at_other_pixels() {
        for (_, filter) in Filter::NAMES {
            assert_eq!(filter.at(0.0), 1.0);
            for pixel in 1..5 {
                assert!(filter.at(f64::from(pixel)).abs() < 1e-15 && filter.at(f64::from(-pixel)).abs() < 1e-15);
            }
            assert_eq!(filter.at(filter.support()), 0.0);
        }
        assert_eq!((Filter::Bicubic.at(0.5), Filter::Bicubic.at(1.5)), (0.5625, -0.0625));
        assert!((Filter::Lanczos.at(1.5) + 0.135_094).abs() < 1e-5);
    }
}
