//! Small published data sets of pixels: MNIST, Fashion-MNIST, CIFAR-10 and CIFAR-100.
//!
//! MNIST and Fashion-MNIST are four IDX files in a folder. The published sets have 60,000 + 10,000 grey images.

use std::path::{Path, PathBuf};

use loaders::{Format, channels};

use super::reader::input::{Budget, Store};
use super::reader::{archive, arrays, input, names};
use super::{Kind, Open, Opened};
use crate::error::Error;
use crate::options::ConvertOptions;
use crate::source::{Sample, Source, SourceInfo, SourceSplit};
use crate::text::without_mark;
use crate::{dir, pool};

pub(super) const DIGITS: Kind = Kind {
    name: "mnist",
    about: "folder with the four MNIST IDX files, plain or .gz; classes 0 to 9",
    open: Open::Fixed(|src, options| open_mnist(src, &names::DIGITS, options)),
};

pub(super) const FASHION: Kind = Kind {
    name: "fashion-mnist",
    about: "folder with the four Fashion-MNIST IDX files, plain or .gz",
    open: Open::Fixed(|src, options| open_mnist(src, &names::FASHION, options)),
};

const HINT: &str = "expected a folder with train-images-idx3-ubyte, train-labels-idx1-ubyte, \
                    t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, each plain or .gz";

struct Part {
    /// Path of the file with the images, for messages.
    file: PathBuf,
    images: arrays::Images,
    labels: Vec<u8>,
    /// The published name of the file with the images.
    name: &'static str,
}

struct Mnist {
    info: SourceInfo,
    parts: Vec<Part>,
}

fn open_mnist(src: &Path, classes: &[&str], options: &ConvertOptions) -> Opened {
    dir::check(src, HINT)?;
    let mut budget = Budget::new(options.limits);
    let info = SourceInfo { classes: names::to_strings(classes), ..SourceInfo::default() };
    let mut source = Mnist { info, parts: Vec::new() };
    for (name, images) in [("train", "train-images-idx3-ubyte"), ("test", "t10k-images-idx3-ubyte")] {
        let part = read_part(src, images, classes.len(), &mut budget)?;
        source.info.splits.push(SourceSplit { name: name.to_string(), len: part.images.count });
        source.parts.push(part);
    }
    let [train, test] = [&source.parts[0].images, &source.parts[1].images];
    if (train.height, train.width) != (test.height, test.width) {
        return Err(Error::input(
            src,
            format!(
                "train images are {} x {}, but t10k images are {} x {}; do the files belong together?",
                train.height, train.width, test.height, test.width
            ),
        ));
    }
    Ok(Box::new(source))
}

fn read_part(src: &Path, name: &'static str, classes: usize, budget: &mut Budget) -> Result<Part, Error> {
    let find = |name: &str| input::find(src, &[name, &name.replace("-idx", ".idx")], HINT);
    let image_file = find(name)?;
    let label_file = find(&name.replace("images-idx3", "labels-idx1"))?;
    let labels = arrays::read_labels(&label_file, classes, budget)?;
    let images = arrays::read_images(&image_file, budget)?;
    if labels.len() as u64 != images.count {
        return Err(Error::input(
            &label_file,
            format!(
                "{} labels, but {} images in {}; do the files belong together?",
                labels.len(),
                images.count,
                image_file.display()
            ),
        ));
    }
    if labels.is_empty() {
        return Err(Error::input(&label_file, "the file contains no samples"));
    }
    Ok(Part { file: image_file, images, labels, name })
}

impl Source for Mnist {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn prefetch(&self, split: usize, index: u64) {
        let images = &self.parts[split].images;
        let area = u64::from(images.height) * u64::from(images.width);
        images.pixels.prefetch(index * area, area);
    }

