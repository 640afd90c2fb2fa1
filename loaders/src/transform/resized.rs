//! Pixels of an image that is resized, to planar floats.

use crate::decode::Decoded;
use crate::transform::geometry::{Geometry, Resize};
use crate::transform::resample::{Cut, Mirror, Planes, Resampler, Rows, Span};
use crate::transform::scale::Scale;

/// The most channels of an image that is resized.
pub(super) const MAX_CHANNELS: usize = 4;

/// Writes the window of a resized image as planar floats, through a scale for all channels or one each.
pub(super) fn paint(
    geometry: &Geometry,
    resize: Resize,
    image: &Decoded<'_>,
    scales: &[Scale],
    resampler: &mut Resampler,
    values: &mut [f32],
) {
    let (height, width, channels) = (geometry.window.height(), geometry.window.width(), geometry.channels);
    let seen = geometry.seen();
    if seen.is_none_or(|seen| seen.window != geometry.window) {
        for (channel, plane) in values.chunks_exact_mut((height * width).max(1)).take(channels).enumerate() {
            plane.fill(scales[channel % scales.len()].table[0]);
        }
    }
    let Some(seen) = seen else { return };
    let mut pairs = [(0.0, 0.0); MAX_CHANNELS];
    for (pair, scale) in pairs.iter_mut().zip(scales) {
        *pair = (scale.factor, scale.offset);
    }
    let Decoded { bytes, columns, origin, reduction } = *image;
    let Resize { region, height: full_height, width: full_width, filter } = resize;
    resampler.run(
        Rows { bytes, stride: columns * channels, channels, origin },
        Cut {
            span: Span::reduced(region.top, region.bottom, reduction, filter),
            outputs: full_height as usize,
            wanted: (seen.window.top as usize, seen.window.bottom as usize),
            to: seen.above,
        },
        Cut {
            span: Span::reduced(region.left, region.right, reduction, filter),
            outputs: full_width as usize,
            wanted: (seen.window.left as usize, seen.window.right as usize),
            to: seen.ahead,
        },
        Mirror { rows: geometry.upended, columns: geometry.flipped },
        &pairs[..scales.len()],
        &mut Planes { values, height, width },
    );
}
