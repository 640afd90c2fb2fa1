//! Interleaved bytes to planar floats: padding, mirroring and a table per channel in one pass; for RGB all rows at once if the
//! processor has AVX2 and the table is a line.

use crate::transform::rgb::{self, Pixels, Target};
use crate::transform::scale::{Scale, Table};

/// Where the visible rows of an image go in planes of `height` x `width`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Area {
    pub height: usize,
    pub width: usize,
    /// Rows of padding above.
    pub above: usize,
    /// Columns of padding ahead.
    pub ahead: usize,
    /// Visible rows, at least 1.
    pub rows: usize,
}

impl Area {
    /// Writes RGB pixels as floats and returns true; or returns false, if the caller must write each row by tables.
    pub fn paint_rgb(self, pixels: Pixels<'_>, scales: &[Scale], values: &mut [f32]) -> bool {
        let Area { height, width, above, ahead, rows } = self;
        let scale = |channel: usize| &scales[channel % scales.len()];
        let [Some(red), Some(green), Some(blue)] = [0, 1, 2].map(|channel| scale(channel).exact) else { return false };
        if pixels.columns < rgb::FEWEST || !rgb::is_supported() {
            return false;
        }
        let start = above * width + ahead;
        let end = start + (rows - 1) * width + pixels.columns;
        for (channel, exact) in [red, green, blue].into_iter().enumerate() {
            let plane = &mut values[channel * height * width..][..height * width];
            let padding = scale(channel).table[0];
            plane[..start].fill(padding);
            plane[end..].fill(padding);
            let target = Target { values: &mut plane[start..end], width, padding };
            rgb::paint_plane(pixels, channel, exact, target);
        }
        true
    }
}

/// Where a row of the image goes in the planes.
pub(super) struct Row {
    pub start: usize,
    pub width: usize,
    pub plane: usize,
    /// Columns of padding ahead of the pixels; the whole width if there are none.
    pub ahead: usize,
    pub flipped: bool,
}

impl Row {
    /// Fills in the padding of the row in one plane and returns the part for `columns` pixels.
    fn part<'p>(&self, plane: &'p mut [f32], columns: usize, padding: f32) -> &'p mut [f32] {
        let row = &mut plane[self.start..self.start + self.width];
        let (ahead, rest) = row.split_at_mut(self.ahead);
        let (part, behind) = rest.split_at_mut(columns);
        ahead.fill(padding);
        behind.fill(padding);
        part
    }

    pub fn paint_rgb(&self, pixels: &[u8], scales: &[Scale], values: &mut [f32]) {
        let table = |channel: usize| &scales[channel % scales.len()].table;
        let [red_table, green_table, blue_table] = [0, 1, 2].map(table);
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

    pub fn paint_any(&self, channels: usize, pixels: &[u8], scales: &[Scale], values: &mut [f32]) {
        let columns = pixels.len() / channels;
        for channel in 0..channels {
            let table = &scales[channel % scales.len()].table;
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

    /// Over all widths, with and without padding, mirrored or not, cut out of wider rows: the values of the tables.
    #[test]
    fn planes_hold_what_the_tables_say() {
        for case in 0..500 {
            let mut draws = Draws::new(12, case, 0, 0);
            let mut below = |n: u32| draws.below(n) as usize;
            let (columns, rows, flipped, wider) = (1 + below(70), 1 + below(5), below(2) == 1, below(4));
            let [above, under, ahead, behind] = [0; 4].map(|_: usize| below(3));
            let (stride, height, width) = (3 * (columns + wider), above + rows + under, ahead + columns + behind);
            let bytes: Vec<u8> = (0..(rows - 1) * stride + 3 * columns).map(|_| below(256) as u8).collect();
            let scale = |mean: f64, std: f64| {
                let table = std::array::from_fn(|byte| ((byte as f64 / 255.0 - mean) / std) as f32);
                Scale::new(table, 1.0 / (255.0 * std), -mean / std)
            };
            let scales = [scale(0.4914, 0.2470), scale(0.4822, 0.2435), scale(0.4465, 0.2616)];
            let mut values = vec![f32::NAN; 3 * height * width];
            let area = Area { height, width, above, ahead, rows };
            let done = area.paint_rgb(Pixels { bytes: &bytes, stride, columns, flipped }, &scales, &mut values);
            assert_eq!(done, columns >= rgb::FEWEST && rgb::is_supported());
            for (i, value) in values.iter().enumerate().filter(|_| done) {
                let (channel, y, x) = (i / (height * width), i / width % height, i % width);
                let seen =
                    y.checked_sub(above).filter(|&y| y < rows).zip(x.checked_sub(ahead).filter(|&x| x < columns));
                let byte = seen
                    .map_or(0, |(y, x)| bytes[y * stride + 3 * if flipped { columns - 1 - x } else { x } + channel]);
                let expected = scales[channel].table[usize::from(byte)];
                assert_eq!(value.to_bits(), expected.to_bits(), "case {case}: channel {channel}, row {y}, column {x}");
            }
        }
    }
}
