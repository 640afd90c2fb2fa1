//! A Parquet file with a column of image files and a column of labels, by the `parquet` crate of Apache Arrow.

use super::labels::Label;
use super::positioned::Positioned;
use crate::error::Error;
use crate::source::Stamp;
use crate::text;
use ::parquet::basic::{Compression, Type};
use ::parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use ::parquet::data_type::{ByteArray, DataType};
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use loaders::{Limits, guarded_with, regular};
use std::path::{Path, PathBuf};

/// Columns that hold image files, and columns that hold labels; the first that is there counts.
const IMAGES: &[&str] = &["image.bytes", "img.bytes", "image", "img", "jpg.bytes", "png.bytes", "image_bytes", "bytes"];
/// Columns that hold the names of label numbers.
const NAMES: &[&str] = &["class_name", "label_name", "label_text"];
const LABELS: &[&str] = &["label", "labels", "fine_label", "cls", "class", "target", "class_name"];
/// Memory of a row beside its bytes.
const ROW: u64 = 64;

/// The image files of a row group; `None` for a row without one.
pub(crate) type Images = Vec<Option<ByteArray>>;

/// A column: its number among all.
#[derive(Debug, Clone, Copy)]
struct Column {
    at: usize,
    kind: Type,
}

/// A table of images and labels.
pub(crate) struct Table {
    path: PathBuf,
    file: SerializedFileReader<Positioned>,
    stamp: Stamp,
    images: Column,
    labels: Column,
    /// The names of the labels, where these are numbers.
    names: Option<Column>,
    /// Rows of each row group.
    rows: Vec<u64>,
}

/// Opens the table at `path`.
///
/// # Errors
/// A file that is no Parquet, lacks a column, is compressed in a way that is not read, or takes more memory than the limits allow.
pub(crate) fn open(path: &Path, limits: &Limits) -> Result<Table, Error> {
    let file = regular::open(path).map_err(|e| Error::io("open", path, e))?;
    let stamp = Stamp::of(&file.metadata().map_err(|e| Error::io("read", path, e))?);
    let file = guarded(path, "its footer", || SerializedFileReader::new(Positioned::new(file, stamp.bytes)))?;
    let metadata = file.metadata();
    let images = find(path, metadata, IMAGES, "image", "a column of image files", &[Type::BYTE_ARRAY])?;
    let labels = find(path, metadata, LABELS, "label", "labels", &[Type::INT32, Type::INT64, Type::BYTE_ARRAY])?;
    let names = names(metadata).filter(|_| labels.kind != Type::BYTE_ARRAY);
    let rows = metadata.row_groups().iter().map(|group| u64::try_from(group.num_rows()).unwrap_or(0)).collect();
    let table = Table { path: path.to_path_buf(), stamp, images, labels, names, rows, file };
    table.check(limits)?;
    Ok(table)
}

/// The column of one of these names, which must be of one of these types.
fn find(
    path: &Path,
    metadata: &ParquetMetaData,
    names: &[&str],
    name: &str,
    what: &str,
    kinds: &[Type],
) -> Result<Column, Error> {
    let columns = metadata.file_metadata().schema_descr().columns();
    let all: Vec<String> = columns.iter().map(|column| column.path().string()).collect();
    let Some(at) = names.iter().find_map(|name| all.iter().position(|column| column == name)) else {
        let wanted = if name == "image" { "image.bytes" } else { name };
        let what = format!(
            "has no column `{wanted}` ({what}); its columns are {}: rename the one that holds them to `{name}`",
            text::first(&all)
        );
        return Err(Error::input(path, what));
    };
    let kind = columns[at].physical_type();
    if !kinds.contains(&kind) || columns[at].max_rep_level() > 0 {
        let got = if columns[at].max_rep_level() > 0 { "lists".to_string() } else { format!("values of type {kind}") };
        return Err(Error::input(
            path,
            format!("its column `{}` holds {got}; expected {what}, one in each row", all[at]),
        ));
    }
    Ok(Column { at, kind })
}

/// The column of names, if there is one of texts.
fn names(metadata: &ParquetMetaData) -> Option<Column> {
    let columns = metadata.file_metadata().schema_descr().columns();
    let at = NAMES.iter().find_map(|name| columns.iter().position(|column| column.path().string() == *name))?;
    let is_text = columns[at].physical_type() == Type::BYTE_ARRAY && columns[at].max_rep_level() == 0;
    is_text.then_some(Column { at, kind: Type::BYTE_ARRAY })
}

/// Runs `read`; an error, or a panic of a reader that met what it does not expect, becomes an error that names the part.
fn guarded<R>(path: &Path, part: &str, read: impl FnOnce() -> Result<R, ParquetError>) -> Result<R, Error> {
    guarded_with(read, ParquetError::General).map_err(|what| {
        Error::input(
            path,
            format!("{part} cannot be read ({what}): not a Parquet file, cut short or damaged; fetch it again"),
        )
    })
}

impl Table {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Size and time of the file.
    pub(crate) fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// Rows of each row group.
    pub(crate) fn group_rows(&self) -> &[u64] {
        &self.rows
    }

    fn chunk(&self, group: usize, column: Column) -> &ColumnChunkMetaData {
        self.file.metadata().row_group(group).column(column.at)
    }

    /// Memory that the images of each row group take.
    pub(crate) fn group_bytes(&self) -> impl Iterator<Item = u64> {
        let bytes = |group| u64::try_from(self.chunk(group, self.images).uncompressed_size()).unwrap_or(u64::MAX / 4);
        self.rows.iter().enumerate().map(move |(group, rows)| bytes(group).saturating_add(rows.saturating_mul(ROW)))
    }

