//! NumPy arrays in a `.npz` file: `x_train`, `y_train`, `x_test`, `y_test` and similar names. Images are bytes with the
//! shape (N, H, W), (N, H, W, C) or (N, C, H, W). Labels are integers with the shape (N) or (N, 1).

use super::reader::arrays::{self, Array, interleave};
use super::reader::input::Budget;
use super::reader::labelled::SkippedSamples;
use super::reader::labels::{Classes, Label};
use super::{Kind, Open, Opened};
use crate::error::Error;
use crate::options::ConvertOptions;
use crate::source::{Sample, Source, SourceSplit};
use crate::splits::{self, NameMatching, SplitAssigner, TRAIN, UnknownNames};
use loaders::Format;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub(super) const NPZ: Kind = Kind {
    name: "npz",
    about: "NumPy arrays (.npz) named x_train, y_train, x_test, y_test or similar, with images of bytes",
    open: Open::Pixels(open),
};

const HINT: &str =
    "expected a .npz with arrays such as x_train and y_train, train_images and train_labels, or images and labels";
/// Words for images and for labels in array names.
const IMAGES: &[&str] = &["x", "image", "images", "img", "imgs", "data", "arr_0"];
const LABELS: &[&str] = &["y", "label", "labels", "target", "targets", "arr_1"];

/// The order in which an array stores the axes of an image.
#[derive(Debug, Clone, Copy)]
enum Axes {
    /// Channels are the last axis.
    Interleaved,
    /// Channels are the first axis of an image.
    Planes,
}

/// Images and labels of a split.
struct Part {
    images: Array,
    height: usize,
    width: usize,
    channels: usize,
    axes: Axes,
    labels: Vec<u32>,
    /// Each image's index in the array.
    numbers: Vec<u64>,
}

struct Npz {
    path: PathBuf,
    classes: Vec<String>,
    splits: Vec<SourceSplit>,
    parts: Vec<Part>,
    notes: Vec<String>,
    skipped: Vec<String>,
}

/// A split's images and labels.
#[derive(Default)]
struct Pair {
    images: Option<Array>,
    labels: Option<Array>,
}

