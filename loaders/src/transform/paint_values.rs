//! Converts stored values with any type to planar floats, with padding, mirroring, resizing and a function per channel, in
//! a single pass. 8-bit images with few channels have their own conversion in `paint`.

use crate::decode::Decoded;
use crate::spec::Dtype;
use crate::transform::geometry::{Geometry, Resize};
use crate::transform::paint::pixels;
use crate::transform::resample::{AxisRequest, Mirror, Planes, Resampler, Rows, Span};

/// Writes the visible window of an image as planar floats. Maps each value with the function that `of` returns for its
/// channel. Padding pixels are 0 and are mapped too.
pub(super) fn paint_values<F: Fn(f32) -> f32>(
    geometry: &Geometry,
    image: &Decoded<'_>,
    of: impl Fn(usize) -> F,
    resampler: &mut Resampler,
    values: &mut [f32],
) {
    let painter = Painter { geometry, image };
    match image.dtype {
        Dtype::U8 => painter.paint(|[byte]| f32::from(byte), of, resampler, values),
        Dtype::U16 => painter.paint(|bytes| f32::from(u16::from_le_bytes(bytes)), of, resampler, values),
        Dtype::I16 => painter.paint(|bytes| f32::from(i16::from_le_bytes(bytes)), of, resampler, values),
        Dtype::F32 => painter.paint(f32::from_le_bytes, of, resampler, values),
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
        resampler: &mut Resampler,
        values: &mut [f32],
    ) {
        match self.geometry.resize {
            Some(resize) => self.paint_resized(resize, read, of, resampler, values),
            None => self.paint_stored(read, of, values),
        }
    }

    fn paint_stored<const N: usize, F: Fn(f32) -> f32>(
        &self,
        read: impl Fn([u8; N]) -> f32,
        of: impl Fn(usize) -> F,
        values: &mut [f32],
    ) {
        let Geometry { channels, window, flipped, .. } = *self.geometry;
        let (height, width, seen) = (window.height(), window.width(), self.geometry.visible_part());
        for row in 0..height {
            let (stored, _) = pixels(self.geometry, seen.as_ref(), self.image, row).as_chunks::<N>();
            let ahead = seen.filter(|_| !stored.is_empty()).map_or(width, |seen| seen.ahead);
            for channel in 0..channels {
                let out = &mut values[(channel * height + row) * width..][..width];
                let (before, rest) = out.split_at_mut(ahead);
                let (part, behind) = rest.split_at_mut(stored.len() / channels);
                before.fill(0.0);
                behind.fill(0.0);
                // Without a stride, the compiler vectorises the loop.
                match channels {
                    1 => part.iter_mut().zip(stored).for_each(|(value, bytes)| *value = read(*bytes)),
                    _ => {
                        let band = stored.get(channel..).unwrap_or(&[]).iter().step_by(channels);
                        part.iter_mut().zip(band).for_each(|(value, bytes)| *value = read(*bytes));
                    }
                }
                if flipped {
                    part.reverse();
                }
                let function = of(channel);
                out.iter_mut().for_each(|value| *value = function(*value));
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
        let Geometry { channels, window, flipped, flipped_vertically, .. } = *self.geometry;
        let (height, width, seen) = (window.height(), window.width(), self.geometry.visible_part());
        let values = &mut values[..channels * height * width];
        if seen.is_none_or(|seen| seen.window != window) {
            values.fill(0.0);
        }
        if let Some(seen) = seen {
            let Decoded { bytes, columns, origin, reduction, dtype } = *self.image;
            let Resize { region, filter, .. } = resize;
            resampler.run_values(
                Rows { bytes, stride: columns * channels * N, channels, origin },
                AxisRequest {
                    span: Span::reduced(region.top, region.bottom, reduction, filter),
                    outputs: resize.height as usize,
                    wanted: (seen.window.top as usize, seen.window.bottom as usize),
                    to: seen.above,
                },
                AxisRequest {
                    span: Span::reduced(region.left, region.right, reduction, filter),
                    outputs: resize.width as usize,
                    wanted: (seen.window.left as usize, seen.window.right as usize),
                    to: seen.ahead,
                },
                Mirror { rows: flipped_vertically, columns: flipped },
                (read, dtype == Dtype::U8),
                &mut Planes { values, height, width },
            );
        }
        for (channel, plane) in values.chunks_exact_mut((height * width).max(1)).enumerate() {
            let function = of(channel);
            plane.iter_mut().for_each(|value| *value = function(*value));
        }
    }
}
