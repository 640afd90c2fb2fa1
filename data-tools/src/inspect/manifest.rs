//! Makes a `dataset.json` from scanned shards, or compares an existing one with them.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use base::text::printable;
use loaders::dataset::{MANIFEST, VERSION};
use loaders::{Dtype, Example, Format, LabelKind, Manifest, ShardManifest, SplitManifest, regular};

use super::shard_files::ShardFile;
use super::walk::{Position, RecordName, ScannedShard};
use crate::error::Error;
use crate::image::moments::Moments;
use crate::options::OnBad;
use crate::raw::values::Values;
use crate::source::MAX_CLASS;
use crate::splits::TRAIN;
use crate::text;

/// Makes the manifest from the scanned shards: splits, classes, mean and standard deviation. `cure` is the advice for data
/// sets whose classes or targets are only in an existing manifest.
pub(super) fn make(
    dir: &Path,
    shards: &[ShardFile],
    scanned: &[ScannedShard],
    names: Option<NameList>,
    cure: &str,
) -> Result<Manifest, Error> {
    one_label(dir, shards, scanned, cure)?;
    let (classes, label_offset) = make_classes(dir, shards, scanned, names)?;
    let mut total = Moments::default();
    let mut splits: BTreeMap<String, SplitManifest> = BTreeMap::new();
    for (shard, scanned) in shards.iter().zip(scanned) {
        total.merge_shard(&scanned.moments, &dir.join(&shard.file))?;
        let count = scanned.entries.len() as u64;
        let split = splits.entry(shard.split.clone()).or_default();
        split.count += count;
        split.shards.push(ShardManifest { file: shard.file.clone(), count, bytes: scanned.bytes });
    }
    let (mean, std) = total.finish();
    Ok(Manifest { version: VERSION, classes, label_offset, mean, std, splits, ..Manifest::default() })
}

/// Returns an error if an image's type or band count differs from `dataset.json`, or if a value is NaN or infinite.
pub(super) fn check_bands(example: &Example<'_>, manifest: &Manifest) -> Result<(), String> {
    let bands = &manifest.bands;
    if !bands.need_version() && example.dtype == Dtype::U8 {
        return Ok(());
    }
    let (dtype, channels) = (bands.dtype, bands.channels.unwrap_or(example.channels));
    if example.format != Format::Raw || (example.dtype, example.channels) != (dtype, channels) {
        return Err(format!(
            "the image has {} of {} ({}), but according to dataset.json all images have {channels} of {dtype} (RAW)",
            text::plural(example.channels.into(), "band"),
            example.dtype,
            example.format
        ));
    }
    let values = Values::of(example);
    let count = example.encoded.len() / dtype.bytes();
    match (0..count).find(|&index| dtype == Dtype::F32 && !values.at(example.encoded, index).is_finite()) {
        Some(index) => {
            Err(format!("value {index} of the image is {}; expected finite numbers", values.at(example.encoded, index)))
        }
        None => Ok(()),
    }
}

/// Returns an error if a record has zero or multiple labels, or has targets. In this case only the original
/// `dataset.json` can tell which classes or targets exist.
fn one_label(dir: &Path, shards: &[ShardFile], scanned: &[ScannedShard], cure: &str) -> Result<(), Error> {
    let several = shards.iter().zip(scanned).find_map(|(shard, scanned)| Some((shard, scanned.several?)));
    let Some((shard, at)) = several else { return Ok(()) };
    let what = format!("an image without a label, with more than one label, or with numbers; {cure}");
    Err(at.error(&dir.join(&shard.file), what))
}

/// A list with class names, found next to the shards.
pub(super) struct NameList {
    file: &'static str,
    names: Vec<String>,
}

/// Reads the class names stored next to the shards, if `dir` has such a file. TensorFlow Datasets writes `label.labels.txt` with names.
/// TF-slim writes `labels.txt` with `0:name` on each line.
pub(super) fn class_names(dir: &Path) -> Result<Option<NameList>, Error> {
    let read = |file| match regular::read_to_string(&dir.join(file)) {
        Ok(text) => {
            Ok(Some(text::without_mark(&text).lines().filter(|line| !line.is_empty()).map(String::from).collect()))
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io("read", &dir.join(file), e)),
    };
    if let Some(names) = read("label.labels.txt")? {
        return Ok(Some(NameList { file: "label.labels.txt", names }));
    }
    let Some(lines): Option<Vec<String>> = read("labels.txt")? else { return Ok(None) };
    let numbered = lines.iter().enumerate().map(|(at, line)| {
        let (number, name) = line.split_once(':')?;
        (number.trim().parse() == Ok(at)).then(|| name.trim().to_string())
    });
    // A `labels.txt` in any other format is unrelated.
    Ok(numbered
        .collect::<Option<Vec<String>>>()
        .filter(|names| !names.is_empty())
        .map(|names| NameList { file: "labels.txt", names }))
}

