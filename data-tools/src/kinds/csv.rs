//! A table of images: CSV or TSV with a path, a label and, if you like, a split on each line. Paths are relative to the table's folder.
//!
//! A header names the columns (`path`, `label`, `split` and usual other words for them); without one the first two or three columns count.
//! A column `labels`, or a separator in the options, means that images may have several labels, or none.

use super::kind::{Kind, Open, Opened};
use super::reader::files::Files;
use super::reader::labelled::{self, Line, List, Listed};
use super::reader::labels::Label;
use super::reader::number_names::NumberNames;
use super::reader::table::{self, Row, Table};
use crate::dir;
use crate::error::Error;
use crate::options::ConvertOptions;
use crate::text;
use std::path::Path;

/// A table.
pub(super) const CSV: Kind = Kind {
    name: "csv",
    about: "a table (CSV or TSV) of image files: columns path, label or labels and, if you like, split",
    open: Open::Files(open),
};

const HINT: &str = "expected a table with a line for each image: path,label or path,label,split";
const CURE: &str = "paths are relative to the table's folder";

fn open(src: &Path, options: &ConvertOptions) -> Opened {
    match src.try_exists() {
        // what is neither a file nor a folder is refused when it is opened
        Ok(true) if !src.is_dir() => {}
        Ok(true) => {
            return Err(Error::Missing { path: src.join("labels.csv"), hint: format!("it is a folder, {HINT}") });
        }
        Ok(false) => return Err(Error::Missing { path: src.to_path_buf(), hint: HINT.to_string() }),
        Err(e) => return Err(Error::io("read", src, e)),
    }
    if dir::is_zip(src) {
        return Err(dir::zip(src));
    }
    let Table { rows, several } = table::read(src)?;
    if rows.is_empty() {
        return Err(Error::input(src, format!("holds no line; {HINT}")));
    }
    let several = several || options.label_separator.is_some();
    let names = names(src, &rows, several)?;
    let lines = rows.into_iter().map(|row| line(row, several, options)).collect();
    let folder = src.parent().unwrap_or(Path::new(""));
    let mut lines = labelled::prepare(src, folder, lines, options)?;
    let labels = lines.iter_mut().flat_map(|line| &mut line.labels);
    let named = names.apply(src, options, None, labels)?;
    let classes = labelled::classes(src, &lines, several, named.list, options)?;
    let Listed { found, bad, repeats } =
        List { folder, classes: &classes, several, allow_outside: options.allow_outside }.look(&lines);
    let (skipped, mut notes) = (labelled::check(src, &bad, CURE, options)?, named.notes);
    if repeats > 0 {
        let lines = text::plural(repeats, "line");
        if options.validation_fraction.is_some() {
            let what = format!(
                "{lines} with the image, label and split of an earlier one: --validation-fraction could put one image on both sides; leave \
                 each image on one line"
            );
            return Err(Error::input(src, what));
        }
        notes.push(format!(
            "{lines} with the image, label and split of an earlier one: such images are there several times"
        ));
    }
    if found.is_empty() {
        return Err(Error::input(src, "not one of its lines can be used"));
    }
    let files = Files::new(src, classes.names, found, notes, options)?.without(skipped);
    Ok(Box::new(if repeats > 0 { files.with_repeats() } else { files }))
}

/// Collects the class name for each label number in the table.
fn names(src: &Path, rows: &[Row], several: bool) -> Result<NumberNames, Error> {
    let mut names = NumberNames::default();
    for row in rows.iter().filter(|_| !several) {
        if let (Ok(number), false) = (row.label.trim().parse(), row.name.is_empty()) {
            names.note(src, number, &row.name, || format!("line {}", row.line))?;
        }
    }
    Ok(names)
}

/// A line of the table; a label that stands alone may hold any character.
pub(super) fn line(row: Row, several: bool, options: &ConvertOptions) -> Line {
    let Row { line: number, path, label, split, name, is_longer } = row;
    let labels = match (several, label.is_empty()) {
        (true, _) => labelled::parted(&label, options.label_separator),
        (false, true) => Vec::new(),
        // a number that has a class name is not used as the name
        (false, false) if !name.is_empty() => vec![Label::of_file(&label)],
        (false, false) => vec![Label::of_field(&label)],
    };
    let longer = || {
        "it has more fields than the header or the first line; put a field that holds the table's own separator in quotes".to_string()
    };
    let fault = is_longer.then(longer);
    Line { number, path, labels, split, fault }
}
