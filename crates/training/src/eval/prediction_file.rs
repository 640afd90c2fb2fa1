//! Stores predictions with a row per image. While the prediction runs, rows are appended to a journal. At the end they
//! become a table.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use data_tools::parquet_table::{Column, ParquetTable, Values};
use loaders::lock_file::LockFile;
use loaders::overwrite::Content;
use loaders::safe_create::{self, LONGEST_NAME, NewFile};
use loaders::{LabelKind, regular};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::findings::field;
use super::predict::NpyWriter;
use crate::error::Error;

/// Predictions for an image, or an error.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Path of the image, or `SPLIT#ID` for a record.
    pub image: String,
    /// File name in the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Why there is no prediction for the image. `found` and `logits` are then empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Classes with their probabilities, likeliest first, or the targets with their numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub found: Vec<(u32, f64)>,
    /// The network's outputs, if requested. `None` for an infinite output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logits: Vec<Option<f32>>,
}

/// File format of a table. The ending of its name selects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableFormat {
    Csv,
    JsonLines,
    Parquet,
}

#[derive(Default, Serialize)]
struct JsonRow<'a> {
    image: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    classes: Option<Vec<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    targets: Option<Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logits: Option<&'a Vec<Option<f32>>>,
}

/// Files that a new table may overwrite.
const CSV: Content = Content { name: "a table of predictions", begins: |head| head.starts_with(b"image,") };
const JSON_LINES: Content = Content { name: "a table of predictions", begins: |head| head.starts_with(b"{\"image\":") };
const PARQUET: Content = Content { name: "a Parquet table", begins: |head| head.starts_with(b"PAR1") };

impl TableFormat {
    /// Returns the format for a file name. Returns an error for any other ending.
    pub fn of(path: &Path) -> Result<Self, Error> {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("csv") => Ok(Self::Csv),
            Some("jsonl") => Ok(Self::JsonLines),
            Some("parquet") => Ok(Self::Parquet),
            _ => Err(Error::Usage(format!(
                "--out {}: expected a name that ends in .csv, .jsonl or .parquet",
                path.display()
            ))),
        }
    }

    /// Returns the content that an existing file must have, so that the table may overwrite it.
    pub fn content(self) -> &'static Content {
        match self {
            Self::Csv => &CSV,
            Self::JsonLines => &JSON_LINES,
            Self::Parquet => &PARQUET,
        }
    }
}

/// Determines a table's columns.
#[derive(Clone, Debug)]
pub struct TableShape {
    pub kind: LabelKind,
    /// Class names or target names.
    pub names: Vec<String>,
    /// Number of classes per row, for a single-label model.
    pub top: usize,
    pub logits: bool,
    /// True if images are records. Then rows have file names.
    pub records: bool,
}

/// The journal of an unfinished prediction, next to its table. The first line identifies the request. Each further line
/// is a row. A second file has the rows' features as plain f32 values. Only rank 0 has a journal.
pub struct Journal {
    path: PathBuf,
    file: File,
    features: Option<(PathBuf, File)>,
    /// The locks on the table and on the features. Released after both are written.
    locks: Vec<LockFile>,
}

#[derive(PartialEq, Serialize, Deserialize)]
struct Head {
    /// Identifies everything that determines the rows.
    request: String,
    features: usize,
}

/// Suffix of unfinished files.
const PARTIAL: &str = ".partial";

/// Length of the longest file name of an output in bytes. File systems must also accept the name with [`PARTIAL`].
pub const LONGEST_OUTPUT_NAME: usize = LONGEST_NAME - PARTIAL.len();

/// Returns the name that the file has while it is unfinished.
fn partial(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(PARTIAL);
    name.into()
}