/// Determines class names and label offset from all labels in the shards and from a list of names, if there is one.
fn make_classes(
    dir: &Path,
    shards: &[ShardFile],
    scanned: &[ScannedShard],
    listed: Option<NameList>,
) -> Result<(Vec<String>, i64), Error> {
    let names = names_by_label(dir, shards, scanned)?;
    let (Some(&lowest), Some(&highest)) = (names.keys().next(), names.keys().next_back()) else {
        return Err(Error::input(dir, "the shards contain no records"));
    };
    if let Some(NameList { file, names: list }) = listed {
        if highest >= list.len() as i64 {
            let what = format!(
                "the highest label is {highest}, but {file} has only {} names; does it belong to this data set?",
                list.len()
            );
            return Err(Error::input(dir, what));
        }
        for (label, found) in &names {
            let (Some((shard, name)), Some(own)) = (found, usize::try_from(*label).ok().and_then(|at| list.get(at)))
            else {
                continue;
            };
            if name.text != *own && list.contains(&name.text) {
                let what = format!(
                    "label {label} is the class `{}` (image/class/text), but `{}` in {file}; correct one of them",
                    printable(&name.text),
                    printable(own)
                );
                return Err(name.at.error(&dir.join(&shard.file), what));
            }
        }
        let is_background = lowest == 1 && list.first().is_some_and(|name| name == "background");
        return Ok(if is_background { (list[1..].to_vec(), 1) } else { (list, 0) });
    }
    // TensorFlow's ImageNet scripts label from 1. A lowest label above 1 only means that class 0 has no samples.
    let offset = i64::from(lowest == 1);
    let named = |label| names.get(&label).and_then(Option::as_ref).map(|(_, name)| name);
    let texts = (offset..=highest).map(|label| match named(label) {
        Some(name) if !name.text.is_empty() => name.text.clone(),
        _ => label.to_string(),
    });
    let texts: Vec<String> = texts.collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    texts.iter().for_each(|text| *counts.entry(text).or_default() += 1);
    // Classes with equal names (ImageNet has two `crane` classes) get their synset as a prefix or their label as a
    // suffix.
    let classes =
        (offset..).zip(&texts).map(|(label, text)| match named(label).map_or("", |name| name.synset.as_str()) {
            _ if counts[text.as_str()] == 1 => text.clone(),
            "" => format!("{text} ({label})"),
            synset => format!("{synset} {text}"),
        });
    Ok((classes.collect(), offset))
}

/// The name that a shard's record assigns to its label, if it has a name.
type Name<'a> = Option<(&'a ShardFile, RecordName)>;

/// Returns the labels in use, each with the first name found. Returns an error if a label is not a valid class or two
/// records give it different names.
fn names_by_label<'a>(
    dir: &Path,
    shards: &'a [ShardFile],
    scanned: &[ScannedShard],
) -> Result<BTreeMap<i64, Name<'a>>, Error> {
    let mut names: BTreeMap<i64, Name<'a>> = BTreeMap::new();
    for (shard, scanned) in shards.iter().zip(scanned) {
        let path = dir.join(&shard.file);
        for (&label, seen) in &scanned.labels {
            if !(0..=MAX_CLASS).contains(&label) {
                let what = format!("label {label}; expected a class from 0 to {MAX_CLASS} in image/class/label");
                return Err(seen.first.error(&path, what));
            }
            let first = names.entry(label).or_default();
            for name in seen.name.iter().chain(&seen.other) {
                match first {
                    None => *first = Some((shard, name.clone())),
                    Some((_, first)) if first.is_same(&name.text, &name.synset) => {
                        // Merge the names of both records, because either may lack a field.
                        let fill = |own: &mut String, other: &String| {
                            if own.is_empty() {
                                own.clone_from(other)
                            }
                        };
                        fill(&mut first.text, &name.text);
                        fill(&mut first.synset, &name.synset);
                    }
                    Some((other, first)) => {
                        let of = |name: &RecordName| {
                            format!("`{}` {}", printable(&name.text), printable(&name.synset)).trim_end().to_string()
                        };
                        let what = format!(
                            "label {label} is the class {}, but {} in record {} at byte {} of {}; use the same class numbers in all \
                             records",
                            of(name),
                            of(first),
                            first.at.record,
                            first.at.offset,
                            other.file
                        );
                        return Err(name.at.error(&path, what));
                    }
                }
            }
        }
    }
    Ok(names)
}

