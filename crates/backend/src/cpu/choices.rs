//! Tables of convolutions. oneDNN and our Winograd kernels can both compute some convolutions. For each size that
//! `trireme bench ops --table` has measured on a kind of processor, a table selects the kernels. Planning a network
//! times nothing, and the choice does not depend on the number of images. So all ranks, batch sizes and restarts choose
//! the same. A rule decides for sizes that are not in the table, see [`conv`](super::conv).

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use net::{Conv, Shape};
use schema::words;

use super::isa::Isa;

/// Built-in tables: name and text.
const TEXTS: [(&str, &str); 5] = [
    ("zen4", include_str!("choices/zen4.txt")),
    ("zen5", include_str!("choices/zen5.txt")),
    ("intel-avx512", include_str!("choices/intel-avx512.txt")),
    ("avx2", include_str!("choices/avx2.txt")),
    (NONE, ""),
];

/// Name of the table without rows.
const NONE: &str = "none";

/// The environment variable that selects another table than this processor's.
pub(super) const VARIABLE: &str = "TRIREME_CPU_TABLE";

/// Separates the name and the rows of a table in a single line.
const SEPARATOR: &str = "; ";

/// The kernels to use for each convolution size.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Table {
    /// The name in the log and in [`VARIABLE`]: a built-in name or the path of a file.
    name: String,
    kernels: BTreeMap<Sizes, Kernels>,
}

impl Table {
    /// Returns the built-in table with this name, or reads a file. The error message lists the built-in names or names
    /// the invalid line of the file.
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
        let rows = read(text).map_err(|why| format!("{name}: {why}"))?;
        Ok(Self { name: name.into(), kernels: rows.into_iter().map(|(sizes, row)| (sizes, row.by)).collect() })
    }

    /// Returns the table for this kind of processor and the instruction set that oneDNN uses.
    pub fn for_processor(isa: Isa) -> Self {
        // Built-in tables are always valid: a test reads each.
        Self::named(table(isa, amd_family())).unwrap_or_else(|_| Self { name: NONE.into(), kernels: BTreeMap::new() })
    }

    /// Returns the kernels for a convolution of these sizes, or `None` if the table has no row for them.
    pub fn choice(&self, sizes: &Sizes) -> Option<Kernels> {
        self.kernels.get(sizes).copied()
    }

    /// Returns a short description for the log.
    pub fn describe(&self) -> String {
        match (self.name.as_str(), self.kernels.len()) {
            (NONE, _) => "no table".into(),
            (name, 0) => format!("table {name} without rows"),
            (name, _) => format!("table {name}"),
        }
    }

    /// Formats the name and all rows as a single line, for other ranks and for checkpoints.
    pub fn to_line(&self) -> String {
        let rows = self.kernels.iter().map(|(sizes, kernels)| format!("{SEPARATOR}{sizes} {}", kernels.name()));
        std::iter::once(self.name.clone()).chain(rows).collect()
    }

    /// Parses the result of [`Table::to_line`].
    pub fn from_line(line: &str) -> Option<Self> {
        let (name, rows) = line.split_once(SEPARATOR).unwrap_or((line, ""));
        Self::new(name, &rows.replace(SEPARATOR, "\n")).ok()
    }
}

// The text of a table: lines that begin with # are comments, and each other line is a row for a size.

/// Start of the line that says where and how the rows were measured. The line is replaced whenever rows are added.
const MEASURED: &str = "# Measured ";

/// The first lines of a new table.
const HEAD: &str = "\
# The faster kernels for each convolution, measured with padding of half the kernel's side. A row has: kernel, channels in, channels out,
# height, width, and the stride if it is 2; onednn or winograd; and its time divided by the other's, forward and backward, for each number
# of images. `trireme bench ops --table` measures rows.
";

/// The kernels that can compute a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kernels {
    OneDnn,
    /// Our kernels for Winograd's minimal filtering.
    Winograd,
}

