//! What the loader hands to the device, in one of three forms:
//! - values, ready for the first layer;
//! - bytes, for a device that makes the values itself;
//! - crops, for a device that keeps the whole split (`loader.cache = "device"`): only which part of which picture.
//!
//! The values are the same to the bit, except for images that are resized, since bytes are rounded after resizing.

use std::sync::Arc;

use backend::{Backend, CropRect, Input};
use loaders::transform::HEAD_WORDS;
use loaders::{Batch, EvalOrder, Images, LabelSets, Loader, Options, Order, Pipeline, PixelFormat, Split};

use crate::error::Error;

/// Pictures that are kept on a device take at most so many bytes.
const MOST: usize = 8 << 30;

/// Pictures that are read at a time on their way to the device.
const AT_A_TIME: usize = 1024;

/// How batches come.
#[derive(Clone)]
pub struct DeviceInput {
    form: PixelFormat,
    tables: Vec<[f32; 256]>,
    /// Of the batch at hand.
    views: Vec<CropRect>,
}

impl DeviceInput {
    /// For a device that takes bytes only where it queues its work, and a pipeline that may leave more than bytes.
    pub fn new<B: Backend>(backend: &B, pipeline: &Pipeline) -> Self {
        let tables = pipeline.tables().filter(|_| backend.queue().is_some());
        let form = if tables.is_some() { PixelFormat::Bytes } else { PixelFormat::Values };
        Self { form, tables: tables.unwrap_or_default(), views: Vec::new() }
    }

    /// The same, with the split on the device where it can be; else the note says why not.
    pub fn kept<B: Backend>(
        backend: &B,
        pipeline: &Pipeline,
        split: &Arc<Split>,
        options: &Options,
    ) -> Result<(Self, Option<String>), Error> {
        let input = Self::new(backend, pipeline);
        let not = |why: &str| Some(format!("note: loader.cache = \"device\" has no effect: {why}"));
        let Images::Fixed(spec) = split.images_as(pipeline.exif())? else {
            return Ok((input, not("the images are of various sizes")));
        };
        let bytes = spec.values().saturating_mul(split.len() as usize);
        let Some(queue) = backend.queue() else {
            return Ok((input, not("the processor's memory is where they are")));
        };
        if !pipeline.only_crops() {
            return Ok((input, not("augment.train does more than to crop, flip and normalize")));
        }
        if bytes > MOST {
            return Ok((input, not(&format!("the images are {bytes} bytes, at most {MOST} are kept"))));
        }
        let Pictures { pixels, labels, label_sets } = read(split, pipeline, options)?;
        if !queue.keep(&pixels, spec.height as usize, spec.width as usize)? {
            return Ok((input, not(&format!("the device has no room for {bytes} bytes"))));
        }
        let form = PixelFormat::CropRects { labels: labels.into(), label_sets: label_sets.map(Arc::new), spec };
        Ok((Self { form, ..input }, None))
    }

    /// The form in which a loader makes such batches.
    pub fn format(&self) -> &PixelFormat {
        &self.form
    }

    /// Starts a loader of such batches.
    pub fn start(
        &self,
        split: &Arc<Split>,
        pipeline: &Pipeline,
        order: Box<dyn Order>,
        options: Options,
    ) -> Result<Loader, Error> {
        Ok(Loader::start_as(self.form.clone(), split.clone(), pipeline.clone(), order, options)?)
    }

    /// Whether a batch has a way to the device that could begin ahead of time.
    pub fn travels(&self) -> bool {
        !matches!(self.form, PixelFormat::CropRects { .. })
    }

    /// A batch as a pass takes it.
    pub fn input<'a>(&'a mut self, batch: &'a Batch) -> Input<'a> {
        match self.form {
            PixelFormat::Values => Input::Values(batch.images()),
            PixelFormat::Bytes => Input::Bytes { pixels: batch.pixels(), tables: &self.tables, mix: batch.mix() },
            PixelFormat::CropRects { .. } => {
                let rows = batch.ids().iter().zip(batch.crop_rects());
                self.views.clear();
                self.views.extend(rows.map(|(&id, crop)| CropRect {
                    picture: id as u32,
                    top: crop.top,
                    left: crop.left,
                    mirrored: u32::from(crop.mirrored),
                }));
                Input::Kept { views: &self.views, tables: &self.tables, mix: batch.mix() }
            }
        }
    }

    /// In a few words, for the log.
    pub fn describe(&self) -> &'static str {
        match self.form {
            PixelFormat::Values => "values",
            PixelFormat::Bytes => "bytes, normalised on the device",
            PixelFormat::CropRects { .. } => "crops and flips of images that the device keeps",
        }
    }
}

/// All pictures of a split, in the order of their ids, with their labels.
#[derive(Default)]
struct Pictures {
    pixels: Vec<u8>,
    labels: Vec<u32>,
    /// Where there may be several labels.
    label_sets: Option<LabelSets>,
}

fn read(split: &Arc<Split>, pipeline: &Pipeline, options: &Options) -> Result<Pictures, Error> {
    // the device applies the transforms later, and only the words that control decoding are needed here
    let head: Vec<String> = pipeline.ops().into_iter().take_while(|op| HEAD_WORDS.contains(&op.as_str())).collect();
    let pipeline = Pipeline::new(&head, split.images_as(pipeline.exif())?, &bare(), 0)?;
    let order = EvalOrder::new(split.len(), AT_A_TIME, 0, 1);
    // all must be there: their places are their ids
    let options = Options { open: 0, skip: false, ..*options };
    let mut loader = Loader::start_as(PixelFormat::Bytes, split.clone(), pipeline, Box::new(order), options)?;
    let mut all = Pictures::default();
    while let Some(batch) = loader.next()? {
        all.pixels.extend_from_slice(batch.pixels());
        all.labels.extend_from_slice(batch.labels());
        if let Some(sets) = batch.label_sets() {
            let kept = all.label_sets.get_or_insert_default();
            sets.iter().for_each(|classes| kept.push(classes.iter().copied()));
        }
    }
    Ok(all)
}

/// A pipeline without ops needs nothing of a data set.
fn bare() -> loaders::Manifest {
    loaders::Manifest {
        version: 1,
        classes: Vec::new(),
        multi_label: false,
        label_offset: 0,
        mean: Vec::new(),
        std: Vec::new(),
        splits: Default::default(),
    }
}
