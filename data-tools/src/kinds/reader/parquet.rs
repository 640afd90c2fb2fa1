//! Reads a Parquet file with a column of image files and a column of labels or columns of numbers, using the `parquet`
//! crate. Recently used row groups are kept in memory.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use ::parquet::basic::{Compression, ConvertedType, LogicalType, Type};
use ::parquet::column::reader::ColumnReaderImpl;
use ::parquet::data_type::{AsBytes, ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int32Type, Int64Type};
use ::parquet::errors::{ParquetError, Result};
use ::parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::schema::types::ColumnDescPtr;
use base::text::printable;
use loaders::stall::during;
use loaders::{Limits, guarded_with, regular};

use super::labels::Label;
use super::parquet_pages::{self, CheckedPages, Pages, SizedFile};
use crate::error::Error;
use crate::source::Stamp;
use crate::{pool, text};

/// The limit for the column description that Hugging Face's library writes, in bytes.
const MAX_CLASSES: usize = 32 << 20;

/// Names of columns with image files. The first existing column is used.
const IMAGES: &[&str] = &["image.bytes", "img.bytes", "image", "img", "jpg.bytes", "png.bytes", "image_bytes", "bytes"];
/// Names of columns with class names for label numbers.
const NAMES: &[&str] = &["class_name", "label_name", "label_text"];
const LABELS: &[&str] = &["label", "labels", "fine_label", "cls", "class", "target", "class_name"];
/// Memory for a row in addition to its content.
const ROW: u64 = 64;

/// The image files of a row group. `None` for a row without an image.
pub(crate) type Images = Vec<Option<ByteArray>>;

/// A column: its index among all columns, and its type.
#[derive(Debug, Clone, Copy)]
struct Column {
    at: usize,
    kind: Type,
    /// True if its integers are unsigned.
    is_unsigned: bool,
}

/// A table of images and labels.
pub(crate) struct Table {
    pub path: PathBuf,
    file: SerializedFileReader<SizedFile>,
    /// The same file, to check it before the crate reads it.
    bytes: SizedFile,
    limits: Limits,
    pub stamp: Stamp,
    images: Column,
    /// Not used if there are targets.
    labels: Option<Column>,
    /// The columns with the numbers to predict, in the order of `--targets`.
    targets: Vec<Column>,
    /// The column with class names, if the labels are numbers.
    names: Option<Column>,
    /// Number of rows in each row group.
    pub rows: Vec<u64>,
}

/// Opens the table at `path`. `targets` are names of columns with numbers. Without them, the table has labels. Returns
/// an error if the file is not a Parquet file, lacks a column, uses an unsupported compression, or needs more memory
/// than the limits allow.
pub(crate) fn open(path: &Path, targets: &[String], limits: &Limits) -> Result<Table, Error> {
    let file = regular::open(path).map_err(|e| Error::io("open", path, e))?;
    let stamp = Stamp::of(&file.metadata().map_err(|e| Error::io("read", path, e))?);
    let bytes = SizedFile::new(file, stamp.bytes);
    let file = guarded(path, "its footer", || {
        parquet_pages::check_footer(&bytes)?;
        SerializedFileReader::new(bytes.clone())
    })?;
    let metadata = file.metadata();
    let images = find(path, metadata, IMAGES, "image", "a column of image files", &[Type::BYTE_ARRAY])?;
    let find_labels = || find(path, metadata, LABELS, "label", "labels", &[Type::INT32, Type::INT64, Type::BYTE_ARRAY]);
    let labels = targets.is_empty().then(find_labels).transpose()?;
    let targets =
        targets.iter().map(|name| find_target(path, metadata, name)).collect::<Result<Vec<Column>, Error>>()?;
    let names = names(metadata).filter(|_| labels.is_some_and(|labels| labels.kind != Type::BYTE_ARRAY));
    let rows = metadata.row_groups().iter().map(|group| u64::try_from(group.num_rows()).unwrap_or(0)).collect();
    let limits = *limits;
    let table = Table { path: path.to_path_buf(), stamp, images, labels, targets, names, rows, file, bytes, limits };
    table.check()?;
    Ok(table)
}

