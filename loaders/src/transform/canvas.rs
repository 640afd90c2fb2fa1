//! The image on its way through the transforms. While only geometry has happened it is a view of the
//! stored bytes (a part resized, a window, a flip); the first op on values makes planar floats of it, in one pass.

use super::paint::{Area, IDENTITY, Row, Scale};
use super::rgb::Pixels;
use super::sight::Sight;
use super::view::{Need, Part, Region, Resize, Window, stretch};
use crate::spec::ImageSpec;
use crate::transform::resample::{Cut, Planes, Resampler, Rows};

/// Most channels of an image that is resized.
pub(crate) const MOST_RESIZED: usize = 4;

/// One image: stored bytes (H, W, C) and a view of them, or planar floats (C, H, W).
///
/// While it is a view, the bytes need not be there: geometry is settled by sizes alone, and only what it leaves in sight is
/// decoded afterwards.
#[derive(Debug)]
pub struct Canvas<'a> {
    part: Part<'a>,
    channels: usize,
    resize: Option<Resize>,
    /// What is seen of the image, resized or as stored.
    window: Window,
    /// Outside of this, the window shows zeros.
    visible: Window,
    flipped: bool,
    values: &'a mut [f32],
    is_float: bool,
    resampler: &'a mut Resampler,
}

impl<'a> Canvas<'a> {
    /// A view of a whole image of shape `spec`, whose bytes are yet to come; `values` takes the floats of the largest shape
    /// that is ever made into floats.
    pub(super) fn new(spec: ImageSpec, values: &'a mut [f32], resampler: &'a mut Resampler) -> Self {
        let whole = Window::whole(spec.height, spec.width);
        Self {
            part: Part { bytes: &[], columns: 0, origin: (0, 0), reduction: 1 },
            channels: spec.channels as usize,
            resize: None,
            window: whole,
            visible: whole,
            flipped: false,
            values,
            is_float: false,
            resampler,
        }
    }

    /// Which part of the stored image the view shows, one pixel at least.
    pub(super) fn need(&self) -> Need {
        let seen = self.window.meet(self.visible);
        let some = |from: i64, to: i64| (from.max(0) as usize, to.max(from.max(0) + 1) as usize);
        let ((top, bottom), (left, right)) = (some(seen.top, seen.bottom), some(seen.left, seen.right));
        let Some(Resize { region, height, width }) = self.resize else {
            return Need { region: Region { top, left, bottom, right }, shrink: 1.0 };
        };
        let (rows, columns) = (stretch(region.top, region.bottom, 1), stretch(region.left, region.right, 1));
        let (top, bottom) = rows.support(height as usize, top, bottom);
        let (left, right) = columns.support(width as usize, left, right);
        let shrink = (rows.length / f64::from(height)).min(columns.length / f64::from(width));
        Need { region: Region { top, left, bottom, right }, shrink }
    }

    /// Gives the view its bytes, which must hold what [`Canvas::need`] asked for.
    pub(super) fn load(&mut self, part: Part<'a>) {
        self.part = part;
    }

    /// The shape as seen now.
    pub fn spec(&self) -> ImageSpec {
        ImageSpec::new(self.window.height() as u32, self.window.width() as u32, self.channels as u32)
    }

    /// Keeps `height` x `width` from row `top` and column `left` on; they must lie inside.
    pub fn crop(&mut self, top: u32, left: u32, height: u32, width: u32) {
        if self.is_float {
            self.crop_floats(top as usize, left as usize, height as usize, width as usize);
        }
        let (top, left) = (i64::from(top), i64::from(left));
        let (height, width) = (i64::from(height), i64::from(width));
        self.window.top += top;
        self.window.bottom = self.window.top + height;
        if self.flipped {
            self.window.right -= left;
            self.window.left = self.window.right - width;
        } else {
            self.window.left += left;
            self.window.right = self.window.left + width;
        }
    }

