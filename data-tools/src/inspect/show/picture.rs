//! Pictures for contact sheets and thumbnails, as stored or as a network sees them.

use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::PngEncoder;
use image::imageops::{self, FilterType};
use image::{DynamicImage, Rgb, RgbImage};
use loaders::transform::{Scratch, selected_bands};
use loaders::{Example, ImageSpec, LabelKind, Manifest, Pipeline, Split, decode};

use crate::error::Error;
use crate::image::false_colours::{FalseColours, is_photo};
use crate::inspect::extract;
use crate::raw::values::Values;

/// Converts network inputs back to bytes: byte = value * factor + offset, with a pair of (factor, offset) per channel or
/// a single pair. It inverts the ops of the pipeline that change the range 0 to 255.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scale(Vec<(f64, f64)>);

impl Scale {
    /// Determines the scale from a pipeline's ops as written by `Pipeline::ops`. `standardize` uses a different mean
    /// and deviation for each image, so its range from two deviations below to two above the mean becomes black to
    /// white. After `log1p`, the picture shows the logarithms.
    pub(super) fn from_ops(ops: &[String]) -> Self {
        let (mut scale, mut are_bytes) = (Self(vec![(1.0, 0.0)]), true);
        for op in ops {
            let (name, arguments) = op.split_once('(').unwrap_or((op.as_str(), ""));
            let words = arguments.trim_end_matches(')').split(',');
            let numbers: Vec<f64> = words.filter_map(|word| word.trim().parse().ok()).collect();
            // The first normalize divides bytes by 255.
            let unit = if are_bytes { 255.0 } else { 1.0 };
            match (name, &numbers[..]) {
                ("normalize", numbers @ [_, _, ..]) => {
                    let (mean, std) = numbers.split_at(numbers.len() / 2);
                    let pairs: Vec<_> = mean.iter().zip(std).map(|(mean, std)| (unit * std, unit * mean)).collect();
                    scale = scale.after(&pairs);
                }
                ("scale", [min, max]) => scale = scale.after(&[(max - min, *min)]),
                ("standardize", _) => scale = Self(vec![(63.75, 127.5)]),
                ("log1p", _) => scale = scale.after_log1p(),
                _ => continue,
            }
            are_bytes = false;
        }
        scale
    }

    /// Returns the scale for values that were also changed to (value - shift) / divisor. `pairs` has (divisor, shift)
    /// per channel, or a single pair.
    fn after(&self, pairs: &[(f64, f64)]) -> Self {
        let pair = |channel: usize| {
            let (factor, offset) = self.0[channel % self.0.len()];
            let (divisor, shift) = pairs[channel % pairs.len()];
            (factor * divisor, factor * shift + offset)
        };
        Self((0..self.0.len().max(pairs.len())).map(pair).collect())
    }

    /// Returns the scale for values that were also changed to their logarithms: black and white stay black and white.
    fn after_log1p(&self) -> Self {
        let pair = |&(factor, offset): &(f64, f64)| {
            let [black, white] = [0.0f64, 255.0].map(|byte| ((byte - offset) / factor).max(0.0).ln_1p());
            let factor = 255.0 / (white - black);
            (factor, -black * factor)
        };
        Self(self.0.iter().map(pair).collect())
    }

    fn byte(&self, channel: usize, value: f32) -> u8 {
        let (factor, offset) = self.0[channel % self.0.len()];
        (f64::from(value) * factor + offset).round() as u8
    }
}

/// Converts planar floats to a picture: the first three channels, or the first as grey if there are fewer.
pub(super) fn picture_from_floats(values: &[f32], spec: ImageSpec, scale: &Scale) -> RgbImage {
    let plane = spec.pixels();
    RgbImage::from_fn(spec.width, spec.height, |x, y| {
        let at = y as usize * spec.width as usize + x as usize;
        Rgb(std::array::from_fn(|k| {
            let channel = if spec.channels < 3 { 0 } else { k };
            scale.byte(channel, values[channel * plane + at])
        }))
    })
}

