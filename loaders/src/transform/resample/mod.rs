//! Resizing of bytes to planar floats with the triangle filter, antialiased: what PIL calls BILINEAR and torchvision
//! `interpolate(..., antialias=True)`. Rows first, then columns, then a factor and an offset per channel, row by row, so that
//! nothing but one row is ever held in between.
//!
//! PIL rounds to bytes after each of its two passes; here the values stay fractions, so they are within 1 of PIL's (of 255).
//! Weights of rows are fixed point of 14 bits that sum to one exactly, and sums are integers; columns are summed in f32 in a
//! fixed order without fused multiply-adds: the bits are the same on every processor.

mod mix;
mod plane;

pub use plane::{Plane, PlaneResizer};

use mix::{GROUP, PADDING};

/// One in the fixed point of [`Axis::fixed`].
const ONE: i32 = 1 << 14;

/// What each output position along one axis takes from the input.
#[derive(Debug, Default)]
pub(crate) struct Axis {
    /// Inputs that each output takes, those of weight 0 included.
    taps: usize,
    /// First input of each output.
    first: Vec<usize>,
    /// `taps` weights an output.
    weights: Vec<f32>,
    /// The weights of whole groups of outputs once more: first weights of [`GROUP`] outputs, second weights, and so on.
    grouped: Vec<f32>,
    /// The weights in fixed point.
    fixed: Vec<i16>,
    /// Of one output.
    exact: Vec<f64>,
}

/// The stretch of the input that is resized, in pixels; its ends may be fractions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stretch {
    /// Where it begins.
    pub start: f64,
    /// How long it is.
    pub length: f64,
}

impl Stretch {
    /// The inputs `from..to` on which outputs `first..last` of `outputs` depend.
    pub fn support(self, outputs: usize, first: usize, last: usize) -> (usize, usize) {
        if first >= last {
            let start = self.start.floor() as usize;
            return (start, start + 1);
        }
        (self.reach(outputs, first).0, self.reach(outputs, last - 1).1)
    }

    /// The inputs on which one output depends; at least one.
    fn reach(self, outputs: usize, output: usize) -> (usize, usize) {
        let scale = self.length / outputs as f64;
        let support = scale.max(1.0);
        let centre = self.start + (output as f64 + 0.5) * scale;
        let least = self.start.floor().max(0.0) as usize;
        let most = (self.start + self.length).ceil() as usize;
        let from = ((centre - support + 0.5).max(0.0) as usize).max(least);
        let to = ((centre + support + 0.5) as usize).min(most);
        (from.min(most - 1), to.max(from + 1).min(most))
    }
}

impl Axis {
    /// Plans outputs `first..last` of the `outputs` that `stretch` becomes; `reversed`: the last one first. Inputs count
    /// from `origin`.
    fn plan(&mut self, stretch: Stretch, outputs: usize, (first, last): (usize, usize), reversed: bool, origin: usize) {
        self.first.clear();
        self.weights.clear();
        self.fixed.clear();
        let (least, most) = stretch.support(outputs, first, last);
        let position = |i: usize| if reversed { last - 1 - i } else { first + i };
        let reach = |i: usize| stretch.reach(outputs, position(i));
        self.taps = (0..last - first).map(|i| reach(i).1 - reach(i).0).max().unwrap_or(1);
        let scale = stretch.length / outputs as f64;
        let narrow = 1.0 / scale.max(1.0);
        for i in 0..last - first {
            let (from, to) = reach(i);
            // All taps lie inside, even where this output needs fewer of them.
            let start = from.min(most - self.taps).max(least);
            let centre = stretch.start + (position(i) as f64 + 0.5) * scale;
            self.exact.clear();
            self.exact.extend((start..start + self.taps).map(|at| match (from..to).contains(&at) {
                true => (1.0 - ((at as f64 + 0.5 - centre) * narrow).abs()).max(0.0),
                false => 0.0,
            }));
            let sum: f64 = self.exact.iter().sum();
            self.exact.iter_mut().for_each(|weight| *weight /= sum);
            self.first.push(start - origin);
            self.weights.extend(self.exact.iter().map(|&weight| weight as f32));
            self.fix();
        }
    }