/// Rejects labels that `train` lacks, if there is a `train` split. No model could learn them, or the splits use different numbering. With
/// [`OnBad::Skip`] this only adds a note.
pub(super) fn missing_in_train(
    dir: &Path,
    shards: &[ShardFile],
    scanned: &[ScannedShard],
    on_bad: OnBad,
) -> Result<Vec<String>, Error> {
    let mut by_split: BTreeMap<&str, BTreeMap<i64, (u64, &ShardFile, Position)>> = BTreeMap::new();
    for (shard, scanned) in shards.iter().zip(scanned) {
        let labels = by_split.entry(&shard.split).or_default();
        for (&label, seen) in &scanned.labels {
            labels.entry(label).or_insert((0, shard, seen.first)).0 += seen.count;
        }
    }
    let Some(train) = by_split.get(TRAIN).filter(|train| !train.is_empty()) else { return Ok(Vec::new()) };
    let range = |labels: &BTreeMap<i64, _>| {
        let ends = labels.keys().next().zip(labels.keys().next_back());
        ends.map_or_else(String::new, |(first, last)| format!("{first} to {last}"))
    };
    let mut notes = Vec::new();
    for (split, labels) in by_split.iter().filter(|(split, _)| **split != TRAIN) {
        let missing: Vec<_> = labels.iter().filter(|(label, _)| !train.contains_key(*label)).collect();
        let Some((label, (count, shard, at))) = missing.first() else { continue };
        let what = format!(
            "label {label} ({} of {split}): train has no such label{}; train has labels {}, {split} {}",
            text::plural(*count, "record"),
            if missing.len() > 1 {
                format!(", nor {}", text::plural(missing.len() as u64 - 1, "other"))
            } else {
                String::new()
            },
            range(train),
            range(labels)
        );
        if on_bad == OnBad::Fail {
            let cure = "use the same class numbers in all splits, or continue with `--on-bad skip`";
            return Err(at.error(&dir.join(&shard.file), format!("{what}: {cure}")));
        }
        notes.push(what);
    }
    Ok(notes)
}

/// Returns an error if the counts in `dataset.json` differ from the scanned shards.
pub(super) fn compare(dir: &Path, manifest: &Manifest, scanned: &[ScannedShard]) -> Result<(), Error> {
    let listed = manifest.splits.values().flat_map(|s| &s.shards);
    for (listed, found) in listed.zip(scanned) {
        let count = found.entries.len() as u64;
        if (listed.count, listed.bytes) != (count, found.bytes) {
            return Err(Error::input(
                &dir.join(MANIFEST),
                format!(
                    "lists {} records and {} bytes for {}, but the shard has {count} and {}; fetch the shard again, or remove \
                     dataset.json so that it is written again",
                    listed.count, listed.bytes, listed.file, found.bytes
                ),
            ));
        }
    }
    Ok(())
}

/// Returns a record's value for each target. Empty if the labels are classes.
pub(super) fn targets(example: &Example<'_>, manifest: &Manifest) -> Result<Vec<f32>, String> {
    let found: Vec<f32> = match manifest.label_kind() {
        LabelKind::Numbers => example.targets.values().collect(),
        _ => return Ok(Vec::new()),
    };
    let expected = manifest.targets.len();
    if found.len() != expected {
        return Err(format!(
            "{} numbers in image/targets; expected {expected} (`targets` in dataset.json)",
            found.len()
        ));
    }
    match found.iter().zip(&manifest.targets).find(|(value, _)| !value.is_finite()) {
        Some((value, target)) => Err(format!("the target `{}` is {value}", printable(&target.name))),
        None => Ok(found),
    }
}

/// Returns a record's classes in ascending order without duplicates. For a single-label data set this is exactly one
/// class. Empty if the labels are numbers. An error states the valid labels.
pub(super) fn classes(example: &Example<'_>, manifest: &Manifest) -> Result<Vec<usize>, String> {
    if manifest.label_kind() == LabelKind::Numbers {
        return targets(example, manifest).map(|_| Vec::new());
    }
    if !example.labels.is_list() {
        return Ok(vec![class(example.label, manifest)?]);
    }
    if !manifest.multi_label {
        let count = example.labels.iter().count();
        return Err(format!("{count} labels; expected one, because `multi_label` is not set in dataset.json"));
    }
    let classes: Result<Vec<usize>, String> = example.labels.iter().map(|label| class(label, manifest)).collect();
    let mut classes = classes?;
    classes.sort_unstable();
    classes.dedup();
    Ok(classes)
}

/// Rejects a record that carries the name for a class other than its label's class. Unknown names are accepted because classes may have
/// been renamed.
pub(super) fn check_name(example: &Example<'_>, classes: &[usize], manifest: &Manifest) -> Result<(), String> {
    let [class] = classes else { return Ok(()) };
    let named = |class: &String| class == example.text || without_synset(class) == example.text;
    if example.text.is_empty() || named(&manifest.classes[*class]) {
        return Ok(());
    }
    match manifest.classes.iter().position(named) {
        None => Ok(()),
        Some(other) => Err(format!(
            "the label {} is the class `{}` in dataset.json, but image/class/text is `{}`, which is class {other} there",
            example.label,
            printable(&manifest.classes[*class]),
            printable(example.text)
        )),
    }
}

/// Removes the WordNet id from a class name such as `n02012849 crane`.
fn without_synset(class: &str) -> &str {
    class.split_once(' ').filter(|(id, _)| text::is_wnid(id)).map_or(class, |(_, name)| name)
}

fn class(label: i64, manifest: &Manifest) -> Result<usize, String> {
    let first = i128::from(manifest.label_offset);
    let end = first + manifest.classes.len() as i128;
    let stored = i128::from(label);
    if (first..end).contains(&stored) {
        return Ok((stored - first) as usize);
    }
    Err(format!(
        "label {label} is out of range; expected {first} to {}; check `classes` and `label_offset` in dataset.json",
        end - 1
    ))
}