/// Converts interleaved bytes with 1 or 3 channels to a picture. Returns `None` if there are too few bytes.
pub(super) fn picture_from_bytes(bytes: &[u8], spec: ImageSpec) -> Option<RgbImage> {
    extract::picture(bytes, spec).map(DynamicImage::into_rgb8)
}

/// Scales a picture. Small pictures are enlarged by an integer factor towards `wished`, so that each pixel is visible.
/// Large pictures are shrunk so that the longer side has `most` pixels.
fn fit(picture: RgbImage, wished: u32, most: u32) -> RgbImage {
    let longer = picture.width().max(picture.height()).max(1);
    let (width, height, filter) = if longer > most {
        let shrunk = |side: u32| (u64::from(side) * u64::from(most) / u64::from(longer)).max(1) as u32;
        (shrunk(picture.width()), shrunk(picture.height()), FilterType::Triangle)
    } else {
        let times = (wished / longer).max(1);
        (picture.width() * times, picture.height() * times, FilterType::Nearest)
    };
    if (width, height) == picture.dimensions() {
        return picture;
    }
    imageops::resize(&picture, width, height, filter)
}

/// The longest side of a thumbnail. Smaller images keep their size.
const THUMBNAIL_SIDE: u32 = 112;
/// Thumbnails up to this side are PNGs, which show each pixel exactly and are still small.
const EXACT: u32 = 48;
/// JPEG quality of larger thumbnails.
const QUALITY: u8 = 85;

/// A small picture as an encoded file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thumbnail {
    /// Index of the image in its split.
    pub id: u64,
    /// The class of the image, or the first class if it has several.
    pub label: u32,
    /// The image's class names, or the values of its targets. Empty for a single-label data set.
    pub words: String,
    pub width: u32,
    pub height: u32,
    /// The media type: `image/png` or `image/jpeg`.
    pub kind: &'static str,
    pub bytes: Vec<u8>,
}

/// Encodes a picture and returns its media type and content.
fn encode(picture: &RgbImage) -> image::ImageResult<(&'static str, Vec<u8>)> {
    let mut file = Vec::new();
    let kind = match picture.width().max(picture.height()) <= EXACT {
        true => picture.write_with_encoder(PngEncoder::new(&mut file)).map(|()| "image/png")?,
        false => {
            picture.write_with_encoder(JpegEncoder::new_with_quality(&mut file, QUALITY)).map(|()| "image/jpeg")?
        }
    };
    Ok((kind, file))
}

/// Small pictures are enlarged to about this length of the longer side, as far as an integer factor allows.
const ENLARGED_SIDE: u32 = 128;
/// The longest side of a picture on a sheet. Network inputs are rarely larger.
const MAX_SIDE: u32 = 224;

/// A picture on a sheet with its caption.
pub(super) struct Cell {
    pub picture: RgbImage,
    pub words: String,
}

impl Cell {
    /// Scales the picture to the size that sheets show.
    pub fn new(picture: RgbImage, words: String) -> Self {
        Cell { picture: fit(picture, ENLARGED_SIDE, MAX_SIDE), words }
    }
}

/// Returns how the images of a data set are shown if they are not grey or RGB. `chosen` counts bands from 1.
fn false_colours(manifest: &Manifest, chosen: &[u32]) -> Result<FalseColours, String> {
    match manifest.bands.need_version() {
        true => FalseColours::new(&manifest.bands, chosen),
        false if chosen.is_empty() => Ok(FalseColours::default()),
        false => Err("bands to show do not apply to 8-bit grey or RGB images, which are shown as they are".into()),
    }
}

/// Returns an error if these bands cannot be shown: three bands as red, green and blue, or a single band as grey, counted
/// from 1. An empty list is always allowed.
///
/// # Errors
///
/// Returns a message that says what was expected.
pub fn check_shown_bands(manifest: &Manifest, chosen: &[u32]) -> Result<(), String> {
    false_colours(manifest, chosen).map(drop)
}

/// Renders the records of a split as pictures.
pub struct Viewer<'a> {
    split: &'a Split,
    /// The transforms and their scale. `None` renders pictures as stored.
    pipeline: Option<(Pipeline, Scale)>,
    /// How images that are not grey or RGB are shown.
    colours: FalseColours,
    scratch: Scratch,
    record: Vec<u8>,
    values: Vec<f32>,
    pixels: Vec<u8>,
    /// Class of the last rendered record.
    label: u32,
    /// Class names of the last rendered record.
    words: String,
}

