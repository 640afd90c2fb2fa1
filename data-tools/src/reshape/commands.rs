//! The commands that make a data set from existing ones. Each command decides which records go where.

use std::collections::BTreeMap;
use std::path::Path;

use loaders::LabelKind;
use loaders::dataset::MANIFEST;

use super::write::{ReshapeOptions, ReshapePlan, ReshapeSummary, SourceDataset, Target, write};
use crate::error::Error;
use crate::splits::draw;

/// Creates a plan for one data set that keeps its classes.
fn plan(set: SourceDataset, targets: Vec<Target>, keeps_mean: bool) -> ReshapePlan {
    let (classes, label_offset) = (set.manifest.classes.clone(), set.manifest.label_offset);
    let (multi_label, numbers) = (set.manifest.multi_label, set.manifest.targets.clone());
    ReshapePlan { sets: vec![set], targets, classes, multi_label, numbers, label_offset, keeps_mean }
}

/// Writes the data set in `dir` to `out` with a different number of shards. With `shuffle`, the samples of each split
/// are shuffled with the seed. Otherwise their order is kept.
///
/// # Errors
///
/// Returns an error if the data set cannot be read, a record is damaged, `out` is not empty, or the disk is full. `out`
/// is then unchanged.
pub fn reshard(dir: &Path, out: &Path, shuffle: bool, options: &ReshapeOptions) -> Result<ReshapeSummary, Error> {
    let set = SourceDataset::open(dir)?;
    let whole = |(at, split): (usize, &loaders::Split)| Target::from_split(split.name(), 0, at, split.len(), |_| true);
    let mut targets: Vec<Target> = set.splits.iter().enumerate().map(whole).collect();
    targets.retain(|target| !target.picks.is_empty());
    if shuffle {
        targets.iter_mut().for_each(|target| target.shuffle(options.seed));
    }
    write(&plan(set, targets, true), out, options)
}

/// Merges data sets into one at `out` and shuffles its samples. Splits with the same name are combined, and so are
/// classes with the same name. The classes of the first data set come first, followed by the new classes of each
/// further one.
///
/// # Errors
///
/// Returns the same errors as [`reshard`]. Also returns an error for fewer than two data sets, or if grey and colour
/// images are mixed.
pub fn merge(dirs: &[&Path], out: &Path, options: &ReshapeOptions) -> Result<ReshapeSummary, Error> {
    if dirs.len() < 2 {
        return Err(Error::Usage("expected two or more data sets to merge".into()));
    }
    let mut sets = dirs.iter().map(|dir| SourceDataset::open(dir)).collect::<Result<Vec<SourceDataset>, _>>()?;
    check_same_labels(dirs, &sets)?;
    let (multi_label, numbers) = (sets[0].manifest.multi_label, sets[0].manifest.targets.clone());
    check_distinct_names(dirs, &sets)?;
    check_same_bands(dirs, &sets)?;
    let note = reading_note(dirs, &sets);
    let mut classes: Vec<String> = Vec::new();
    let mut labels: BTreeMap<String, i64> = BTreeMap::new();
    let same = sets.iter().all(|set| set.manifest.classes == sets[0].manifest.classes);
    if same {
        classes.clone_from(&sets[0].manifest.classes);
    }
    for name in sets.iter().flat_map(|set| &set.manifest.classes).filter(|_| !same) {
        if !labels.contains_key(name) {
            labels.insert(name.clone(), classes.len() as i64);
            classes.push(name.clone());
        }
    }
    // If all sets have the same offset, keep it, so that records can stay unchanged.
    let offset = sets[0].manifest.label_offset;
    let label_offset = if sets.iter().all(|set| set.manifest.label_offset == offset) { offset } else { 0 };
    for set in &mut sets {
        let number = |(at, name): (i64, &String)| if same { at } else { labels[name] } + label_offset;
        set.labels = (0..).zip(&set.manifest.classes).map(number).collect();
    }
    let mut targets: BTreeMap<String, Target> = BTreeMap::new();
    for (number, set) in sets.iter().enumerate() {
        for (at, split) in set.splits.iter().enumerate() {
            let part = Target::from_split(split.name(), number, at, split.len(), |_| true);
            let all = targets.entry(part.name.clone()).or_insert_with(|| Target { name: part.name, picks: Vec::new() });
            all.picks.extend(part.picks);
        }
    }
    let mut targets: Vec<Target> = targets.into_values().filter(|target| !target.picks.is_empty()).collect();
    targets.iter_mut().for_each(|target| target.shuffle(options.seed));
    let plan = ReshapePlan { sets, targets, classes, multi_label, numbers, label_offset, keeps_mean: false };
    let mut made = write(&plan, out, options)?;
    made.note = note.into_iter().chain(made.note).reduce(|all, next| format!("{all}; {next}"));
    Ok(made)
}

