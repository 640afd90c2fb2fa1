//! The form in which the loader passes images to the device:
//! - values, ready for the first layer
//! - stored values of the data set's type, if the device converts them
//! - crop rectangles, if the device stores the whole split (`loader.cache = "device"`)
//!
//! All forms result in bit-identical values, with two exceptions. Resized images of bytes are rounded after resizing. With
//! activations of 16 bits, a device that mixes images rounds before and after mixing.

use std::sync::Arc;

use backend::{Backend, Input};
use loaders::transform::HEAD_WORDS;
use loaders::{
    Batch, Conversion, Dtype, EvalOrder, Images, LabelSets, Loader, Manifest, Options, Order, Pipeline, PixelFormat,
    Split,
};

use crate::error::Error;

/// Maximum size of a split that is stored on the device, in bytes.
const MOST: usize = 8 << 30;

/// Number of pictures per batch while the split is copied to the device.
const AT_A_TIME: usize = 1024;

/// Converts batches to the device's input.
#[derive(Clone)]
pub struct DeviceInput {
    form: PixelFormat,
    /// How the device converts stored values.
    conversion: Conversion,
}

impl DeviceInput {
    /// Chooses stored values if the device has a queue and the pipeline can end with them, otherwise floats.
    pub fn new<B: Backend>(backend: &B, pipeline: &Pipeline) -> Self {
        match pipeline.conversion().filter(|_| backend.queue().is_some()) {
            Some(conversion) => Self { form: PixelFormat::Bytes(pipeline.dtype()), conversion },
            None => Self { form: PixelFormat::Values, conversion: Conversion::Tables(Vec::new()) },
        }
    }

    /// Stores the split on the device if possible. Otherwise falls back to [`DeviceInput::new`] and returns a note with
    /// the reason.
    pub fn kept<B: Backend>(
        backend: &B,
        pipeline: &Pipeline,
        split: &Arc<Split>,
        options: &Options,
    ) -> Result<(Self, Option<String>), Error> {
        let input = Self::new(backend, pipeline);
        let not = |why: &str| Some(format!("note: loader.cache = \"device\" has no effect: {why}"));
        let Images::Fixed(spec) = split.images_as(pipeline.exif())? else {
            return Ok((input, not("the images have different sizes")));
        };
        let bytes = spec.values().saturating_mul(split.len() as usize);
        let Some(queue) = backend.queue() else {
            return Ok((input, not("on a CPU, the images are already in the memory of the device")));
        };
        if pipeline.dtype() != Dtype::U8 {
            let dtype = pipeline.dtype();
            return Ok((
                input,
                not(&format!("only images of u8 values can be kept on the device, but these have {dtype} values")),
            ));
        }
        if !pipeline.only_crops() {
            return Ok((input, not("augment.train does more than crop, flip and normalize")));
        }
        if bytes > MOST {
            return Ok((
                input,
                not(&format!("the images have {bytes} bytes, but at most {MOST} bytes are kept on the device")),
            ));
        }
        loaders::memory::check("the copy of the images for the device", bytes as u64, "loader.cache = \"none\"")?;
        let Pictures { pixels, labels, label_sets, targets } = read(split, pipeline, options, bytes)?;
        if !queue.keep(&pixels, spec.height as usize, spec.width as usize)? {
            return Ok((input, not(&format!("the device has not enough free memory for {bytes} bytes of images"))));
        }
        let (labels, label_sets, targets) = (labels.into(), label_sets.map(Arc::new), targets.into());
        let form = PixelFormat::CropRects { labels, label_sets, targets, spec };
        Ok((Self { form, ..input }, None))
    }

    /// Returns the form in which a loader must make the batches.
    pub fn format(&self) -> &PixelFormat {
        &self.form
    }

    /// Starts a loader for this form.
    pub fn start(
        &self,
        split: &Arc<Split>,
        pipeline: &Pipeline,
        order: Box<dyn Order>,
        options: Options,
    ) -> Result<Loader, Error> {
        Ok(Loader::start_as(self.form.clone(), split.clone(), pipeline.clone(), order, options)?)
    }

    /// Returns true if batches are copied to the device, so that a copy may begin before the step that needs it.
    pub fn is_copied_to_device(&self) -> bool {
        !matches!(self.form, PixelFormat::CropRects { .. })
    }

    /// Converts a batch to the input of a pass.
    pub fn input<'a>(&'a self, batch: &'a Batch) -> Input<'a> {
        match self.form {
            PixelFormat::Values => Input::Values(batch.images()),
            PixelFormat::Bytes(dtype) => {
                let (pixels, mix) = (batch.pixels(), batch.mix());
                match &self.conversion {
                    Conversion::Tables(tables) => Input::Bytes { pixels, tables, mix },
                    Conversion::Normalize(pairs) => Input::Stored { pixels, dtype, pairs, mix },
                }
            }
            PixelFormat::CropRects { .. } => {
                Input::Kept { views: batch.crop_rects(), tables: self.tables(), mix: batch.mix() }
            }
        }
    }

    /// Returns the tables of bytes. Pictures that the device keeps are always bytes.
    fn tables(&self) -> &[[f32; 256]] {
        match &self.conversion {
            Conversion::Tables(tables) => tables,
            Conversion::Normalize(_) => &[],
        }
    }

    pub fn describe(&self) -> String {
        match self.form {
            PixelFormat::Values => "values".into(),
            PixelFormat::Bytes(Dtype::U8) => "bytes, normalised on the device".into(),
            PixelFormat::Bytes(dtype) => format!("{dtype} values, normalised on the device"),
            PixelFormat::CropRects { .. } => "crops and flips of images that the device keeps".into(),
        }
    }
}

/// The pictures and labels of a split, ordered by id.
#[derive(Default)]
struct Pictures {
    pixels: Vec<u8>,
    labels: Vec<u32>,
    /// The labels of a multi-label split.
    label_sets: Option<LabelSets>,
    /// All images' numbers, image after image, if labels are numbers.
    targets: Vec<f32>,
}

fn read(split: &Arc<Split>, pipeline: &Pipeline, options: &Options, bytes: usize) -> Result<Pictures, Error> {
    // the device applies the transforms later, and only the words that control decoding are needed here
    let head: Vec<String> = pipeline.ops().into_iter().take_while(|op| HEAD_WORDS.contains(&op.as_str())).collect();
    // decoding words need nothing from a manifest
    let pipeline = Pipeline::new(&head, split.images_as(pipeline.exif())?, &Manifest::default(), 0)?;
    let order = EvalOrder::new(split.len(), AT_A_TIME, 0, 1);
    // no record may be skipped, because the device finds a picture by its id
    let options = Options { open: 0, skip: false, ..*options };
    let mut loader =
        Loader::start_as(PixelFormat::Bytes(Dtype::U8), split.clone(), pipeline, Box::new(order), options)?;
    let mut all = Pictures { pixels: Vec::with_capacity(bytes), ..Pictures::default() };
    while let Some(batch) = loader.next()? {
        all.pixels.extend_from_slice(batch.pixels());
        all.labels.extend_from_slice(batch.labels());
        all.targets.extend_from_slice(batch.targets().unwrap_or_default());
        if let Some(sets) = batch.label_sets() {
            let kept = all.label_sets.get_or_insert_default();
            sets.iter().for_each(|classes| kept.push(classes.iter().copied()));
        }
    }
    Ok(all)
}