words! { Kernels { OneDnn = "onednn", Winograd = "winograd" } }

/// The sizes that a choice depends on: kernel, channels in and out, height, width, stride. The choice does not depend
/// on the number of images.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Sizes([usize; 6]);

impl Sizes {
    /// Returns the sizes of a convolution with a square kernel and the same stride in both directions.
    pub fn of(x: Shape, op: &Conv) -> Self {
        Self([op.kernel[0], x.c, op.out_channels, x.h, x.w, op.stride[0]])
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let written = if self.0[5] == 1 { &self.0[..5] } else { &self.0 };
        write!(f, "{}", written.iter().map(usize::to_string).collect::<Vec<_>>().join(" "))
    }
}

/// A row of a table: the kernels that are selected for a size.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub sizes: Sizes,
    pub by: Kernels,
    /// For each measured number of images, the time of a training pass with these kernels divided by the time with the
    /// other kernels.
    pub ratios: Vec<f64>,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.sizes, self.by.name())?;
        self.ratios.iter().try_for_each(|ratio| write!(f, " {ratio:.2}"))
    }
}

impl FromStr for Row {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [kernel, inputs, outputs, height, width, rest @ ..] = words.as_slice() else {
            return Err("expected kernel, channels in, channels out, height, width, and onednn or winograd".into());
        };
        let (stride, rest) = match rest {
            [stride, rest @ ..] if stride.parse::<usize>().is_ok() => (stride, rest),
            _ => (&"1", rest),
        };
        let [by, ratios @ ..] = rest else {
            return Err("expected onednn or winograd after kernel, channels in, channels out, height, width".into());
        };
        let mut sizes = [0; 6];
        for (size, word) in sizes.iter_mut().zip([kernel, inputs, outputs, height, width, stride]) {
            *size = word.parse().map_err(|_| format!("expected a number, got {word:?}"))?;
        }
        if ![[3, 1], [5, 1], [3, 2]].contains(&[sizes[0], sizes[5]]) {
            return Err(format!(
                "a table can only have kernel 3 or 5 with stride 1, or kernel 3 with stride 2; got kernel {kernel} with stride {stride}"
            ));
        }
        let by = by.parse().map_err(|_: String| format!("expected onednn or winograd, got {by:?}"))?;
        let ratio = |word: &&str| word.parse().map_err(|_| format!("expected a ratio, got {word:?}"));
        Ok(Self { sizes: Sizes(sizes), by, ratios: ratios.iter().map(ratio).collect::<Result<_, _>>()? })
    }
}

/// Parses the rows of a table. The error names the first invalid line.
pub(super) fn read(text: &str) -> Result<BTreeMap<Sizes, Row>, String> {
    let mut rows = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.starts_with('#') || line.trim().is_empty() {
            continue;
        }
        let wrong = |why: String| format!("line {number}, {line:?}: {why}");
        let row: Row = line.parse().map_err(wrong)?;
        if rows.insert(row.sizes.clone(), row).is_some() {
            return Err(wrong("an earlier line has these sizes".into()));
        }
    }
    Ok(rows)
}

/// Returns the text `before` with new rows added or replaced. `measured` says where and how they were measured,
/// `batches` with which numbers of images. The error names an invalid line.
pub(super) fn merged(before: &str, measured: &str, batches: &[usize], new: &[String]) -> Result<String, String> {
    let mut all = read(before)?;
    all.extend(read(&new.join("\n"))?);
    let comments: Vec<&str> =
        before.lines().filter(|line| line.starts_with('#') && !line.starts_with(MEASURED)).collect();
    let mut text = if comments.is_empty() { HEAD.to_string() } else { comments.join("\n") + "\n" };
    let batches: Vec<String> = batches.iter().map(usize::to_string).collect();
    text += &format!("{MEASURED}with {} images, {measured}\n", batches.join(" and "));
    all.values().for_each(|row| text += &format!("{row}\n"));
    Ok(text)
}

