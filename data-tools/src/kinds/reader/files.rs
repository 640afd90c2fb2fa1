//! A source of image files: the listings of its splits, and a validation split that may be drawn from `train`.

use super::listing::Listing;
use crate::draw::draw;
use crate::error::Error;
use crate::options::ConvertOptions;
use crate::source::{Sample, Source, SourceSplit, Stamp};
use crate::text;
use loaders::crc32c::crc32c_append;
use std::path::{Path, PathBuf};

/// A source of image files.
pub(crate) struct Files {
    pub classes: Vec<String>,
    pub splits: Vec<SourceSplit>,
    /// The files of each split.
    pub listings: Vec<Listing>,
    pub notes: Vec<String>,
    /// A message for each skipped sample.
    pub skipped: Vec<String>,
    /// The total file size, set only if samples share files.
    pub bytes: Option<u64>,
}

impl Files {
    /// The splits that were found, `train` first, and a `validation` drawn from `train` if the options request one.
    pub fn new(
        src: &Path,
        classes: Vec<String>,
        mut found: Vec<(String, Listing)>,
        mut notes: Vec<String>,
        options: &ConvertOptions,
    ) -> Result<Self, Error> {
        let is_usable = |(name, listing): &(String, Listing)| {
            if listing.len() == 0 {
                notes.push(format!("split {name} left out: it holds no image that can be used"));
            }
            listing.len() > 0
        };
        found.retain(is_usable);
        if found.is_empty() {
            return Err(Error::input(src, "holds no image that can be used"));
        }
        if let Some(share) = options.validation_fraction {
            if found.iter().any(|(name, _)| name == "validation") {
                return Err(Error::Usage(format!("{} has a validation split; none can be drawn", src.display())));
            }
            if found[0].0 != "train" {
                return Err(Error::Usage(format!(
                    "{} has no split train that a validation split could be drawn from",
                    src.display()
                )));
            }
            let drawn = draw_validation(&mut found[0].1, classes.len(), share, options.seed);
            if drawn.len() == 0 {
                return Err(Error::Usage(format!(
                    "a validation fraction of {share} is less than one image of every class; give a larger one"
                )));
            }
            notes.extend(without_validation(&found[0].1, &drawn, &classes));
            found.insert(1, ("validation".to_string(), drawn));
        }
        let splits = found.iter().map(|(name, l)| SourceSplit { name: name.clone(), len: l.len() }).collect();
        Ok(Files {
            classes,
            splits,
            listings: found.into_iter().map(|(_, listing)| listing).collect(),
            notes,
            skipped: Vec::new(),
            bytes: None,
        })
    }

    /// Records the skipped samples.
    pub fn without(mut self, skipped: Vec<String>) -> Self {
        self.skipped = skipped;
        self
    }

    /// A checksum over classes, names and labels, and over sizes and times of archives.
    pub fn digest(&self) -> u32 {
        let classes = self.classes.iter().fold(0, |crc, name| {
            let crc = crc32c_append(crc, name.as_bytes());
            crc32c_append(crc, b"\n")
        });
        self.listings.iter().fold(classes, |crc, listing| listing.digest(crc))
    }
}

/// Moves a share of each class, rounded but never all of it, to a new listing; where images may have several classes, of all images.
fn draw_validation(train: &mut Listing, classes: usize, share: f64, seed: u64) -> Listing {
    let labels: Vec<u32> = train.labels().collect();
    let wanted = |n: u64| ((n as f64 * share).round() as u64).min(n.saturating_sub(1));
    train.split_off(&draw(&labels, classes, wanted, seed))
}

/// Names the classes without a validation image. Their share rounds to less than one image, so they get no score.
fn without_validation(train: &Listing, drawn: &Listing, classes: &[String]) -> Option<String> {
    if train.multi_label() {
        return None;
    }
    let count = |listing: &Listing| {
        let mut counts = vec![0u64; classes.len()];
        listing.labels().for_each(|label| counts[label as usize] += 1);
        counts
    };
    let (left, drawn) = (count(train), count(drawn));
    let without = classes.iter().zip(left.iter().zip(&drawn)).filter(|(_, (left, drawn))| **left > 0 && **drawn == 0);
    let names: Vec<&str> = without.map(|(name, _)| name.as_str()).collect();
    (!names.is_empty()).then(|| {
        let count = text::classes(names.len());
        format!(
            "{count} without a validation image, since --validation-fraction is less than one of theirs: {}",
            text::first(&names)
        )
    })
}

impl Source for Files {
    fn splits(&self) -> &[SourceSplit] {
        &self.splits
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn multi_label(&self) -> bool {
        self.listings.iter().any(Listing::multi_label)
    }

    fn fingerprint(&self) -> Option<u32> {
        Some(self.digest())
    }

    fn stamp(&self, split: usize, index: u64) -> Option<Stamp> {
        self.listings[split].stamp(index)
    }

    fn bytes(&self) -> Option<u64> {
        self.bytes
    }

    fn place(&self, split: usize, index: u64) -> PathBuf {
        self.listings[split].path(index)
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn skipped(&self) -> &[String] {
        &self.skipped
    }

    fn sample(&self, split: usize, index: u64, sample: &mut Sample) -> Result<(), Error> {
        self.listings[split].read(index, sample)
    }
}