/// Returns the columns and their names.
fn columns(metadata: &ParquetMetaData) -> (&[ColumnDescPtr], Vec<String>) {
    let columns = metadata.file_metadata().schema_descr().columns();
    (columns, columns.iter().map(|column| column.path().string()).collect())
}

/// Finds the column with one of these names. Returns an error if its type is not one of `kinds`.
fn find(
    path: &Path,
    metadata: &ParquetMetaData,
    names: &[&str],
    name: &str,
    what: &str,
    kinds: &[Type],
) -> Result<Column, Error> {
    let (columns, all) = columns(metadata);
    let Some(at) = names.iter().find_map(|name| all.iter().position(|column| column == name)) else {
        let wanted = if name == "image" { "image.bytes" } else { name };
        let what = format!(
            "there is no column `{wanted}` ({what}), only {}; rename the right column to `{name}`",
            text::first(&all)
        );
        return Err(Error::input(path, what));
    };
    let kind = columns[at].physical_type();
    if !kinds.contains(&kind) || columns[at].max_rep_level() > 0 {
        let got = if columns[at].max_rep_level() > 0 { "lists".to_string() } else { format!("values of type {kind}") };
        return Err(Error::input(
            path,
            format!("the column `{}` contains {got}; expected {what}, one per row", all[at]),
        ));
    }
    Ok(Column { at, kind, is_unsigned: false })
}

fn find_target(path: &Path, metadata: &ParquetMetaData, name: &str) -> Result<Column, Error> {
    let (columns, all) = columns(metadata);
    let Some(at) = all.iter().position(|column| column == name) else {
        let what = format!("there is no column `{}` (--targets), only {}", printable(name), text::first(&all));
        return Err(Error::input(path, what));
    };
    let (kind, converted) = (columns[at].physical_type(), columns[at].converted_type());
    let is_time = matches!(columns[at].logical_type_ref(), Some(LogicalType::Time(_) | LogicalType::Timestamp(_)));
    let got = match kind {
        _ if columns[at].max_rep_level() > 0 => "lists".to_string(),
        _ if is_time => "times".to_string(),
        Type::INT32 | Type::INT64 => match converted {
            ConvertedType::DECIMAL
            | ConvertedType::DATE
            | ConvertedType::TIME_MILLIS
            | ConvertedType::TIME_MICROS
            | ConvertedType::TIMESTAMP_MILLIS
            | ConvertedType::TIMESTAMP_MICROS => format!("values of type {converted}"),
            _ => {
                let unsigned =
                    [ConvertedType::UINT_8, ConvertedType::UINT_16, ConvertedType::UINT_32, ConvertedType::UINT_64];
                return Ok(Column { at, kind, is_unsigned: unsigned.contains(&converted) });
            }
        },
        Type::FLOAT | Type::DOUBLE => return Ok(Column { at, kind, is_unsigned: false }),
        _ => format!("values of type {kind}"),
    };
    let what = format!(
        "the column `{}` (--targets) contains {got}; expected a number per row: cast the column to DOUBLE",
        printable(name)
    );
    Err(Error::input(path, what))
}

/// Finds the text column with class names.
fn names(metadata: &ParquetMetaData) -> Option<Column> {
    let (columns, all) = columns(metadata);
    let at = NAMES.iter().find_map(|name| all.iter().position(|column| column == name))?;
    let is_text = columns[at].physical_type() == Type::BYTE_ARRAY && columns[at].max_rep_level() == 0;
    is_text.then_some(Column { at, kind: Type::BYTE_ARRAY, is_unsigned: false })
}

/// Runs `read`. Converts its error, or a panic of the crate, to an error that names the part.
fn guarded<R>(path: &Path, part: &str, read: impl FnOnce() -> Result<R, ParquetError>) -> Result<R, Error> {
    during("reading", path, || guarded_with(read, ParquetError::General)).map_err(|what| {
        Error::input(
            path,
            format!("{part} cannot be read ({what}): not a Parquet file, cut short or damaged; fetch it again"),
        )
    })
}

impl Table {
    fn chunk(&self, group: usize, column: Column) -> &ColumnChunkMetaData {
        self.file.metadata().row_group(group).column(column.at)
    }

