//! The form in which a batch has its images.

use std::sync::Arc;

use crate::label_sets::LabelSets;
use crate::spec::ImageSpec;
use crate::transform::CropRect;

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