/// Rejects a data set with two equally named classes, because merging would combine them. Accepts it if all sets have the same class list.
fn check_distinct_names(dirs: &[&Path], sets: &[SourceDataset]) -> Result<(), Error> {
    if sets.iter().all(|set| set.manifest.classes == sets[0].manifest.classes) {
        return Ok(());
    }
    for (dir, set) in dirs.iter().zip(sets) {
        let mut seen = BTreeMap::new();
        for (number, name) in set.manifest.classes.iter().enumerate() {
            if let Some(first) = seen.insert(name, number) {
                let what = format!(
                    "classes {first} and {number} are both named `{}`, and merging would combine them; use different names in `classes` \
                     of dataset.json",
                    base::text::printable(name)
                );
                return Err(Error::input(&dir.join(MANIFEST), what));
            }
        }
    }
    Ok(())
}

/// Returns an error unless all data sets agree in value type, band count, band names and nodata value.
fn check_same_bands(dirs: &[&Path], sets: &[SourceDataset]) -> Result<(), Error> {
    let kind = |set: &SourceDataset| {
        let bands = &set.manifest.bands;
        let channels = bands.channels.filter(|_| bands.need_version());
        // NaN equals nothing, so this compares texts.
        let nodata = bands.nodata.map_or("no nodata value".into(), |nodata| format!("nodata value {nodata}"));
        (bands.need_version(), bands.dtype, channels, bands.names.clone(), nodata)
    };
    let word = |set: &SourceDataset| {
        let (has_bands, dtype, channels, names, nodata) = kind(set);
        let images = match has_bands {
            true if names.is_empty() => format!("{} of {dtype}", base::text::plural(channels.unwrap_or(0), "band")),
            true => format!("{dtype} bands {}", crate::text::first(&names)),
            false => "grey or RGB images of bytes".to_string(),
        };
        format!("{images}, {nodata}")
    };
    match sets.iter().position(|set| kind(set) != kind(&sets[0])) {
        None => Ok(()),
        Some(other) => {
            let what = format!("found {}, but {} has {}", word(&sets[other]), dirs[0].display(), word(&sets[0]));
            Err(Error::input(&dirs[other].join(MANIFEST), what))
        }
    }
}

/// Returns a note if the files of the data sets were read with different options. The records are right, but `predict`
/// reads files with the options of the first data set.
fn reading_note(dirs: &[&Path], sets: &[SourceDataset]) -> Option<String> {
    let options = |set: &SourceDataset| (set.manifest.bands.reading.clone(), set.manifest.bands.to_8bit);
    let is_same = sets.iter().all(|set| options(set) == options(&sets[0]));
    (!is_same).then(|| {
        format!(
            "the data sets were converted with different options for reading files; dataset.json keeps those of {}, and `predict` reads \
             all files in this way",
            crate::text::path(dirs[0])
        )
    })
}

/// Returns an error if the data sets have different label kinds or different targets.
fn check_same_labels(dirs: &[&Path], sets: &[SourceDataset]) -> Result<(), Error> {
    let names = |set: &SourceDataset| set.manifest.targets.iter().map(|target| target.name.clone()).collect::<Vec<_>>();
    let kind = |set: &SourceDataset| (set.manifest.label_kind(), names(set));
    let Some(other) = sets.iter().position(|set| kind(set) != kind(&sets[0])) else { return Ok(()) };
    Err(Error::Usage(format!(
        "images of {} {}, but images of {} {}; convert both with the same kind of labels",
        dirs[0].display(),
        label_words(&sets[0]),
        dirs[other].display(),
        label_words(&sets[other])
    )))
}

fn label_words(set: &SourceDataset) -> String {
    match set.manifest.label_kind() {
        LabelKind::OneClass => "have one label each".into(),
        LabelKind::Classes => "may have several labels".into(),
        LabelKind::Numbers => {
            let names: Vec<&str> = set.manifest.targets.iter().map(|target| target.name.as_str()).collect();
            format!("have the numbers {}", base::text::printable(&names.join(", ")))
        }
    }
}

