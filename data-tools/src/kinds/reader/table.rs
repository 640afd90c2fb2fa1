//! Reads CSV, TSV and JSON Lines tables. Each line has a path, labels and a split.

use super::labelled;
use super::labels::{Label, NumberNames};
use super::lines::{LineContent, Lines, MAX_FIELD};
use crate::error::Error;
use crate::options::ConvertOptions;
use ::csv::{ErrorKind, Position, Reader, ReaderBuilder, StringRecord, Trim};
use base::text::printable;
use loaders::regular;
use serde_json::Value;
use std::path::Path;

/// Accepted column names in a header, in lower case.
const PATH: &[&str] = &["path", "file", "filename", "file_name", "filepath", "image", "image_path", "img", "name"];
const LABEL: &[&str] = &["label", "class", "class_name", "target", "category", "y"];
/// Accepted names of a column with multiple labels.
const LABELS: &[&str] = &["labels", "classes", "class_names", "targets", "categories", "tags"];
const SPLIT: &[&str] = &["split", "set", "subset", "partition"];
/// The column in fastai's tables that marks validation images.
const IS_VALID: &[&str] = &["is_valid", "is_val", "is_validation"];
/// Columns with the class name, used in addition to a column with its number.
const NAMES: &[&str] = &["class_name", "label_name", "label_text", "category_name"];

/// The limit for the number of fields in a line.
const MAX_FIELDS: usize = 100_000;

/// A line of a table. Missing columns are empty.
struct Row {
    path: String,
    label: String,
    /// The fields in the target columns.
    targets: Vec<String>,
    split: String,
    /// The class name that accompanies a label number, or an empty string.
    name: String,
    /// True if the row has more columns than the header or the first row.
    is_longer: bool,
}

#[derive(Debug)]
pub(crate) struct Table {
    pub lines: Lines,
    /// True if images may have any number of labels.
    pub several: bool,
    /// The names that lines assign to label numbers, if images have one label each.
    pub names: NumberNames,
}

#[derive(Debug, Clone)]
struct Columns {
    path: usize,
    /// The label column. Not used if there are targets.
    label: usize,
    targets: Vec<usize>,
    split: Option<usize>,
    /// True if the split column is a flag for validation images.
    is_valid: bool,
    name: Option<usize>,
    several: bool,
    /// The number of columns in the header or the first line.
    count: usize,
}

/// Reads the table at `path`. The delimiter is the first of comma, tab and semicolon that occurs in the first line.
/// With `several`, images may have any number of labels, regardless of the header. Returns an error if the file cannot
/// be read, is not UTF-8, has a header without a column for paths or labels, or needs more memory than the limits
/// allow.
pub(crate) fn read(path: &Path, options: &ConvertOptions, several: bool) -> Result<Table, Error> {
    let file = regular::read(path).map_err(|e| Error::io("read", path, e))?;
    let mut table = TableBuilder {
        path,
        options,
        lines: Lines::new(path, file.len(), options.limits),
        names: NumberNames::default(),
        several: several || options.label_separator.is_some(),
    };
    if path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("jsonl")) {
        table.objects(&file)?;
    } else {
        let first = file.split(|&byte| byte == b'\n').next().unwrap_or(&[]);
        let has = |byte: u8| first.contains(&byte);
        let delimiter = [b',', b'\t', b';'].into_iter().find(|&byte| has(byte)).unwrap_or(b',');
        check(path, &file, delimiter)?;
        let mut reader = ReaderBuilder::new();
        reader.delimiter(delimiter).has_headers(false).flexible(true).trim(Trim::All);
        table.records(reader.from_reader(file.as_slice()), &file)?;
    }
    let TableBuilder { lines, names, several, .. } = table;
    Ok(Table { lines, several, names })
}

struct TableBuilder<'a> {
    path: &'a Path,
    options: &'a ConvertOptions,
    lines: Lines,
    names: NumberNames,
    several: bool,
}

