//! Parquet tables of images, as in Hugging Face's data sets: the column `image` contains files in `image.bytes`, and
//! `label` contains the class. With `--targets`, other columns contain numbers.
//!
//! SRC is one file, or a folder with files such as `train-00000-of-00002.parquet`. The files may also be in `data/` or
//! in folders named like splits. Class names come from `--classes` or from the metadata that Hugging Face's library
//! writes. Row groups are read as a whole. If a source does not fit in the memory limit, samples are only shuffled
//! within a few row groups at a time.

use super::reader::files::FileSplits;
use super::reader::labelled::SkippedSamples;
use super::reader::labels::{Classes, Label, NamedClasses, NumberNames};
use super::reader::names;
use super::reader::parquet::{self, RowGroups, Table};
use super::reader::table::target;
use super::{Kind, Open, Opened};
use crate::error::Error;
use crate::options::ConvertOptions;
use crate::source::{Blocks, Sample, Source, SourceInfo, Stamp};
use crate::{pool, splits};
use base::text::printable;
use loaders::Format;
use loaders::crc32c::crc32c_append;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub(super) const PARQUET: Kind = Kind {
    name: "parquet",
    about: "Parquet tables with image.bytes and label (Hugging Face): a file, or a folder of train-*.parquet",
    open: Open::Files(open),
};

const HINT: &str =
    "expected a .parquet file, or a folder with train-00000-of-00001.parquet, test-00000-of-00001.parquet, ...";

/// Bytes of row groups that are kept in memory. The order of the samples depends on it, so it is not an option.
const KEPT: u64 = 256 << 20;

/// The usable rows in a split, in file order.
#[derive(Default)]
struct Part {
    groups: Vec<Group>,
    /// The class of each usable row. 0 if there are targets.
    labels: Vec<u32>,
    /// The numbers of all usable rows, row after row. Empty without targets.
    targets: Vec<f32>,
    /// For each usable row, its index in its file.
    rows: Vec<u64>,
}

/// A row group with usable rows. `start` is the index, within the split, of its first usable row.
struct Group {
    table: usize,
    number: usize,
    start: u64,
}

struct Parquet {
    info: SourceInfo,
    parts: Vec<Part>,
    rows: RowGroups,
    fingerprint: u32,
}