impl Journal {
    /// Opens or creates the journal for the table `out`. Returns it with the number of rows that are kept. This number
    /// is a multiple of `chunk`. Returns an error if the journal belongs to another request.
    pub fn open(out: &Path, features: Option<(&Path, usize)>, request: &str, chunk: u64) -> Result<(Self, u64), Error> {
        let head = Head { request: request.into(), features: features.map_or(0, |(_, columns)| columns) };
        let path = partial(out);
        let list = features.map(|(path, _)| partial(path));
        let exists = path.symlink_metadata().is_ok();
        let mut kept = if exists { kept_rows(&path, &head, list.as_deref())? } else { 0 };
        kept -= kept % chunk;
        let file = open_journal(&path)?;
        let list = list.map(|path| Ok::<_, Error>((path.clone(), open_journal(&path)?)));
        let mut journal = Self { path, file, features: list.transpose()?, locks: Vec::new() };
        journal.keep(kept, &head)?;
        Ok((journal, kept))
    }

    /// Truncates the files to this number of rows.
    fn keep(&mut self, rows: u64, head: &Head) -> Result<(), Error> {
        let refuse = Error::file("write", &self.path);
        let bytes = match rows {
            0 => 0,
            _ => {
                let reader = BufReader::new(regular::open(&self.path).map_err(&refuse)?);
                let lines = reader.split(b'\n').take(1 + rows as usize);
                lines.map(|line| Ok(line?.len() as u64 + 1)).sum::<std::io::Result<u64>>().map_err(&refuse)?
            }
        };
        self.file.set_len(bytes).and_then(|()| self.file.seek(SeekFrom::Start(bytes))).map_err(&refuse)?;
        if let Some((path, file)) = &mut self.features {
            let bytes = rows * 4 * head.features as u64;
            file.set_len(bytes).and_then(|()| file.seek(SeekFrom::Start(bytes))).map_err(Error::file("write", path))?;
        }
        if rows == 0 {
            let line = serde_json::to_string(head).map_err(|e| refuse(e.into()))?;
            writeln!(self.file, "{line}").map_err(&refuse)?;
        }
        Ok(())
    }

    /// Appends rows, given as JSON lines, and their features.
    pub fn append(&mut self, lines: &[u8], features: &[u8]) -> Result<(), Error> {
        self.check_locks()?;
        if let Some((path, file)) = &mut self.features {
            file.write_all(features).and_then(|()| file.sync_data()).map_err(Error::file("write", path))?;
        }
        let written = self.file.write_all(lines).and_then(|()| self.file.sync_data());
        written.map_err(Error::file("write", &self.path))
    }

    /// Adds the locks on the files that [`Journal::finish`] writes.
    pub fn with_locks(self, locks: Vec<LockFile>) -> Self {
        Self { locks, ..self }
    }

    /// Returns an error if another command now writes the same files.
    fn check_locks(&self) -> Result<(), Error> {
        self.locks.iter().try_for_each(LockFile::check).map_err(Error::file("write", &self.path))
    }

    /// Writes the table and the features, and removes the journal. Returns the error messages in the rows.
    pub fn finish(
        self,
        out: &Path,
        format: TableFormat,
        shape: &TableShape,
        features: Option<(&Path, usize)>,
    ) -> Result<Vec<String>, Error> {
        self.check_locks()?;
        let refuse = Error::file("read", &self.path);
        let lines = BufReader::new(regular::open(&self.path).map_err(&refuse)?).lines().skip(1);
        let mut failures = Vec::new();
        let rows = lines.map(|line| {
            let row: Row = serde_json::from_str(&line.map_err(&refuse)?).map_err(|e| refuse(e.into()))?;
            failures.extend(row.error.clone());
            Ok(row)
        });
        write_table(out, format, shape, rows)?;
        if let (Some((path, columns)), Some((list, _))) = (features, &self.features) {
            let mut table = NpyWriter::create(path, columns)?;
            let mut values = BufReader::new(regular::open(list).map_err(Error::file("read", list))?);
            let mut bytes = vec![0; 4 * columns];
            while !values.fill_buf().map_err(Error::file("read", list))?.is_empty() {
                std::io::Read::read_exact(&mut values, &mut bytes).map_err(Error::file("read", list))?;
                table.add(&bytes.as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)).collect::<Vec<_>>())?;
            }
            table.finish()?;
            fs::remove_file(list).map_err(Error::file("remove", list))?;
        }
        fs::remove_file(&self.path).map_err(Error::file("remove", &self.path))?;
        Ok(failures)
    }
}

