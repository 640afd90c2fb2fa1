//! What bytes become as floats: a table, and the line that it may be.

/// A table from byte to float.
pub(super) type Table = [f32; 256];

/// A function of values 0 to 255: as a table for bytes, and as value * factor + offset for the values between them.
#[derive(Debug)]
pub(super) struct Scale {
    pub table: Table,
    pub factor: f32,
    pub offset: f32,
    /// A factor and an offset in f64 that give the table bit for bit, if there are such.
    pub exact: Option<Exact>,
}

/// value * factor + offset in f64, rounded to f32 once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exact {
    pub factor: f64,
    pub offset: f64,
}

impl Exact {
    fn scaled(self, byte: u8) -> f32 {
        (f64::from(byte) * self.factor + self.offset) as f32
    }
}

impl Scale {
    /// `table` must hold value * factor + offset, up to rounding.
    pub fn new(table: Table, factor: f64, offset: f64) -> Self {
        let exact = Exact { factor, offset };
        let gives_table = (0..=255u8).all(|byte| exact.scaled(byte).to_bits() == table[usize::from(byte)].to_bits());
        Self { table, factor: factor as f32, offset: offset as f32, exact: gives_table.then_some(exact) }
    }
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
    exact: Some(Exact { factor: 1.0, offset: 0.0 }),
}];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_tables_are_not_taken_for_lines() {
        let mut table = IDENTITY[0].table;
        assert!(Scale::new(table, 1.0, 0.0).exact.is_some());
        table[200] += 1.0;
        assert!(Scale::new(table, 1.0, 0.0).exact.is_none());
    }
}
