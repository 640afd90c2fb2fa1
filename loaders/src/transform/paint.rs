//! A row of stored bytes to rows of planar floats: padding, mirroring and a table per channel in one pass.

/// A table from byte to float.
pub(super) type Table = [f32; 256];

/// What becomes of a value 0 to 255, as a table for bytes and as value * factor + offset for what lies between.
#[derive(Debug)]
pub(super) struct Scale {
    pub table: Table,
    pub factor: f32,
    pub offset: f32,
}

/// Bytes as floats 0 to 255.
pub(super) static IDENTITY: [Scale; 1] = [Scale {
    table: {
        let mut table = [0.0; 256];
        let mut i = 0;
        while i < 256 {
            table[i] = i as f32;
            i += 1;
        }
        table
    },
    factor: 1.0,
    offset: 0.0,
}];

/// Where a row of the view goes among the planes.
pub(super) struct Row {
    pub start: usize,
    pub width: usize,
    pub plane: usize,
    /// Columns of padding ahead of the pixels; the whole width if there are none.
    pub ahead: usize,
    pub flipped: bool,
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

    pub fn paint_rgb(&self, pixels: &[u8], scales: &[Scale], values: &mut [f32]) {
        let table = |channel: usize| &scales[channel % scales.len()].table;
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
