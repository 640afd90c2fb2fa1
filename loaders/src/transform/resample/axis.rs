//! The weights of a filter along one axis.

use super::filter::Filter;

/// Outputs of a row that are summed at once.
pub(super) const GROUP: usize = 8;

/// One in the fixed point of [`Axis::fixed`].
pub(super) const ONE: i32 = 1 << 14;

/// The weights with which each output along one axis sums the input.
#[derive(Debug, Default)]
pub(crate) struct Axis {
    /// Inputs of each output, those of weight 0 included.
    pub taps: usize,
    /// First input of each output.
    pub first: Vec<usize>,
    /// The end of the inputs that outputs read: the greatest of `first`, plus `taps`.
    pub end: usize,
    /// `taps` weights an output.
    pub weights: Vec<f32>,
    /// The weights again, for whole groups: the first weights of [`GROUP`] outputs, their second weights, and so on.
    pub grouped: Vec<f32>,
    /// The weights in fixed point.
    pub fixed: Vec<i16>,
    /// The inputs `from..to` of each output, without those of weight 0.
    reaches: Vec<(usize, usize)>,
    /// The weights of the output that is being planned.
    exact: Vec<f64>,
    /// Between what values sums are cut.
    pub limits: (f32, f32),
}

/// The part of the input along one axis that is resized, in pixels; its ends may be fractions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    /// Where it begins.
    pub start: f64,
    /// How long it is.
    pub length: f64,
    /// By what it is resized.
    pub filter: Filter,
}

impl Span {
    /// The span `from..to` of an image, in a version of 1/`reduction` of its size.
    pub fn reduced(from: usize, to: usize, reduction: u32, filter: Filter) -> Self {
        let by = f64::from(reduction);
        Self { start: from as f64 / by, length: (to - from) as f64 / by, filter }
    }

    /// The inputs `from..to` on which outputs `first..last` of `outputs` depend.
    pub fn support(self, outputs: usize, first: usize, last: usize) -> (usize, usize) {
        if first >= last {
            let start = self.start.floor() as usize;
            return (start, start + 1);
        }
        let grid = Grid::new(self, outputs);
        (grid.reach(first).0, grid.reach(last - 1).1)
    }
}

/// Where the outputs that a span becomes lie in the input.
#[derive(Debug, Clone, Copy)]
struct Grid {
    span: Span,
    /// Inputs from one output to the next.
    scale: f64,
    /// How far from its centre an output depends on inputs.
    support: f64,
    /// The first input of all, and the end of all.
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

    /// The inputs on which one output depends; at least one.
    fn reach(&self, output: usize) -> (usize, usize) {
        let (centre, (least, most)) = (self.centre(output), self.ends);
        let from = ((centre - self.support + 0.5).max(0.0) as usize).max(least);
        let to = ((centre + self.support + 0.5) as usize).min(most);
        (from.min(most - 1), to.max(from + 1).min(most))
    }
}

impl Axis {
    /// Computes the weights of outputs `wanted` of the `outputs` that `span` becomes; `reversed`: the last one first. Inputs are
    /// counted from `origin`.
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
            // all taps lie inside, even if this output needs fewer of them
            let start = from.min(most - self.taps).max(least);
            self.weigh(&grid, position(i), start, (from, to));
            self.first.push(start - origin);
            self.weights.extend(self.exact.iter().map(|&weight| weight as f32));
            self.fix();
        }
        self.end = self.first.iter().max().map_or(0, |first| first + self.taps);
    }

    /// Computes the exact weights of one output for the inputs from `start` on; outside of `from..to` they are 0.
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

    /// Fills `grouped`.
    pub fn group(&mut self) {
        self.grouped.clear();
        for weights in self.weights.chunks_exact(GROUP * self.taps) {
            for k in 0..self.taps {
                self.grouped.extend(weights.iter().skip(k).step_by(self.taps));
            }
        }
    }

    /// Appends the weights of one output in fixed point; the remainder of rounding is added to the largest.
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
