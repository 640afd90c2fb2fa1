//! Arrays of NumPy: `x_train`, `y_train`, `x_test`, `y_test` and the like in a `.npz` file; images are bytes (N, H, W), (N, H, W, C) or
//! (N, C, H, W), labels whole numbers (N) or (N, 1).

use super::kind::{Kind, Open, Opened};
use super::reader::budget::Budget;
use super::reader::labels::{Classes, Label};
use super::reader::npy::{self, Array};
use super::reader::planes::interleave;
use super::reader::splits;
use crate::error::Error;
use crate::options::ConvertOptions;
use crate::source::{Sample, Source, SourceSplit};
use loaders::Format;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Arrays of NumPy.
pub(super) const NPZ: Kind = Kind {
    name: "npz",
    about: "arrays of NumPy (.npz): x_train, y_train, x_test, y_test and the like, images of bytes",
    open: Open::Pixels(open),
};

const HINT: &str =
    "expected a .npz with arrays such as x_train and y_train, train_images and train_labels, or images and labels";
/// Words for images and for labels in the names of arrays.
const IMAGES: &[&str] = &["x", "image", "images", "img", "imgs", "data", "arr_0"];
const LABELS: &[&str] = &["y", "label", "labels", "target", "targets", "arr_1"];

/// How the axes of images stand in memory.
#[derive(Debug, Clone, Copy)]
enum Axes {
    /// Row, column, channel.
    Interleaved,
    /// Channel, row, column.
    Planes,
}

/// The images of one split.
struct Part {
    images: Array,
    height: usize,
    width: usize,
    channels: usize,
    axes: Axes,
    labels: Vec<u32>,
}

struct Npz {
    path: PathBuf,
    classes: Vec<String>,
    splits: Vec<SourceSplit>,
    parts: Vec<Part>,
}

/// The two arrays of a split.
#[derive(Default)]
struct Pair {
    images: Option<Array>,
    labels: Option<Array>,
}

fn open(src: &Path, options: &ConvertOptions) -> Opened {
    let missing = |hint: String| Error::Missing { path: src.to_path_buf(), hint };
    match src.try_exists() {
        // what is neither a file nor a folder is refused when it is opened
        Ok(true) if !src.is_dir() => {}
        Ok(true) => {
            return Err(Error::Missing { path: src.join("arrays.npz"), hint: format!("it is a folder, {HINT}") });
        }
        _ => return Err(missing(HINT.to_string())),
    }
    let mut budget = Budget::new(options.limits);
    let mut pairs: BTreeMap<(u8, &'static str), Pair> = BTreeMap::new();
    let mut others = Vec::new();
    for array in npy::read_archive(src, &mut budget)? {
        match place(&array.name) {
            Some((split, is_images)) => {
                let pair = pairs.entry((splits::rank(split), split)).or_default();
                let (slot, name) = if is_images { (&mut pair.images, "images") } else { (&mut pair.labels, "labels") };
                if let Some(other) = slot.replace(array) {
                    let what =
                        format!("holds two arrays of the {name} of {split}, one is `{}`; save it with one", other.name);
                    return Err(Error::input(src, what));
                }
            }
            None => others.push(array.name),
        }
    }
    if pairs.is_empty() {
        let what = format!("holds no array of images and labels, but {}; {HINT}", crate::text::first(&others));
        return Err(Error::input(src, what));
    }
    build(src, options, pairs)
}

/// The split of an array by its name, and whether it holds the images.
fn place(name: &str) -> Option<(&'static str, bool)> {
    let lower = name.to_lowercase();
    let words: Vec<&str> = lower.split('_').collect();
    let split = words.iter().find_map(|word| splits::of_word(word));
    let rest: Vec<&str> = words.into_iter().filter(|word| splits::of_word(word).is_none()).collect();
    let rest = rest.join("_");
    let split = split.unwrap_or("train");
    match (IMAGES.contains(&rest.as_str()), LABELS.contains(&rest.as_str())) {
        (true, _) => Some((split, true)),
        (_, true) => Some((split, false)),
        _ => None,
    }
}

fn build(src: &Path, options: &ConvertOptions, pairs: BTreeMap<(u8, &'static str), Pair>) -> Opened {
    let (mut found, mut all) = (Vec::new(), BTreeSet::new());
    for ((_, split), Pair { images, labels }) in pairs {
        let lacks = |what: &str| Error::input(src, format!("has no array of the {what} of {split}; {HINT}"));
        let (images, labels) = (images.ok_or_else(|| lacks("images"))?, labels.ok_or_else(|| lacks("labels"))?);
        let numbers = labels.whole_numbers(src)?;
        let count = images.shape.first().copied().unwrap_or(0);
        if count != numbers.len() || count == 0 {
            let (i, l, n) = (&images.name, &labels.name, numbers.len());
            return Err(Error::input(
                src,
                format!("`{i}` holds {count} images, `{l}` {n} labels; expected as many, at least one"),
            ));
        }
        all.extend(numbers.iter().map(|&number| Label::Number(number)));
        found.push((split, images, numbers));
    }
    let classes = Classes::of(src, options, None, &all)?;
    let mut source = Npz { path: src.to_path_buf(), classes: Vec::new(), splits: Vec::new(), parts: Vec::new() };
    for (split, images, numbers) in found {
        source.splits.push(SourceSplit { name: split.to_string(), len: numbers.len() as u64 });
        source.parts.push(Part::new(src, images, &numbers, &classes)?);
    }
    source.classes = classes.names;
    Ok(Box::new(source))
}

impl Part {
    fn new(src: &Path, images: Array, numbers: &[i64], classes: &Classes) -> Result<Self, Error> {
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
                    "an array of shape {:?} holds no images; expected {expected}",
                    images.shape
                )));
            }
        };
        if height == 0 || width == 0 || height.max(width) > u32::MAX as usize {
            return Err(failed(format!("its images have {height} x {width} pixels")));
        }
        let label = |(at, &number): (usize, &i64)| {
            let label = Label::Number(number);
            classes.label(&label).ok_or_else(|| failed(format!("sample {at}: {}", classes.unknown(&label))))
        };
        let labels = numbers.iter().enumerate().map(label).collect::<Result<_, _>>()?;
        Ok(Part { height, width, channels, axes, labels, images })
    }
}

impl Source for Npz {
    fn splits(&self) -> &[SourceSplit] {
        &self.splits
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn sample(&self, split: usize, index: u64, sample: &mut Sample) -> Result<(), Error> {
        let Part { images, height, width, channels, axes, labels } = &self.parts[split];
        let size = height * width * channels;
        let at = index * size as u64;
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
        sample.name(&images.name, index);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::place;

    #[test]
    fn names_of_arrays() {
        let names = ["x_train", "y_test", "val_images", "train_labels", "X", "arr_1", "weights"].map(place);
        let expected = [
            Some(("train", true)),
            Some(("test", false)),
            Some(("validation", true)),
            Some(("train", false)),
            Some(("train", true)),
            Some(("train", false)),
            None,
        ];
        assert_eq!(names, expected);
    }
}
