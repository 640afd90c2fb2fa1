//! Writes Parquet tables. The columns contain text or numbers, and values may be missing.

use std::fs::File;
use std::sync::Arc;

use parquet::basic::{ConvertedType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int64Type};
use parquet::errors::Result;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;

/// A column's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    Text,
    Integer,
    Double,
    Float,
}

/// A column's values. `None` is a missing value.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    Texts(Vec<Option<String>>),
    Integers(Vec<Option<i64>>),
    Doubles(Vec<Option<f64>>),
    Floats(Vec<Option<f32>>),
}

/// A table that is written group by group. Equal values give equal bytes.
pub struct ParquetTable(SerializedFileWriter<File>);

impl ParquetTable {
    /// Creates a table with these columns in a new file.
    ///
    /// # Errors
    ///
    /// Returns a message if the file cannot be written.
    pub fn new(file: File, columns: &[(String, Column)]) -> std::result::Result<Self, String> {
        let field = |(name, column): &(String, Column)| {
            let (physical, converted) = match column {
                Column::Text => (Physical::BYTE_ARRAY, ConvertedType::UTF8),
                Column::Integer => (Physical::INT64, ConvertedType::NONE),
                Column::Double => (Physical::DOUBLE, ConvertedType::NONE),
                Column::Float => (Physical::FLOAT, ConvertedType::NONE),
            };
            let field = Type::primitive_type_builder(name, physical).with_converted_type(converted);
            field.with_repetition(Repetition::OPTIONAL).build().map(Arc::new)
        };
        let made = || {
            let fields = columns.iter().map(field).collect::<Result<Vec<_>>>()?;
            let schema = Type::group_type_builder("predictions").with_fields(fields).build()?;
            SerializedFileWriter::new(file, Arc::new(schema), Arc::new(WriterProperties::default()))
        };
        made().map(Self).map_err(|e| e.to_string())
    }

    /// Appends a row group, given the values for each column.
    ///
    /// # Errors
    ///
    /// Returns a message if the file cannot be written.
    pub fn add(&mut self, columns: &[Values]) -> std::result::Result<(), String> {
        let mut add = || -> Result<()> {
            let mut group = self.0.next_row_group()?;
            for values in columns {
                match values {
                    Values::Texts(all) => {
                        let texts = all.iter().map(|text| text.as_deref().map(ByteArray::from)).collect();
                        put::<ByteArrayType>(&mut group, texts)?;
                    }
                    Values::Integers(all) => put::<Int64Type>(&mut group, all.clone())?,
                    Values::Doubles(all) => put::<DoubleType>(&mut group, all.clone())?,
                    Values::Floats(all) => put::<FloatType>(&mut group, all.clone())?,
                }
            }
            group.close().map(drop)
        };
        add().map_err(|e| e.to_string())
    }

    /// Completes the file.
    ///
    /// # Errors
    ///
    /// Returns a message if the file cannot be written.
    pub fn finish(self) -> std::result::Result<(), String> {
        self.0.close().map(drop).map_err(|e| e.to_string())
    }
}

/// Writes the next column in a row group.
fn put<T: DataType>(group: &mut SerializedRowGroupWriter<'_, File>, values: Vec<Option<T::T>>) -> Result<()> {
    let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    let known: Vec<T::T> = values.into_iter().flatten().collect();
    if let Some(mut column) = group.next_column()? {
        column.typed::<T>().write_batch(&known, Some(&levels), None)?;
        column.close()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;
    use support::program::Folder;

    #[test]
    fn rows_come_back() {
        let folder = Folder::new();
        let path = folder.path().join("table.parquet");
        let columns = [("name", Column::Text), ("n", Column::Integer), ("p", Column::Double), ("x", Column::Float)];
        let columns = columns.map(|(name, column)| (name.to_string(), column));
        let values = |from: i64| {
            [
                Values::Texts(vec![Some(format!("a, \"{from}\"")), None]),
                Values::Integers(vec![Some(from), Some(-from)]),
                Values::Doubles(vec![None, Some(0.1)]),
                Values::Floats(vec![Some(1.5), None]),
            ]
        };
        let mut table = ParquetTable::new(File::create(&path).unwrap(), &columns).unwrap();
        table.add(&values(1)).unwrap();
        table.add(&values(2)).unwrap();
        table.finish().unwrap();
        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(|row| row.unwrap()).collect();
        assert_eq!((rows.len(), reader.num_row_groups()), (4, 2));
        assert_eq!((rows[2].get_string(0).unwrap().as_str(), rows[3].get_long(1).unwrap()), ("a, \"2\"", -2));
        assert_eq!((rows[1].get_double(2).unwrap(), rows[0].get_float(3).unwrap()), (0.1, 1.5));
        assert!(rows[0].get_double(2).is_err() && rows[1].get_string(0).is_err(), "missing values");
    }
}
