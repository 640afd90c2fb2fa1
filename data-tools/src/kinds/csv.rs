//! A table of images: CSV or TSV with a path, a label and, if you like, a split on each line. Paths are relative to the table's folder.
//!
//! A header names the columns (`path`, `label`, `split` and usual other words for them); without one the first two or three columns count.
//! A column `labels`, or a separator in the options, means that images may have several labels, or none.

use super::kind::{Kind, Open, Opened};
use super::reader::files::Files;
use super::reader::labelled::{self, List, Listed};
use super::reader::table::{self, Reading, Table};
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
    let Table { mut lines, several, names } = table::read(src, &Reading { options, several: false })?;
    if lines.is_empty() {
        return Err(Error::input(src, format!("holds no line; {HINT}")));
    }
    let folder = src.parent().unwrap_or(Path::new(""));
    labelled::prepare(src, folder, &mut lines, options)?;
    let named = names.apply(src, options, None, lines.labels_mut())?;
    let classes = labelled::classes(src, &lines, several, named.list, options)?;
    let list = List { folder, classes: &classes, several, allow_outside: options.allow_outside };
    let Listed { found, bad, repeats, bytes } = list.look(&mut lines, options.on_bad)?;
    let (skipped, mut notes) = (labelled::check(src, bad, CURE)?, named.notes);
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
    let mut files = Files::new(src, classes.names, found, notes, options)?.without(skipped);
    files.bytes = (repeats > 0).then_some(bytes);
    Ok(Box::new(files))
}
