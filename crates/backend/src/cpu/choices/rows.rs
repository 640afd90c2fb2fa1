//! The rows of a table, and its text: lines that begin with # are for readers, all others are rows, each of other sizes.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use net::{Conv, Shape};

/// How the line begins that says where and how rows were measured, which is written anew with new rows.
const TAKEN: &str = "# Measured ";

/// What a table without a text begins with.
const HEAD: &str = "\
# Who computes a convolution, measured with padding of half its kernel. A row: kernel, channels in, channels out, height, width, and the
# stride if it is 2; who computes it; that time over the other's, forward and backward, for each number of images. `trireme bench ops
# --table` measures rows.
";

/// Who may compute a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cpu) enum Kernels {
    /// oneDNN's.
    OneDnn,
    /// Winograd's minimal filtering.
    Winograd,
}

impl Kernels {
    /// As tables name them.
    pub fn name(self) -> &'static str {
        match self {
            Self::OneDnn => "onednn",
            Self::Winograd => "winograd",
        }
    }

    /// Those of this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::OneDnn, Self::Winograd].into_iter().find(|kernels| kernels.name() == name)
    }
}

/// What a choice depends on: kernel, channels in and out, height, width, stride. The number of images is not among it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::cpu) struct Sizes([usize; 6]);

impl Sizes {
    /// Of a convolution with a square kernel and the same stride both ways.
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

/// Sizes, and who computes them.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::cpu) struct Row {
    pub sizes: Sizes,
    /// Who computes it.
    pub by: Kernels,
    /// For each number of images that was measured, the time of a training pass by these kernels over that by the others.
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
            return Err("expected kernel, channels in, channels out, height, width, and who computes it".into());
        };
        let (stride, rest) = match rest {
            [stride, rest @ ..] if stride.parse::<usize>().is_ok() => (stride, rest),
            _ => (&"1", rest),
        };
        let [by, ratios @ ..] = rest else {
            return Err("expected who computes it behind kernel, channels in, channels out, height, width".into());
        };
        let mut sizes = [0; 6];
        for (size, word) in sizes.iter_mut().zip([kernel, inputs, outputs, height, width, stride]) {
            *size = word.parse().map_err(|_| format!("expected a number, got {word:?}"))?;
        }
        if ![[3, 1], [5, 1], [3, 2]].contains(&[sizes[0], sizes[5]]) {
            let got = format!("got {kernel} at stride {stride}");
            return Err(format!(
                "expected a kernel of 3 or 5, or of 3 at stride 2, {got}: for others there is no choice"
            ));
        }
        let by = Kernels::named(by).ok_or_else(|| format!("expected onednn or winograd, got {by:?}"))?;
        let ratio = |word: &&str| word.parse().map_err(|_| format!("expected a ratio, got {word:?}"));
        Ok(Self { sizes: Sizes(sizes), by, ratios: ratios.iter().map(ratio).collect::<Result<_, _>>()? })
    }
}

/// The rows of a text, in order. The error names the line that is none.
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

/// A text with these rows in place of those of the same sizes. `taken` says where and how, and `batches` with which numbers of images.
/// The error names the line that is no row.
pub(in crate::cpu) fn merged(before: &str, taken: &str, batches: &[usize], new: &[String]) -> Result<String, String> {
    let mut all = read(before)?;
    all.extend(read(&new.join("\n"))?);
    let comments: Vec<&str> = before.lines().filter(|line| line.starts_with('#') && !line.starts_with(TAKEN)).collect();
    let mut text = if comments.is_empty() { HEAD.to_string() } else { comments.join("\n") + "\n" };
    let batches: Vec<String> = batches.iter().map(usize::to_string).collect();
    text += &format!("{TAKEN}with {} images, {taken}\n", batches.join(" and "));
    all.values().for_each(|row| text += &format!("{row}\n"));
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_survive_as_text() {
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
    fn a_line_that_is_no_row_is_named_and_told_why() {
        for (line, why) in [
            ("3 16 16 32", "expected kernel, channels in, channels out, height, width, and who computes it"),
            ("3 16 x 32 32 onednn", "expected a number, got \"x\""),
            ("3 16 16 32 32", "expected who computes it behind kernel, channels in, channels out, height, width"),
            ("3 16 16 32 32 2", "expected who computes it behind kernel, channels in, channels out, height, width"),
            (
                "1 16 16 32 32 onednn",
                "expected a kernel of 3 or 5, or of 3 at stride 2, got 1 at stride 1: for others there is no choice",
            ),
            (
                "5 16 16 32 32 2 onednn",
                "expected a kernel of 3 or 5, or of 3 at stride 2, got 5 at stride 2: for others there is no choice",
            ),
            ("3 16 16 32 32 winnograd", "expected onednn or winograd, got \"winnograd\""),
            ("3 16 16 32 32 winograd fast", "expected a ratio, got \"fast\""),
            ("5 16 16 8 8 winograd 0.5", "an earlier line has these sizes"),
        ] {
            let text = format!("# one\n5 16 16 8 8 onednn\n\n{line}");
            assert_eq!(read(&text).unwrap_err(), format!("line 4, {line:?}: {why}"));
        }
    }

    #[test]
    fn new_rows_replace_old_ones_in_order() {
        let rows = |all: &[&str]| all.iter().map(|row| row.to_string()).collect::<Vec<_>>();
        let (large, small) = ("3 128 64 8 8 winograd 0.50", "3 16 16 8 8 onednn 0.90");
        let first = merged("", "here", &[16, 128], &rows(&[large, small])).unwrap();
        assert_eq!(first, format!("{HEAD}# Measured with 16 and 128 images, here\n{small}\n{large}\n"));
        let text = format!("# by hand\n{first}");
        let newer = "3 16 16 8 8 winograd 0.80";
        let second = merged(&text, "there", &[16], &rows(&[newer])).unwrap();
        assert_eq!(second, format!("# by hand\n{HEAD}# Measured with 16 images, there\n{newer}\n{large}\n"));
        let why = merged("# x\nrubbish\n", "there", &[16], &rows(&[newer])).unwrap_err();
        assert!(why.starts_with("line 2, \"rubbish\": expected kernel"), "{why}");
    }
}
