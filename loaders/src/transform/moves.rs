//! Geometry on an image that is in planes already, of bytes or of floats.

use crate::transform::rectangle::Rectangle;

/// The shape of an image in planes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PlanarShape {
    pub channels: usize,
    pub height: usize,
    pub width: usize,
}

impl PlanarShape {
    /// Values of a plane.
    pub fn plane(self) -> usize {
        self.height * self.width
    }

    /// Values of all planes.
    pub fn values(self) -> usize {
        self.channels * self.plane()
    }
}

/// Keeps a part of each plane; the result is at the start of `values`, without gaps.
pub(super) fn crop<T: Copy>(values: &mut [T], shape: PlanarShape, part: Rectangle) {
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
pub(super) fn shift<T: Copy + Default>(values: &mut [T], shape: PlanarShape, down: isize, right: isize) {
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
                plane[to..to + width].fill(T::default());
                continue;
            }
            let from = from as usize * width;
            plane.copy_within(from + kept.start..from + kept.end, to + begin);
            plane[to..to + begin].fill(T::default());
            plane[to + begin + kept.len()..to + width].fill(T::default());
        }
    }
}

/// Mirrors each row.
pub(super) fn flip<T>(values: &mut [T], shape: PlanarShape) {
    values.chunks_exact_mut(shape.width.max(1)).for_each(<[T]>::reverse);
}

/// Mirrors top and bottom.
pub(super) fn upend<T>(values: &mut [T], shape: PlanarShape) {
    for plane in values.chunks_exact_mut(shape.plane().max(1)) {
        let mut rows = plane.chunks_exact_mut(shape.width);
        while let (Some(upper), Some(lower)) = (rows.next(), rows.next_back()) {
            upper.swap_with_slice(lower);
        }
    }
}
