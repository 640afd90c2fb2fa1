//! Resizing of interleaved bytes to planar floats, in the part that is wanted.

use super::filter::{Axis, Span};
use super::mix::{self, PADDING};

/// Rows of interleaved bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows<'a> {
    /// The bytes, from the first pixel on.
    pub bytes: &'a [u8],
    /// Bytes from row to row.
    pub stride: usize,
    /// Bytes a pixel.
    pub channels: usize,
    /// Row and column of the first pixel, in the coordinates of the spans.
    pub origin: (usize, usize),
}

/// Which outputs are wanted along one axis, and of which input.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cut {
    /// The input.
    pub span: Span,
    /// Outputs that it becomes.
    pub outputs: usize,
    /// The outputs that are wanted, the end excluded.
    pub wanted: (usize, usize),
    /// Where the first of them goes in the target.
    pub to: usize,
}

/// Whether the order of rows, and that of columns, is turned about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mirror {
    pub rows: bool,
    pub columns: bool,
}

/// Working memory, reused from image to image.
#[derive(Debug, Default)]
pub(crate) struct Resampler {
    rows: Axis,
    columns: Axis,
    line: Vec<f32>,
}

/// The target: planes of `height` x `width`.
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
    /// Resizes `source`, mirrors it, and writes value * factor + offset (a pair for all channels or one each).
    pub fn run(
        &mut self,
        source: Rows<'_>,
        rows: Cut,
        columns: Cut,
        mirror: Mirror,
        scales: &[(f32, f32)],
        target: &mut Planes<'_>,
    ) {
        match source.channels {
            1 => self.run_channels::<1>(source, rows, columns, mirror, scales, target),
            2 => self.run_channels::<2>(source, rows, columns, mirror, scales, target),
            3 => self.run_channels::<3>(source, rows, columns, mirror, scales, target),
            _ => self.run_channels::<4>(source, rows, columns, mirror, scales, target),
        }
    }

    fn run_channels<const C: usize>(
        &mut self,
        source: Rows<'_>,
        rows: Cut,
        columns: Cut,
        mirror: Mirror,
        scales: &[(f32, f32)],
        target: &mut Planes<'_>,
    ) {
        let (left, right) = columns.span.support(columns.outputs, columns.wanted.0, columns.wanted.1);
        self.rows.plan(rows.span, rows.outputs, rows.wanted, mirror.rows, source.origin.0);
        self.columns.plan(columns.span, columns.outputs, columns.wanted, mirror.columns, left);
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

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::random::Draws;
    use crate::transform::resample::filter::Filter;
    use crate::transform::resample::filter::ONE;

    /// Over widths that are and are not multiples of the group, enlarged, shrunk and mirrored.
    #[test]
    fn avx2_gives_the_bits_of_plain_loops() {
        if !is_x86_feature_detected!("avx2") {
            return;
        }
        for case in 0..400 {
            let mut draws = Draws::new(8, case, 0, 0);
            let (height, width) = (1 + draws.below(20) as usize, 1 + draws.below(50) as usize);
            let bytes: Vec<u8> = (0..height * width * 3).map(|_| draws.next_u32() as u8).collect();
            let (_, filter) = Filter::NAMES[case as usize % 3];
            let span = |length: usize| Span { start: 0.0, length: length as f64, filter };
            let cut = |length, outputs| Cut { span: span(length), outputs, wanted: (0, outputs), to: 0 };
            let (rows, columns) = (1 + draws.below(9) as usize, 1 + draws.below(40) as usize);
            let source = Rows { bytes: &bytes, stride: width * 3, channels: 3, origin: (0, 0) };
            let mut values = vec![f32::NAN; rows * columns * 3];
            let mut target = Planes { values: &mut values, height: rows, width: columns };
            let mut resampler = Resampler::default();
            let scales = [(1.5, -0.25), (0.75, 1.0), (-2.0, 0.5)];
            let mirror = Mirror { rows: draws.below(2) == 1, columns: draws.below(2) == 1 };
            resampler.run(source, cut(height, rows), cut(width, columns), mirror, &scales, &mut target);

            let mut plain = vec![f32::NAN; values.len()];
            let Resampler { rows: down, columns: across, line } = &mut resampler;
            let scales = scales.map(|(factor, offset)| (factor / ONE as f32, offset));
            for row in 0..rows {
                let weights = &down.fixed[row * down.taps..][..down.taps];
                mix::sum_lines((&bytes[down.first[row] * width * 3..], width * 3), weights, line);
                let mut planes = plain.chunks_mut(rows * columns).map(|plane| &mut plane[row * columns..][..columns]);
                let out: [&mut [f32]; 3] = std::array::from_fn(|_| planes.next().unwrap());
                mix::sum_columns(line, across, 0, scales, out);
            }
            assert!(values == plain, "case {case}: {height} x {width} to {rows} x {columns}");
        }
    }
}