impl<'a> Viewer<'a> {
    /// Creates a viewer for a split. Without transforms, pictures show the images as stored, otherwise as a network sees
    /// them. `seed` determines the random draws, as in training. `bands` are shown if images are not grey or RGB, as in
    /// [`ShowOptions::bands`](super::ShowOptions::bands).
    ///
    /// # Errors
    ///
    /// Returns an error if the transforms or the bands do not fit the images.
    pub fn new(
        manifest: &Manifest,
        split: &'a Split,
        transforms: &[String],
        seed: u64,
        bands: &[u32],
    ) -> Result<Self, Error> {
        let mut viewer = Self {
            split,
            pipeline: None,
            colours: FalseColours::default(),
            scratch: Scratch::default(),
            record: Vec::new(),
            values: Vec::new(),
            pixels: Vec::new(),
            label: 0,
            words: String::new(),
        };
        if !transforms.is_empty() {
            let pipeline =
                Pipeline::new(transforms, split.images_as(loaders::transform::exif_of(transforms))?, manifest, seed)?;
            viewer.values.resize(pipeline.output().values(), 0.0);
            let scale = Scale::from_ops(&pipeline.ops());
            viewer.pipeline = Some((pipeline, scale));
        }
        viewer.colours = false_colours(manifest, bands).map_err(Error::Usage)?;
        if !bands.is_empty() && !transforms.is_empty() {
            let channels = manifest.bands.channels.unwrap_or(0);
            let kept = selected_bands(transforms, &manifest.bands, channels).map_err(Error::Usage)?;
            viewer.colours = viewer.colours.of_selection(&kept);
        }
        Ok(viewer)
    }

    pub(super) fn ops(&self) -> Vec<String> {
        self.pipeline.as_ref().map(|(pipeline, _)| pipeline.ops()).unwrap_or_default()
    }

    /// Returns a thumbnail of image `id` in `epoch`.
    ///
    /// # Errors
    ///
    /// Returns an error if the record cannot be read or decoded.
    pub fn thumbnail(&mut self, id: u64, epoch: u32) -> Result<Thumbnail, Error> {
        let picture = fit(self.render(id, epoch)?, 0, THUMBNAIL_SIDE);
        let (width, height) = picture.dimensions();
        let (kind, bytes) = encode(&picture).map_err(|e| Error::Usage(format!("image {id}: {e}")))?;
        let is_single = self.split.label_kind() == LabelKind::OneClass;
        let (label, words) = (self.label, if is_single { String::new() } else { self.words.clone() });
        Ok(Thumbnail { id, label, words, width, height, kind, bytes })
    }

    /// Renders sample `id` as in epoch `epoch`. The caption is the class name for epoch 0, and the epoch for later
    /// epochs.
    pub(super) fn cell(&mut self, id: u64, epoch: u32) -> Result<Cell, Error> {
        let picture = self.render(id, epoch)?;
        let words = match epoch {
            0 => self.words.clone(),
            _ => format!("epoch {epoch}"),
        };
        Ok(Cell::new(picture, words))
    }

    pub(super) fn render(&mut self, id: u64, epoch: u32) -> Result<RgbImage, Error> {
        let mut copy = std::mem::take(&mut self.record);
        let (example, label) = self.split.record(id, &mut copy)?;
        self.label = label;
        self.words = self.split.class_text(&example).map_err(|fault| Error::Loaders(self.split.fault(id, fault)))?;
        let picture = self.picture(&example, id, epoch);
        self.record = copy;
        picture
    }