/// Opens a journal for appending, or creates it. Refuses links and special files, which another user could have put there.
fn open_journal(path: &Path) -> Result<File, Error> {
    safe_create::to_update(path).map_err(Error::file("open", path))
}

/// Returns the number of complete rows. If there are features, a row counts only if its features are complete too.
fn kept_rows(path: &Path, head: &Head, features: Option<&Path>) -> Result<u64, Error> {
    let other = || {
        Error::Usage(format!(
            "{} is left from another prediction, which had other images, options or another model; remove it, or give another --out",
            path.display()
        ))
    };
    let mut reader = BufReader::new(regular::open(path).map_err(Error::file("open", path))?);
    let mut line = || -> Result<Vec<u8>, Error> {
        let mut line = Vec::new();
        reader.read_until(b'\n', &mut line).map_err(Error::file("read", path))?;
        Ok(line)
    };
    let first = line()?;
    let Some(whole) = first.strip_suffix(b"\n") else {
        // the program was killed while it wrote the line
        return if serde_json::to_vec(head).is_ok_and(|line| line.starts_with(&first)) { Ok(0) } else { Err(other()) };
    };
    if !serde_json::from_slice::<Head>(whole).is_ok_and(|found| found == *head) {
        return Err(other());
    }
    let mut rows = 0;
    loop {
        let next = line()?;
        // a line without its end was not written completely, even if it happens to be valid JSON
        let row = next.strip_suffix(b"\n").filter(|row| serde_json::from_slice::<Row>(row).is_ok());
        if row.is_none() {
            break;
        }
        rows += 1;
    }
    let Some(list) = features else { return Ok(rows) };
    let bytes = list.metadata().map_or(0, |file| file.len());
    Ok(rows.min(bytes / (4 * head.features as u64).max(1)))
}

/// Writes the table to `out`. The file is replaced atomically.
fn write_table(
    out: &Path,
    format: TableFormat,
    shape: &TableShape,
    mut rows: impl Iterator<Item = Result<Row, Error>>,
) -> Result<(), Error> {
    let refuse = Error::file("write", out);
    let mut new = NewFile::beside(out).map_err(&refuse)?;
    match format {
        TableFormat::Parquet => parquet(new.file().map_err(&refuse)?, shape, rows, &refuse)?,
        TableFormat::Csv | TableFormat::JsonLines => {
            let mut file = BufWriter::new(new.file().map_err(&refuse)?);
            if format == TableFormat::Csv {
                let head: Vec<String> = shape.columns().iter().map(|(name, _)| field(name)).collect();
                writeln!(file, "{}", head.join(",")).map_err(&refuse)?;
            }
            rows.try_for_each(|row| {
                let row = row?;
                let line = if format == TableFormat::Csv { shape.csv(&row) } else { shape.json(&row) };
                writeln!(file, "{line}").map_err(&refuse)
            })?;
            file.flush().map_err(&refuse)?;
        }
    }
    new.publish().map(drop).map_err(&refuse)
}

/// Rows per row group in a Parquet file.
const GROUP: usize = 1 << 16;