fn open(src: &Path, options: &ConvertOptions) -> Opened {
    let missing = |hint: String| Error::Missing { path: src.to_path_buf(), hint };
    match src.try_exists() {
        // Special files are rejected when they are opened.
        Ok(true) if !src.is_dir() => {}
        Ok(true) => {
            return Err(Error::Missing { path: src.join("arrays.npz"), hint: format!("SRC is a folder; {HINT}") });
        }
        _ => return Err(missing(HINT.to_string())),
    }
    let mut budget = Budget::new(options.limits);
    let mut pairs: BTreeMap<String, Pair> = BTreeMap::new();
    let mut others = Vec::new();
    for array in arrays::read_archive(src, &mut budget)? {
        match classify_array(&array) {
            Some((part, is_images)) => {
                let pair = pairs.entry(part.clone()).or_default();
                let (slot, name) = if is_images { (&mut pair.images, "images") } else { (&mut pair.labels, "labels") };
                if let Some(other) = slot.replace(array) {
                    let what = format!(
                        "found two arrays with the {name} of `{part}`, one of them `{}`; save the file with only one",
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
        let what = format!("no arrays of images and labels found, only {}; {HINT}", crate::text::first(&others));
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
                "`{part}` and another array both mean {split}; assign their splits with --split-map {part}=NAME"
            );
            return Err(Error::input(src, what));
        }
    }
    build(src, options, by_split)
}

/// Splits an array name into the data set part and the kind. The flag is true for images and false for labels. The part is `train` if the
/// name has no other word.
fn classify_array(array: &Array) -> Option<(String, bool)> {
    let words: Vec<&str> = array.name.split('_').collect();
    // `arr_0` is a single word.
    let words = if array.name.starts_with("arr_") { vec![array.name.as_str()] } else { words };
    let is_in = |list: &[&str], word: &str| list.contains(&word.to_lowercase().as_str());
    let (rest, part): (Vec<&str>, Vec<&str>) =
        words.into_iter().partition(|word| is_in(IMAGES, word) || is_in(LABELS, word));
    let [word] = rest.as_slice() else { return None };
    let is_images = is_in(IMAGES, word);
    let part = part.join("_");
    let is_known = part.is_empty() || splits::mentions_split(&part);
    // Arrays with other names must have the shape of images or single labels.
    let fits = if is_images { array.shape.len() > 2 } else { array.shape.len() < 3 };
    (is_known || fits).then(|| (if part.is_empty() { TRAIN.to_string() } else { part }, is_images))
}

fn build(src: &Path, options: &ConvertOptions, pairs: BTreeMap<(u8, String), Pair>) -> Opened {
    let mut found = Vec::new();
    for ((_, split), Pair { images, labels }) in pairs {
        let lacks = |what: &str| Error::input(src, format!("there is no array with the {what} of {split}; {HINT}"));
        let (images, labels) = (images.ok_or_else(|| lacks("images"))?, labels.ok_or_else(|| lacks("labels"))?);
        let numbers = labels.whole_numbers(src)?;
        let count = images.shape.first().copied().unwrap_or(0);
        if count != numbers.len() || count == 0 {
            let (i, l, n) = (&images.name, &labels.name, numbers.len());
            return Err(Error::input(
                src,
                format!("`{i}` has {count} images, but `{l}` has {n} labels; expected equal numbers above 0"),
            ));
        }
        let numbers: Vec<Label> = numbers.into_iter().map(Label::Number).collect();
        found.push((split, images, numbers));
    }
    let labels = found.iter().flat_map(|(split, _, labels)| labels.iter().map(move |label| (split.as_str(), label)));
    let classes = Classes::from_labels(src, options, None, labels)?;
    let (path, mut unusable) = (src.to_path_buf(), SkippedSamples::new(options.on_bad));
    let (splits, parts, notes, skipped) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut source = Npz { path, classes: Vec::new(), splits, parts, notes, skipped };
    for (split, images, labels) in found {
        let part = Part::new(src, images, (&split, &labels), &classes, &mut unusable)?;
        if part.labels.is_empty() {
            source.notes.push(format!("split {split} left out: none of its images can be used"));
            continue;
        }
        source.splits.push(SourceSplit { name: split, len: part.labels.len() as u64 });
        source.parts.push(part);
    }
    (source.classes, source.skipped) = (classes.names, unusable.lines);
    match source.parts.is_empty() {
        true => Err(Error::input(src, "none of the images can be used")),
        false => Ok(Box::new(source)),
    }
}

impl Part {
    fn new(
        src: &Path,
        images: Array,
        (split, all): (&str, &[Label]),
        classes: &Classes,
        unusable: &mut SkippedSamples,
    ) -> Result<Self, Error> {
        let failed = |what: String| Error::input(src, format!("`{}`: {what}", images.name));
        images.check_bytes(src)?;
        let is_depth = |n: usize| n == 1 || n == 3;
        let (height, width, channels, axes) = match images.shape[1..] {
            [h, w] => (h, w, 1, Axes::Interleaved),
            [h, w, c] if is_depth(c) => (h, w, c, Axes::Interleaved),
            [c, h, w] if is_depth(c) => (h, w, c, Axes::Planes),
            _ => {
                let expected = "(N, H, W), (N, H, W, C) or (N, C, H, W) with 1 or 3 channels C";
                return Err(failed(format!(
                    "an array of the shape {:?} cannot be images; expected {expected}",
                    images.shape
                )));
            }
        };
        if height == 0 || width == 0 || height.max(width) > u32::MAX as usize {
            return Err(failed(format!("the images have {height} x {width} pixels")));
        }
        let (mut labels, mut numbers) = (Vec::new(), Vec::new());
        for (number, label) in (0..).zip(all) {
            match classes.class_in_split(split, label) {
                Ok(label) => {
                    labels.push(label);
                    numbers.push(number);
                }
                Err(what) => unusable.add(src, &format!("`{}`: sample {number}: {what}", images.name))?,
            }
        }
        Ok(Part { height, width, channels, axes, labels, numbers, images })
    }
}

impl Source for Npz {
    fn splits(&self) -> &[SourceSplit] {
        &self.splits
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn skipped(&self) -> &[String] {
        &self.skipped
    }

    fn sample(&self, split: usize, index: u64, sample: &mut Sample) -> Result<(), Error> {
        let Part { images, height, width, channels, axes, labels, numbers } = &self.parts[split];
        let (size, number) = (height * width * channels, numbers[index as usize]);
        let at = number * size as u64;
        let failed = |e| Error::io("read", &self.path, e);
        match axes {
            Axes::Interleaved => images.read(at, size, &mut sample.encoded).map_err(failed)?,
            Axes::Planes => {
                let mut planes = Vec::new();
                images.read(at, size, &mut planes).map_err(failed)?;
                interleave(&planes, *channels, &mut sample.encoded);
            }
        }
        sample.format = Format::Raw;
        (sample.height, sample.width, sample.channels) = (*height as u32, *width as u32, *channels as u32);
        sample.label = labels[index as usize];
        sample.name(&images.name, number);
        Ok(())
    }
}
