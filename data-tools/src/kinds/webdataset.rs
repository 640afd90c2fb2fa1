//! WebDataset: tar archives in which the consecutive members of one key make a sample: `KEY.jpg` beside `KEY.cls` or `KEY.json`.
//!
//! SRC is one archive, or a folder of them; `train-*.tar`, `val-*.tar` and `test-*.tar`, or folders of these names, are splits. Archives
//! are read in place. Labels are numbers or names; names of numbers come from `--classes`, or from a `classes.txt` beside the archives.

use super::reader::files::{FileSplits, Files, Listing, Place};
use super::reader::folders::{Entry, entries};
use super::reader::labelled::Unusable;
use super::reader::labels::{Classes, Label};
use super::reader::names;
use super::reader::names::{Listed, NumberNames};
use super::reader::tar_samples::{self, Memory, Packed, TarSample};
use super::{Kind, Open, Opened};
use crate::error::Error;
use crate::options::{ConvertOptions, OnBad};
use crate::{pool, splits, text};
use std::collections::BTreeMap;
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

fn open(src: &Path, options: &ConvertOptions) -> Opened {
    let archives = find(src, options)?;
    let memory = Memory::new(options.limits, archives.iter().map(|(_, path)| path.as_path()));
    let mut packed = pool::run(archives.len(), options.jobs, |i| tar_samples::read(&archives[i].1, &memory))?;
    let mut skipped = check(&archives, &packed, options)?;
    let listed = src.join("classes.txt");
    let listed = listed.is_file().then(|| names::read(&listed)).transpose()?;
    let names = names(src, &archives, &packed)?;
    let labels = packed.iter_mut().flat_map(|packed| &mut packed.samples).flat_map(|sample| &mut sample.label.labels);
    let Listed { list: listed, notes } = names.apply(src, options, listed, labels)?;
    if listed.is_some() || options.classes.is_some() {
        name_by_text(&mut packed);
    }
    let samples =
        || archives.iter().zip(&packed).flat_map(|((split, _), p)| p.samples.iter().map(move |s| (split.as_str(), s)));
    let labels = samples().flat_map(|(split, sample)| sample.label.labels.iter().map(move |label| (split, label)));
    let several = samples().any(|(_, sample)| sample.label.is_list);
    let classes = match several {
        true => Classes::of_several(src, options, listed, &labels.map(|(_, label)| label.clone()).collect())?,
        false => Classes::of(src, options, listed, labels)?,
    };
    let (found, unusable) = list(&archives, packed, &classes, several, options)?;
    skipped.extend(unusable);
    Ok(Box::new(Files::new(src, classes.names, found, notes, options)?.without(skipped)))
}

/// Collects the class name for each label number in the samples.
fn names(src: &Path, archives: &[(String, PathBuf)], packed: &[Packed]) -> Result<NumberNames, Error> {
    let mut names = NumberNames::default();
    for ((_, path), packed) in archives.iter().zip(packed) {
        for TarSample { name: member, label, .. } in &packed.samples {
            for (number, name) in &label.names {
                names.note(src, *number, name, || format!("{member} of {}", path.display()))?;
            }
        }
    }
    Ok(names)
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

/// Returns messages for all unusable samples, or an error for the first.
fn check(archives: &[(String, PathBuf)], packed: &[Packed], options: &ConvertOptions) -> Result<Vec<String>, Error> {
    let each =
        || archives.iter().zip(packed).flat_map(|((_, path), packed)| packed.faults.iter().map(move |f| (path, f)));
    match each().next() {
        Some((path, fault)) if options.on_bad == OnBad::Fail => {
            let more = match each().count() {
                1 => String::new(),
                n => format!(" (and {} more)", n - 1),
            };
            let what = format!("{fault}{more}; pack it again, or leave such samples out by `--on-bad skip`");
            Err(Error::input(path, what))
        }
        _ => Ok(each().map(|(path, fault)| format!("{}: {fault}", path.display())).collect()),
    }
}

/// Finds a source's archives and their splits, sorted by split and name.
fn find(src: &Path, options: &ConvertOptions) -> Result<Vec<(String, PathBuf)>, Error> {
    let found = FileSplits { src, ending: ".tar", plain_folders: &[], options }.find(HINT)?;
    if !found.is_empty() {
        return Ok(found);
    }
    let endings = [".tar.gz", ".tgz", ".tar.zst", ".tar.xz", ".tar.bz2"];
    let is_packed = |entry: &Entry| !entry.is_dir && endings.iter().any(|end| entry.name.ends_with(end));
    if let Some(Entry { name, .. }) = entries(src)?.into_iter().find(is_packed) {
        let what = "it is compressed, and archives are read in place: unpack it first (`gzip -d`, `zstd -d`)";
        return Err(Error::input(&src.join(name), what));
    }
    Err(Error::Missing { path: src.join("train-000000.tar"), hint: HINT.to_string() })
}

/// The samples of each split, with the split's name.
type NamedListings = Vec<(String, Listing)>;

/// Lists each split's samples, and the skipped samples. With `several`, an image may have any number of labels.
fn list(
    archives: &[(String, PathBuf)],
    packed: Vec<Packed>,
    classes: &Classes,
    several: bool,
    options: &ConvertOptions,
) -> Result<(NamedListings, Vec<String>), Error> {
    let held = archives.len() <= HELD;
    let mut found: BTreeMap<(u8, &str), Listing> = BTreeMap::new();
    let mut unusable = Unusable::new(options.on_bad);
    for ((split, path), Packed { file, samples, .. }) in archives.iter().zip(packed) {
        let listing = found.entry((splits::rank(split), split)).or_default();
        let file: Option<Arc<File>> = held.then(|| Arc::new(file));
        listing.place(Place::Archive { path: path.clone(), file });
        for sample in samples {
            let own = sample.label.labels.iter().map(|label| classes.of_split(split, label));
            let range = (sample.range.start, sample.range.end - sample.range.start);
            match own.collect::<Result<Vec<u32>, String>>() {
                Err(what) => unusable.add(path, &format!("{}: {what}", loaders::printable(&sample.name)))?,
                Ok(own) if several => listing.push_set(&sample.name, &own, range),
                Ok(own) => listing.push(&sample.name, own[0], range),
            }
        }
    }
    let found: Vec<(String, Listing)> = found.into_iter().map(|((_, split), l)| (split.to_string(), l)).collect();
    match found.iter().find(|(_, listing)| listing.len() == 0) {
        Some((split, _)) if unusable.lines.is_empty() => {
            let first = archives.iter().find(|(of, _)| of == split).map_or(&archives[0].1, |(_, path)| path);
            Err(Error::input(first, format!("split {split} holds no sample{}; {HINT}", endings(first)?)))
        }
        _ => Ok((found, unusable.lines)),
    }
}

/// Describes the member endings in an archive without samples.
fn endings(path: &Path) -> Result<String, Error> {
    let found = tar_samples::endings(path)?;
    Ok(match found.is_empty() {
        true => String::new(),
        false => format!(": its members end in {}, not in .jpg (or .png, ...) and .cls or .json", text::first(&found)),
    })
}
