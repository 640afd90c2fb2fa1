//! Resizes interleaved values with any type and channel count to planar floats. Computes only the requested part.
//!
//! Sums are in f32 in a fixed order without fused multiply-adds. Values are not rounded. Results that overshoot are
//! clamped only for bytes, as in torchvision.

use super::resampler::{AxisRequest, Mirror, Planes, Resampler, Rows};

impl Resampler {
    /// Resizes `source` and mirrors it. `read` converts the `N` bytes of a value to a float. If `clamped` is set (for
    /// bytes), results are clamped to the filter's limits.
    pub fn run_values<const N: usize>(
        &mut self,
        source: Rows<'_>,
        rows: AxisRequest,
        columns: AxisRequest,
        mirror: Mirror,
        (read, clamped): (impl Fn([u8; N]) -> f32, bool),
        target: &mut Planes<'_>,
    ) {
        let Rows { bytes, stride, channels, origin } = source;
        let (left, right) = columns.span.support(columns.outputs, columns.wanted.0, columns.wanted.1);
        self.rows.plan(rows.span, rows.outputs, rows.wanted, mirror.rows, origin.0);
        self.columns.plan(columns.span, columns.outputs, columns.wanted, mirror.columns, left);
        let begin = (left - origin.1) * channels * N;
        let count = (right - left) * channels;
        self.line.clear();
        self.line.resize(count + channels, 0.0);
        let (line, sums) = self.line.split_at_mut(count);
        let limits = clamped.then_some(self.columns.limits);
        let plane = target.height * target.width;
        for (i, (&first, weights)) in
            self.rows.first.iter().zip(self.rows.weights.chunks_exact(self.rows.taps)).enumerate()
        {
            line.fill(0.0);
            for (k, weight) in weights.iter().enumerate() {
                let (row, _) = bytes[(first + k) * stride + begin..][..count * N].as_chunks::<N>();
                line.iter_mut().zip(row).for_each(|(sum, value)| *sum += weight * read(*value));
            }
            let start = (rows.to + i) * target.width + columns.to;
            for (x, weights) in self.columns.weights.chunks_exact(self.columns.taps).enumerate() {
                let pixels = &line[self.columns.first[x] * channels..][..self.columns.taps * channels];
                sums.fill(0.0);
                for (weight, pixel) in weights.iter().zip(pixels.chunks_exact(channels)) {
                    sums.iter_mut().zip(pixel).for_each(|(sum, value)| *sum += weight * value);
                }
                for (channel, sum) in sums.iter().enumerate() {
                    // NaN stays NaN.
                    target.values[channel * plane + start + x] =
                        limits.map_or(*sum, |(low, high)| sum.max(low).min(high));
                }
            }
        }
    }
}