impl TableBuilder<'_> {
    /// Adds a row. If images have one label each, a label may contain any character. `list` has the labels if the row is
    /// an object with a list.
    fn push(
        &mut self,
        record: &StringRecord,
        number: u64,
        columns: &Columns,
        list: Option<&[Value]>,
    ) -> Result<(), Error> {
        self.several |= columns.several;
        let Row { path, label, targets, split, name, is_longer } = row(self.path, record, number, columns)?;
        let fault = is_longer.then(|| LONGER.to_string());
        let line = LineContent { number, path: &path, labels: Vec::new(), numbers: &[], split: &split, fault };
        if !targets.is_empty() {
            let numbers = self.options.targets.iter().zip(&targets).map(|(name, field)| parse_target(name, field));
            return match numbers.collect::<Result<Vec<f32>, String>>() {
                Ok(numbers) => self.lines.push(LineContent { numbers: &numbers, ..line }),
                Err(fault) => self.lines.push(LineContent { fault: Some(fault), ..line }),
            };
        }
        if let (false, Ok(of), false) = (self.several, label.trim().parse(), name.is_empty()) {
            self.names.note(self.path, of, &name, || format!("line {number}"))?;
        }
        if let Some(list) = list {
            if !self.several {
                let fault = format!(
                    "expected one label, got a list of {}; if images may have several labels, name the key `labels` in all lines",
                    list.len()
                );
                return self.lines.push(LineContent { fault: Some(fault), ..line });
            }
            let texts: Vec<String> = list.iter().map(field).filter(|text| !text.trim().is_empty()).collect();
            if let Some(text) = texts.iter().find(|text| text.contains(['\n', '\r'])) {
                let fault = format!("the label \"{}\" contains a line break", printable(text));
                return self.lines.push(LineContent { fault: Some(fault), ..line });
            }
            let labels = texts.iter().map(|text| Label::from_field(text)).collect();
            return self.lines.push(LineContent { labels, ..line });
        }
        let labels = match (self.several, label.is_empty()) {
            (true, _) => labelled::split_labels(&label, self.options.label_separator),
            (false, true) => Vec::new(),
            // The name comes from its own column, so a number in the label column stays a number.
            (false, false) if !name.is_empty() => vec![Label::from_file(&label)],
            (false, false) => vec![Label::from_field(&label)],
        };
        self.lines.push(LineContent { labels, ..line })
    }

    /// Reads a JSON Lines file, such as `metadata.jsonl` in Hugging Face's imagefolder format. The first object's keys become the columns.
    /// A label in a list may contain any character.
    fn objects(&mut self, file: &[u8]) -> Result<(), Error> {
        let path = self.path;
        let (mut columns, mut keys) = (None, Vec::new());
        for (line, text) in (1..).zip(file.split(|&byte| byte == b'\n')) {
            let text = if line == 1 { text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text) } else { text };
            if text.trim_ascii().is_empty() {
                continue;
            }
            if text.len() > MAX_FIELD {
                return Err(too_long(path, line, "the object", text.len()));
            }
            let object: serde_json::Map<String, Value> = serde_json::from_slice(text)
                .map_err(|e| Error::input(path, format!("line {line}: expected a JSON object on each line ({e})")))?;
            if columns.is_none() {
                keys = object.keys().cloned().collect();
                columns = header(path, &keys.iter().collect::<StringRecord>(), &self.options.targets)?;
            }
            let Some(columns) = &columns else {
                return Err(Error::input(
                    path,
                    format!(
                        "line {line}: there is no key for the path of an image; expected one of {}",
                        PATH.join(", ")
                    ),
                ));
            };
            // names of columns that would take precedence
            let others = match columns.split {
                None => [SPLIT, IS_VALID].concat(),
                Some(_) if columns.is_valid => SPLIT.to_vec(),
                Some(_) => Vec::new(),
            };
            let names_split = |key: &&String| others.iter().any(|word| key.eq_ignore_ascii_case(word));
            if let Some(key) = object.keys().find(names_split) {
                let what = format!(
                    "line {line}: the first object has no key `{}`, so its split is unknown; add the key there, with null \
                     for the default",
                    printable(key)
                );
                return Err(Error::input(path, what));
            }
            let record: StringRecord = keys.iter().map(|key| object.get(key).map_or_else(String::new, field)).collect();
            let label = keys.get(columns.label).and_then(|key| object.get(key)).and_then(Value::as_array);
            // A list of one entry counts as this entry, unless there may be several labels.
            let list = label.filter(|list| list.len() > 1 || self.several || columns.several);
            self.push(&record, line, columns, list.map(Vec::as_slice))?;
        }
        Ok(())
    }

    fn records(&mut self, mut reader: Reader<&[u8]>, file: &[u8]) -> Result<(), Error> {
        let (path, mut columns, mut record): (_, Option<Columns>, _) = (self.path, None, StringRecord::new());
        while reader.read_record(&mut record).map_err(|e| failed(path, file, e))? {
            let line = line_of(record.position(), file);
            let Some(columns) = &columns else {
                match header(path, &record, &self.options.targets)? {
                    Some(found) => {
                        self.several |= found.several;
                        columns = Some(found);
                    }
                    None => {
                        let without = Columns {
                            path: 0,
                            label: 1,
                            targets: Vec::new(),
                            split: (record.len() > 2).then_some(2),
                            is_valid: false,
                            name: None,
                            several: false,
                            count: record.len(),
                        };
                        self.push(&record, line, &without, None)?;
                        columns = Some(without);
                    }
                }
                continue;
            };
            self.push(&record, line, columns, None)?;
        }
        Ok(())
    }
}