    /// Returns the memory that the images of each row group need.
    pub(crate) fn group_bytes(&self) -> impl Iterator<Item = u64> {
        let bytes = |group| u64::try_from(self.chunk(group, self.images).uncompressed_size()).unwrap_or(u64::MAX / 4);
        self.rows.iter().enumerate().map(move |(group, rows)| bytes(group).saturating_add(rows.saturating_mul(ROW)))
    }

    /// Returns an error for an unsupported compression, or if a row group needs too much memory according to its
    /// header.
    fn check(&self) -> Result<(), Error> {
        let allowed = self.limits.allowed(self.stamp.bytes);
        for (group, needed) in self.group_bytes().enumerate() {
            let labels = [Some(self.images), self.labels, self.names].into_iter().flatten();
            for column in labels.chain(self.targets.iter().copied()) {
                let codec = self.chunk(group, column).compression();
                if !matches!(codec, Compression::UNCOMPRESSED | Compression::SNAPPY) {
                    let what = format!(
                        "row group {group} is compressed with {codec}; expected SNAPPY or no compression; write the file again \
                         (pyarrow.parquet.write_table(pyarrow.parquet.read_table(IN), OUT, compression='snappy'))"
                    );
                    return Err(Error::input(&self.path, what));
                }
            }
            if needed > allowed {
                let what = format!(
                    "row group {group} needs {} of memory, but the limit is {}; write the file again with smaller row groups, or raise \
                     --limit-memory",
                    text::bytes(needed),
                    text::bytes(allowed)
                );
                return Err(Error::input(&self.path, what));
            }
        }
        match self.rows.iter().sum::<u64>() {
            0 => Err(Error::input(&self.path, "the file contains no rows")),
            _ => Ok(()),
        }
    }

    pub(crate) fn images(&self, group: usize) -> Result<Images, Error> {
        let part = format!("column `image` of row group {group}");
        let take = |value: ByteArray| Ok((0, value));
        guarded(&self.path, &part, || self.values::<ByteArrayType, _>(group, self.images, &mut 0, take))
    }

    /// Returns the labels in all rows, with `None` for null.
    pub(crate) fn labels(&self) -> Result<Vec<Option<Label>>, Error> {
        self.labels.map_or_else(|| Ok(Vec::new()), |labels| self.column(labels))
    }

    /// Returns each target's numbers in all rows, with `None` for null.
    pub(crate) fn targets(&self) -> Result<Vec<Vec<Option<f64>>>, Error> {
        self.check_rows(self.targets.len() as u64)?;
        let mut copied = 0;
        let mut read = |column: &Column| {
            let mut numbers = Vec::new();
            for group in 0..self.rows.len() {
                let part = format!("a column with numbers in row group {group}");
                numbers.extend(guarded(&self.path, &part, || self.group_numbers(group, *column, &mut copied))?);
            }
            Ok(numbers)
        };
        self.targets.iter().map(&mut read).collect()
    }

    fn group_numbers(&self, group: usize, column: Column, copied: &mut u64) -> Result<Vec<Option<f64>>, ParquetError> {
        match column.kind {
            Type::INT32 if column.is_unsigned => {
                self.values::<Int32Type, _>(group, column, copied, |v| Ok((0, (v as u32).into())))
            }
            Type::INT64 if column.is_unsigned => {
                self.values::<Int64Type, _>(group, column, copied, |v| Ok((0, v as u64 as f64)))
            }
            Type::INT32 => self.values::<Int32Type, _>(group, column, copied, |v| Ok((0, v.into()))),
            Type::INT64 => self.values::<Int64Type, _>(group, column, copied, |v| Ok((0, v as f64))),
            Type::FLOAT => self.values::<FloatType, _>(group, column, copied, |v| Ok((0, v.into()))),
            Type::DOUBLE => self.values::<DoubleType, _>(group, column, copied, |v| Ok((0, v))),
            kind => Err(ParquetError::General(format!("numbers of type {kind}"))),
        }
    }

    /// Returns the class names in all rows, or an empty vector if the file has no such column.
    pub(crate) fn names(&self) -> Result<Vec<Option<Label>>, Error> {
        self.names.map_or_else(|| Ok(Vec::new()), |names| self.column(names))
    }

