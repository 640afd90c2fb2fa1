//! What is known of the samples of a batch beside their images.

use crate::error::Error;
use crate::label_sets::LabelSets;
use crate::transform::CropRect;

/// Samples in a row.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    pub ids: Vec<u64>,
    /// One a sample.
    pub labels: Vec<u32>,
    /// All labels of each sample, where there may be several.
    pub label_sets: LabelSets,
    /// One a sample, if images come as crop rectangles.
    pub crop_rects: Vec<CropRect>,
    /// Bytes of the records read.
    pub bytes: u64,
    /// The errors of the samples that were left out.
    pub skipped: Vec<Error>,
}

impl Samples {
    /// How many there are, without those that were left out.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Forgets all of them and keeps the memory.
    pub fn clear(&mut self) {
        self.ids.clear();
        self.labels.clear();
        self.label_sets.clear();
        self.crop_rects.clear();
        self.bytes = 0;
        self.skipped.clear();
    }

    /// Adds those of `other` behind these.
    pub fn append(&mut self, other: &mut Self) {
        self.ids.append(&mut other.ids);
        self.labels.append(&mut other.labels);
        other.label_sets.iter().for_each(|classes| self.label_sets.push(classes.iter().copied()));
        self.crop_rects.append(&mut other.crop_rects);
        self.bytes += other.bytes;
        self.skipped.append(&mut other.skipped);
    }
}