fn parquet(
    file: &mut File,
    shape: &TableShape,
    mut rows: impl Iterator<Item = Result<Row, Error>>,
    refuse: &impl Fn(std::io::Error) -> Error,
) -> Result<(), Error> {
    let failed = |what: String| refuse(std::io::Error::other(what));
    let columns = shape.columns();
    let mut table = ParquetTable::new(file.try_clone().map_err(refuse)?, &columns).map_err(failed)?;
    loop {
        let group = rows.by_ref().take(GROUP).collect::<Result<Vec<Row>, Error>>()?;
        if group.is_empty() {
            return table.finish().map_err(failed);
        }
        let cells: Vec<Vec<Cell>> = group.iter().map(|row| shape.cells(row)).collect();
        let values = columns.iter().enumerate().map(|(at, (_, column))| {
            let cells = cells.iter().map(|row| &row[at]);
            match column {
                Column::Text => Values::Texts(cells.map(Cell::text).collect()),
                Column::Integer => Values::Integers(cells.map(Cell::integer).collect()),
                Column::Double => Values::Doubles(cells.map(Cell::number).collect()),
                Column::Float => Values::Floats(cells.map(|cell| cell.number().map(|value| value as f32)).collect()),
            }
        });
        table.add(&values.collect::<Vec<_>>()).map_err(failed)?;
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Cell {
    None,
    Text(String),
    Integer(i64),
    Double(f64),
    Float(f32),
}

impl Cell {
    fn text(&self) -> Option<String> {
        if let Self::Text(text) = self { Some(text.clone()) } else { None }
    }

    fn integer(&self) -> Option<i64> {
        if let Self::Integer(integer) = self { Some(*integer) } else { None }
    }

    fn number(&self) -> Option<f64> {
        match self {
            Self::Double(value) => Some(*value),
            Self::Float(value) => Some(f64::from(*value)),
            _ => None,
        }
    }

    fn csv(&self) -> String {
        match self {
            Self::None => String::new(),
            Self::Text(text) => field(text),
            Self::Integer(integer) => integer.to_string(),
            Self::Double(value) => value.to_string(),
            Self::Float(value) => value.to_string(),
        }
    }
}

impl TableShape {
    /// Returns name and type for each column in a CSV or Parquet table.
    fn columns(&self) -> Vec<(String, Column)> {
        let mut columns = vec![("image".to_string(), Column::Text)];
        columns.extend(self.records.then(|| ("file".into(), Column::Text)));
        columns.push(("error".into(), Column::Text));
        match self.kind {
            LabelKind::OneClass => {
                for place in 1..=self.top {
                    let number = if place == 1 { String::new() } else { format!("_{place}") };
                    columns.push((format!("label{number}"), Column::Integer));
                    columns.push((format!("class{number}"), Column::Text));
                    columns.push((format!("probability{number}"), Column::Double));
                }
            }
            LabelKind::Classes => {
                columns.extend(["labels", "classes", "probabilities"].map(|name| (name.to_string(), Column::Text)));
            }
            LabelKind::Numbers => columns.extend(self.names.iter().map(|name| (name.clone(), Column::Float))),
        }
        if self.logits {
            columns.extend(self.names.iter().map(|name| (format!("logit {name}"), Column::Float)));
        }
        columns
    }

    fn name(&self, class: u32) -> &str {
        self.names.get(class as usize).map_or("", String::as_str)
    }

    /// Returns a row's values in column order. If the row has an error, the values after the error are empty.
    fn cells(&self, row: &Row) -> Vec<Cell> {
        let text = |text: &Option<String>| text.clone().map_or(Cell::None, Cell::Text);
        let mut cells = vec![Cell::Text(row.image.clone())];
        cells.extend(self.records.then(|| text(&row.file)));
        cells.push(text(&row.error));
        let is_good = row.error.is_none();
        match self.kind {
            _ if !is_good => {}
            LabelKind::OneClass => {
                for (class, p) in row.found.iter().take(self.top) {
                    let name = Cell::Text(self.name(*class).to_string());
                    cells.extend([Cell::Integer(i64::from(*class)), name, Cell::Double(*p)]);
                }
            }
            LabelKind::Classes => {
                let list = |each: &dyn Fn(&(u32, f64)) -> String| {
                    Cell::Text(row.found.iter().map(each).collect::<Vec<_>>().join(";"))
                };
                let name = |(class, _): &(u32, f64)| self.name(*class).to_string();
                cells.extend([list(&|(class, _)| class.to_string()), list(&name), list(&|(_, p)| p.to_string())]);
            }
            LabelKind::Numbers => cells.extend(row.found.iter().map(|(_, number)| Cell::Float(*number as f32))),
        }
        cells.extend(row.logits.iter().map(|value| value.map_or(Cell::None, Cell::Float)));
        cells.resize(self.columns().len(), Cell::None);
        cells
    }

    fn csv(&self, row: &Row) -> String {
        self.cells(row).iter().map(Cell::csv).collect::<Vec<_>>().join(",")
    }

    fn json(&self, row: &Row) -> String {
        let mut line =
            JsonRow { image: &row.image, file: row.file.as_deref(), error: row.error.as_deref(), ..JsonRow::default() };
        if row.error.is_none() {
            match self.kind {
                LabelKind::Numbers => {
                    let number = |(at, number): &(u32, f64)| (self.name(*at).to_string(), json!(*number as f32));
                    line.targets = Some(row.found.iter().map(number).collect());
                }
                LabelKind::OneClass | LabelKind::Classes => {
                    let class =
                        |(class, p): &(u32, f64)| json!({"label": class, "class": self.name(*class), "probability": p});
                    line.classes = Some(row.found.iter().map(class).collect());
                }
            }
            line.logits = self.logits.then_some(&row.logits);
        }
        // not through `json!`, which would sort the keys: the first key identifies a table
        serde_json::to_string(&line).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A killed program may leave a row without its line end. Such a row is written again.
    #[test]
    fn a_row_without_a_line_end_is_not_kept() {
        let folder = std::env::temp_dir().join(format!("trireme-journal-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (out, row) = (folder.join("t.csv"), |name: &str| Row { image: name.into(), ..Row::default() });
        let line = |name| serde_json::to_string(&row(name)).unwrap();
        let (mut journal, kept) = Journal::open(&out, None, "request", 1).unwrap();
        assert_eq!(kept, 0);
        journal.append(format!("{}\n{}", line("a"), line("b")).as_bytes(), &[]).unwrap();
        drop(journal);
        let (mut journal, kept) = Journal::open(&out, None, "request", 1).unwrap();
        assert_eq!(kept, 1);
        journal.append(format!("{}\n", line("b")).as_bytes(), &[]).unwrap();
        drop(journal);
        let text = fs::read_to_string(partial(&out)).unwrap();
        assert_eq!(text.lines().skip(1).collect::<Vec<_>>(), [line("a"), line("b")]);
        assert!(matches!(Journal::open(&out, None, "another", 1), Err(Error::Usage(_))));
        fs::remove_dir_all(&folder).unwrap();
    }

    /// A user may remove a lock file although its command is still running. The next command then writes the same files.
    #[test]
    fn a_command_whose_lock_was_replaced_writes_nothing() {
        let folder = std::env::temp_dir().join(format!("trireme-lost-lock-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let out = folder.join("t.csv");
        let lock = LockFile::beside(&out).unwrap();
        let path = lock.path().to_path_buf();
        let (journal, _) = Journal::open(&out, None, "request", 1).unwrap();
        let mut journal = journal.with_locks(vec![lock]);
        journal.append(b"", &[]).unwrap();
        let before = fs::read(partial(&out)).unwrap();
        fs::write(folder.join("new"), "another command").unwrap();
        fs::rename(folder.join("new"), &path).unwrap();
        let error = journal.append(b"row\n", &[]).unwrap_err();
        support::mentions(error, &["t.csv.partial", ".t.csv.trireme-lock", "another command"]);
        assert_eq!(fs::read(partial(&out)).unwrap(), before);
        drop(journal);
        assert_eq!(fs::read(&path).unwrap(), b"another command");
        fs::remove_dir_all(&folder).unwrap();
    }

    /// The output for a class is minus infinity if its bias is, so that the class is never predicted.
    #[test]
    fn infinite_outputs_are_missing_values() {
        let folder = std::env::temp_dir().join(format!("trireme-infinite-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let shape = TableShape {
            kind: LabelKind::OneClass,
            names: vec!["cat".into(), "dog".into()],
            top: 1,
            logits: true,
            records: false,
        };
        let row = Row { image: "a".into(), found: vec![(0, 1.0)], logits: vec![Some(1.5), None], ..Row::default() };
        let line = serde_json::to_string(&row).unwrap() + "\n";
        for (name, expected) in [("t.csv", "\na,,0,cat,1,1.5,\n"), ("t.jsonl", "\"logits\":[1.5,null]}\n")] {
            let out = folder.join(name);
            let (mut journal, _) = Journal::open(&out, None, "request", 1).unwrap();
            journal.append(line.as_bytes(), &[]).unwrap();
            journal.finish(&out, TableFormat::of(&out).unwrap(), &shape, None).unwrap();
            let text = fs::read_to_string(&out).unwrap();
            assert!(text.ends_with(expected), "{text}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