/// Returns a value of a JSON object as a table would have it. A list of one entry counts as this entry.
fn field(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(list) if list.len() < 2 => list.first().map_or_else(String::new, field),
        other => other.to_string(),
    }
}

/// Checks the quotes and sizes of a table. As in the csv crate, a quote opens a quoted field only at the beginning of
/// the field, and two quotes in a quoted field stand for one. Returns an error if a quote is not closed, or if a field
/// or line is too long.
fn check(path: &Path, file: &[u8], delimiter: u8) -> Result<(), Error> {
    let (mut line, mut opened, mut begins) = (1, None, true);
    let (mut length, mut fields) = (0, 1);
    let mut bytes = file.strip_prefix(b"\xef\xbb\xbf").unwrap_or(file).iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        length += 1;
        match opened {
            Some(_) if byte != b'"' => {}
            Some(_) if bytes.next_if_eq(&b'"').is_some() => {}
            Some(_) => opened = None,
            None if byte == b'"' && begins => opened = Some(line),
            None => {
                begins = [delimiter, b'\n', b'\r'].contains(&byte);
                if begins {
                    (length, fields) = (0, if byte == delimiter { fields + 1 } else { 1 });
                }
            }
        }
        if length > MAX_FIELD && opened.is_none() {
            return Err(too_long(path, line, "a field", length));
        }
        if fields > MAX_FIELDS {
            let what = format!("line {line}: more than {MAX_FIELDS} fields; expected path, label and split");
            return Err(Error::input(path, what));
        }
        if opened.is_some() {
            begins = false;
        }
        line += u64::from(byte == b'\n');
    }
    let Some(line) = opened else { return Ok(()) };
    let what = format!(
        "line {line}: a quote is opened but never closed; close it (to write a quote as part of a text, quote the field and double the \
         quote)"
    );
    Err(Error::input(path, what))
}

/// Returns the error for a field or object that is too long to be a path or labels.
fn too_long(path: &Path, line: u64, what: &str, bytes: usize) -> Error {
    let what = format!("line {line}: {what} has {bytes} bytes or more; expected at most {MAX_FIELD}");
    Error::input(path, what)
}

/// Returns the line number of a record that the reader found at `position`. Skips blank lines before the record.
fn line_of(position: Option<&Position>, file: &[u8]) -> u64 {
    let Some(position) = position else { return 0 };
    let rest = file.get(position.byte() as usize..).unwrap_or(&[]);
    let blank = rest.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).filter(|&&byte| byte == b'\n');
    position.line() + blank.count() as u64
}

