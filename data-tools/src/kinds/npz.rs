//! Arrays in a `.npz` file, in a folder of `.npy` files or in an HDF5 file: `x_train`, `y_train`, `x_test`, `y_test` and
//! similar names. Images have the shape (N, H, W), (N, H, W, C) or (N, C, H, W), in uint8, uint16, int16 or float32. Labels
//! are integers with the shape (N) or (N, 1), or with `--targets` numbers with the shape (N, targets).

use super::reader::arrays::{self, Array};
use super::reader::input::Budget;
use super::reader::labelled::SkippedSamples;
use super::reader::labels::{Classes, Label};
use super::{Kind, Open, Opened};
use crate::dir;
use crate::error::Error;
use crate::options::ConvertOptions;
use crate::raw::Page;
use crate::raw::hdf5::{Described, Hdf5File};
use crate::raw::layout::Axes;
use crate::raw::npy::StoredType;
use crate::source::{Blocks, Sample, Source, SourceInfo};
use crate::splits::{self, NameMatching, SplitAssigner, TRAIN, UnknownNames};
use loaders::Format;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) const NPZ: Kind = Kind {
    name: "npz",
    about: "NumPy arrays named x_train, y_train, x_test, y_test or similar: a .npz, or a folder of .npy files",
    open: Open::Pixels(open_npz),
};

pub(super) const HDF5: Kind = Kind {
    name: "hdf5",
    about: "arrays of an HDF5 or NetCDF-4 file, named as for npz, or by --images and --labels",
    open: Open::Pixels(open_hdf5),
};

const HINT: &str = "expected arrays such as x_train and y_train, train_images and train_labels, or images and labels";
/// Maximum number of values in a group of compressed chunks. Samples of an HDF5 file are shuffled within such groups. A
/// group fits in the 64 MiB cache of the process that reads HDF5 files.
const GROUP_VALUES: usize = 8 << 20;
/// Words for images and for labels in array names.
const IMAGES: &[&str] = &["x", "image", "images", "img", "imgs", "data", "arr_0"];
const LABELS: &[&str] = &["y", "label", "labels", "target", "targets", "arr_1"];

/// The usable images and the labels of a split.
struct Part {
    images: Array,
    stored: StoredType,
    axes: Axes,
    labels: Vec<u32>,
    /// The targets of all usable images, one image after the other. Empty if images have classes.
    targets: Vec<f32>,
    /// The index of each usable image in the array.
    numbers: Vec<u64>,
}

struct Npz {
    path: PathBuf,
    info: SourceInfo,
    parts: Vec<Part>,
}

#[derive(Default)]
struct Pair {
    images: Option<Array>,
    labels: Option<Array>,
}

fn open_npz(src: &Path, options: &ConvertOptions) -> Opened {
    if let Some(images) = &options.bands.images {
        return Err(Error::Usage(format!(
            "--images {images} applies to HDF5 files; name the arrays x_train, y_train, ..."
        )));
    }
    check_page(options)?;
    let mut budget = Budget::new(options.limits);
    if !src.is_dir() {
        dir::check_file(src, "arrays", HINT)?;
        return open(src, options, arrays::read_archive(src, &mut budget, has_known_word)?);
    }
    let mut found = Vec::new();
    for entry in dir::entries(src)? {
        // Files with other names are not opened, so they need not be readable.
        if !entry.is_dir && entry.name.strip_suffix(".npy").is_some_and(has_known_word) {
            found.push(arrays::open_npy(&src.join(entry.name), &mut budget)?);
        }
    }
    match found.is_empty() {
        true => Err(Error::missing(src.join("x_train.npy"), format!("SRC is a folder; {HINT}"))),
        false => open(src, options, (found, Vec::new())),
    }
}

fn open_hdf5(src: &Path, options: &ConvertOptions) -> Opened {
    check_page(options)?;
    dir::check_file(src, "arrays", HINT)?;
    let file = Arc::new(Hdf5File::open(src)?);
    let labels = options.labels.as_ref().map(|name| name.to_string_lossy());
    let all = arrays::of_hdf5(&file);
    if options.bands.images.is_none() && labels.is_none() {
        return open(src, options, (all, Vec::new()));
    }
    let is_image = |array: &Described| (3..=4).contains(&array.shape.len()) && StoredType::parse(&array.descr).is_ok();
    let has_targets = !options.targets.is_empty();
    let is_float = |array: &Described| array.descr.contains('f');
    let is_label = |array: &Described| array.shape.len() < 3 && is_float(array) == has_targets;
    let images = file.array(options.bands.images.as_deref(), "images", is_image)?;
    let labels = file.array(labels.as_deref(), "labels", is_label)?;
    let (mut pair, all) = (Pair::default(), all.into_iter().enumerate());
    for (number, array) in all {
        match number {
            _ if number == images => pair.images = Some(array),
            _ if number == labels => pair.labels = Some(array),
            _ => {}
        }
    }
    build(src, options, [((splits::rank(TRAIN), TRAIN.to_string()), pair)].into())
}

