//! One batch as the loader's consumer gets it: its images in one of two forms, and what is known of each sample.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::Error;
use crate::label_sets::LabelSets;
use crate::mix::Mix;
use crate::ring::slot::{Filling, FreeSlots, Slot, Token};
use crate::spec::ImageSpec;
use crate::sync::{AtomicUsize, Sender};
use crate::transform::CropRect;

/// Where a batch's slot goes when the batch is dropped.
#[derive(Clone)]
pub(crate) struct SlotReturn {
    pub slots: Arc<FreeSlots>,
    pub tokens: Sender<Token>,
    /// Batches that the consumer holds.
    pub held: Arc<AtomicUsize>,
}

/// The samples of one job, ready for the device. Returns its memory to the ring when it is dropped.
pub struct Batch {
    slot: Slot,
    output: ImageSpec,
    home: SlotReturn,
}

impl Batch {
    /// The batch in `slot`, with images of shape `output`.
    pub(crate) fn new(slot: Slot, output: ImageSpec, home: SlotReturn) -> Self {
        home.held.fetch_add(1, Ordering::Relaxed);
        Self { slot, output, home }
    }

    /// The epoch, from 0.
    pub fn epoch(&self) -> u32 {
        self.slot.job.epoch
    }

    /// The step within the epoch, from 0.
    pub fn step(&self) -> u64 {
        self.slot.job.step
    }

    /// The logical worker whose share this is.
    pub fn worker(&self) -> usize {
        self.slot.job.worker
    }

    /// Number of samples; 0 if a short last step has none for this worker.
    pub fn len(&self) -> usize {
        self.slot.samples.len()
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The shape of each image.
    pub fn spec(&self) -> ImageSpec {
        self.output
    }

    /// The images as floats, (N, C, H, W) without gaps.
    pub fn images(&self) -> &[f32] {
        &self.slot.images[..self.len() * self.output.values()]
    }

    /// The images as bytes, (N, H, W, C) without gaps, for [`PixelFormat::Bytes`](crate::PixelFormat::Bytes).
    pub fn pixels(&self) -> &[u8] {
        &self.slot.pixels[..self.len() * self.output.values()]
    }

    /// The crop of each image, for [`PixelFormat::CropRects`](crate::PixelFormat::CropRects).
    pub fn crop_rects(&self) -> &[CropRect] {
        &self.slot.samples.crop_rects
    }

    /// The labels, one a sample, below the number of classes. Of several the first, and 0 where there is none.
    pub fn labels(&self) -> &[u32] {
        &self.slot.samples.labels
    }

    /// All labels of each sample, where a data set's images may have several; else nothing.
    pub fn label_sets(&self) -> Option<&LabelSets> {
        self.slot.multi_label.then_some(&self.slot.samples.label_sets)
    }

    /// How the images are mixed with each other: floats are mixed already, all else is left to the consumer.
    pub fn mix(&self) -> Option<Mix> {
        self.slot.mix
    }

    /// The errors of the samples that were left out, see [`Options::skip`](crate::Options::skip).
    pub fn skipped(&self) -> &[Error] {
        &self.slot.samples.skipped
    }

    /// The samples' ids.
    pub fn ids(&self) -> &[u64] {
        &self.slot.samples.ids
    }

    /// Which threads filled its pieces, and when.
    pub fn fillings(&self) -> &[Filling] {
        &self.slot.fillings
    }

    /// Bytes of the records read.
    pub(crate) fn bytes(&self) -> u64 {
        self.slot.samples.bytes
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let slot = std::mem::take(&mut self.slot);
        // before the slot goes back: `held` may then only be too low, and the loader waits for a slot that is about to come
        self.home.held.fetch_sub(1, Ordering::Relaxed);
        self.home.slots.add(slot, &self.home.tokens);
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("job", &self.slot.job).field("spec", &self.output).finish_non_exhaustive()
    }
}

/// The form in which a batch has its images.
#[derive(Debug, Clone, Default)]
pub enum PixelFormat {
    /// Floats, ready for a network.
    #[default]
    Values,
    /// Bytes; the floats are in the tables of [`Pipeline::tables`](crate::Pipeline::tables), which must not be `None`.
    Bytes,
    /// The part of each image that a crop leaves, for a consumer that has all images;
    /// [`Pipeline::only_crops`](crate::Pipeline::only_crops) must hold.
    CropRects {
        /// The labels of all samples of the split, by id.
        labels: Arc<[u32]>,
        /// All labels of each of them, where there may be several.
        label_sets: Option<Arc<LabelSets>>,
        /// The shape of all images.
        spec: ImageSpec,
    },
}

impl PixelFormat {
    /// Bytes that an image of so many values takes in a batch.
    pub fn bytes(&self, values: usize) -> usize {
        match self {
            Self::Values => values * size_of::<f32>(),
            Self::Bytes => values,
            Self::CropRects { .. } => size_of::<CropRect>(),
        }
    }
}
