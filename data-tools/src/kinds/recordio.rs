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
use std::path::Path;
use std::sync::Arc;

pub(super) const RECORDIO: Kind = Kind {
    name: "recordio",
    about: "MXNet RecordIO: a .rec file, or a folder with train.rec and val.rec",
    open: Open::Files(open),
};

const HINT: &str = "expected a .rec file of MXNet, or a folder with train.rec and optionally val.rec and test.rec";

fn open(src: &Path, options: &ConvertOptions) -> Opened {
    let files = FileSplits { src, ending: ".rec", plain_folders: &[], options }.find_some("train.rec", HINT)?;
    let records = pool::run(files.len(), options.jobs, |i| recordio::list(&files[i].1, &options.limits))?;
    let labels: Vec<(&str, Label)> = files
        .iter()
        .zip(&records)
        .flat_map(|((split, _), records)| {
            records.iter().filter_map(move |record| Some((split.as_str(), label(record).ok()?)))
        })
        .collect();
    let listed = names::beside(src)?;
    let classes =
        Classes::from_labels(src, options, listed, false, labels.iter().map(|(split, label)| (*split, label)))?;
    let mut found: BTreeMap<(u8, &str), Listing> = BTreeMap::new();
    let mut unusable = SkippedSamples::new(options.on_bad);
    for ((split, path), records) in files.iter().zip(records) {
        let listing = found.entry((splits::rank(split), split)).or_default();
        list(listing, (split, path), &records, &classes, &mut unusable)?;
    }
    let found = found.into_iter().map(|((_, split), listing)| (split.to_string(), listing)).collect();
    Ok(Box::new(Files::new(src, classes.names, found, Vec::new(), options)?.with_skipped(unusable.lines)))
}

fn label(record: &Record) -> Result<Label, String> {
    record.label.clone().map(|label| Label::Number(i64::from(label)))
}

/// Adds the records of the file at `path` to the listing of its split.
fn list(
    listing: &mut Listing,
    (split, path): (&str, &Path),
    records: &[Record],
    classes: &Classes,
    unusable: &mut SkippedSamples,
) -> Result<(), Error> {
    let file = Arc::new(regular::open(path).map_err(|e| Error::io("open", path, e))?);
    let place = |is_split: bool| match is_split {
        true => Place::Parts { path: path.to_path_buf(), file: file.clone() },
        false => Place::Archive { path: path.to_path_buf(), file: Some(file.clone()) },
    };
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let mut was_split = None;
    for (number, record) in records.iter().enumerate() {
        let label = match label(record).and_then(|label| classes.class_in_split(split, &label)) {
            Ok(label) => label,
            Err(what) => {
                unusable.add(path, &format!("record {number} at byte {}: {what}", record.start))?;
                continue;
            }
        };
        if was_split.replace(record.is_split) != Some(record.is_split) {
            listing.place(place(record.is_split));
        }
        let range = (record.range.start, record.range.end - record.range.start);
        listing.push(&format!("{stem}#{number}"), label, range);
    }
    Ok(())
}
