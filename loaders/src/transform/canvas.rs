//! The image on its way through the transforms. While only geometry has happened it is a view of the
//! stored bytes (a window, a flip); the first op on values makes planar floats of it, in one pass.

use crate::spec::ImageSpec;

/// A table from byte to float.
pub(super) type Table = [f32; 256];

/// Bytes as floats 0 to 255.
static IDENTITY: [Table; 1] = [{
    let mut table = [0.0; 256];
    let mut i = 0;
    while i < 256 {
        table[i] = i as f32;
        i += 1;
    }
    table
}];

/// Rows and columns of the stored image, ends excluded; may reach outside of it.
#[derive(Debug, Clone, Copy)]
struct Window {
    top: i64,
    left: i64,
    bottom: i64,
    right: i64,
}

impl Window {
    fn meet(self, other: Self) -> Self {
        Self {
            top: self.top.max(other.top),
            left: self.left.max(other.left),
            bottom: self.bottom.min(other.bottom),
            right: self.right.min(other.right),
        }
    }

    fn height(&self) -> usize {
        (self.bottom - self.top) as usize
    }

    fn width(&self) -> usize {
        (self.right - self.left) as usize
    }
}

/// One image: stored bytes (H, W, C) and a view of them, or planar floats (C, H, W).
#[derive(Debug)]
pub struct Canvas<'a> {
    bytes: &'a [u8],
    /// Columns of the stored image.
    stride: usize,
    channels: usize,
    /// What of the stored image is seen.
    window: Window,
    /// Outside of this, the window shows zeros.
    visible: Window,
    flipped: bool,
    values: &'a mut [f32],
    is_float: bool,
}

impl<'a> Canvas<'a> {
    /// A view of the whole image `bytes` (H*W*C of `spec`); `values` takes the floats of the largest
    /// shape that is ever made into floats.
    pub(super) fn new(bytes: &'a [u8], spec: ImageSpec, values: &'a mut [f32]) -> Self {
        let whole = Window { top: 0, left: 0, bottom: i64::from(spec.height), right: i64::from(spec.width) };
        Self {
            bytes,
            stride: spec.width as usize,
            channels: spec.channels as usize,
            window: whole,
            visible: whole,
            flipped: false,
            values,
            is_float: false,
        }
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

    /// The image as planar floats, channel after channel; made of bytes 0 to 255 if it is still bytes.
    pub fn floats(&mut self) -> &mut [f32] {
        if !self.is_float {
            self.paint(&IDENTITY);
        }
        let n = self.spec().values();
        &mut self.values[..n]
    }

    /// Takes each value through `tables` (one for all channels, or one each) if the image is still
    /// bytes, else through `on_float(channel, value)`.
    pub(super) fn map(&mut self, tables: &[Table], on_float: impl Fn(usize, f32) -> f32) {
        if !self.is_float {
            self.paint(tables);
            return;
        }
        let pixels = self.spec().pixels().max(1);
        for (channel, plane) in self.floats().chunks_exact_mut(pixels).enumerate() {
            for value in plane {
                *value = on_float(channel, *value);
            }
        }
    }

    /// Bytes to floats: window, flip, tables and the turn from interleaved to planar in one pass.
    fn paint(&mut self, tables: &[Table]) {
        let (height, width) = (self.window.height(), self.window.width());
        let seen = self.window.meet(self.visible);
        let columns = (seen.right - seen.left).max(0) as usize;
        // Output columns ahead of the visible part.
        let ahead = match (columns, self.flipped) {
            (0, _) => width,
            (_, false) => (seen.left - self.window.left) as usize,
            (_, true) => (self.window.right - seen.right) as usize,
        };
        for row in 0..height {
            let from = self.window.top + row as i64;
            let pixels = if columns > 0 && (seen.top..seen.bottom).contains(&from) {
                let start = (from as usize * self.stride + seen.left as usize) * self.channels;
                &self.bytes[start..start + columns * self.channels]
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
                3 => target.paint_rgb(pixels, tables, self.values),
                n => target.paint_any(n, pixels, tables, self.values),
            }
        }
        self.is_float = true;
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

/// Where a row of the view goes among the planes.
struct Row {
    start: usize,
    width: usize,
    plane: usize,
    /// Columns of padding ahead of the pixels; the whole width if there are none.
    ahead: usize,
    flipped: bool,
}

impl Row {
    /// The target's row in one plane: padding filled in, the part for `columns` pixels returned.
    fn part<'p>(&self, plane: &'p mut [f32], columns: usize, padding: f32) -> &'p mut [f32] {
        let row = &mut plane[self.start..self.start + self.width];
        let (ahead, rest) = row.split_at_mut(self.ahead);
        let (part, behind) = rest.split_at_mut(columns);
        ahead.fill(padding);
        behind.fill(padding);
        part
    }

    fn paint_rgb(&self, pixels: &[u8], tables: &[Table], values: &mut [f32]) {
        let table = |channel: usize| &tables[channel % tables.len()];
        let (red_table, green_table, blue_table) = (table(0), table(1), table(2));
        let (pixels, _) = pixels.as_chunks::<3>();
        let (red, rest) = values.split_at_mut(self.plane);
        let (green, blue) = rest.split_at_mut(self.plane);
        let red = self.part(red, pixels.len(), red_table[0]);
        let green = self.part(green, pixels.len(), green_table[0]);
        let blue = self.part(blue, pixels.len(), blue_table[0]);
        let targets = red.iter_mut().zip(green).zip(blue);
        let paint = |(((r, g), b), pixel): (((&mut f32, &mut f32), &mut f32), &[u8; 3])| {
            *r = red_table[usize::from(pixel[0])];
            *g = green_table[usize::from(pixel[1])];
            *b = blue_table[usize::from(pixel[2])];
        };
        if self.flipped {
            targets.zip(pixels.iter().rev()).for_each(paint);
        } else {
            targets.zip(pixels).for_each(paint);
        }
    }

    fn paint_any(&self, channels: usize, pixels: &[u8], tables: &[Table], values: &mut [f32]) {
        let columns = pixels.len() / channels;
        for channel in 0..channels {
            let table = &tables[channel % tables.len()];
            let plane = &mut values[channel * self.plane..][..self.plane];
            let part = self.part(plane, columns, table[0]);
            let bytes = pixels.get(channel..).unwrap_or(&[]);
            match (channels, self.flipped) {
                (1, false) => paint(part, bytes.iter(), table),
                (1, true) => paint(part, bytes.iter().rev(), table),
                (_, false) => paint(part, bytes.iter().step_by(channels), table),
                (_, true) => paint(part.iter_mut().rev(), bytes.iter().step_by(channels), table),
            }
        }
    }
}

fn paint<'v, 'b>(values: impl IntoIterator<Item = &'v mut f32>, bytes: impl Iterator<Item = &'b u8>, table: &Table) {
    for (value, byte) in values.into_iter().zip(bytes) {
        *value = table[usize::from(*byte)];
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
            let mut canvas = Canvas::new(&bytes, spec, &mut values);
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
