//! Reads CSV, TSV and JSON Lines tables. Each row has a path, a label, a split and its line number.

use crate::error::Error;
use ::csv::{ErrorKind, Position, Reader, ReaderBuilder, StringRecord, Trim};
use loaders::{printable, regular};
use serde_json::Value;
use std::path::Path;

/// Words for the columns in a header, in lower case.
const PATH: &[&str] = &["path", "file", "filename", "file_name", "filepath", "image", "image_path", "img", "name"];
const LABEL: &[&str] = &["label", "class", "class_name", "target", "category", "y"];
/// The same for a column of several labels.
const LABELS: &[&str] = &["labels", "classes", "class_names", "targets", "categories", "tags"];
const SPLIT: &[&str] = &["split", "set", "subset", "partition"];
/// The column in fastai's tables that marks validation images.
const IS_VALID: &[&str] = &["is_valid", "is_val", "is_validation"];
/// Columns with the class name, used in addition to a column with its number.
const NAMES: &[&str] = &["class_name", "label_name", "label_text", "category_name"];

/// A line of a table; a column that it lacks is empty.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// Number of the line in the file, from 1.
    pub line: u64,
    pub path: String,
    pub label: String,
    pub split: String,
    /// The class name that accompanies a label number, or an empty string.
    pub name: String,
    /// Whether the row has more columns than the header or the first row.
    pub is_longer: bool,
}

/// A table.
#[derive(Debug)]
pub(crate) struct Table {
    pub rows: Vec<Row>,
    /// Whether the header says that images have several labels, or none.
    pub several: bool,
}

/// The numbers of the columns.
#[derive(Debug, Clone, Copy)]
struct Columns {
    path: usize,
    label: usize,
    split: Option<usize>,
    /// Whether the split column is a flag for validation images.
    is_valid: bool,
    name: Option<usize>,
    several: bool,
    /// The number of columns in the header or the first line.
    count: usize,
}

/// Reads the table at `path`; tabs or semicolons in its first line and no comma make it a table of these.
///
/// # Errors
/// A file that cannot be read, is not UTF-8, or has a header without a column of paths or labels.
pub(crate) fn read(path: &Path) -> Result<Table, Error> {
    let file = regular::read(path).map_err(|e| Error::io("read", path, e))?;
    if path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("jsonl")) {
        return objects(path, &file);
    }
    let first = file.split(|&byte| byte == b'\n').next().unwrap_or(&[]);
    let has = |byte: u8| first.contains(&byte);
    let delimiter = [b',', b'\t', b';'].into_iter().find(|&byte| has(byte)).unwrap_or(b',');
    let mut reader = ReaderBuilder::new();
    reader.delimiter(delimiter).has_headers(false).flexible(true).trim(Trim::All);
    if let Some(line) = open_quote(&file, delimiter) {
        let what = format!(
            "line {line}: a quote is opened and never closed, so that all that follows is one field; close it (a quote that belongs to the \
             text stands twice, in a field in quotes)"
        );
        return Err(Error::input(path, what));
    }
    rows(reader.from_reader(file.as_slice()), &file, path)
}

/// Reads a JSON Lines file, such as `metadata.jsonl` in Hugging Face's imagefolder format. The first object's keys become the columns. A
/// list of labels is joined with `;`.
fn objects(path: &Path, file: &[u8]) -> Result<Table, Error> {
    let (mut rows, mut columns, mut keys) = (Vec::new(), None, Vec::new());
    for (line, text) in (1..).zip(file.split(|&byte| byte == b'\n')) {
        let text = if line == 1 { text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text) } else { text };
        if text.trim_ascii().is_empty() {
            continue;
        }
        let object: serde_json::Map<String, Value> = serde_json::from_slice(text)
            .map_err(|e| Error::input(path, format!("line {line}: expected a JSON object on each line ({e})")))?;
        if columns.is_none() {
            keys = object.keys().cloned().collect();
            columns = header(path, &keys.iter().collect::<StringRecord>())?;
        }
        let Some(columns) = columns else {
            return Err(Error::input(
                path,
                format!("line {line}: it has no key for the path of an image: {}", PATH.join(", ")),
            ));
        };
        let record: StringRecord = keys.iter().map(|key| object.get(key).map_or_else(String::new, field)).collect();
        rows.push(row(path, &record, line, columns)?);
    }
    Ok(Table { rows, several: columns.is_some_and(|columns| columns.several) })
}

/// Converts a JSON value to a table field.
fn field(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(field).collect::<Vec<_>>().join(";"),
        other => other.to_string(),
    }
}