    fn picture(&mut self, example: &Example<'_>, id: u64, epoch: u32) -> Result<RgbImage, Error> {
        let failed = |fault| Error::Loaders(self.split.fault(id, fault));
        let spec = match &self.pipeline {
            Some((pipeline, _)) => pipeline.output(),
            None => decode::spec(example).map_err(failed)?,
        };
        if let Some((pipeline, scale)) = &self.pipeline {
            pipeline.run(example, id, epoch, &mut self.scratch, &mut self.values).map_err(failed)?;
            if is_photo(example) {
                return Ok(picture_from_floats(&self.values, spec, scale));
            }
            let picture = self.colours.picture_of_planes(&self.values, spec.channels as usize);
            return self.false_colours(id, picture, spec);
        }
        if !is_photo(example) {
            return self.false_colours(id, self.colours.picture(Values::of(example), example.encoded), spec);
        }
        let bytes = decode::decode(example, spec, &mut self.pixels).map_err(failed)?;
        let (picture, length) = (picture_from_bytes(bytes, spec), bytes.len());
        picture.ok_or_else(|| self.refusal(id, format!("{length} bytes are too few for an image of the shape {spec}")))
    }

    fn false_colours(&self, id: u64, (bytes, channels): (Vec<u8>, usize), spec: ImageSpec) -> Result<RgbImage, Error> {
        let spec = ImageSpec { channels: channels as u32, ..spec };
        picture_from_bytes(&bytes, spec)
            .ok_or_else(|| self.refusal(id, format!("the image of the shape {spec} is too small")))
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(ops: &[&str]) -> Scale {
        Scale::from_ops(&ops.iter().map(|op| op.to_string()).collect::<Vec<_>>())
    }

    #[test]
    fn normalisation_is_undone() {
        assert_eq!(scale(&["flip"]).byte(2, 77.4), 77);
        let normalized = scale(&["flip", "normalize(0.5, 0.25, 0.125, 0.5, 0.25, 2)", "cutout(2)"]);
        assert_eq!([0, 1, 2].map(|c| normalized.byte(c, 0.0)), [128, 64, 32]);
        assert_eq!([0, 1, 2].map(|c| normalized.byte(c, 1.0)), [255, 128, 255]);
        assert_eq!(scale(&["normalize(0.5, 0.5)"]).byte(1, -1.0), 0);
        assert_eq!([-2.0, 0.0, 2.0, 9.0].map(|v| scale(&["standardize"]).byte(0, v)), [0, 128, 255, 255]);
    }

    #[test]
    fn changes_of_the_range_are_undone_together() {
        let bytes = |ops: &[&str], values: [f32; 2]| values.map(|value| scale(ops).byte(1, value));
        assert_eq!(bytes(&["scale(0, 255)"], [0.2, 1.0]), [51, 255]);
        assert_eq!(bytes(&["scale(51, 102)", "normalize(0.5, 0.5)"], [-1.0, 1.0]), [51, 102]);
        assert_eq!(bytes(&["normalize(0.5, 0.5)", "scale(-1, 1)"], [0.2, 0.4]), [51, 102]);
        assert_eq!(bytes(&["standardize", "normalize(1, 2)"], [-1.5, 0.5]), [0, 255]);
        assert_eq!(bytes(&["log1p"], [0.0, 256f32.ln()]), [0, 255]);
        assert_eq!(bytes(&["scale(0, 255)", "log1p", "scale(0, 2)"], [0.0, 2f32.ln() / 2.0]), [0, 255]);
    }

    #[test]
    fn small_pictures_grow_by_whole_numbers_and_large_ones_shrink() {
        let size = |w, h| fit(RgbImage::new(w, h), 128, 224).dimensions();
        assert_eq!(size(32, 32), (128, 128));
        assert_eq!(size(28, 20), (112, 80));
        assert_eq!(size(224, 224), (224, 224));
        assert_eq!(size(500, 375), (224, 168));
        assert_eq!(size(10_000, 2), (224, 1));
    }

    #[test]
    fn small_pictures_keep_each_pixel_and_others_are_jpegs() {
        let picture = RgbImage::from_fn(32, 20, |x, y| image::Rgb([x as u8, y as u8, 7]));
        let (kind, bytes) = encode(&picture).unwrap();
        assert_eq!((kind, image::load_from_memory(&bytes).unwrap().into_rgb8()), ("image/png", picture));
        assert_eq!(encode(&RgbImage::new(112, 60)).unwrap().0, "image/jpeg");
    }
}
