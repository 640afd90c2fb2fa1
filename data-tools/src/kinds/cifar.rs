//! CIFAR-10 and CIFAR-100, binary version: label bytes, then 32 x 32 pixels as a red, a green and a blue plane.

use super::kind::{Kind, Open, Opened};
use super::reader::budget::Budget;
use super::reader::{archive, names};
use crate::error::Error;
use crate::source::{Sample, Source, SourceSplit};
use loaders::{Format, Limits};
use std::fmt::Write;
use std::path::Path;

/// CIFAR-10.
pub(super) const CIFAR10: Kind = Kind {
    name: "cifar10",
    about: "CIFAR-10, binary version: folder, .tar or .tar.gz",
    open: Open::Fixed(|src, limits| open(src, &LAYOUT_10, limits)),
};

/// CIFAR-100 with its 100 fine labels.
pub(super) const CIFAR100: Kind = Kind {
    name: "cifar100",
    about: "CIFAR-100, binary version, fine labels: folder, .tar or .tar.gz",
    open: Open::Fixed(|src, limits| open(src, &LAYOUT_100, limits)),
};

const SIDE: usize = 32;
const PLANE: usize = SIDE * SIDE;

/// How CIFAR-10 and CIFAR-100 differ.
struct Layout {
    name: &'static str,
    /// Folder inside the published archive.
    folder: &'static str,
    train: &'static [&'static str],
    test: &'static [&'static str],
    /// File with one class name a line.
    names: &'static str,
    builtin: &'static [&'static str],
    /// Bytes before the pixels, the label being the last of them (CIFAR-100: coarse, fine).
    label_bytes: usize,
    /// A file of the version for Python, to recognise a wrong download.
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

/// One `.bin` file, unchanged.
struct Batch {
    name: &'static str,
    records: Vec<u8>,
}

struct Cifar {
    layout: &'static Layout,
    classes: Vec<String>,
    splits: Vec<SourceSplit>,
    parts: Vec<Vec<Batch>>,
}

fn open(src: &Path, layout: &'static Layout, limits: &Limits) -> Opened {
    Ok(Box::new(Cifar::open(src, layout, Budget::new(*limits))?))
}

impl Layout {
    fn record(&self) -> usize {
        self.label_bytes + 3 * PLANE
    }

    fn hint(&self) -> String {
        format!(
            "expected the binary version of {}: a folder or a .tar.gz with {}, {} and, if you like, {}",
            self.name,
            self.train.join(", "),
            self.test.join(", "),
            self.names
        )
    }
}

impl Cifar {
    fn open(src: &Path, layout: &'static Layout, mut budget: Budget) -> Result<Self, Error> {
        let mut wanted: Vec<&str> = [layout.train, layout.test].concat();
        wanted.push(layout.names);
        let hint = layout.hint();
        let mut files = archive::read_members(src, layout.folder, &wanted, layout.python, &hint, &mut budget)?;
        let classes = match files.pop().flatten() {
            Some(file) => class_names(&file, layout)?,
            None => names::owned(layout.builtin),
        };
        let mut files = files.into_iter();
        let mut parts = Vec::new();
        let mut splits = Vec::new();
        for (split, names) in [("train", layout.train), ("test", layout.test)] {
            let mut part = Vec::new();
            for (name, file) in names.iter().zip(files.by_ref()) {
                let file = file.ok_or_else(|| Error::Missing { path: src.join(name), hint: hint.clone() })?;
                check(&file, layout, classes.len())?;
                part.push(Batch { name, records: file.data });
            }
            let len = part.iter().map(|b| (b.records.len() / layout.record()) as u64);
            splits.push(SourceSplit { name: split.to_string(), len: len.sum() });
            parts.push(part);
        }
        Ok(Cifar { layout, classes, splits, parts })
    }

    /// The batch with sample `index` of a split, and the number of its record there.
    fn find(&self, split: usize, index: u64) -> Result<(&Batch, usize), Error> {
        let mut at = index as usize;
        for batch in &self.parts[split] {
            let records = batch.records.len() / self.layout.record();
            if at < records {
                return Ok((batch, at));
            }
            at -= records;
        }
        Err(Error::input(Path::new(&self.splits[split].name), format!("has no sample {index}")))
    }
}

/// The names in a file with one name a line; blank lines are skipped.
fn class_names(file: &archive::Member, layout: &Layout) -> Result<Vec<String>, Error> {
    let text = String::from_utf8_lossy(&file.data);
    let found = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let count = found().count();
    if count != layout.builtin.len() {
        return Err(Error::input(
            &file.path,
            format!(
                "{} class names; {} has {}; remove the file to use the published names",
                count,
                layout.name,
                layout.builtin.len()
            ),
        ));
    }
    Ok(found().map(String::from).collect())
}

/// Refuses a batch that is empty, cut short, or has a label without a class.
fn check(file: &archive::Member, layout: &Layout, classes: usize) -> Result<(), Error> {
    let record = layout.record();
    let length = file.data.len();
    if length == 0 || !length.is_multiple_of(record) {
        let (whole, rest, name) = (length / record, length % record, layout.name);
        let what = format!(
            "{length} bytes are not whole records of {record} bytes ({whole} records and {rest} bytes): cut short, or not \
             {name}; fetch it again"
        );
        return Err(Error::input(&file.path, what));
    }
    for (at, bytes) in file.data.chunks_exact(record).enumerate() {
        let label = usize::from(bytes[layout.label_bytes - 1]);
        if label >= classes {
            let (byte, last) = (at * record, classes - 1);
            let what = format!("label {label} of record {at} at byte {byte} is out of range; expected 0 to {last}");
            return Err(Error::input(&file.path, what));
        }
    }
    Ok(())
}

impl Source for Cifar {
    fn splits(&self) -> &[SourceSplit] {
        &self.splits
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn sample(&self, split: usize, index: u64, sample: &mut Sample) -> Result<(), Error> {
        let (batch, at) = self.find(split, index)?;
        let size = self.layout.record();
        let (labels, pixels) = batch.records[at * size..(at + 1) * size].split_at(self.layout.label_bytes);
        interleave(pixels, &mut sample.encoded);
        sample.format = Format::Raw;
        (sample.height, sample.width, sample.channels) = (SIDE as u32, SIDE as u32, 3);
        sample.label = u32::from(labels[self.layout.label_bytes - 1]);
        sample.filename.clear();
        // Writing into a String cannot fail.
        let _ = write!(sample.filename, "{}#{at}", batch.name);
        Ok(())
    }
}

/// Planes R, G, B to pixels RGB.
fn interleave(planes: &[u8], out: &mut Vec<u8>) {
    let (red, rest) = planes.split_at(PLANE);
    let (green, blue) = rest.split_at(PLANE);
    out.clear();
    out.extend(red.iter().zip(green).zip(blue).flat_map(|((&r, &g), &b)| [r, g, b]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_become_pixels() {
        let planes: Vec<u8> = (0..3 * PLANE).map(|i| (i / PLANE * 100 + i % 7) as u8).collect();
        let mut out = Vec::new();
        interleave(&planes, &mut out);
        assert_eq!(out.len(), 3 * PLANE);
        for (i, pixel) in out.chunks_exact(3).enumerate() {
            let expected = [planes[i], planes[PLANE + i], planes[2 * PLANE + i]];
            assert_eq!(pixel, expected);
        }
    }
}
