//! MNIST and Fashion-MNIST: four IDX files in a folder, 60,000 + 10,000 grey images in the published sets.

use super::reader::input::Budget;
use super::reader::{arrays, input, names};
use super::{Kind, Open, Opened};
use crate::dir;
use crate::error::Error;
use crate::options::ConvertOptions;
use crate::source::{Sample, Source, SourceSplit};
use loaders::Format;
use std::path::{Path, PathBuf};

/// MNIST: the classes are the digits.
pub(super) const DIGITS: Kind = Kind {
    name: "mnist",
    about: "folder with the four MNIST IDX files, plain or .gz; classes 0 to 9",
    open: Open::Fixed(|src, options| open(src, &names::DIGITS, options)),
};

/// Fashion-MNIST: the classes are its ten garments.
pub(super) const FASHION: Kind = Kind {
    name: "fashion-mnist",
    about: "folder with the four Fashion-MNIST IDX files, plain or .gz",
    open: Open::Fixed(|src, options| open(src, &names::FASHION, options)),
};

const HINT: &str = "expected a folder with train-images-idx3-ubyte, train-labels-idx1-ubyte, \
                    t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, each plain or .gz";

struct Part {
    /// The file of the images.
    file: PathBuf,
    images: arrays::Images,
    labels: Vec<u8>,
    /// Name of that file as published.
    name: &'static str,
}

struct Mnist {
    classes: Vec<String>,
    splits: Vec<SourceSplit>,
    parts: Vec<Part>,
}

fn open(src: &Path, classes: &[&str], options: &ConvertOptions) -> Opened {
    dir::check(src, HINT)?;
    let mut budget = Budget::new(options.limits);
    let mut source = Mnist { classes: names::owned(classes), splits: Vec::new(), parts: Vec::new() };
    for (name, images) in [("train", "train-images-idx3-ubyte"), ("test", "t10k-images-idx3-ubyte")] {
        let part = read_part(src, images, classes.len(), &mut budget)?;
        source.splits.push(SourceSplit { name: name.to_string(), len: part.images.count });
        source.parts.push(part);
    }
    let [train, test] = [&source.parts[0].images, &source.parts[1].images];
    if (train.height, train.width) != (test.height, test.width) {
        return Err(Error::input(
            src,
            format!(
                "train images are {} x {}, t10k images {} x {}; do the files belong together?",
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
                "{} labels for the {} images of {}; do the files belong together?",
                labels.len(),
                images.count,
                image_file.display()
            ),
        ));
    }
    if labels.is_empty() {
        return Err(Error::input(&label_file, "holds no samples"));
    }
    Ok(Part { file: image_file, images, labels, name })
}

impl Source for Mnist {
    fn splits(&self) -> &[SourceSplit] {
        &self.splits
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn soon(&self, split: usize, index: u64) {
        let images = &self.parts[split].images;
        let area = u64::from(images.height) * u64::from(images.width);
        images.pixels.soon(index * area, area);
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