fn row(path: &Path, record: &StringRecord, line: u64, columns: &Columns) -> Result<Row, Error> {
    let get = |column: usize| match record.get(column).unwrap_or("") {
        field if field.contains(['\n', '\r']) => {
            let begin = printable(field.lines().next().unwrap_or_default()).to_string();
            let what = format!("line {line}: the field \"{begin}\" continues on the next line; is a quote missing?");
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
    // Separators at the end of a line do not start a field.
    let is_longer = record.iter().skip(columns.count).any(|field| !field.is_empty());
    let targets = columns.targets.iter().map(|&column| get(column)).collect::<Result<_, Error>>()?;
    Ok(Row { path: get(columns.path)?, label: get(columns.label)?, targets, split, name, is_longer })
}

/// Error message for a line with too many fields.
const LONGER: &str =
    "the line has more fields than the header or the first line; quote fields that contain the separator";

fn parse_target(column: &str, field: &str) -> Result<f32, String> {
    let column = printable(column);
    match field.trim().parse::<f64>() {
        Ok(number) => target(number).map_err(|what| format!("column `{column}`: {what}")),
        Err(_) if field.trim().is_empty() => {
            Err(format!("column `{column}`: expected a number, but the field is empty"))
        }
        Err(_) => Err(format!("column `{column}`: expected a number, got `{}`", printable(field.trim()))),
    }
}

/// Returns a target's number as float32, or a message if it is not finite.
pub(crate) fn target(number: f64) -> Result<f32, String> {
    match number as f32 {
        value if value.is_finite() => Ok(value),
        _ if number.is_finite() => Err(format!("{number} is outside the range of float32")),
        _ => Err(format!("expected a finite number, got {number}")),
    }
}

/// Returns the columns named by a header, or `None` if the first line is not a header. `targets` are the columns with
/// numbers, if there are any.
fn header(path: &Path, record: &StringRecord, targets: &[String]) -> Result<Option<Columns>, Error> {
    let find = |words: &[&str]| {
        let position = |word: &&str| record.iter().position(|column| column.eq_ignore_ascii_case(word));
        words.iter().find_map(position)
    };
    let missing = |column: &str, words: &[&str]| {
        let got: Vec<&str> = record.iter().collect();
        let (words, got) = (words.join(", "), crate::text::first(&got));
        let what = format!("the header has no column `{column}` (accepted names: {words}), only {got}");
        Error::input(path, what)
    };
    let columns = |path: usize, label: usize, targets: Vec<usize>| {
        let split = find(SPLIT);
        Columns {
            path,
            label,
            is_valid: split.is_none(),
            split: split.or_else(|| find(IS_VALID)),
            name: find(NAMES).filter(|&name| name != label && targets.is_empty()),
            several: find(LABEL).is_none() && targets.is_empty(),
            targets,
            count: record.len(),
        }
    };
    if !targets.is_empty() {
        let exact = |name: &String| {
            let found = record.iter().position(|column| column == name.as_str());
            found.or_else(|| record.iter().position(|column| column.eq_ignore_ascii_case(name)))
        };
        let without = || {
            let (names, got): (Vec<&str>, Vec<&str>) =
                (targets.iter().map(String::as_str).collect(), record.iter().collect());
            let names: Vec<&str> = names.into_iter().filter(|name| exact(&name.to_string()).is_none()).collect();
            let what = format!(
                "line 1: the header has no column `{}` (--targets), only {}",
                printable(&names.join("`, `")),
                crate::text::first(&got)
            );
            Error::input(path, what)
        };
        let targets = targets.iter().map(exact).collect::<Option<Vec<usize>>>().ok_or_else(without)?;
        let image = find(PATH).ok_or_else(|| missing("path", PATH))?;
        return Ok(Some(columns(image, image, targets)));
    }
    match (find(PATH), find(LABEL).or_else(|| find(LABELS))) {
        (None, None) => Ok(None),
        (Some(path), Some(label)) => Ok(Some(columns(path, label, Vec::new()))),
        (None, Some(_)) => Err(missing("path", PATH)),
        (Some(_), None) => Err(missing("label", LABEL)),
    }
}

fn failed(path: &Path, file: &[u8], error: ::csv::Error) -> Error {
    let line = line_of(error.position(), file);
    let words = error.to_string();
    match error.into_kind() {
        ErrorKind::Io(source) => Error::io("read", path, source),
        ErrorKind::Utf8 { err, .. } => {
            Error::input(path, format!("line {line}: not UTF-8 ({err}); save the table as UTF-8"))
        }
        ErrorKind::UnequalLengths { expected_len, len, .. } => {
            Error::input(path, format!("line {line}: expected {expected_len} fields, got {len}"))
        }
        _ => Error::input(path, format!("line {line}: the CSV parser failed ({words})")),
    }
}