    /// Returns an error if this number of columns needs too much memory.
    fn check_rows(&self, columns: u64) -> Result<(), Error> {
        let rows: u64 = self.rows.iter().sum();
        if rows.saturating_mul(ROW).saturating_mul(columns) > self.limits.allowed(self.stamp.bytes) {
            let what = format!(
                "reading {rows} rows exceeds the memory limit; the file is damaged, or --limit-memory must be raised"
            );
            return Err(Error::input(&self.path, what));
        }
        Ok(())
    }

    fn column(&self, column: Column) -> Result<Vec<Option<Label>>, Error> {
        self.check_rows(1)?;
        let (mut labels, mut copied) = (Vec::new(), 0);
        for group in 0..self.rows.len() {
            let part = format!("the column of labels of row group {group}");
            labels.extend(guarded(&self.path, &part, || self.group_labels(group, column, &mut copied))?);
        }
        Ok(labels)
    }

    fn group_labels(&self, group: usize, column: Column, copied: &mut u64) -> Result<Vec<Option<Label>>, ParquetError> {
        match column.kind {
            Type::INT32 => self.values::<Int32Type, _>(group, column, copied, |v| Ok((0, Label::Number(v.into())))),
            Type::INT64 => self.values::<Int64Type, _>(group, column, copied, |v| Ok((0, Label::Number(v)))),
            Type::BYTE_ARRAY => self.values::<ByteArrayType, _>(group, column, copied, |value| {
                value.as_utf8().map(|text| (text.len() as u64, Label::from_text(text)))
            }),
            kind => Err(ParquetError::General(format!("labels of type {kind}"))),
        }
    }

    /// Reads a column in a row group and converts each value with `take`. A null row becomes `None`. `take` also
    /// returns the number of bytes it copies. Returns the crate's errors, and an error if pages or copies need more
    /// memory than the limits allow.
    fn values<T: DataType, V>(
        &self,
        group: usize,
        column: Column,
        copied: &mut u64,
        take: impl Fn(T::T) -> Result<(u64, V), ParquetError>,
    ) -> Result<Vec<Option<V>>, ParquetError> {
        let (chunk, rows) = (self.chunk(group, column), self.rows[group]);
        let allowed = self.limits.allowed(self.stamp.bytes);
        let Pages { largest, are_copied } = parquet_pages::check(&self.bytes, chunk, rows, allowed)?;
        let pages = self.file.get_row_group(group)?.get_column_page_reader(column.at)?;
        let description = chunk.column_descr_ptr();
        let is_optional = description.max_def_level() > 0;
        let mut reader = ColumnReaderImpl::<T>::new(description, Box::new(CheckedPages { pages, is_optional }));
        // Limit the number of rows read at a time so that their copies fit in memory even if each value is as large as
        // a page.
        let at_once = if are_copied { (allowed / 4 / largest.max(1)).clamp(1, rows.max(1)) } else { rows };
        let mut all = Vec::new();
        while (all.len() as u64) < rows {
            let wanted = usize::try_from(at_once.min(rows - all.len() as u64))?;
            for value in read_rows(&mut reader, wanted)? {
                if let (true, Type::BYTE_ARRAY, Some(value)) = (are_copied, column.kind, &value) {
                    *copied = copied.saturating_add(value.as_bytes().len() as u64);
                }
                let taken = value.map(&take).transpose()?;
                *copied = copied.saturating_add(taken.as_ref().map_or(0, |(bytes, _)| *bytes));
                if *copied > allowed {
                    let what = format!("the values exceed the memory limit of {}", text::bytes(allowed));
                    return Err(ParquetError::General(format!("{what}; if this is intended, raise --limit-memory")));
                }
                all.push(taken.map(|(_, value)| value));
            }
        }
        Ok(all)
    }