/// Returns the processor's family if AMD is its manufacturer: 25 means Zen 3 or 4, 26 means Zen 5.
fn amd_family() -> Option<u32> {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::__cpuid;
        // Leaf 0 has twelve letters in EBX, EDX, ECX.
        let id = __cpuid(0);
        let letters = [id.ebx, id.edx, id.ecx].map(u32::to_le_bytes);
        if letters.as_flattened() == b"AuthenticAMD" {
            // Leaf 1 has the family. From 15 on, it is the sum of two fields.
            let version = __cpuid(1).eax;
            let (family, more) = (version >> 8 & 0xf, version >> 20 & 0xff);
            return Some(if family == 0xf { family + more } else { family });
        }
    }
    None
}

/// Returns the name of the table for a processor. It depends first on the instruction set that oneDNN uses, because an
/// environment variable can restrict it. With AVX-512, it also depends on the manufacturer. AMD's processors have
/// AVX-512 since Zen 4, and units of the full width since Zen 5.
fn table(isa: Isa, amd_family: Option<u32>) -> &'static str {
    match (isa, amd_family) {
        (Isa::Sse41 | Isa::Neon, _) => "none",
        (Isa::Avx2, _) => "avx2",
        (_, Some(..26)) => "zen4",
        (_, Some(_)) => "zen5",
        (_, None) => "intel-avx512",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instruction_set_manufacturer_and_family_select_the_table() {
        assert_eq!(table(Isa::Sse41, Some(25)), "none");
        assert_eq!([Some(25), Some(26), None].map(|family| table(Isa::Avx2, family)), ["avx2"; 3]);
        for isa in [Isa::Avx512, Isa::Avx512Bf16, Isa::Amx] {
            let names = [Some(25), Some(26), Some(27), None].map(|family| table(isa, family));
            assert_eq!(names, ["zen4", "zen5", "zen5", "intel-avx512"]);
        }
    }

    #[test]
    fn amd_family_agrees_with_proc_cpuinfo() {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let family = || {
            let line = info.lines().find(|line| line.starts_with("cpu family")).unwrap();
            line.split(':').nth(1).unwrap().trim().parse().unwrap()
        };
        // an emulated processor of another architecture sees the /proc/cpuinfo of the real one
        let amd = cfg!(target_arch = "x86_64") && info.contains("AuthenticAMD");
        assert_eq!(amd_family(), amd.then(family));
    }

    #[test]
    fn built_in_tables_have_the_format_that_bench_ops_writes() {
        for (name, text) in TEXTS {
            let rows = read(text).unwrap_or_else(|why| panic!("{name}.txt: {why}"));
            let written: Vec<String> = rows.values().map(Row::to_string).collect();
            assert_eq!(written, text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>(), "{name}.txt");
            assert_eq!(Table::named(name).unwrap().kernels.len(), rows.len());
        }
    }

    #[test]
    fn missing_and_invalid_tables_are_refused_by_name_and_line() {
        let why = Table::named("zen9").unwrap_err();
        let parts = ["\"zen9\"", "(zen4, zen5, intel-avx512, avx2, none)", "(No such file"];
        assert!(parts.iter().all(|part| why.contains(part)), "{why}");
        let why = Table::new("own.txt", "# by hand\n\n3 64 64 32 32 winograd\n3 64\n").unwrap_err();
        assert!(why.starts_with("own.txt: line 4, \"3 64\": "), "{why}");
    }

    #[test]
    fn a_row_selects_kernels_for_its_sizes_only() {
        let table = Table::new("test", "3 16 16 32 32 onednn 1.2\n3 64 64 32 32 winograd 0.5").unwrap();
        let choice = |sizes: &str| table.choice(&format!("{sizes} onednn").parse::<Row>().unwrap().sizes);
        assert_eq!(choice("3 16 16 32 32"), Some(Kernels::OneDnn));
        assert_eq!(choice("3 64 64 32 32"), Some(Kernels::Winograd));
        for other in ["3 64 64 32 31", "5 64 64 32 32", "3 64 65 32 32", "3 64 64 32 32 2"] {
            assert_eq!(choice(other), None, "{other}");
        }
        assert_eq!(table.describe(), "table test");
        let empty = Table::new("test", "# nothing").unwrap().describe();
        assert!(empty.starts_with("table test ") && empty.contains("rows"), "{empty}");
        assert_eq!(Table::named(NONE).unwrap().describe(), "no table");
    }

    #[test]
    fn a_table_is_parsed_from_its_own_line() {
        for text in ["", "3 16 16 32 32 onednn 1.2\n5 64 64 17 17 winograd 0.5 0.4"] {
            let table = Table::new("own.txt", text).unwrap();
            assert_eq!(Table::from_line(&table.to_line()), Some(table));
        }
        assert_eq!(Table::from_line("later; 3 16 16 32 32 of-a-later-version"), None);
    }

    #[test]
    fn rows_are_parsed_from_their_own_text() {
        let sizes = Sizes::of(Shape::image(64, 17, 19), &Conv::new(96, 5));
        let row = Row { sizes, by: Kernels::Winograd, ratios: vec![0.5, 0.75] };
        assert_eq!(row.to_string(), "5 64 96 17 19 winograd 0.50 0.75");
        assert_eq!(row.to_string().parse(), Ok(row));
        let sizes = Sizes::of(Shape::image(64, 17, 19), &Conv::new(96, 3).stride(2));
        let row = Row { sizes, by: Kernels::OneDnn, ratios: vec![] };
        assert_eq!(row.to_string(), "3 64 96 17 19 2 onednn");
        assert_eq!(row.to_string().parse(), Ok(row));
    }

    #[test]
    fn invalid_rows_are_refused_with_line_and_reason() {
        for (line, why) in [
            ("3 16 16 32", "expected kernel"),
            ("3 16 x 32 32 onednn", "\"x\""),
            ("3 16 16 32 32", "expected onednn"),
            ("3 16 16 32 32 2", "expected onednn"),
            ("1 16 16 32 32 onednn", "kernel 1 with stride 1"),
            ("5 16 16 32 32 2 onednn", "kernel 5 with stride 2"),
            ("3 16 16 32 32 winnograd", "winograd, got \"winnograd\""),
            ("3 16 16 32 32 winograd fast", "ratio, got \"fast\""),
            ("5 16 16 8 8 winograd 0.5", "an earlier line"),
        ] {
            let text = format!("# one\n5 16 16 8 8 onednn\n\n{line}");
            let got = read(&text).unwrap_err();
            assert!(got.starts_with(&format!("line 4, {line:?}: ")) && got.contains(why), "{got}");
        }
    }

    #[test]
    fn merged_replaces_rows_of_the_same_sizes_and_sorts_them() {
        let rows = |all: &[&str]| all.iter().map(|row| row.to_string()).collect::<Vec<_>>();
        let (large, small) = ("3 128 64 8 8 winograd 0.50", "3 16 16 8 8 onednn 0.90");
        let first = merged("", "here", &[16, 128], &rows(&[large, small])).unwrap();
        assert_eq!(first, format!("{HEAD}# Measured with 16 and 128 images, here\n{small}\n{large}\n"));
        let text = format!("# by hand\n{first}");
        let newer = "3 16 16 8 8 winograd 0.80";
        let second = merged(&text, "there", &[16], &rows(&[newer])).unwrap();
        assert_eq!(second, format!("# by hand\n{HEAD}# Measured with 16 images, there\n{newer}\n{large}\n"));
        let why = merged("# x\nrubbish\n", "there", &[16], &rows(&[newer])).unwrap_err();
        assert!(why.starts_with("line 2, \"rubbish\": "), "{why}");
    }
}
