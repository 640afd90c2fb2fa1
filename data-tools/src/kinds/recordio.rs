//! RecordIO of MXNet, as written by `im2rec.py` and `MXIndexedRecordIO`: one `.rec` file, or a folder with `train.rec`
//! and `val.rec`. Images are read in place. The `.idx` and `.lst` files are not needed. Class names come from
//! `--classes` or from `classes.txt`.

use super::reader::files::{FileSplits, Files, Listing, Place};
use super::reader::labelled::SkippedSamples;
use super::reader::labels::{Classes, Label};
use super::reader::names;
use super::reader::recordio::{self, Record};
use super::{Kind, Open, Opened};
use crate::error::Error;
use crate::options::ConvertOptions;
use crate::{pool, splits};
use loaders::regular;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) const RECORDIO: Kind = Kind {
    name: "recordio",
    about: "MXNet RecordIO: a .rec file, or a folder with train.rec and val.rec",
    open: Open::Files(open),
};

const HINT: &str = "expected a .rec file of MXNet, or a folder with train.rec and optionally val.rec and test.rec";

fn open(src: &Path, options: &ConvertOptions) -> Opened {
    let files = find(src, options)?;
    let records = pool::run(files.len(), options.jobs, |i| recordio::list(&files[i].1, &options.limits))?;
    let labels: Vec<(&str, Label)> = files
        .iter()
        .zip(&records)
        .flat_map(|((split, _), records)| {
            records.iter().filter_map(move |record| Some((split.as_str(), label(record)?)))
        })
        .collect();
    let listed = src.join("classes.txt");
    let listed = listed.is_file().then(|| names::read(&listed)).transpose()?;
    let classes = Classes::from_labels(src, options, listed, labels.iter().map(|(split, label)| (*split, label)))?;
    let mut found: BTreeMap<(u8, &str), Listing> = BTreeMap::new();
    let mut unusable = SkippedSamples::new(options.on_bad);
    for ((split, path), records) in files.iter().zip(records) {
        let listing = found.entry((splits::rank(split), split)).or_default();
        let file = RecFile { split, path, records: &records };
        file.list(listing, &classes, &mut unusable)?;
    }
    let found = found.into_iter().map(|((_, split), listing)| (split.to_string(), listing)).collect();
    Ok(Box::new(Files::new(src, classes.names, found, Vec::new(), options)?.without(unusable.lines)))
}

fn label(record: &Record) -> Option<Label> {
    record.label.as_ref().ok().map(|label| Label::Number(i64::from(*label)))
}

/// Finds a source's `.rec` files and their splits.
fn find(src: &Path, options: &ConvertOptions) -> Result<Vec<(String, PathBuf)>, Error> {
    match (FileSplits { src, ending: ".rec", plain_folders: &[], options }).find(HINT)? {
        files if files.is_empty() => Err(Error::Missing { path: src.join("train.rec"), hint: HINT.to_string() }),
        files => Ok(files),
    }
}

/// The records of a `.rec` file, and its split.
struct RecFile<'a> {
    split: &'a str,
    path: &'a Path,
    records: &'a [Record],
}

impl RecFile<'_> {
    /// Adds the records to their split's listing.
    fn list(&self, listing: &mut Listing, classes: &Classes, unusable: &mut SkippedSamples) -> Result<(), Error> {
        let path = self.path;
        let file = Arc::new(regular::open(path).map_err(|e| Error::io("open", path, e))?);
        let place = |is_split: bool| match is_split {
            true => Place::Parts { path: path.to_path_buf(), file: file.clone() },
            false => Place::Archive { path: path.to_path_buf(), file: Some(file.clone()) },
        };
        let mut was_split = None;
        for (number, record) in self.records.iter().enumerate() {
            let label = match &record.label {
                Ok(label) => classes.class_in_split(self.split, &Label::Number(i64::from(*label))),
                Err(what) => Err(what.clone()),
            };
            let label = match label {
                Ok(label) => label,
                Err(what) => {
                    unusable.add(path, &format!("record {number} at byte {}: {what}", record.start))?;
                    continue;
                }
            };
            if was_split.replace(record.is_split) != Some(record.is_split) {
                listing.place(place(record.is_split));
            }
            let name = format!("{}#{number}", stem(path));
            listing.push(&name, label, (record.range.start, record.range.end - record.range.start));
        }
        Ok(())
    }
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}