fn open(src: &Path, options: &ConvertOptions) -> Opened {
    if options.validation_fraction.is_some() {
        let what = "--validation-fraction does not apply to parquet; draw the split after the conversion with `trireme data split`";
        return Err(Error::Usage(what.into()));
    }
    let files = FileSplits { src, ending: ".parquet", plain_folders: &["data"], options };
    let files = files.find_some("train-00000-of-00001.parquet", HINT)?;
    let tables =
        pool::run(files.len(), options.jobs, |i| parquet::open(&files[i].1, &options.targets, &options.limits))?;
    let mut labels = pool::run(tables.len(), options.jobs, |i| tables[i].labels())?;
    let (listed, notes) = name(src, options, &tables, &mut labels)?;
    let all = files
        .iter()
        .zip(&labels)
        .flat_map(|((split, _), labels)| labels.iter().flatten().map(move |l| (split.as_str(), l)));
    let classes = Classes::from_labels(src, options, listed, false, all)?;
    let mut parts: BTreeMap<(u8, &str), Part> = BTreeMap::new();
    let (mut unusable, mut crc) = (SkippedSamples::new(options.on_bad), 0);
    for (at, (table, labels)) in tables.iter().zip(&labels).enumerate() {
        let targets = table.targets()?;
        let split = files[at].0.as_str();
        let part = parts.entry((splits::rank(split), split)).or_default();
        let mut rows = 0..;
        for (number, &count) in table.rows.iter().enumerate() {
            part.groups.push(Group { table: at, number, start: part.labels.len() as u64 });
            for row in rows.by_ref().take(count as usize) {
                let found = match labels.get(row) {
                    _ if !options.targets.is_empty() => numbers(&options.targets, &targets, row).map(|row| (0, row)),
                    Some(Some(label)) => classes.class_in_split(split, label).map(|label| (label, Vec::new())),
                    _ => Err("the label is null".to_string()),
                };
                match found {
                    Ok((label, numbers)) => {
                        crc = crc32c_append(crc, &label.to_le_bytes());
                        crc = numbers.iter().fold(crc, |crc, number| crc32c_append(crc, &number.to_le_bytes()));
                        part.labels.push(label);
                        part.targets.extend(numbers);
                        part.rows.push(row as u64);
                    }
                    Err(what) => unusable.add(&table.path, &format!("row {row}: {what}"))?,
                }
            }
            // Skip row groups without usable rows.
            part.groups.pop_if(|group| group.start == part.labels.len() as u64);
        }
        let Stamp { bytes, seconds, nanoseconds } = table.stamp;
        let file = format!("{}\n{bytes}\n{seconds}\n{nanoseconds}\n", table.path.display());
        crc = crc32c_append(crc, file.as_bytes());
    }
    let (splits, targets) = (Vec::new(), options.targets.clone());
    let mut info = SourceInfo { splits, classes: classes.names, targets, notes, skipped: unusable.lines };
    let names = info.classes.iter().chain(&info.targets);
    let fingerprint = names.fold(crc, |crc, name| crc32c_append(crc, name.as_bytes()));
    let is_used = |((_, split), part): &((u8, &str), Part)| info.add_split(split, part.labels.len(), "rows");
    let parts: Vec<Part> = parts.into_iter().filter(is_used).map(|(_, part)| part).collect();
    match parts.is_empty() {
        true => Err(Error::input(src, "none of the rows can be used")),
        false => Ok(Box::new(Parquet { info, parts, rows: RowGroups::new(tables, KEPT), fingerprint })),
    }
}

/// Returns a row's numbers, or a message that names the first column without a usable number.
fn numbers(names: &[String], columns: &[Vec<Option<f64>>], row: usize) -> Result<Vec<f32>, String> {
    let number = |(name, column): (&String, &Vec<Option<f64>>)| {
        let number = column.get(row).copied().flatten().ok_or("the number is null".to_string()).and_then(target);
        number.map_err(|what| format!("column `{}`: {what}", printable(name)))
    };
    names.iter().zip(columns).map(number).collect()
}

/// Replaces label numbers with the names listed in each file, unless `--classes` renames the classes in all files.
/// Returns all names, in the first file's order, and the notes to print. Returns an error if the files' lists differ
/// and another file has numbers without a list.
fn name(
    src: &Path,
    options: &ConvertOptions,
    tables: &[Table],
    labels: &mut [Vec<Option<Label>>],
) -> Result<(Option<Vec<String>>, Vec<String>), Error> {
    let lists: Vec<Option<BTreeMap<i64, String>>> = tables.iter().map(own_names).collect();
    let Some(first) = lists.iter().position(Option::is_some) else { return name_by_row(src, options, tables, labels) };
    let same = &lists[first];
    let differs = lists.iter().position(|list| list.is_some() && list != same);
    let without = lists.iter().zip(labels.iter()).position(|(list, labels)| {
        list.is_none() && labels.iter().flatten().any(|label| matches!(label, Label::Number(_)))
    });
    if let (Some(other), Some(without)) = (differs, without) {
        let what = format!(
            "the metadata has no class names for the label numbers, and the names in {} and {} differ; add class names to this file too",
            tables[first].path.display(),
            tables[other].path.display()
        );
        return Err(Error::input(&tables[without].path, what));
    }
    let given = options.classes.as_deref().map(names::read).transpose()?;
    if let (Some(given), Some(names), None) = (&given, same, differs)
        && given.len() == names.len()
        && names::first_moved(names, given).is_none()
    {
        return Ok((None, names::rename_note(names, given).into_iter().collect()));
    }
    let mut all: Vec<String> = Vec::new();
    for (list, labels) in lists.iter().zip(labels) {
        let Some(list) = list.as_ref().or(same.as_ref()) else { continue };
        let known: BTreeSet<&String> = all.iter().collect();
        let added: Vec<String> = list.values().filter(|name| !known.contains(name)).cloned().collect();
        all.extend(added);
        for label in labels.iter_mut().flatten() {
            if let Label::Number(number) = *label {
                // A number past the end of this file's list is not a class, even if another file names it.
                *label = list.get(&number).map_or(Label::Outside(number), |name| Label::Name(name.clone()));
            }
        }
    }
    names::check(src, &all)?;
    Ok((Some(all), Vec::new()))
}

