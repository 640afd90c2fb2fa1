//! Images with labels in a file: a CSV or TSV table, or a folder with images and a table or JSON file. The labels are
//! classes, or the numbers in the columns that `--targets` names.
//!
//! Each line of a table has a path, a label and optionally a split. Paths are relative to the table's folder.
//!
//! A header names the columns: `path`, `label`, `split` or common alternatives. Without a header, the first two or
//! three columns are used. If the column is named `labels`, or if the options set a separator, an image may have any
//! number of labels.

use std::path::Path;

use loaders::LabelKind;

use super::reader::files::Files;
use super::reader::folders::Images;
use super::reader::labelled::{self, CheckedList, List};
use super::reader::lines::Lines;
use super::reader::table::{self, Table};
use super::{Kind, Open, Opened};
use crate::dir::{self, folders};
use crate::error::Error;
use crate::options::ConvertOptions;
use crate::{splits, text};

pub(super) const CSV: Kind = Kind {
    name: "csv",
    about: "a table (CSV or TSV) of image files with the columns path, label or labels, and optionally split",
    open: Open::Files(open_csv),
};

const HINT: &str = "expected a table with one line per image: path,label or path,label,split";
const CURE: &str = "paths are relative to the table's folder";

fn open_csv(src: &Path, options: &ConvertOptions) -> Opened {
    dir::check_file(src, "labels.csv", HINT)?;
    if dir::is_zip(src) {
        return Err(dir::zip(src));
    }
    let Table { mut lines, several, names } = table::read(src, options, false)?;
    if lines.is_empty() {
        return Err(Error::input(src, format!("the table is empty; {HINT}")));
    }
    let folder = src.parent().unwrap_or(Path::new(""));
    labelled::prepare(src, folder, &mut lines, options)?;
    let named = names.apply(src, options, None, lines.labels_mut())?;
    let kind = LabelKind::new(!options.targets.is_empty(), several);
    let classes = labelled::classes(src, &lines, several, named.list, options)?;
    let list = List { folder, classes: &classes, kind, allow_outside: options.allow_outside };
    let CheckedList { found, bad, repeats, bytes } = list.check_lines(&mut lines, options.on_bad)?;
    let (skipped, mut notes) = (labelled::check(src, bad, CURE)?, named.notes);
    notes.extend(repeats_note(src, repeats, options)?);
    if found.is_empty() {
        return Err(Error::input(src, "none of the lines can be used"));
    }
    let mut files = Files::new(src, classes.names, found, notes, options)?.with_skipped(skipped);
    files.bytes = (repeats > 0).then_some(bytes);
    Ok(Box::new(files))
}

// A folder of images at any depth, with a table or JSON file that lists the labels of each image. An image may have any
// number of labels.
//
// If SRC contains `train`, or a synonym, then the first folder in a path is the split, unless the table has a column for
// splits. A folder that is not named like a split then needs `--split-map`.

/// Opens the images below `src` with the labels in the file `list`.
pub(super) fn open_folder_labels(src: &Path, list: &Path, options: &ConvertOptions) -> Opened {
    let mut lines = read(list, options)?;
    if lines.is_empty() {
        return Err(Error::input(list, "the list is empty"));
    }
    let has_splits = folders(src)?.iter().any(|name| splits::is_train(name));
    labelled::use_slashes(src, &mut lines)?;
    lines.trim_paths();
    if has_splits {
        lines.split_by_path(|path| Some(path.split_once('/')?.0))?;
    }
    let unlisted = unlisted(src, list, &lines)?;
    labelled::prepare(list, src, &mut lines, options)?;
    let kind = LabelKind::new(!options.targets.is_empty(), true);
    let classes = labelled::classes(list, &lines, true, None, options)?;
    let folder = List { folder: src, classes: &classes, kind, allow_outside: options.allow_outside };
    let CheckedList { found, mut bad, repeats, bytes } = folder.check_lines(&mut lines, options.on_bad)?;
    unlisted.into_iter().for_each(|what| bad.push(None, what));
    let empty = if kind == LabelKind::Classes {
        "; an image without a label has an empty list (`[]` in JSON, an empty field in a table)"
    } else {
        ""
    };
    let cure = format!("paths are relative to {}{empty}", src.display());
    let skipped = labelled::check(list, bad, &cure)?;
    let notes = repeats_note(list, repeats, options)?.into_iter().collect();
    if found.is_empty() {
        return Err(Error::input(list, "none of the lines can be used"));
    }
    let mut files = Files::new(src, classes.names, found, notes, options)?.with_skipped(skipped);
    files.bytes = (repeats > 0).then_some(bytes);
    Ok(Box::new(files))
}

/// Returns a note about lines that repeat an earlier line of `list`, if there are any. Returns an error if images are
/// drawn for `validation`.
fn repeats_note(list: &Path, repeats: u64, options: &ConvertOptions) -> Result<Option<String>, Error> {
    if repeats == 0 {
        return Ok(None);
    }
    let lines = text::plural(repeats, "line");
    if options.validation_fraction.is_some() {
        let what = format!(
            "{lines} with the same image, label and split as an earlier line: --validation-fraction could put an image into both \
             splits; list each image once"
        );
        return Err(Error::input(list, what));
    }
    Ok(Some(format!(
        "{lines} with the same image, label and split as an earlier line; the data set contains these images more than once"
    )))
}

fn read(list: &Path, options: &ConvertOptions) -> Result<Lines, Error> {
    let ending = list.extension().map(|ending| ending.to_ascii_lowercase());
    if ending.is_some_and(|ending| ending == "json") {
        if !options.targets.is_empty() {
            return Err(Error::Usage(
                "--targets applies only to tables (CSV, TSV, JSON Lines), not to a JSON file".into(),
            ));
        }
        return match options.label_separator {
            None => labelled::read(list, options.limits),
            Some(_) => {
                Err(Error::Usage("--label-separator applies only to tables; in a JSON file, labels are lists".into()))
            }
        };
    }
    Ok(table::read(list, options, true)?.lines)
}

/// Returns a message for each image that the list does not contain.
fn unlisted(src: &Path, list: &Path, lines: &Lines) -> Result<Vec<String>, Error> {
    let order = lines.by_image();
    let is_listed = |file: &str| {
        let image = |at: &u32| lines.image(&lines.all()[*at as usize]).cmp(file);
        order.binary_search_by(image).is_ok()
    };
    let files = Images::below(src, Path::new(""))?.files;
    let name = list.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let missing = files.into_iter().filter(|file| !is_listed(file));
    Ok(missing.map(|file| format!("{file}: not in {name}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use support::program::Folder;

    /// If lines repeat an image, its file counts once. So a small table cannot raise the limit for the output.
    #[test]
    fn a_repeated_file_counts_once() {
        let folder = Folder::new();
        folder.write("a.png", [0; 100]);
        folder.write("table.csv", "path,x\na.png,1\na.png,1\n");
        let list = folder.path().join("table.csv");
        let options = ConvertOptions { targets: vec!["x".into()], ..ConvertOptions::default() };
        let sources = [open_csv(&list, &options), open_folder_labels(folder.path(), &list, &options)];
        assert_eq!(sources.map(|source| source.unwrap().bytes()), [Some(100), Some(100)]);
    }
}