    /// Refuses what cannot be unpacked, and row groups that take too much memory by their headers.
    fn check(&self, limits: &Limits) -> Result<(), Error> {
        for (group, needed) in self.group_bytes().enumerate() {
            for column in [Some(self.images), Some(self.labels), self.names].into_iter().flatten() {
                let codec = self.chunk(group, column).compression();
                if !matches!(codec, Compression::UNCOMPRESSED | Compression::SNAPPY) {
                    let what = format!(
                        "row group {group} is compressed by {codec}; expected SNAPPY or none: write it again \
                         (pyarrow.parquet.write_table(pyarrow.parquet.read_table(IN), OUT, compression='snappy'))"
                    );
                    return Err(Error::input(&self.path, what));
                }
            }
            if needed > limits.allowed(self.stamp.bytes) {
                let what = format!(
                    "row group {group} needs {} of memory, {} are allowed; write it again with smaller row groups, or raise --limit-memory",
                    text::bytes(needed),
                    text::bytes(limits.allowed(self.stamp.bytes))
                );
                return Err(Error::input(&self.path, what));
            }
        }
        match self.rows.iter().sum::<u64>() {
            0 => Err(Error::input(&self.path, "holds no row")),
            _ => Ok(()),
        }
    }

    /// The image files of a row group.
    pub(crate) fn images(&self, group: usize) -> Result<Images, Error> {
        let part = format!("column `image` of row group {group}");
        let read = || match self.file.get_row_group(group)?.get_column_reader(self.images.at)? {
            ColumnReader::ByteArrayColumnReader(reader) => all(reader, self.rows[group]),
            _ => Err(ParquetError::General("its type has changed".into())),
        };
        guarded(&self.path, &part, read)
    }

    /// The labels of all rows; `None` for a row without one (null).
    pub(crate) fn labels(&self, limits: &Limits) -> Result<Vec<Option<Label>>, Error> {
        self.column(self.labels, limits)
    }

    /// The names of the labels of all rows; none if the file has no column of them.
    pub(crate) fn names(&self, limits: &Limits) -> Result<Vec<Option<Label>>, Error> {
        self.names.map_or_else(|| Ok(Vec::new()), |names| self.column(names, limits))
    }

    fn column(&self, column: Column, limits: &Limits) -> Result<Vec<Option<Label>>, Error> {
        let rows: u64 = self.rows.iter().sum();
        if rows.saturating_mul(ROW) > limits.allowed(self.stamp.bytes) {
            let what = format!(
                "says that it holds {rows} rows, for which no memory is allowed; damaged, or raise --limit-memory"
            );
            return Err(Error::input(&self.path, what));
        }
        let mut labels = Vec::new();
        for group in 0..self.rows.len() {
            let part = format!("the column of labels of row group {group}");
            labels.extend(guarded(&self.path, &part, || self.group_labels(group, column))?);
        }
        Ok(labels)
    }

    fn group_labels(&self, group: usize, column: Column) -> Result<Vec<Option<Label>>, ParquetError> {
        let rows = self.rows[group];
        let reader = self.file.get_row_group(group)?.get_column_reader(column.at)?;
        let number = |value: i64| Label::Number(value);
        Ok(match (reader, column.kind) {
            (ColumnReader::Int32ColumnReader(reader), _) => {
                all(reader, rows)?.into_iter().map(|value| value.map(|v| number(v.into()))).collect()
            }
            (ColumnReader::Int64ColumnReader(reader), _) => {
                all(reader, rows)?.into_iter().map(|value| value.map(number)).collect()
            }
            (ColumnReader::ByteArrayColumnReader(reader), _) => {
                let name = |value: ByteArray| value.as_utf8().map(Label::of_text);
                all(reader, rows)?.into_iter().map(|value| value.map(name).transpose()).collect::<Result<_, _>>()?
            }
            (_, kind) => return Err(ParquetError::General(format!("labels of type {kind}"))),
        })
    }

    /// The names of the classes that Hugging Face's library has put into the file.
    pub(crate) fn classes(&self) -> Option<Vec<String>> {
        let metadata = self.file.metadata().file_metadata();
        let entry = metadata.key_value_metadata()?.iter().find(|entry| entry.key == "huggingface")?;
        let object: serde_json::Value = serde_json::from_str(entry.value.as_deref()?).ok()?;
        let column = self.chunk(0, self.labels).column_path().string();
        let names = object.get("info")?.get("features")?.get(column)?.get("names")?;
        // older files have an object of numbers in place of the list
        match names {
            serde_json::Value::Array(names) => names.iter().map(|name| name.as_str().map(String::from)).collect(),
            serde_json::Value::Object(names) => {
                (0..names.len()).map(|at| names.get(&at.to_string())?.as_str().map(String::from)).collect()
            }
            _ => None,
        }
    }
}

/// All values of a column of `rows` rows, without lists.
fn all<T: DataType>(mut reader: ColumnReaderImpl<T>, rows: u64) -> Result<Vec<Option<T::T>>, ParquetError> {
    let rows = usize::try_from(rows)?;
    let (mut levels, mut values) = (Vec::new(), Vec::new());
    let (read, _, _) = reader.read_records(rows, Some(&mut levels), None, &mut values)?;
    if read != rows {
        return Err(ParquetError::General(format!("expected {rows} rows, got {read}")));
    }
    // without levels every row has a value
    let most = levels.iter().copied().max().unwrap_or(0);
    if levels.is_empty() || values.len() == rows {
        return Ok(values.into_iter().map(Some).collect());
    }
    let mut values = values.into_iter();
    Ok(levels.into_iter().map(|level| if level == most { values.next() } else { None }).collect())
}
