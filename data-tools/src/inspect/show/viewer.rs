//! Makes the cells of a sheet from records: pictures as stored, or after the transforms.

use super::picture::{self, Scale};
use super::sheet::Cell;
use crate::error::Error;
use image::RgbImage;
use loaders::transform::Scratch;
use loaders::{Example, Manifest, Pipeline, Split, decode};

/// Longer side that small pictures are enlarged to, as nearly as an integer factor allows.
pub(super) const WISHED: u32 = 128;
/// Longer side of the largest picture on a sheet; what networks see is rarely larger.
pub(super) const MOST: u32 = 224;

/// Makes cells of the records of one split.
pub(super) struct Viewer<'a> {
    split: &'a Split,
    /// The transforms; `None` shows pictures as stored.
    pipeline: Option<(Pipeline, Scale)>,
    scratch: Scratch,
    record: Vec<u8>,
    values: Vec<f32>,
    pixels: Vec<u8>,
    /// Class of the last record.
    label: u32,
    /// The names of its classes.
    words: String,
}

impl<'a> Viewer<'a> {
    /// A viewer of `split`, whose pictures are as stored.
    pub fn stored(split: &'a Split) -> Self {
        Self {
            split,
            pipeline: None,
            scratch: Scratch::default(),
            record: Vec::new(),
            values: Vec::new(),
            pixels: Vec::new(),
            label: 0,
            words: String::new(),
        }
    }

    /// A viewer of `split`, with these transforms drawn from `seed`.
    pub fn new(manifest: &Manifest, split: &'a Split, transforms: &[String], seed: u64) -> Result<Self, Error> {
        let mut viewer = Self::stored(split);
        if !transforms.is_empty() {
            let pipeline =
                Pipeline::new(transforms, split.images_as(loaders::transform::exif_of(transforms))?, manifest, seed)?;
            viewer.values.resize(pipeline.output().values(), 0.0);
            let scale = Scale::of(&pipeline.ops());
            viewer.pipeline = Some((pipeline, scale));
        }
        Ok(viewer)
    }

    /// The transforms in full.
    pub fn ops(&self) -> Vec<String> {
        self.pipeline.as_ref().map(|(pipeline, _)| pipeline.ops()).unwrap_or_default()
    }

    /// Sample `id` as it looks in `epoch`, with the name of its class below, or of the epoch where it is repeated.
    pub fn cell(&mut self, id: u64, epoch: u32) -> Result<Cell, Error> {
        let picture = self.picture_of(id, epoch)?;
        let words = match epoch {
            0 => self.words.clone(),
            _ => format!("epoch {epoch}"),
        };
        Ok(Cell { picture: picture::fit(picture, WISHED, MOST), words })
    }

    /// Sample `id` as it looks in `epoch`.
    pub fn picture_of(&mut self, id: u64, epoch: u32) -> Result<RgbImage, Error> {
        let mut copy = std::mem::take(&mut self.record);
        let (example, label) = self.split.record(id, &mut copy)?;
        self.label = label;
        self.words = self.split.class_text(&example).map_err(|fault| Error::Loaders(self.split.fault(id, fault)))?;
        let picture = self.picture(&example, id, epoch);
        self.record = copy;
        picture
    }

    /// The class of the last one; of several the first.
    pub fn label(&self) -> u32 {
        self.label
    }

    /// The names of the classes of the last one, where there may be several; else empty.
    pub fn several(&self) -> &str {
        if self.split.multi_label() { &self.words } else { "" }
    }

    fn picture(&mut self, example: &Example<'_>, id: u64, epoch: u32) -> Result<RgbImage, Error> {
        let failed = |fault| Error::Loaders(self.split.fault(id, fault));
        let spec = match &self.pipeline {
            Some((pipeline, _)) => pipeline.output(),
            None => decode::spec(example).map_err(failed)?,
        };
        if spec.channels != 1 && spec.channels != 3 {
            return Err(self.refusal(id, format!("an image of {spec}; only 1 or 3 channels can be shown")));
        }
        if let Some((pipeline, scale)) = &self.pipeline {
            pipeline.run(example, id, epoch, &mut self.scratch, &mut self.values).map_err(failed)?;
            return Ok(picture::of_floats(&self.values, spec, scale));
        }
        let bytes = decode::decode(example, spec, &mut self.pixels).map_err(failed)?;
        let (picture, length) = (picture::of_bytes(bytes, spec), bytes.len());
        picture.ok_or_else(|| self.refusal(id, format!("{length} bytes do not make an image of {spec}")))
    }

    /// The error of a record that cannot be shown.
    fn refusal(&self, id: u64, what: String) -> Error {
        match self.split.locate(id) {
            Ok((place, record)) => {
                let shard = self.split.dir().join(&self.split.shards()[place].file);
                Error::input(&shard, format!("record {record}: {what}"))
            }
            Err(error) => error.into(),
        }
    }
}
