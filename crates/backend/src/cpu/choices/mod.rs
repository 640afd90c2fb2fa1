//! Some convolutions can be computed by oneDNN or by Winograd's kernels. A table says by which, for each size that `trireme bench ops
//! --table` has measured on a kind of processor. No clock runs while a network is planned, and nothing depends on the number of images:
//! all ranks, all batches and all starts of a run choose alike. Sizes that are not in the table go by a rule, see [`conv`](super::conv).

mod processor;
mod rows;

use std::collections::BTreeMap;
use std::path::Path;

use super::isa::Isa;
pub(super) use rows::{Kernels, Row, Sizes, merged};

/// Tables that are built in: name and text.
const TEXTS: [(&str, &str); 5] = [
    ("zen4", include_str!("zen4.txt")),
    ("zen5", include_str!("zen5.txt")),
    ("intel-avx512", include_str!("intel-avx512.txt")),
    ("avx2", include_str!("avx2.txt")),
    (NONE, ""),
];

/// The table without a row.
const NONE: &str = "none";

/// The environment variable that names another table than this processor's.
pub(super) const VARIABLE: &str = "TRIREME_CPU_TABLE";

/// Between the name and the rows of a table that is written in one line.
const THEN: &str = "; ";

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Table {
    /// As the log and [`VARIABLE`] name it: one that is built in, or a file.
    name: String,
    kernels: BTreeMap<Sizes, Kernels>,
}

impl Table {
    /// The table that is built in under this name, or the file's; the message says what there is, or which line of the file is no row.
    pub fn named(name: &str) -> Result<Self, String> {
        if let Some((name, text)) = TEXTS.iter().find(|(known, _)| *known == name) {
            return Self::new(name, text);
        }
        let text = loaders::regular::read_to_string(Path::new(name)).map_err(|why| {
            let names = TEXTS.map(|(name, _)| name).join(", ");
            format!("{name:?} is neither built in ({names}) nor a file that can be read ({why})")
        })?;
        Self::new(name, &text)
    }

    fn new(name: &str, text: &str) -> Result<Self, String> {
        let rows = rows::read(text).map_err(|why| format!("{name}: {why}"))?;
        Ok(Self { name: name.into(), kernels: rows.into_iter().map(|(sizes, row)| (sizes, row.by)).collect() })
    }

    /// The table of the kind of processor that this is, as far as oneDNN uses it.
    pub fn of_processor(isa: Isa) -> Self {
        // a test reads each that is built in
        Self::named(processor::table(isa, &processor::maker()))
            .unwrap_or_else(|_| Self { name: NONE.into(), kernels: BTreeMap::new() })
    }

    /// The kernels for a convolution of these sizes, if it is a row.
    pub fn choice(&self, sizes: &Sizes) -> Option<Kernels> {
        self.kernels.get(sizes).copied()
    }

    /// A few words for the log.
    pub fn describe(&self) -> String {
        match (self.name.as_str(), self.kernels.len()) {
            (NONE, _) => "no table".into(),
            (name, 0) => format!("table {name} without rows"),
            (name, _) => format!("table {name}"),
        }
    }

    /// Name and rows in one line, for other ranks and checkpoints.
    pub fn in_a_line(&self) -> String {
        let rows = self.kernels.iter().map(|(sizes, kernels)| format!("{THEN}{sizes} {}", kernels.name()));
        std::iter::once(self.name.clone()).chain(rows).collect()
    }

    /// What [`Table::in_a_line`] has written.
    pub fn from_line(line: &str) -> Option<Self> {
        let (name, rows) = line.split_once(THEN).unwrap_or((line, ""));
        Self::new(name, &rows.replace(THEN, "\n")).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_is_as_bench_ops_writes_it() {
        for (name, text) in TEXTS {
            let rows = rows::read(text).unwrap_or_else(|why| panic!("{name}.txt: {why}"));
            let written: Vec<String> = rows.values().map(Row::to_string).collect();
            assert_eq!(written, text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>(), "{name}.txt");
            assert_eq!(Table::named(name).unwrap().kernels.len(), rows.len());
        }
    }

    #[test]
    fn a_table_that_is_not_there_or_broken_is_refused_by_name_and_line() {
        let why = Table::named("zen9").unwrap_err();
        let wanted = "\"zen9\" is neither built in (zen4, zen5, intel-avx512, avx2, none) nor a file that can be read (No such file";
        assert!(why.starts_with(wanted), "{why}");
        let why = Table::new("own.txt", "# by hand\n\n3 64 64 32 32 winograd\n3 64\n").unwrap_err();
        assert!(why.starts_with("own.txt: line 4, \"3 64\": expected"), "{why}");
    }

    #[test]
    fn a_row_says_who_computes_its_sizes_and_no_others() {
        let table = Table::new("test", "3 16 16 32 32 onednn 1.2\n3 64 64 32 32 winograd 0.5").unwrap();
        let choice = |sizes: &str| table.choice(&format!("{sizes} onednn").parse::<Row>().unwrap().sizes);
        assert_eq!(choice("3 16 16 32 32"), Some(Kernels::OneDnn));
        assert_eq!(choice("3 64 64 32 32"), Some(Kernels::Winograd));
        for other in ["3 64 64 32 31", "5 64 64 32 32", "3 64 65 32 32", "3 64 64 32 32 2"] {
            assert_eq!(choice(other), None, "{other}");
        }
        assert_eq!(table.describe(), "table test");
        assert_eq!(Table::new("test", "# nothing").unwrap().describe(), "table test without rows");
        assert_eq!(Table::named(NONE).unwrap().describe(), "no table");
    }

    #[test]
    fn a_table_survives_in_a_line() {
        for text in ["", "3 16 16 32 32 onednn 1.2\n5 64 64 17 17 winograd 0.5 0.4"] {
            let table = Table::new("own.txt", text).unwrap();
            assert_eq!(Table::from_line(&table.in_a_line()), Some(table));
        }
        assert_eq!(Table::from_line("later; 3 16 16 32 32 of-a-later-version"), None);
    }
}