    fn sample(&self, split: usize, index: u64, sample: &mut Sample) -> Result<(), Error> {
        let part = &self.parts[split];
        let area = (part.images.height * part.images.width) as usize;
        let at = index as usize;
        let read = part.images.pixels.read_into(at as u64 * area as u64, area, &mut sample.encoded);
        read.map_err(|e| Error::io("read", &part.file, e))?;
        sample.format = Format::Raw;
        sample.height = part.images.height;
        sample.width = part.images.width;
        sample.channels = 1;
        sample.label = u32::from(part.labels[at]);
        sample.name(part.name, index);
        Ok(())
    }
}

pub(super) const CIFAR10: Kind = Kind {
    name: "cifar10",
    about: "CIFAR-10, binary version: folder, .tar or .tar.gz",
    open: Open::Fixed(|src, options| Cifar::open(src, &LAYOUT_10, options)),
};

/// CIFAR-100 with its 100 fine labels.
pub(super) const CIFAR100: Kind = Kind {
    name: "cifar100",
    about: "CIFAR-100, binary version, fine labels: folder, .tar or .tar.gz",
    open: Open::Fixed(|src, options| Cifar::open(src, &LAYOUT_100, options)),
};

const SIDE: usize = 32;
const PLANE: usize = SIDE * SIDE;
/// The highest number of label bytes before the pixels.
const MOST_LABELS: usize = 2;

/// The differences between CIFAR-10 and CIFAR-100.
struct Layout {
    name: &'static str,
    /// Folder in the published archive.
    folder: &'static str,
    train: &'static [&'static str],
    test: &'static [&'static str],
    /// File with one class name per line.
    names: &'static str,
    builtin: &'static [&'static str],
    /// Number of bytes before the pixels. The label is the last of them, because CIFAR-100 has a coarse and a fine
    /// label.
    label_bytes: usize,
    /// Name of a file of the Python version, by which a wrong download is recognised.
    python: &'static str,
}

const LAYOUT_10: Layout = Layout {
    name: "CIFAR-10",
    folder: "cifar-10-batches-bin",
    train: &["data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"],
    test: &["test_batch.bin"],
    names: "batches.meta.txt",
    builtin: &names::CIFAR10,
    label_bytes: 1,
    python: "data_batch_1",
};

const LAYOUT_100: Layout = Layout {
    name: "CIFAR-100",
    folder: "cifar-100-binary",
    train: &["train.bin"],
    test: &["test.bin"],
    names: "fine_label_names.txt",
    builtin: &names::CIFAR100,
    label_bytes: 2,
    python: "train",
};

/// A `.bin` file: records of label bytes and pixels.
struct Batch {
    name: &'static str,
    path: PathBuf,
    records: Store,
}

struct Cifar {
    layout: &'static Layout,
    info: SourceInfo,
    parts: Vec<Vec<Batch>>,
}

impl Layout {
    fn record(&self) -> usize {
        self.label_bytes + 3 * PLANE
    }

    fn hint(&self) -> String {
        format!(
            "expected the binary version of {}: a folder or a .tar.gz with {}, {} and optionally {}",
            self.name,
            self.train.join(", "),
            self.test.join(", "),
            self.names
        )
    }
}

impl Cifar {
    fn open(src: &Path, layout: &'static Layout, options: &ConvertOptions) -> Opened {
        let mut wanted: Vec<&str> = [layout.train, layout.test].concat();
        wanted.push(layout.names);
        let hint = layout.hint();
        let members = archive::WantedFiles { folder: layout.folder, names: &wanted, other: layout.python, hint: &hint };
        let mut files = members.read(src, &mut Budget::new(options.limits))?;
        let classes = match files.pop().flatten() {
            Some(file) => class_names(file, layout)?,
            None => names::to_strings(layout.builtin),
        };
        pool::run(files.len(), options.jobs, |i| {
            files[i].as_ref().map_or(Ok(()), |f| check(f, layout, classes.len()))
        })?;
        let mut files = files.into_iter();
        let mut parts = Vec::new();
        let mut splits = Vec::new();
        for (split, names) in [("train", layout.train), ("test", layout.test)] {
            let mut part = Vec::new();
            for (name, file) in names.iter().zip(files.by_ref()) {
                let file = file.ok_or_else(|| Error::missing(src.join(name), hint.as_str()))?;
                part.push(Batch { name, path: file.path, records: file.data });
            }
            let len = part.iter().map(|b| b.records.len() / layout.record() as u64);
            splits.push(SourceSplit { name: split.to_string(), len: len.sum() });
            parts.push(part);
        }
        let info = SourceInfo { classes, splits, ..SourceInfo::default() };
        Ok(Box::new(Cifar { layout, info, parts }))
    }

