//! A table of images: CSV or TSV with a path, a label and, if you like, a split on each line. Paths are relative to the table's folder.
//!
//! A header names the columns (`path`, `label`, `split` and usual other words for them); without one the first two or three columns count.

use super::kind::{Kind, Open, Opened};
use super::reader::files::Files;
use super::reader::labels::{Classes, Label};
use super::reader::listing::{Listing, Place};
use super::reader::splits;
use super::reader::table::{self, Row};
use crate::dir;
use crate::error::Error;
use crate::options::{ConvertOptions, OnBad};
use crate::text;
use loaders::printable;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A table.
pub(super) const CSV: Kind = Kind {
    name: "csv",
    about: "a table (CSV or TSV) of image files: columns path, label and, if you like, split",
    open: Open::Files(open),
};

const HINT: &str = "expected a table with a line for each image: path,label or path,label,split";

/// What is wrong with a line of the table.
struct BadLine {
    line: u64,
    what: String,
}

fn open(src: &Path, options: &ConvertOptions) -> Opened {
    match src.try_exists() {
        Ok(true) if src.is_file() => {}
        Ok(true) => {
            return Err(Error::Missing { path: src.join("labels.csv"), hint: format!("it is a folder, {HINT}") });
        }
        Ok(false) => return Err(Error::Missing { path: src.to_path_buf(), hint: HINT.to_string() }),
        Err(e) => return Err(Error::io("read", src, e)),
    }
    if dir::is_zip(src) {
        return Err(dir::zip(src));
    }
    let rows = table::read(src)?;
    if rows.is_empty() {
        return Err(Error::input(src, format!("holds no line; {HINT}")));
    }
    let labels: BTreeSet<Label> =
        rows.iter().filter(|r| !r.label.is_empty()).map(|r| Label::of_text(&r.label)).collect();
    let classes = Classes::of(src, options, None, &labels)?;
    let folder = src.parent().unwrap_or(Path::new(""));
    let Listed { found, bad } = list(&rows, folder, &classes);
    let notes = check(src, bad, options)?;
    if found.is_empty() {
        return Err(Error::input(src, "not one of its lines can be used"));
    }
    Ok(Box::new(Files::new(src, classes.names, found, notes, options)?))
}

/// The lines of a table, looked at.
struct Listed {
    /// The files of each split.
    found: Vec<(String, Listing)>,
    /// The lines that cannot be used.
    bad: Vec<BadLine>,
}

fn list(rows: &[Row], folder: &Path, classes: &Classes) -> Listed {
    let (mut found, mut bad) = (BTreeMap::<(u8, &str), Listing>::new(), Vec::new());
    for row in rows {
        match usable(row, folder, classes) {
            Ok((split, label)) => {
                let listing = found.entry((splits::rank(split), split)).or_insert_with(|| {
                    let mut listing = Listing::default();
                    listing.place(Place::Folder(folder.to_path_buf()));
                    listing
                });
                listing.push(&row.path, label, (0, 0));
            }
            Err(what) => bad.push(BadLine { line: row.line, what }),
        }
    }
    let found = found.into_iter().map(|((_, split), listing)| (split.to_string(), listing)).collect();
    Listed { found, bad }
}

/// Split and class of a line; or what is wrong with it.
fn usable<'a>(row: &'a Row, folder: &Path, classes: &Classes) -> Result<(&'a str, u32), String> {
    if row.path.is_empty() || row.label.is_empty() {
        let column = if row.path.is_empty() { "path" } else { "label" };
        return Err(format!("it has no {column}"));
    }
    let label = Label::of_text(&row.label);
    let label = classes.label(&label).ok_or_else(|| classes.unknown(&label))?;
    let named =
        |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    let split = match (row.split.as_str(), splits::of_word(&row.split)) {
        ("", _) => "train",
        (_, Some(split)) => split,
        (other, None) if named(other) && other.bytes().any(|b| b.is_ascii_alphabetic()) => other,
        (other, None) => {
            return Err(format!("split `{}`: expected train, validation, test or another name", printable(other)));
        }
    };
    let path = folder.join(&row.path);
    match path.metadata() {
        Ok(meta) if meta.is_file() => Ok((split, label)),
        Ok(_) => Err(format!("{}: not a file", path.display())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err(format!("{}: not found", path.display())),
        Err(e) => Err(format!("{}: {e}", path.display())),
    }
}

/// Notes or refuses the lines that cannot be used; all are named.
fn check(src: &Path, bad: Vec<BadLine>, options: &ConvertOptions) -> Result<Vec<String>, Error> {
    let lines: Vec<String> = bad.iter().map(|bad| format!("line {}: {}", bad.line, bad.what)).collect();
    match (lines.is_empty(), options.on_bad) {
        (true, _) => Ok(Vec::new()),
        (false, OnBad::Skip) => Ok(lines.into_iter().map(|line| format!("left out: {line}")).collect()),
        (false, OnBad::Fail) => {
            let count = text::plural(lines.len() as u64, "line");
            let what = format!(
                "{count} cannot be used:\n  {}\ncorrect them (paths are relative to the table's folder), or leave them out by \
                 `--on-bad skip`",
                lines.join("\n  ")
            );
            Err(Error::input(src, what))
        }
    }
}