/// Works like [`name`], for files without a list. Takes the names from a column next to the label numbers.
fn name_by_row(
    src: &Path,
    options: &ConvertOptions,
    tables: &[Table],
    labels: &mut [Vec<Option<Label>>],
) -> Result<(Option<Vec<String>>, Vec<String>), Error> {
    let mut names = NumberNames::default();
    for (table, labels) in tables.iter().zip(labels.iter()) {
        for (row, (label, name)) in labels.iter().zip(table.names()?).enumerate() {
            if let (Some(Label::Number(number)), Some(Label::Name(name))) = (label, name) {
                names.note(src, *number, &name, || format!("row {row} of {}", table.path.display()))?;
            }
        }
    }
    let NamedClasses { list, notes } = names.apply(src, options, None, labels.iter_mut().flatten().flatten())?;
    Ok((list, notes))
}

/// Returns the class names in a file's metadata, by number.
fn own_names(table: &Table) -> Option<BTreeMap<i64, String>> {
    let names = table.classes().filter(|names| !names.is_empty())?;
    Some(names::unique((0..).zip(names.iter().map(String::as_str))))
}

impl Part {
    /// Returns the row group that contains a row, and the row's index in its file.
    fn locate(&self, index: u64) -> (&Group, u64) {
        let group = &self.groups[self.groups.partition_point(|group| group.start <= index) - 1];
        (group, self.rows[index as usize])
    }

    /// Returns the number of usable rows in each row group.
    fn lengths(&self) -> Vec<u64> {
        let ends = self.groups.iter().skip(1).map(|group| group.start).chain([self.labels.len() as u64]);
        ends.zip(&self.groups).map(|(end, group)| end - group.start).collect()
    }
}

impl Source for Parquet {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn fingerprint(&self) -> Option<u32> {
        Some(self.fingerprint)
    }

    fn blocks(&self, split: usize) -> Option<Blocks> {
        let together = self.rows.together()?;
        Some(Blocks { lengths: self.parts[split].lengths(), together })
    }

    fn bytes(&self) -> Option<u64> {
        Some(self.rows.bytes())
    }

    fn place(&self, split: usize, index: u64) -> PathBuf {
        let (group, row) = self.parts[split].locate(index);
        self.rows.tables[group.table].path.join(format!("row {row}"))
    }

    fn sample(&self, split: usize, index: u64, sample: &mut Sample) -> Result<(), Error> {
        let part = &self.parts[split];
        let (group, row) = part.locate(index);
        let rows = self.rows.get(group.table, group.number)?;
        let null = || {
            Error::input(
                &self.place(split, index),
                "the image has no bytes; store the images in the table, not paths to them",
            )
        };
        let before: u64 = self.rows.tables[group.table].rows[..group.number].iter().sum();
        let bytes = rows.get((row - before) as usize).and_then(Option::as_ref).ok_or_else(null)?;
        sample.encoded.clear();
        sample.encoded.extend_from_slice(bytes.data());
        // The conversion detects format and size. See `Sample`.
        (sample.format, sample.height, sample.width, sample.channels) = (Format::Jpeg, 0, 0, 0);
        sample.label = part.labels[index as usize];
        let width = self.info.targets.len();
        if width > 0 {
            sample.targets.set(part.targets[index as usize * width..][..width].iter().copied());
        }
        sample.name(&self.info.splits[split].name, index);
        Ok(())
    }
}