    /// Lays the weights out for whole groups of outputs.
    fn group(&mut self) {
        self.grouped.clear();
        for weights in self.weights.chunks_exact(GROUP * self.taps) {
            for k in 0..self.taps {
                self.grouped.extend(weights.iter().skip(k).step_by(self.taps));
            }
        }
    }

    /// Adds the weights of one output in fixed point; what rounding leaves over goes to the largest.
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

/// Rows of interleaved bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows<'a> {
    /// The bytes, from the first pixel on.
    pub bytes: &'a [u8],
    /// Bytes from row to row.
    pub stride: usize,
    /// Bytes a pixel.
    pub channels: usize,
    /// The row and the column that come first, in the coordinates of the stretches.
    pub origin: (usize, usize),
}

/// Which outputs are wanted along one axis, and of what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cut {
    /// The input.
    pub stretch: Stretch,
    /// Outputs that it becomes.
    pub outputs: usize,
    /// Those wanted, the second excluded.
    pub wanted: (usize, usize),
    /// Where the first of them goes in the target.
    pub to: usize,
}

/// Working memory, reused from image to image.
#[derive(Debug, Default)]
pub(crate) struct Resampler {
    rows: Axis,
    columns: Axis,
    line: Vec<f32>,
}

/// Where outputs go: planes of `height` x `width`.
#[derive(Debug)]
pub(crate) struct Planes<'a> {
    /// Channel after channel.
    pub values: &'a mut [f32],
    /// Rows of a plane.
    pub height: usize,
    /// Columns of a plane.
    pub width: usize,
}

impl Resampler {
    /// Resizes `source`, mirrors it if `flipped`, and writes value * factor + offset (a pair for all channels or one each).
    pub fn run(
        &mut self,
        source: Rows<'_>,
        rows: Cut,
        columns: Cut,
        flipped: bool,
        scales: &[(f32, f32)],
        target: &mut Planes<'_>,
    ) {
        match source.channels {
            1 => self.run_channels::<1>(source, rows, columns, flipped, scales, target),
            2 => self.run_channels::<2>(source, rows, columns, flipped, scales, target),
            3 => self.run_channels::<3>(source, rows, columns, flipped, scales, target),
            _ => self.run_channels::<4>(source, rows, columns, flipped, scales, target),
        }
    }

    fn run_channels<const C: usize>(
        &mut self,
        source: Rows<'_>,
        rows: Cut,
        columns: Cut,
        flipped: bool,
        scales: &[(f32, f32)],
        target: &mut Planes<'_>,
    ) {
        let (left, right) = columns.stretch.support(columns.outputs, columns.wanted.0, columns.wanted.1);
        self.rows.plan(rows.stretch, rows.outputs, rows.wanted, false, source.origin.0);
        self.columns.plan(columns.stretch, columns.outputs, columns.wanted, flipped, left);
        self.columns.group();
        let begin = (left - source.origin.1) * C;
        self.line.resize((right - left) * C + PADDING, 0.0);
        let scales = std::array::from_fn(|c| scales[c % scales.len()]);
        let (width, plane) = (self.columns.first.len(), target.height * target.width);
        for (i, (&first, weights)) in
            self.rows.first.iter().zip(self.rows.fixed.chunks_exact(self.rows.taps)).enumerate()
        {
            let from = &source.bytes[first * source.stride + begin..];
            let start = (rows.to + i) * target.width + columns.to;
            let mut planes = target.values.chunks_mut(plane.max(1));
            let out: [&mut [f32]; C] = std::array::from_fn(|_| match planes.next() {
                Some(plane) => &mut plane[start..start + width],
                None => &mut [],
            });
            mix::row((from, source.stride), weights, &mut self.line, &self.columns, scales, out);
        }
    }
}