/// The number of the line of a quote that is still open at the end; as crate csv reads them, quotes count at the beginning of a field, and
/// two of them stand for one.
fn open_quote(file: &[u8], delimiter: u8) -> Option<usize> {
    let (mut line, mut opened, mut begins) = (1, None, true);
    let mut bytes = file.strip_prefix(b"\xef\xbb\xbf").unwrap_or(file).iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        line += usize::from(byte == b'\n');
        match opened {
            Some(_) if byte != b'"' => {}
            Some(_) if bytes.next_if_eq(&b'"').is_some() => {}
            Some(_) => opened = None,
            None if byte == b'"' && begins => opened = Some(line),
            None => begins = [delimiter, b'\n', b'\r'].contains(&byte),
        }
        if opened.is_some() {
            begins = false;
        }
    }
    opened
}

/// The number of the line at which a record begins that was reached at `position`: blank lines before it do not count.
fn line_of(position: Option<&Position>, file: &[u8]) -> u64 {
    let Some(position) = position else { return 0 };
    let rest = file.get(position.byte() as usize..).unwrap_or(&[]);
    let blank = rest.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).filter(|&&byte| byte == b'\n');
    position.line() + blank.count() as u64
}

fn rows(mut reader: Reader<&[u8]>, file: &[u8], path: &Path) -> Result<Table, Error> {
    let (mut rows, mut columns, mut record) = (Vec::new(), None, StringRecord::new());
    while reader.read_record(&mut record).map_err(|e| failed(path, file, e))? {
        let line = line_of(record.position(), file);
        let Some(columns) = columns else {
            match header(path, &record)? {
                Some(found) => columns = Some(found),
                None => {
                    let without = Columns {
                        path: 0,
                        label: 1,
                        split: (record.len() > 2).then_some(2),
                        is_valid: false,
                        name: None,
                        several: false,
                        count: record.len(),
                    };
                    columns = Some(without);
                    rows.push(row(path, &record, line, without)?);
                }
            }
            continue;
        };
        rows.push(row(path, &record, line, columns)?);
    }
    Ok(Table { rows, several: columns.is_some_and(|columns| columns.several) })
}

fn row(path: &Path, record: &StringRecord, line: u64, columns: Columns) -> Result<Row, Error> {
    let get = |column: usize| match record.get(column).unwrap_or("") {
        field if field.contains(['\n', '\r']) => {
            let begin = printable(field.lines().next().unwrap_or_default()).to_string();
            let what = format!("line {line}: the field \"{begin}\" goes on in the next line; is a quote missing?");
            Err(Error::input(path, what))
        }
        field => Ok(field.to_string()),
    };
    let column = |column: Option<usize>| column.map_or_else(|| Ok(String::new()), get);
    let (mut split, name) = (column(columns.split)?, column(columns.name)?);
    if columns.is_valid && !split.is_empty() {
        split = match split.to_lowercase().as_str() {
            "true" | "1" | "yes" => "validation".into(),
            "false" | "0" | "no" => "train".into(),
            other => {
                let what = format!("line {line}: `is_valid` is `{}`; expected True or False", printable(other));
                return Err(Error::input(path, what));
            }
        };
    }
    // separators at the end of a line do not start a field
    let is_longer = record.iter().skip(columns.count).any(|field| !field.is_empty());
    Ok(Row { line, path: get(columns.path)?, label: get(columns.label)?, split, name, is_longer })
}

/// The columns that a header names; `None` if the first line is none.
fn header(path: &Path, record: &StringRecord) -> Result<Option<Columns>, Error> {
    let find = |words: &[&str]| {
        let position = |word: &&str| record.iter().position(|column| column.eq_ignore_ascii_case(word));
        words.iter().find_map(position)
    };
    let missing = |column: &str, words: &[&str]| {
        let got: Vec<&str> = record.iter().collect();
        let what = format!("its header has no column `{column}` ({}); it has {}", words.join(", "), got.join(", "));
        Error::input(path, what)
    };
    let several = find(LABEL).is_none();
    match (find(PATH), find(LABEL).or_else(|| find(LABELS))) {
        (None, None) => Ok(None),
        (Some(path), Some(label)) => {
            let split = find(SPLIT);
            let is_valid = split.is_none();
            let name = find(NAMES).filter(|&name| name != label);
            Ok(Some(Columns {
                path,
                label,
                split: split.or(find(IS_VALID)),
                is_valid,
                name,
                several,
                count: record.len(),
            }))
        }
        (None, Some(_)) => Err(missing("path", PATH)),
        (Some(_), None) => Err(missing("label", LABEL)),
    }
}

fn failed(path: &Path, file: &[u8], error: ::csv::Error) -> Error {
    let line = line_of(error.position(), file);
    match error.into_kind() {
        ErrorKind::Io(source) => Error::io("read", path, source),
        ErrorKind::Utf8 { err, .. } => {
            Error::input(path, format!("line {line}: not UTF-8 ({err}); save the table as UTF-8"))
        }
        other => Error::input(path, format!("line {line}: {other:?}")),
    }
}
