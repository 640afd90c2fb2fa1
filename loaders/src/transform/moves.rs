//! Geometry on an image that is planar floats already.

use crate::transform::rectangle::Rectangle;

/// The shape of planar floats.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlanarShape {
    pub channels: usize,
    pub height: usize,
    pub width: usize,
}

/// Keeps a part of each plane; the result is at the start of `values`, without gaps.
pub(super) fn crop(values: &mut [f32], shape: PlanarShape, part: Rectangle) {
    let [top, left, height, width] = [part.top, part.left, part.height, part.width].map(|n| n as usize);
    // rows only move towards the front, so none is overwritten before it has been read
    let mut to = 0;
    for channel in 0..shape.channels {
        for row in top..top + height {
            let from = (channel * shape.height + row) * shape.width + left;
            values.copy_within(from..from + width, to);
            to += width;
        }
    }
}

/// Moves the window by `down` rows and `right` columns; what comes from outside is zero.
pub(super) fn shift(values: &mut [f32], shape: PlanarShape, down: isize, right: isize) {
    let PlanarShape { height, width, .. } = shape;
    let (h, w) = (height as isize, width as isize);
    // the source's columns that remain, and where they begin in the target
    let kept = right.clamp(0, w) as usize..(w + right).clamp(0, w) as usize;
    let begin = (-right).clamp(0, w) as usize;
    for plane in values.chunks_exact_mut((height * width).max(1)) {
        for i in 0..height {
            let row = if down >= 0 { i } else { height - 1 - i };
            let (to, from) = (row * width, row as isize + down);
            if kept.is_empty() || !(0..h).contains(&from) {
                plane[to..to + width].fill(0.0);
                continue;
            }
            let from = from as usize * width;
            plane.copy_within(from + kept.start..from + kept.end, to + begin);
            plane[to..to + begin].fill(0.0);
            plane[to + begin + kept.len()..to + width].fill(0.0);
        }
    }
}

/// Mirrors each row.
pub(super) fn flip(values: &mut [f32], shape: PlanarShape) {
    values.chunks_exact_mut(shape.width.max(1)).for_each(<[f32]>::reverse);
}