    /// Makes `height` x `width` of the part that lies `height` x `width` from row `top` and column `left` on: bilinear,
    /// antialiased. Only the first op of a list may do this, while the view is the whole image.
    pub(super) fn resize(&mut self, (top, left): (u32, u32), (rows, columns): (u32, u32), height: u32, width: u32) {
        let (top, left) = (top as usize, left as usize);
        let region = Region { top, left, bottom: top + rows as usize, right: left + columns as usize };
        self.resize = Some(Resize { region, height, width });
        self.window = Window::whole(height, width);
        self.visible = self.window;
    }

    /// Moves the window by `down` rows and `right` columns over the image, which is zero outside
    /// (padding, then a crop back to the same size).
    pub fn shift(&mut self, down: i32, right: i32) {
        if self.is_float {
            self.shift_floats(down as isize, right as isize);
            return;
        }
        let down = i64::from(down);
        let right = i64::from(if self.flipped { -right } else { right });
        self.visible = self.visible.meet(self.window);
        self.window.top += down;
        self.window.bottom += down;
        self.window.left += right;
        self.window.right += right;
    }

    /// Mirrors left and right.
    pub fn flip(&mut self) {
        if self.is_float {
            let width = self.window.width();
            for row in self.floats().chunks_exact_mut(width) {
                row.reverse();
            }
        } else {
            self.flipped = !self.flipped;
        }
    }

    /// What is seen of the stored image, while it is a view that nothing was resized for.
    pub(super) fn sight(&self) -> Sight {
        Sight { top: self.window.top as i32, left: self.window.left as i32, mirrored: self.flipped }
    }

    /// The view as interleaved bytes, made now; values between bytes, which resizing makes, are rounded.
    pub(super) fn bytes(&mut self, out: &mut [u8]) {
        let (height, width, channels) = (self.window.height(), self.window.width(), self.channels);
        if self.resize.is_some() {
            self.paint(&IDENTITY);
            let planes: Vec<&[f32]> = self.values.chunks_exact((height * width).max(1)).take(channels).collect();
            for (i, pixel) in out.chunks_exact_mut(channels).enumerate() {
                pixel.iter_mut().zip(&planes).for_each(|(byte, plane)| *byte = (plane[i] + 0.5) as u8);
            }
            return;
        }
        let seen = self.window.meet(self.visible);
        let columns = (seen.right - seen.left).max(0) as usize;
        for (row, out) in out.chunks_exact_mut((width * channels).max(1)).take(height).enumerate() {
            let from = self.window.top + row as i64;
            if columns == 0 || !(seen.top..seen.bottom).contains(&from) {
                out.fill(0);
                continue;
            }
            let (row, column) = (from as usize - self.part.origin.0, seen.left as usize - self.part.origin.1);
            let pixels = &self.part.bytes[(row * self.part.columns + column) * channels..][..columns * channels];
            let ahead = if self.flipped { self.window.right - seen.right } else { seen.left - self.window.left };
            let (ahead, rest) = out.split_at_mut(ahead as usize * channels);
            let (part, behind) = rest.split_at_mut(pixels.len());
            ahead.fill(0);
            behind.fill(0);
            if self.flipped {
                let turned = part.chunks_exact_mut(channels).rev().zip(pixels.chunks_exact(channels));
                turned.for_each(|(to, from)| to.copy_from_slice(from));
            } else {
                part.copy_from_slice(pixels);
            }
        }
    }

    /// The image as planar floats, channel after channel; made of bytes 0 to 255 if it is still bytes.
    pub fn floats(&mut self) -> &mut [f32] {
        if !self.is_float {
            self.paint(&IDENTITY);
        }
        let n = self.spec().values();
        &mut self.values[..n]
    }

    /// Takes each value through `scales` (one for all channels, or one each) if the image is still
    /// bytes, else through `on_float(channel, value)`.
    pub(super) fn map(&mut self, scales: &[Scale], on_float: impl Fn(usize, f32) -> f32) {
        if !self.is_float {
            self.paint(scales);
            return;
        }
        let pixels = self.spec().pixels().max(1);
        for (channel, plane) in self.floats().chunks_exact_mut(pixels).enumerate() {
            for value in plane {
                *value = on_float(channel, *value);
            }
        }
    }