/// Returns an error if the options choose a page, which arrays do not have.
fn check_page(options: &ConvertOptions) -> Result<(), Error> {
    match options.bands.page == Page::default() {
        true => Ok(()),
        false => Err(Error::Usage("--page applies to TIFF files; use --images or --split-map to choose arrays".into())),
    }
}

/// Finds each split's images and labels by the array names. `others` has the names of arrays that were not read.
fn open(src: &Path, options: &ConvertOptions, (arrays, mut others): (Vec<Array>, Vec<String>)) -> Opened {
    let mut pairs: BTreeMap<String, Pair> = BTreeMap::new();
    for array in arrays {
        match classify_array(&array) {
            Some((part, is_images)) => {
                let pair = pairs.entry(part.clone()).or_default();
                let (slot, name) = if is_images { (&mut pair.images, "images") } else { (&mut pair.labels, "labels") };
                let found = array.name.clone();
                if let Some(other) = slot.replace(array) {
                    let what = format!(
                        "found two arrays with the {name} of `{part}`, `{}` and `{found}`; save the file with only one of them",
                        other.name
                    );
                    return Err(Error::input(src, what));
                }
            }
            None => others.push(array.name),
        }
    }
    // An unknown name counts as a split only if it has both images and labels. This excludes arrays such as
    // `image_ids`.
    pairs.retain(|part, pair| {
        part == TRAIN || splits::mentions_split(part) || pair.images.is_some() && pair.labels.is_some()
    });
    if pairs.is_empty() {
        let what = match others.is_empty() {
            true => format!("no arrays of images and labels found; {HINT}"),
            false => format!("no arrays of images and labels found, only {}; {HINT}", crate::text::first(&others)),
        };
        return Err(Error::input(src, what));
    }
    let names: Vec<&str> = pairs.keys().map(String::as_str).collect();
    let assign = SplitAssigner { src, map: &options.split_map, names: NameMatching::Loose, unknown: UnknownNames::Own };
    let assigned = assign.splits(&names)?;
    let mut by_split: BTreeMap<(u8, String), Pair> = BTreeMap::new();
    for (split, (part, pair)) in assigned.into_iter().zip(pairs) {
        let Some(split) = split else { continue };
        if by_split.insert((splits::rank(&split), split.clone()), pair).is_some() {
            let what = format!(
                "the arrays of `{part}` and of another name both mean the split {split}; choose another split with --split-map {part}=NAME"
            );
            return Err(Error::input(src, what));
        }
    }
    build(src, options, by_split)
}

/// Returns the data split that an array's name states, and true for images or false for labels. The split is `train` if
/// the name has no other word. Returns `None` if the array has neither images nor labels.
fn classify_array(array: &Array) -> Option<(String, bool)> {
    let (rest, part): (Vec<&str>, Vec<&str>) =
        words(&array.name).into_iter().partition(|word| is_in(IMAGES, word) || is_in(LABELS, word));
    let [word] = rest.as_slice() else { return None };
    let is_images = is_in(IMAGES, word);
    let part = part.join("_");
    let is_known = part.is_empty() || splits::mentions_split(&part);
    // An array with an unknown word in its name only counts if it has the shape of images, or of one label per image.
    let fits = if is_images { array.shape.len() > 2 } else { array.shape.len() < 3 };
    (is_known || fits).then(|| (if part.is_empty() { TRAIN.to_string() } else { part }, is_images))
}

fn words(name: &str) -> Vec<&str> {
    // `arr_0` is a single word.
    if name.starts_with("arr_") { vec![name] } else { name.split('_').collect() }
}

fn is_in(list: &[&str], word: &str) -> bool {
    list.contains(&word.to_lowercase().as_str())
}

/// Returns true if an array with this name can have images or labels.
fn has_known_word(name: &str) -> bool {
    words(name).into_iter().any(|word| is_in(IMAGES, word) || is_in(LABELS, word))
}