    /// Returns the class names that Hugging Face's library stores in the file.
    pub(crate) fn classes(&self) -> Option<Vec<String>> {
        let metadata = self.file.metadata().file_metadata();
        let entry = metadata.key_value_metadata()?.iter().find(|entry| entry.key == "huggingface")?;
        // A longer text would contain more class names than there can be labels, and parsing it could use up to 16
        // times as much memory.
        let text = entry.value.as_deref().filter(|text| text.len() <= MAX_CLASSES)?;
        let object: serde_json::Value = serde_json::from_str(text).ok()?;
        let column = self.chunk(0, self.labels?).column_path().string();
        let names = object.get("info")?.get("features")?.get(column)?.get("names")?;
        // Older files have an object with numbers as keys instead of the list.
        match names {
            serde_json::Value::Array(names) => names.iter().map(|name| name.as_str().map(String::from)).collect(),
            serde_json::Value::Object(names) => {
                (0..names.len()).map(|at| names.get(&at.to_string())?.as_str().map(String::from)).collect()
            }
            _ => None,
        }
    }
}

/// Reads the next `rows` rows from a column without lists.
fn read_rows<T: DataType>(reader: &mut ColumnReaderImpl<T>, rows: usize) -> Result<Vec<Option<T::T>>, ParquetError> {
    let (mut levels, mut values) = (Vec::new(), Vec::new());
    let (read, _, _) = reader.read_records(rows, Some(&mut levels), None, &mut values)?;
    if read != rows {
        return Err(ParquetError::General(format!("expected {rows} rows, got {read}")));
    }
    // A column without definition levels has a value in every row.
    let most = levels.iter().copied().max().unwrap_or(0);
    if levels.is_empty() || values.len() == rows {
        return Ok(values.into_iter().map(Some).collect());
    }
    let mut values = values.into_iter();
    Ok(levels.into_iter().map(|level| if level == most { values.next() } else { None }).collect())
}

/// A row group that is read once, by the first thread that needs it, or the error message.
type Slot = Arc<OnceLock<Result<Arc<Images>, String>>>;

struct CachedGroup {
    table: usize,
    group: usize,
    slot: Slot,
}

/// The tables of a source and the row groups kept in memory.
pub(crate) struct RowGroups {
    pub tables: Vec<Table>,
    /// The highest number of row groups to keep.
    most: usize,
    /// True if all row groups fit in memory.
    fit: bool,
    /// The row groups in memory, sorted by last use, the most recent last.
    kept: Mutex<VecDeque<CachedGroup>>,
}

impl RowGroups {
    /// Creates a cache that keeps up to `memory` bytes of row groups, but at least two row groups.
    pub(crate) fn new(tables: Vec<Table>, memory: u64) -> Self {
        let sizes = || tables.iter().flat_map(Table::group_bytes);
        let largest = sizes().max().unwrap_or(0).max(1);
        let fit = sizes().sum::<u64>() <= memory;
        let most = if fit { usize::MAX } else { usize::try_from(memory / largest).unwrap_or(usize::MAX).max(2) };
        RowGroups { tables, most, fit, kept: Mutex::default() }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.stamp.bytes).sum()
    }

    /// Returns over how many row groups samples may be shuffled without reading a row group twice. Returns `None` if
    /// all fit.
    pub(crate) fn together(&self) -> Option<usize> {
        // Reading of a window overlaps with the next window, so the row groups of both must fit in memory.
        if self.fit { None } else { Some((self.most / 2).max(1)) }
    }

    pub(crate) fn get(&self, table: usize, group: usize) -> Result<Arc<Images>, Error> {
        let slot = self.slot(table, group);
        let read = || self.tables[table].images(group).map(Arc::new).map_err(|e| e.to_string());
        let failed = |what: &String| {
            // The message begins with the path, which the error adds again.
            let path = &self.tables[table].path;
            let what = what.strip_prefix(&format!("{}: ", path.display())).unwrap_or(what);
            Error::input(path, what)
        };
        slot.get_or_init(read).as_ref().map(Arc::clone).map_err(failed)
    }

    fn slot(&self, table: usize, group: usize) -> Slot {
        let mut kept = pool::lock(&self.kept);
        let at = kept.iter().position(|k| (k.table, k.group) == (table, group));
        let found =
            at.and_then(|at| kept.remove(at)).unwrap_or_else(|| CachedGroup { table, group, slot: Slot::default() });
        let slot = found.slot.clone();
        kept.push_back(found);
        if kept.len() > self.most {
            kept.pop_front();
        }
        slot
    }
}