    /// Bytes to floats: resizing, window, flip, scales and the turn from interleaved to planar in one pass.
    fn paint(&mut self, scales: &[Scale]) {
        match self.resize {
            Some(resize) => self.paint_resized(resize, scales),
            None => self.paint_stored(scales),
        }
        self.is_float = true;
    }

    fn paint_resized(&mut self, resize: Resize, scales: &[Scale]) {
        let (height, width) = (self.window.height(), self.window.width());
        let seen = self.window.meet(self.visible);
        let whole = seen.top == self.window.top
            && seen.bottom == self.window.bottom
            && seen.left == self.window.left
            && seen.right == self.window.right;
        let pixels = height * width;
        if !whole {
            for (channel, plane) in self.values.chunks_exact_mut(pixels.max(1)).take(self.channels).enumerate() {
                plane.fill(scales[channel % scales.len()].table[0]);
            }
        }
        if seen.top >= seen.bottom || seen.left >= seen.right {
            return;
        }
        let mut pairs = [(0.0, 0.0); MOST_RESIZED];
        for (pair, scale) in pairs.iter_mut().zip(scales) {
            *pair = (scale.factor, scale.offset);
        }
        let Part { bytes, columns, origin, reduction } = self.part;
        let Resize { region, height: full_height, width: full_width } = resize;
        let ahead = if self.flipped { self.window.right - seen.right } else { seen.left - self.window.left };
        self.resampler.run(
            Rows { bytes, stride: columns * self.channels, channels: self.channels, origin },
            Cut {
                stretch: stretch(region.top, region.bottom, reduction),
                outputs: full_height as usize,
                wanted: (seen.top as usize, seen.bottom as usize),
                to: (seen.top - self.window.top) as usize,
            },
            Cut {
                stretch: stretch(region.left, region.right, reduction),
                outputs: full_width as usize,
                wanted: (seen.left as usize, seen.right as usize),
                to: ahead as usize,
            },
            self.flipped,
            &pairs[..scales.len()],
            &mut Planes { values: self.values, height, width },
        );
    }

    fn paint_stored(&mut self, scales: &[Scale]) {
        let (height, width) = (self.window.height(), self.window.width());
        let seen = self.window.meet(self.visible);
        let columns = (seen.right - seen.left).max(0) as usize;
        // Output columns ahead of the visible part.
        let ahead = match (columns, self.flipped) {
            (0, _) => width,
            (_, false) => (seen.left - self.window.left) as usize,
            (_, true) => (self.window.right - seen.right) as usize,
        };
        let origin = self.part.origin;
        if columns > 0 && seen.top < seen.bottom && self.channels == 3 {
            let (above, rows) = ((seen.top - self.window.top) as usize, (seen.bottom - seen.top) as usize);
            let (top, left) = (seen.top as usize - origin.0, seen.left as usize - origin.1);
            let stride = self.part.columns * 3;
            let bytes = &self.part.bytes[top * stride + left * 3..][..(rows - 1) * stride + columns * 3];
            let pixels = Pixels { bytes, stride, columns, flipped: self.flipped };
            if (Area { height, width, above, ahead, rows }).paint_rgb(pixels, scales, self.values) {
                return;
            }
        }
        for row in 0..height {
            let from = self.window.top + row as i64;
            let pixels = if columns > 0 && (seen.top..seen.bottom).contains(&from) {
                let (row, column) = (from as usize - origin.0, seen.left as usize - origin.1);
                let start = (row * self.part.columns + column) * self.channels;
                &self.part.bytes[start..start + columns * self.channels]
            } else {
                &[]
            };
            let target = Row {
                start: row * width,
                width,
                plane: height * width,
                ahead: if pixels.is_empty() { width } else { ahead },
                flipped: self.flipped,
            };
            match self.channels {
                3 => target.paint_rgb(pixels, scales, self.values),
                n => target.paint_any(n, pixels, scales, self.values),
            }
        }
    }