fn build(src: &Path, options: &ConvertOptions, pairs: BTreeMap<(u8, String), Pair>) -> Opened {
    let mut found = Vec::new();
    for ((_, split), Pair { images, labels }) in pairs {
        let lacks = |what: &str| Error::input(src, format!("there is no array with the {what} of {split}; {HINT}"));
        let (images, labels) = (images.ok_or_else(|| lacks("images"))?, labels.ok_or_else(|| lacks("labels"))?);
        let columns = options.targets.len();
        let (numbers, targets) = match columns {
            0 => (labels.whole_numbers(src)?, Vec::new()),
            _ => (Vec::new(), labels.numbers(src, columns)?),
        };
        let rows = numbers.len() + targets.len() / columns.max(1);
        let count = images.shape.first().copied().unwrap_or(0);
        if count != rows || count == 0 {
            let (i, l, n) = (&images.name, &labels.name, rows);
            return Err(Error::input(
                src,
                format!("`{i}` has {count} images, but `{l}` has {n} labels; expected equal numbers above 0"),
            ));
        }
        let numbers: Vec<Label> = numbers.into_iter().map(Label::Number).collect();
        found.push((split, images, numbers, targets));
    }
    let labels = found.iter().flat_map(|(split, _, labels, _)| labels.iter().map(move |label| (split.as_str(), label)));
    let classes = Classes::from_labels(src, options, None, false, labels)?;
    let mut unusable = SkippedSamples::new(options.on_bad);
    let info = SourceInfo { targets: options.targets.clone(), ..SourceInfo::default() };
    let mut source = Npz { path: src.to_path_buf(), info, parts: Vec::new() };
    for (split, images, labels, targets) in found {
        let mut part = Part::new(src, images, options)?;
        part.choose((&split, &labels), &targets, (src, &classes), options, &mut unusable)?;
        if source.info.add_split(&split, part.numbers.len(), "images") {
            source.parts.push(part);
        }
    }
    (source.info.classes, source.info.skipped) = (classes.names, unusable.lines);
    match source.parts.is_empty() {
        true => Err(Error::input(src, "none of the images can be used")),
        false => Ok(Box::new(source)),
    }
}

impl Part {
    fn new(src: &Path, images: Array, options: &ConvertOptions) -> Result<Self, Error> {
        let failed = |what: String| Error::input(src, format!("`{}`: {what}", images.name));
        let stored = StoredType::parse(&images.descr).map_err(failed)?;
        let axes = Axes::find(images.shape.get(1..).unwrap_or(&[]), options.bands.layout).map_err(failed)?;
        images.check_limits(src, axes, &options.limits)?;
        Ok(Part { images, stored, axes, labels: Vec::new(), targets: Vec::new(), numbers: Vec::new() })
    }

    /// Adds the images with a usable label, or with finite targets if `all_targets` is not empty.
    fn choose(
        &mut self,
        (split, all): (&str, &[Label]),
        all_targets: &[f32],
        (src, classes): (&Path, &Classes),
        options: &ConvertOptions,
        unusable: &mut SkippedSamples,
    ) -> Result<(), Error> {
        for (number, label) in (0..).zip(all) {
            match classes.class_in_split(split, label) {
                Ok(label) => {
                    self.labels.push(label);
                    self.numbers.push(number);
                }
                Err(what) => unusable.add(src, &format!("`{}`: sample {number}: {what}", self.images.name))?,
            }
        }
        for (number, row) in (0..).zip(all_targets.chunks_exact(options.targets.len().max(1))) {
            match row.iter().zip(&options.targets).find(|(value, _)| !value.is_finite()) {
                None => {
                    self.targets.extend_from_slice(row);
                    self.numbers.push(number);
                }
                Some((value, name)) => unusable.add(
                    src,
                    &format!(
                        "`{}`: sample {number}: target `{name}`: expected a finite number, got {value}",
                        self.images.name
                    ),
                )?,
            }
        }
        Ok(())
    }
}

impl Source for Npz {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn sample(&self, split: usize, index: u64, sample: &mut Sample) -> Result<(), Error> {
        let Part { images, stored, axes, labels, targets, numbers } = &self.parts[split];
        let number = numbers[index as usize];
        images.image(&self.path, number, *axes, *stored, &mut sample.encoded)?;
        (sample.format, sample.dtype) = (Format::Raw, stored.dtype);
        (sample.height, sample.width, sample.channels) = (axes.height as u32, axes.width as u32, axes.bands as u32);
        match self.info.targets.len() {
            0 => sample.label = labels[index as usize],
            width => sample.targets.set(targets[index as usize * width..][..width].iter().copied()),
        }
        sample.name(&images.name, number);
        Ok(())
    }

    fn blocks(&self, split: usize) -> Option<Blocks> {
        let Part { images, numbers, .. } = &self.parts[split];
        let (rows, values) = images.group()?;
        let mut lengths = vec![0];
        let mut last = numbers.first()? / rows as u64;
        for group in numbers.iter().map(|number| number / rows as u64) {
            if group != last {
                lengths.push(0);
            }
            last = group;
            *lengths.last_mut()? += 1;
        }
        Some(Blocks { lengths, together: (GROUP_VALUES / values.max(1)).max(1) })
    }
}
