//! Converts stored values with any type to planar floats, with padding, mirroring, resizing and a function per channel, in
//! a single pass. 8-bit images with few channels have their own conversion in `paint`.

use base::simd;

use crate::channels::deinterleave;
use crate::decode::Decoded;
use crate::spec::Dtype;
use crate::transform::geometry::{Geometry, Resize};
use crate::transform::paint::{pixels, resize_request};
use crate::transform::resample::{Planes, Resampler};

/// Writes the visible window of an image as planar floats. Maps each value with the function that `of` returns for its
/// channel. Padding pixels are 0 and are mapped too. `work` is working memory for resizing and for a row.
pub(super) fn paint_values<F: Fn(f32) -> f32>(
    geometry: &Geometry,
    image: &Decoded<'_>,
    of: impl Fn(usize) -> F,
    work: (&mut Resampler, &mut Vec<f32>),
    values: &mut [f32],
) {
    // Other images are processed row by row, so that the planes stay in the L1 cache.
    let row = geometry.as_one_row(image.columns).filter(|_| geometry.channels == 1);
    let painter = Painter { geometry: row.as_ref().unwrap_or(geometry), image };
    match image.dtype {
        Dtype::U8 => painter.paint(|[byte]| f32::from(byte), of, work, values),
        Dtype::U16 => painter.paint(|bytes| f32::from(u16::from_le_bytes(bytes)), of, work, values),
        Dtype::I16 => painter.paint(|bytes| f32::from(i16::from_le_bytes(bytes)), of, work, values),
        Dtype::F32 => painter.paint(f32::from_le_bytes, of, work, values),
    }
}

/// A stored image, and the geometry that says which of its pixels go where in the output.
struct Painter<'a> {
    geometry: &'a Geometry,
    image: &'a Decoded<'a>,
}

impl Painter<'_> {
    fn paint<const N: usize, F: Fn(f32) -> f32>(
        &self,
        read: impl Fn([u8; N]) -> f32,
        of: impl Fn(usize) -> F,
        (resampler, line): (&mut Resampler, &mut Vec<f32>),
        values: &mut [f32],
    ) {
        match self.geometry.resize {
            Some(resize) => self.paint_resized(resize, read, of, resampler, values),
            None => self.paint_stored(read, of, line, values),
        }
    }

    fn paint_stored<const N: usize, F: Fn(f32) -> f32>(
        &self,
        read: impl Fn([u8; N]) -> f32,
        of: impl Fn(usize) -> F,
        line: &mut Vec<f32>,
        values: &mut [f32],
    ) {
        let Geometry { channels, window, flipped, .. } = *self.geometry;
        let (height, width, seen) = (window.height(), window.width(), self.geometry.visible_part());
        for row in 0..height {
            let (stored, _) = pixels(self.geometry, seen.as_ref(), self.image, row).as_chunks::<N>();
            let columns = stored.len() / channels;
            let ahead = seen.filter(|_| columns > 0).map_or(width, |seen| seen.ahead);
            let buffered = if channels > 1 { stored.len() } else { 0 };
            line.resize(2 * buffered, 0.0);
            let (interleaved, planes) = line.split_at_mut(buffered);
            if channels > 1 {
                convert(&read, &|value| value, stored, interleaved);
                // These planes stay in the L1 cache. A row of each plane of the whole image often would not: if the size
                // of a plane is a power of two, the rows compete for the same cache lines.
                deinterleave(interleaved, channels, planes);
            }
            for channel in 0..channels {
                let function = of(channel);
                let out = &mut values[(channel * height + row) * width..][..width];
                let (before, rest) = out.split_at_mut(ahead);
                let (part, behind) = rest.split_at_mut(columns);
                before.fill(function(0.0));
                behind.fill(function(0.0));
                match channels {
                    1 => convert(&read, &function, stored, part),
                    _ => convert(&|value| value, &function, &planes[channel * columns..][..columns], part),
                }
                if flipped {
                    part.reverse();
                }
            }
        }
    }

    fn paint_resized<const N: usize, F: Fn(f32) -> f32>(
        &self,
        resize: Resize,
        read: impl Fn([u8; N]) -> f32,
        of: impl Fn(usize) -> F,
        resampler: &mut Resampler,
        values: &mut [f32],
    ) {
        let Geometry { channels, window, .. } = *self.geometry;
        let (height, width, seen) = (window.height(), window.width(), self.geometry.visible_part());
        let values = &mut values[..channels * height * width];
        if seen.is_none_or(|seen| seen.window != window) {
            values.fill(0.0);
        }
        if let Some(seen) = seen {
            let request = resize_request(self.geometry, resize, &seen, self.image);
            let clamped = self.image.dtype == Dtype::U8;
            resampler.run_values(request, (read, clamped), &mut Planes { values, height, width });
        }
        for (channel, plane) in values.chunks_exact_mut((height * width).max(1)).enumerate() {
            let function = of(channel);
            plane.iter_mut().for_each(|value| *value = function(*value));
        }
    }
}

simd! {
    /// Reads each value and writes its function value.
    fn convert[T: Copy, R: Fn(T) -> f32, F: Fn(f32) -> f32](read: &R, function: &F, from: &[T], to: &mut [f32]) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to = function(read(*from)));
    }
}
