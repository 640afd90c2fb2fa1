//! RecordIO of MXNet, as `im2rec.py` and `MXIndexedRecordIO` write it: one `.rec` file, or a folder of `train.rec`, `val.rec`. Images are
//! read in place; the `.idx` and `.lst` files beside are not needed. Names of the classes come from `--classes`, or a `classes.txt`.

use super::kind::{Kind, Open, Opened};
use super::reader::classes;
use super::reader::files::Files;
use super::reader::folders::entries;
use super::reader::labels::{Classes, Label};
use super::reader::listing::{Listing, Place};
use super::reader::recordio::{self, Record};
use super::reader::splits;
use crate::dir;
use crate::error::Error;
use crate::options::ConvertOptions;
use crate::pool;
use loaders::regular;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// RecordIO.
pub(super) const RECORDIO: Kind = Kind {
    name: "recordio",
    about: "RecordIO of MXNet: a .rec file, or a folder of train.rec, val.rec",
    open: Open::Files(open),
};

const HINT: &str = "expected a .rec file of MXNet, or a folder with train.rec and, if you like, val.rec and test.rec";

fn open(src: &Path, options: &ConvertOptions) -> Opened {
    let files = find(src)?;
    let records = pool::run(files.len(), options.jobs, |i| recordio::list(&files[i]))?;
    let number = |record: &Record| Label::Number(i64::from(record.label));
    let labels: BTreeSet<Label> = records.iter().flatten().map(number).collect();
    let listed = src.join("classes.txt");
    let listed = listed.is_file().then(|| classes::read(&listed)).transpose()?;
    let classes = Classes::of(src, options, listed, &labels)?;
    let mut found: BTreeMap<(u8, &str), Listing> = BTreeMap::new();
    for (path, records) in files.iter().zip(records) {
        let split = splits::of_file(&stem(path));
        list(found.entry((splits::rank(split), split)).or_default(), path, &records, &classes)?;
    }
    let found = found.into_iter().map(|((_, split), listing)| (split.to_string(), listing)).collect();
    Ok(Box::new(Files::new(src, classes.names, found, Vec::new(), options)?))
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// The `.rec` files of a source.
fn find(src: &Path) -> Result<Vec<PathBuf>, Error> {
    if src.is_file() {
        return Ok(vec![src.to_path_buf()]);
    }
    dir::check(src, HINT)?;
    let files = entries(src)?.into_iter().filter(|entry| !entry.is_dir && entry.name.ends_with(".rec"));
    let files: Vec<PathBuf> = files.map(|entry| src.join(entry.name)).collect();
    match files.is_empty() {
        true => Err(Error::Missing { path: src.join("train.rec"), hint: HINT.to_string() }),
        false => Ok(files),
    }
}

/// Adds the records of a file to the listing of its split.
fn list(listing: &mut Listing, path: &Path, records: &[Record], classes: &Classes) -> Result<(), Error> {
    let file = Arc::new(regular::open(path).map_err(|e| Error::io("open", path, e))?);
    let place = |is_split: bool| match is_split {
        true => Place::Parts { path: path.to_path_buf(), file: file.clone() },
        false => Place::Archive { path: path.to_path_buf(), file: Some(file.clone()) },
    };
    let mut was_split = None;
    for (number, record) in records.iter().enumerate() {
        if was_split.replace(record.is_split) != Some(record.is_split) {
            listing.place(place(record.is_split));
        }
        let label = Label::Number(i64::from(record.label));
        let unknown =
            || Error::input(path, format!("record {number} at byte {}: {}", record.start, classes.unknown(&label)));
        let label = classes.label(&label).ok_or_else(unknown)?;
        listing.push(
            &format!("{}#{number}", stem(path)),
            label,
            (record.range.start, record.range.end - record.range.start),
        );
    }
    Ok(())
}
