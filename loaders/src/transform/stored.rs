//! Pixels of an image that is not resized: to planar floats, or to interleaved bytes.

use crate::decode::Decoded;
use crate::transform::geometry::{Geometry, Seen};
use crate::transform::paint::{Area, Row};
use crate::transform::rgb::Pixels;
use crate::transform::scale::Scale;

/// Writes the window as planar floats, through a scale for all channels or one each.
pub(super) fn paint(geometry: &Geometry, image: &Decoded<'_>, scales: &[Scale], values: &mut [f32]) {
    let (height, width, channels) = (geometry.window.height(), geometry.window.width(), geometry.channels);
    let seen = geometry.seen();
    if let Some(seen) = seen.filter(|_| channels == 3 && !geometry.upended) {
        let (rows, columns) = (seen.window.height(), seen.window.width());
        let area = Area { height, width, above: seen.above, ahead: seen.ahead, rows };
        let stride = image.columns * 3;
        let bytes = &image.bytes[start(&seen, image, 0, 3)..][..(rows - 1) * stride + columns * 3];
        let pixels = Pixels { bytes, stride, columns, flipped: geometry.flipped };
        if area.paint_rgb(pixels, scales, values) {
            return;
        }
    }
    for row in 0..height {
        let pixels = pixels(geometry, seen.as_ref(), image, row);
        let ahead = seen.map_or(width, |seen| seen.ahead);
        let target = Row {
            start: row * width,
            width,
            plane: height * width,
            ahead: if pixels.is_empty() { width } else { ahead },
            flipped: geometry.flipped,
        };
        match channels {
            3 => target.paint_rgb(pixels, scales, values),
            n => target.paint_any(n, pixels, scales, values),
        }
    }
}

/// Writes the window as interleaved bytes.
pub(super) fn copy(geometry: &Geometry, image: &Decoded<'_>, out: &mut [u8]) {
    let (height, width, channels) = (geometry.window.height(), geometry.window.width(), geometry.channels);
    let seen = geometry.seen();
    for (row, out) in out.chunks_exact_mut((width * channels).max(1)).take(height).enumerate() {
        let pixels = pixels(geometry, seen.as_ref(), image, row);
        let ahead = seen.map_or(0, |seen| seen.ahead);
        let (ahead, rest) = out.split_at_mut(ahead * channels);
        let (part, behind) = rest.split_at_mut(pixels.len());
        ahead.fill(0);
        behind.fill(0);
        if geometry.flipped {
            let mirrored = part.chunks_exact_mut(channels).rev().zip(pixels.chunks_exact(channels));
            mirrored.for_each(|(to, from)| to.copy_from_slice(from));
        } else {
            part.copy_from_slice(pixels);
        }
    }
}

/// Writes the window as planes of bytes.
pub(super) fn planes(geometry: &Geometry, image: &Decoded<'_>, out: &mut [u8]) {
    let (height, width, channels) = (geometry.window.height(), geometry.window.width(), geometry.channels);
    let seen = geometry.seen();
    for row in 0..height {
        let pixels = pixels(geometry, seen.as_ref(), image, row);
        let ahead = seen.map_or(0, |seen| seen.ahead);
        for channel in 0..channels {
            let (before, rest) = out[(channel * height + row) * width..][..width].split_at_mut(ahead);
            let (part, behind) = rest.split_at_mut(pixels.len() / channels);
            before.fill(0);
            behind.fill(0);
            let bytes = pixels.chunks_exact(channels).map(|pixel| pixel[channel]);
            match geometry.flipped {
                true => part.iter_mut().rev().zip(bytes).for_each(|(to, from)| *to = from),
                false => part.iter_mut().zip(bytes).for_each(|(to, from)| *to = from),
            }
        }
    }
}

/// The bytes to be seen in a row of the output; none if the row is padding.
fn pixels<'a>(geometry: &Geometry, seen: Option<&Seen>, image: &Decoded<'a>, row: usize) -> &'a [u8] {
    let channels = geometry.channels;
    match seen.and_then(|seen| Some((seen, row.checked_sub(seen.above)?))) {
        Some((seen, row)) if row < seen.window.height() => {
            let row = if geometry.upended { seen.window.height() - 1 - row } else { row };
            &image.bytes[start(seen, image, row, channels)..][..seen.window.width() * channels]
        }
        _ => &[],
    }
}

/// Where a row of the seen part starts in the decoded bytes.
fn start(seen: &Seen, image: &Decoded<'_>, row: usize, channels: usize) -> usize {
    let (top, left) = (seen.window.top as usize - image.origin.0, seen.window.left as usize - image.origin.1);
    ((top + row) * image.columns + left) * channels
}