    /// Returns the batch that contains sample `index` of a split, and the sample's index in it.
    fn find(&self, split: usize, index: u64) -> Result<(&Batch, u64), Error> {
        let mut at = index;
        for batch in &self.parts[split] {
            let records = batch.records.len() / self.layout.record() as u64;
            if at < records {
                return Ok((batch, at));
            }
            at -= records;
        }
        Err(Error::input(Path::new(&self.info.splits[split].name), format!("there is no sample {index}")))
    }
}

/// Reads a file with one class name per line. Blank lines are skipped.
fn class_names(file: archive::Member, layout: &Layout) -> Result<Vec<String>, Error> {
    let path = file.path.clone();
    let bytes = file.whole()?;
    let text = String::from_utf8_lossy(&bytes);
    let found = || without_mark(&text).lines().map(str::trim).filter(|line| !line.is_empty());
    let count = found().count();
    if count != layout.builtin.len() {
        return Err(Error::input(
            &path,
            format!(
                "found {} class names, but {} has {}; remove the file to use the published names",
                count,
                layout.name,
                layout.builtin.len()
            ),
        ));
    }
    Ok(found().map(String::from).collect())
}

/// Returns an error if a batch is empty or truncated, or has a label without a class.
fn check(file: &archive::Member, layout: &Layout, classes: usize) -> Result<(), Error> {
    let (record, length) = (layout.record(), file.data.len());
    if length == 0 || !length.is_multiple_of(record as u64) {
        let (whole, rest, name) = (length / record as u64, length % record as u64, layout.name);
        let what = format!(
            "the size of {length} bytes is not a multiple of the record size of {record} bytes ({whole} records and {rest} bytes): the \
             file is cut short or not {name}; fetch it again"
        );
        return Err(Error::input(&file.path, what));
    }
    let wrong = file.data.find_byte(record, layout.label_bytes - 1, |label| usize::from(label) >= classes);
    let Some((at, label)) = wrong.map_err(|e| Error::io("read", &file.path, e))? else { return Ok(()) };
    let (byte, last) = (at * record, classes - 1);
    let what = format!("label {label} of record {at} at byte {byte} is out of range; expected 0 to {last}");
    Err(Error::input(&file.path, what))
}

impl Source for Cifar {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn prefetch(&self, split: usize, index: u64) {
        if let Ok((batch, at)) = self.find(split, index) {
            let size = self.layout.record() as u64;
            batch.records.prefetch(at * size, size);
        }
    }

    fn sample(&self, split: usize, index: u64, sample: &mut Sample) -> Result<(), Error> {
        let (batch, at) = self.find(split, index)?;
        let (mut record, size) = ([0; MOST_LABELS + 3 * PLANE], self.layout.record());
        let record = &mut record[..size];
        batch.records.read_at(at * size as u64, record).map_err(|e| Error::io("read", &batch.path, e))?;
        let (labels, pixels) = record.split_at(self.layout.label_bytes);
        sample.encoded.resize(3 * PLANE, 0);
        channels::interleave(pixels, sample.encoded.as_chunks_mut().0);
        sample.format = Format::Raw;
        (sample.height, sample.width, sample.channels) = (SIDE as u32, SIDE as u32, 3);
        sample.label = u32::from(labels[self.layout.label_bytes - 1]);
        sample.name(batch.name, at);
        Ok(())
    }
}
