//! WebDataset: tar archives in which the consecutive members of one key make a sample: `KEY.jpg` beside `KEY.cls` or `KEY.json`.
//!
//! SRC is one archive, or a folder of them; `train-*.tar`, `val-*.tar` and `test-*.tar`, or folders of these names, are splits. Archives
//! are read in place. Labels are numbers or names; names of numbers come from `--classes`, or from a `classes.txt` beside the archives.

use super::kind::{Kind, Open, Opened};
use super::reader::classes;
use super::reader::files::Files;
use super::reader::folders::{Entry, entries};
use super::reader::labels::{Classes, Label};
use super::reader::listing::{Listing, Place};
use super::reader::splits;
use super::reader::tar_samples::{self, Packed};
use crate::dir;
use crate::error::Error;
use crate::options::{ConvertOptions, OnBad};
use crate::pool;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// WebDataset.
pub(super) const WEBDATASET: Kind = Kind {
    name: "webdataset",
    about: "tar archives of KEY.jpg beside KEY.cls or KEY.json: one, or a folder of train-*.tar, val-*.tar",
    open: Open::Files(open),
};

const HINT: &str = "expected a tar archive, or a folder of them: train-000000.tar, val-000000.tar, ...";
/// The most archives that are held open.
const HELD: usize = 256;

/// An archive and the split that its name stands for.
struct Archive {
    path: PathBuf,
    split: &'static str,
}

fn open(src: &Path, options: &ConvertOptions) -> Opened {
    let archives = find(src)?;
    let mut packed = pool::run(archives.len(), options.jobs, |i| tar_samples::read(&archives[i].path))?;
    let notes = check(&archives, &packed, options)?;
    let listed = src.join("classes.txt");
    let listed = listed.is_file().then(|| classes::read(&listed)).transpose()?;
    if listed.is_some() || options.classes.is_some() {
        name_by_text(&mut packed);
    }
    let samples = || packed.iter().flat_map(|p| &p.samples);
    let labels: BTreeSet<Label> = samples().flat_map(|s| &s.label.labels).cloned().collect();
    let several = samples().any(|s| s.label.is_list);
    let classes = Classes::of(src, options, listed, &labels)?;
    let found = list(&archives, packed, &classes, several)?;
    Ok(Box::new(Files::new(src, classes.names, found, notes, options)?))
}

/// Where one label of those that stand alone is a name, all are: a class of the list may be called `5`.
fn name_by_text(packed: &mut [Packed]) {
    let alone = |packed: &mut [Packed], each: &mut dyn FnMut(&mut Label)| {
        let samples = packed.iter_mut().flat_map(|packed| &mut packed.samples).filter(|sample| !sample.label.is_list);
        samples.flat_map(|sample| &mut sample.label.labels).for_each(each);
    };
    let mut named = false;
    alone(packed, &mut |label| named |= matches!(label, Label::Name(_)));
    if named {
        alone(packed, &mut Label::name);
    }
}

/// Notes or refuses samples that cannot be used.
fn check(archives: &[Archive], packed: &[Packed], options: &ConvertOptions) -> Result<Vec<String>, Error> {
    let each = || {
        archives.iter().zip(packed).flat_map(|(archive, packed)| packed.faults.iter().map(move |f| (&archive.path, f)))
    };
    match each().next() {
        Some((path, fault)) if options.on_bad == OnBad::Fail => {
            let more = match each().count() {
                1 => String::new(),
                n => format!(" (and {} more)", n - 1),
            };
            let what = format!("{fault}{more}; pack it again, or leave such samples out by `--on-bad skip`");
            Err(Error::input(path, what))
        }
        _ => Ok(each().map(|(path, fault)| format!("left out: {}: {fault}", path.display())).collect()),
    }
}

/// The archives of a source, in order of their splits and names.
fn find(src: &Path) -> Result<Vec<Archive>, Error> {
    if src.is_file() {
        let stem = src.file_stem().unwrap_or_default().to_string_lossy();
        return Ok(vec![Archive { path: src.to_path_buf(), split: splits::of_file(&stem) }]);
    }
    dir::check(src, HINT)?;
    let mut found = Vec::new();
    for Entry { name, is_dir } in entries(src)? {
        match splits::of_word(&name).filter(|_| is_dir) {
            Some(split) => {
                let inner = entries(&src.join(&name))?.into_iter().filter(|e| !e.is_dir && e.name.ends_with(".tar"));
                found.extend(inner.map(|e| Archive { path: src.join(&name).join(e.name), split }));
            }
            None => found.extend(name.strip_suffix(".tar").filter(|_| !is_dir).map(|stem| {
                let split = splits::of_file(stem);
                Archive { path: src.join(&name), split }
            })),
        }
    }
    found.sort_by(|a, b| (splits::rank(a.split), &a.path).cmp(&(splits::rank(b.split), &b.path)));
    match found.is_empty() {
        true => Err(Error::Missing { path: src.join("train-000000.tar"), hint: HINT.to_string() }),
        false => Ok(found),
    }
}

/// The samples of each split; with `several`, images may have several labels, or none.
fn list(
    archives: &[Archive],
    packed: Vec<Packed>,
    classes: &Classes,
    several: bool,
) -> Result<Vec<(String, Listing)>, Error> {
    let held = archives.len() <= HELD;
    let mut found: BTreeMap<(u8, &str), Listing> = BTreeMap::new();
    for (Archive { path, split }, Packed { file, samples, .. }) in archives.iter().zip(packed) {
        let listing = found.entry((splits::rank(split), split)).or_default();
        let file: Option<Arc<File>> = held.then(|| Arc::new(file));
        listing.place(Place::Archive { path: path.clone(), file });
        for sample in samples {
            let unknown = |label| Error::input(path, format!("{}: {}", sample.name, classes.unknown(label)));
            let class = |label| classes.label(label).ok_or_else(|| unknown(label));
            let own = sample.label.labels.iter().map(class).collect::<Result<Vec<u32>, Error>>()?;
            let range = (sample.range.start, sample.range.end - sample.range.start);
            match several {
                true => listing.push_set(&sample.name, &own, range),
                false => listing.push(&sample.name, own[0], range),
            }
        }
    }
    let found: Vec<(String, Listing)> = found.into_iter().map(|((_, split), l)| (split.to_string(), l)).collect();
    match found.iter().find(|(_, listing)| listing.len() == 0) {
        Some((split, _)) => Err(Error::input(&archives[0].path, format!("split {split} holds no sample; {HINT}"))),
        None => Ok(found),
    }
}
