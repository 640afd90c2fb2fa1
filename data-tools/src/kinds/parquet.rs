//! Parquet tables of images, as Hugging Face's data sets have them: a column `image` with the files in `image.bytes`, and `label`.
//!
//! SRC is one file, or a folder of `train-00000-of-00002.parquet` and the like, itself, in `data/`, or in folders named like splits. The
//! names of the classes come from `--classes`, or from what Hugging Face's library has put into the files. Row groups are read whole, so
//! samples of a source larger than the memory allowed are mixed over some of them at a time.

use super::kind::{Kind, Open, Opened};
use super::reader::folders::{Entry, entries};
use super::reader::labels::{Classes, Label};
use super::reader::parquet;
use super::reader::row_groups::RowGroups;
use super::reader::splits;
use crate::dir;
use crate::error::Error;
use crate::options::ConvertOptions;
use crate::pool;
use crate::source::{Blocks, Sample, Source, SourceSplit, Stamp};
use loaders::Format;
use loaders::crc32c::crc32c_append;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Parquet tables of images.
pub(super) const PARQUET: Kind = Kind {
    name: "parquet",
    about: "Parquet tables with image.bytes and label (Hugging Face): a file, or a folder of train-*.parquet",
    open: Open::Files(open),
};

const HINT: &str =
    "expected a .parquet file, or a folder with train-00000-of-00001.parquet, test-00000-of-00001.parquet, ...";

/// Bytes of row groups that are kept. The order of the samples depends on it, so no option changes it.
const KEPT: u64 = 256 << 20;

/// The rows of a split, file after file.
struct Part {
    groups: Vec<Group>,
    labels: Vec<u32>,
}

/// A row group and where it lies in its split.
struct Group {
    table: usize,
    number: usize,
    start: u64,
}

struct Parquet {
    classes: Vec<String>,
    splits: Vec<SourceSplit>,
    parts: Vec<Part>,
    rows: RowGroups,
    fingerprint: u32,
}

fn open(src: &Path, options: &ConvertOptions) -> Opened {
    if options.validation_fraction.is_some() {
        let what =
            "--validation-fraction is not for parquet: `trireme data split` draws a split from what was converted";
        return Err(Error::Usage(what.into()));
    }
    let files = find(src)?;
    let tables = pool::run(files.len(), options.jobs, |i| parquet::open(&files[i].1, &options.limits))?;
    let mut labels = Vec::new();
    for table in pool::run(tables.len(), options.jobs, |i| tables[i].labels(&options.limits))? {
        labels.push(table);
    }
    let all: BTreeSet<Label> = labels.iter().flatten().cloned().collect();
    let listed = tables.iter().find_map(|table| table.classes().filter(|names| !names.is_empty()));
    let classes = Classes::of(src, options, listed, &all)?;
    let mut parts: BTreeMap<(u8, &'static str), Part> = BTreeMap::new();
    let mut crc = 0;
    for (at, table) in tables.iter().enumerate() {
        let split = files[at].0;
        let part = parts
            .entry((splits::rank(split), split))
            .or_insert_with(|| Part { groups: Vec::new(), labels: Vec::new() });
        let mut start = part.labels.len() as u64;
        for (number, &rows) in table.group_rows().iter().enumerate() {
            part.groups.push(Group { table: at, number, start });
            start += rows;
        }
        for (row, label) in labels[at].iter().enumerate() {
            let unknown = || Error::input(table.path(), format!("row {row}: {}", classes.unknown(label)));
            let label = classes.label(label).ok_or_else(unknown)?;
            crc = crc32c_append(crc, &label.to_le_bytes());
            part.labels.push(label);
        }
        let Stamp { bytes, seconds, nanoseconds } = table.stamp();
        let file = format!("{}\n{bytes}\n{seconds}\n{nanoseconds}\n", table.path().display());
        crc = crc32c_append(crc, file.as_bytes());
    }
    let splits =
        parts.iter().map(|((_, name), part)| SourceSplit { name: name.to_string(), len: part.labels.len() as u64 });
    let splits: Vec<SourceSplit> = splits.collect();
    let parts = parts.into_values().collect();
    let fingerprint = classes.names.iter().fold(crc, |crc, name| crc32c_append(crc, name.as_bytes()));
    let rows = RowGroups::new(tables, KEPT);
    Ok(Box::new(Parquet { classes: classes.names, splits, parts, rows, fingerprint }))
}

/// The files of a source with their splits, in order.
fn find(src: &Path) -> Result<Vec<(&'static str, PathBuf)>, Error> {
    if src.is_file() {
        let stem = src.file_stem().unwrap_or_default().to_string_lossy();
        return Ok(vec![(splits::of_file(&stem), src.to_path_buf())]);
    }
    dir::check(src, HINT)?;
    let mut found = Vec::new();
    add(src, None, &mut found)?;
    for Entry { name, is_dir } in entries(src)? {
        if is_dir && (name == "data" || splits::of_word(&name).is_some()) {
            add(&src.join(&name), splits::of_word(&name), &mut found)?;
        }
    }
    found.sort();
    match found.is_empty() {
        true => Err(Error::Missing { path: src.join("train-00000-of-00001.parquet"), hint: HINT.to_string() }),
        false => Ok(found),
    }
}

/// Adds the tables in a folder, which stands for a split or not.
fn add(dir: &Path, split: Option<&'static str>, found: &mut Vec<(&'static str, PathBuf)>) -> Result<(), Error> {
    for Entry { name, is_dir } in entries(dir)? {
        if let Some(stem) = name.strip_suffix(".parquet").filter(|_| !is_dir) {
            found.push((split.unwrap_or_else(|| splits::of_file(stem)), dir.join(&name)));
        }
    }
    Ok(())
}

impl Part {
    /// The row group of a row of the split, and the row's number in it.
    fn locate(&self, index: u64) -> (&Group, u64) {
        let group = &self.groups[self.groups.partition_point(|group| group.start <= index) - 1];
        (group, index - group.start)
    }
}

impl Source for Parquet {
    fn splits(&self) -> &[SourceSplit] {
        &self.splits
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn fingerprint(&self) -> Option<u32> {
        Some(self.fingerprint)
    }

    fn blocks(&self, split: usize) -> Option<Blocks> {
        let together = self.rows.together()?;
        let lengths =
            self.parts[split].groups.iter().map(|group| self.rows.table(group.table).group_rows()[group.number]);
        Some(Blocks { lengths: lengths.collect(), together })
    }

    fn place(&self, split: usize, index: u64) -> PathBuf {
        let (group, row) = self.parts[split].locate(index);
        let table = self.rows.table(group.table);
        let before: u64 = table.group_rows()[..group.number].iter().sum();
        table.path().join(format!("row {}", before + row))
    }

    fn sample(&self, split: usize, index: u64, sample: &mut Sample) -> Result<(), Error> {
        let part = &self.parts[split];
        let (group, row) = part.locate(index);
        let rows = self.rows.get(group.table, group.number)?;
        let null = || {
            Error::input(
                &self.place(split, index),
                "its image holds no bytes: save the images in the table, not paths to them",
            )
        };
        let bytes = rows.get(row as usize).and_then(Option::as_ref).ok_or_else(null)?;
        sample.encoded.clear();
        sample.encoded.extend_from_slice(bytes.data());
        // The conversion finds out format and size: see `Sample`.
        (sample.format, sample.height, sample.width, sample.channels) = (Format::Jpeg, 0, 0, 0);
        sample.label = part.labels[index as usize];
        sample.name(&self.splits[split].name, index);
        Ok(())
    }
}