    fn crop_floats(&mut self, top: usize, left: usize, height: usize, width: usize) {
        let (old_height, old_width) = (self.window.height(), self.window.width());
        // Rows only ever move towards the front, so none is overwritten before it has been read.
        let mut to = 0;
        for channel in 0..self.channels {
            for row in top..top + height {
                let from = (channel * old_height + row) * old_width + left;
                self.values.copy_within(from..from + width, to);
                to += width;
            }
        }
    }

    fn shift_floats(&mut self, down: isize, right: isize) {
        let (height, width) = (self.window.height(), self.window.width());
        let (h, w) = (height as isize, width as isize);
        // Columns of the source that remain, and where they begin in the target.
        let kept = right.clamp(0, w) as usize..(w + right).clamp(0, w) as usize;
        let begin = (-right).clamp(0, w) as usize;
        for plane in self.floats().chunks_exact_mut((height * width).max(1)) {
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Draws;

    /// Plain loops over (H, W, C) floats: what the canvas must equal.
    struct Oracle {
        spec: ImageSpec,
        at: Vec<f32>,
    }

    impl Oracle {
        fn new(bytes: &[u8], spec: ImageSpec) -> Self {
            let at = bytes.iter().map(|&b| f32::from(b)).collect();
            Self { spec, at }
        }

        fn remake(&mut self, h: u32, w: u32, from: impl Fn(i32, i32) -> (i32, i32)) {
            let old = self.spec;
            let mut at = Vec::new();
            for y in 0..h as i32 {
                for x in 0..w as i32 {
                    let (fy, fx) = from(y, x);
                    let inside = (0..old.height as i32).contains(&fy) && (0..old.width as i32).contains(&fx);
                    for c in 0..old.channels as i32 {
                        let i = (fy * old.width as i32 + fx) * old.channels as i32 + c;
                        at.push(if inside { self.at[i as usize] } else { 0.0 });
                    }
                }
            }
            self.at = at;
            self.spec = ImageSpec::new(h, w, old.channels);
        }

        fn planar(&self) -> Vec<f32> {
            let c = self.spec.channels as usize;
            (0..c).flat_map(|k| self.at.iter().skip(k).step_by(c).copied()).collect()
        }
    }

    /// Random chains of crop, shift and flip; bytes become floats at a random point of the chain.
    #[test]
    fn lazy_views_and_floats_equal_plain_loops() {
        for case in 0..2000u64 {
            let mut d = Draws::new(5, case, 0, 0);
            let spec = ImageSpec::new(1 + d.below(9), 1 + d.below(9), 1 + d.below(4));
            let bytes: Vec<u8> = (0..spec.values()).map(|_| d.next_u32() as u8).collect();
            let mut values = vec![f32::NAN; spec.values()];
            let mut resampler = Resampler::default();
            let mut canvas = Canvas::new(spec, &mut values, &mut resampler);
            canvas.load(Part { bytes: &bytes, columns: spec.width as usize, origin: (0, 0), reduction: 1 });
            let mut oracle = Oracle::new(&bytes, spec);
            for _ in 0..5 {
                let now = canvas.spec();
                assert_eq!(now, oracle.spec);
                match d.below(4) {
                    0 => {
                        let (h, w) = (1 + d.below(now.height), 1 + d.below(now.width));
                        let top = d.below(now.height - h + 1);
                        let left = d.below(now.width - w + 1);
                        canvas.crop(top, left, h, w);
                        oracle.remake(h, w, |y, x| (y + top as i32, x + left as i32));
                    }
                    1 => {
                        let (dy, dx) = (d.below(9) as i32 - 4, d.below(9) as i32 - 4);
                        canvas.shift(dy, dx);
                        oracle.remake(now.height, now.width, |y, x| (y + dy, x + dx));
                    }
                    2 => {
                        canvas.flip();
                        let last = now.width as i32 - 1;
                        oracle.remake(now.height, now.width, |y, x| (y, last - x));
                    }
                    _ => {
                        canvas.floats();
                    }
                }
            }
            assert_eq!(canvas.floats(), oracle.planar(), "case {case}");
        }
    }
}
