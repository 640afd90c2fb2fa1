//! A batch for the loader's consumer: its images in the requested form, and information about each sample.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::Error;
use crate::label_sets::{LabelKind, LabelSets};
use crate::mix::Mix;
use crate::ring::slot::{Filling, FreeSlots, Slot, Token};
use crate::spec::{Dtype, ImageSpec};
use crate::sync::{AtomicUsize, Sender};
use crate::transform::CropRect;

/// Takes back a batch's slot when the batch is dropped.
#[derive(Clone)]
pub(crate) struct SlotReturn {
    pub slots: Arc<FreeSlots>,
    pub tokens: Sender<Token>,
    /// Number of batches that the consumer holds.
    pub held: Arc<AtomicUsize>,
}

/// The samples of a job, ready for the device. Dropping it returns its memory to the ring.
pub struct Batch {
    slot: Slot,
    output: ImageSpec,
    /// Size of a stored value in bytes.
    value_size: usize,
    home: SlotReturn,
}

impl Batch {
    /// Creates the batch in `slot`, with images of shape `output` and stored values of `value_size` bytes.
    pub(crate) fn new(slot: Slot, output: ImageSpec, value_size: usize, home: SlotReturn) -> Self {
        home.held.fetch_add(1, Ordering::Relaxed);
        Self { slot, output, value_size, home }
    }

    /// Returns the epoch, counted from 0.
    pub fn epoch(&self) -> u32 {
        self.slot.job.epoch
    }

    /// Returns the step within the epoch, from 0.
    pub fn step(&self) -> u64 {
        self.slot.job.step
    }

    /// Returns the logical worker that this batch belongs to.
    pub fn worker(&self) -> usize {
        self.slot.job.worker
    }

    /// Returns the number of samples. 0 if a short last step has no samples for this worker.
    pub fn len(&self) -> usize {
        self.slot.samples.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the shape of each image.
    pub fn spec(&self) -> ImageSpec {
        self.output
    }

    /// Returns the images as floats, (N, C, H, W) without gaps. Only for
    /// [`PixelFormat::Values`](crate::PixelFormat::Values).
    pub fn images(&self) -> &[f32] {
        &self.slot.images[..self.len() * self.output.values()]
    }

    /// Returns the stored values, (N, H, W, C) without gaps, for [`PixelFormat::Bytes`](crate::PixelFormat::Bytes).
    pub fn pixels(&self) -> &[u8] {
        &self.slot.pixels[..self.len() * self.output.values() * self.value_size]
    }

    /// Returns the crop of each image. Empty unless the format is
    /// [`PixelFormat::CropRects`](crate::PixelFormat::CropRects).
    pub fn crop_rects(&self) -> &[CropRect] {
        &self.slot.samples.crop_rects
    }

    /// Returns a class label per sample, below the number of classes. This is the first label if a sample has more than
    /// one. It is 0 if a sample has no label or the labels are numbers.
    pub fn labels(&self) -> &[u32] {
        &self.slot.samples.labels
    }

    /// Returns all labels of each sample if the data set is multi-label, otherwise `None`.
    pub fn label_sets(&self) -> Option<&LabelSets> {
        (self.slot.label_kind == LabelKind::Classes).then_some(&self.slot.samples.label_sets)
    }

    /// Returns the targets of all samples, one sample after the other, or `None` if the labels are classes.
    pub fn targets(&self) -> Option<&[f32]> {
        (self.slot.label_kind == LabelKind::Numbers).then_some(&self.slot.samples.targets)
    }

    /// Returns how the images are mixed with each other, or `None` if they are not. For
    /// [`PixelFormat::Values`](crate::PixelFormat::Values) the images are mixed already. For other formats, the
    /// consumer must mix them.
    pub fn mix(&self) -> Option<Mix> {
        self.slot.mix
    }

    /// Returns the errors of samples that were left out, see [`Options::skip`](crate::Options::skip).
    pub fn skipped(&self) -> &[Error] {
        &self.slot.samples.skipped
    }

    pub fn ids(&self) -> &[u64] {
        &self.slot.samples.ids
    }

    /// Returns the keys of the samples' random draws. The key is the sample's id. If the order repeats samples or draws
    /// them from balanced classes, it also contains the number of the copy.
    pub fn keys(&self) -> &[u64] {
        &self.slot.samples.keys
    }

    /// Returns the threads that filled the pieces of the batch, and when.
    pub fn fillings(&self) -> &[Filling] {
        &self.slot.fillings
    }

    /// Returns the total size of the records in bytes, including framing.
    pub(crate) fn bytes(&self) -> u64 {
        self.slot.samples.bytes
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let slot = std::mem::take(&mut self.slot);
        // Decrement before the slot is returned. Then `held` can only be too low, and the loader waits for a slot that
        // is about to arrive.
        self.home.held.fetch_sub(1, Ordering::Relaxed);
        self.home.slots.add(slot, &self.home.tokens);
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("job", &self.slot.job).field("spec", &self.output).finish_non_exhaustive()
    }
}

/// The form of a batch's images.
#[derive(Debug, Clone, Default)]
pub enum PixelFormat {
    /// Floats, ready for a network.
    #[default]
    Values,
    /// The bytes of stored values with this type, as [`Pipeline::dtype`](crate::Pipeline::dtype) returns it. Only for
    /// pipelines that have a [`Pipeline::conversion`](crate::Pipeline::conversion) to floats.
    Bytes(Dtype),
    /// The crop rectangle of each image, for a consumer that has all images.
    /// [`Pipeline::only_crops`](crate::Pipeline::only_crops) must be true.
    CropRects {
        /// Labels for the whole split, indexed by sample id.
        labels: Arc<[u32]>,
        /// All labels of each sample, if the data set is multi-label.
        label_sets: Option<Arc<LabelSets>>,
        /// The targets of all samples, one sample after the other. Empty if the labels are classes.
        targets: Arc<[f32]>,
        /// The common shape of all images.
        spec: ImageSpec,
    },
}

impl PixelFormat {
    /// Returns the number of bytes that an image with this many values takes in a batch.
    pub fn bytes(&self, values: usize) -> usize {
        match self {
            Self::Values => values * size_of::<f32>(),
            Self::Bytes(dtype) => values * dtype.bytes(),
            Self::CropRects { .. } => size_of::<CropRect>(),
        }
    }

    /// Returns the number of floats or bytes in a batch for an image with `values` values.
    pub(crate) fn elements(&self, values: usize) -> usize {
        match self {
            Self::Values => values,
            Self::Bytes(dtype) => values * dtype.bytes(),
            Self::CropRects { .. } => 0,
        }
    }
}