/// Returns an error if `share` counts images per class but images may have multiple classes.
fn check_share(share: Share, dir: &Path, set: &SourceDataset) -> Result<(), Error> {
    match share {
        Share::PerClass(_) if set.manifest.label_kind() != LabelKind::OneClass => Err(Error::Usage(format!(
            "images of {} {}, so a number of images per class is not possible; use a fraction instead",
            dir.display(),
            label_words(set)
        ))),
        _ => Ok(()),
    }
}

/// Writes the data set in `dir` to `out` with a new split `into`. The new split gets a random share of each class of
/// the split `from`, but at least one image of each class stays. If images may have multiple labels, the share is drawn
/// from all images together.
///
/// # Errors
///
/// Returns the same errors as [`reshard`]. Also returns an error if `from` does not exist, `into` already exists, or
/// the share is less than one image.
pub fn split(
    dir: &Path,
    out: &Path,
    from: &str,
    into: &str,
    share: Share,
    options: &ReshapeOptions,
) -> Result<ReshapeSummary, Error> {
    share.check()?;
    let set = SourceDataset::open(dir)?;
    check_share(share, dir, &set)?;
    let number = set.find(dir, from)?;
    check_new(dir, &set, into)?;
    let wanted = |count: u64| share.count_of(count).min(count.saturating_sub(1));
    let drawn = draw(&set.classes_of(number, options.jobs)?, set.manifest.classes.len().max(1), wanted, options.seed);
    let mut targets = Vec::new();
    for (at, split) in set.splits.iter().enumerate() {
        let stays = |id: u64| at != number || !drawn[id as usize];
        targets.push(Target::from_split(split.name(), 0, at, split.len(), stays));
    }
    targets.push(Target::from_split(into, 0, number, set.splits[number].len(), |id| drawn[id as usize]));
    targets.retain(|target| target.name == into || !target.picks.is_empty());
    let keeps_mean = from != "train" && into != "train";
    write(&plan(set, targets, keeps_mean), out, options)
}

/// Returns an error if a split with this name exists, or if the name is not valid in a file name.
fn check_new(dir: &Path, set: &SourceDataset, name: &str) -> Result<(), Error> {
    if set.manifest.splits.contains_key(name) {
        return Err(Error::Usage(format!("{} already has a split `{name}`; choose another name", dir.display())));
    }
    let fits = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    match fits {
        true => Ok(()),
        false => Err(Error::Usage(format!("`{name}` is not a valid split name; use letters, digits and _"))),
    }
}

/// Writes a random share of each class of each split to `out`, but at least one image of each class. If images do not
/// have exactly one class each, the share is drawn from all images of a split together.
///
/// # Errors
///
/// Returns the same errors as [`reshard`], but damaged records that are not drawn may go unnoticed. Also returns an
/// error if the fraction is not between 0 and 1, if the number per class is 0, or if a number per class is given although
/// images do not have exactly one class each.
pub fn sample(dir: &Path, out: &Path, share: Share, options: &ReshapeOptions) -> Result<ReshapeSummary, Error> {
    share.check()?;
    let set = SourceDataset::open(dir)?;
    check_share(share, dir, &set)?;
    let mut targets = Vec::new();
    for (at, split) in set.splits.iter().enumerate() {
        let wanted = |count: u64| share.count_of(count).max(1);
        let drawn = draw(&set.classes_of(at, options.jobs)?, set.manifest.classes.len().max(1), wanted, options.seed);
        targets.push(Target::from_split(split.name(), 0, at, split.len(), |id| drawn[id as usize]));
    }
    targets.retain(|target| !target.picks.is_empty());
    write(&plan(set, targets, false), out, options)
}

/// How many samples to take per class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Share {
    /// This fraction of the samples, rounded to the nearest number. Between 0 and 1, exclusive.
    Fraction(f64),
    /// This number of samples, or all if the class has fewer.
    PerClass(u64),
}

impl Share {
    /// Returns an error if the fraction is not between 0 and 1 or the number is 0.
    pub(super) fn check(self) -> Result<(), Error> {
        match self {
            Share::Fraction(share) if !(share > 0.0 && share < 1.0) => {
                Err(Error::Usage(format!("fraction {share} requested; expected a number above 0 and below 1")))
            }
            Share::PerClass(0) => Err(Error::Usage("0 images of each class requested; expected at least 1".into())),
            _ => Ok(()),
        }
    }

    /// Returns the number of samples to take from `count`.
    pub(super) fn count_of(self, count: u64) -> u64 {
        match self {
            Share::Fraction(share) => (count as f64 * share).round() as u64,
            Share::PerClass(most) => most.min(count),
        }
    }
}
