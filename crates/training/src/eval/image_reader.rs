//! Turns image files and records into a model's inputs, and the model's outputs into predictions.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use base::text::printable;
use data_tools::raw::{self, Layout, Page, RawImage, RawOptions};
use formats::checkpoint::ModelFile;
use loaders::transform::{Scratch, as_read};
use loaders::{Dtype, Example, Format, Images, LabelKind, Limits, Pipeline, picture, regular};
use report::predictions::{Softmax, sigmoid};

use super::model::{LoadedModel, pipeline, read, views};
use super::pictures::Picture;
use super::request::ModelRequest;
use crate::error::Error;
use crate::train::evaluate::{TestTime, Views};

/// Default number of classes for a single-label model.
const TOP: usize = 5;

/// Selects which classes to report.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassSelection {
    /// Maximum number of classes. For a multi-label model `None` means no limit. For other models it means five, but one in the
    /// table that `predict --out` writes.
    pub top: Option<usize>,
    /// For a multi-label model, the probability that a class must exceed. `None` means 0.5.
    pub threshold: Option<f64>,
}

impl ClassSelection {
    /// Returns an error if a setting does not apply to models with this label kind.
    pub fn check(self, kind: LabelKind, model: &Path) -> Result<(), Error> {
        let model = model.display();
        match kind {
            LabelKind::OneClass if self.threshold.is_some() => Err(Error::Usage(format!(
                "--threshold applies only to multi-label models; {model} has one label per image. Leave it out, or use --top"
            ))),
            LabelKind::Numbers if self.threshold.is_some() || self.top.is_some() => Err(Error::Usage(format!(
                "--top and --threshold apply only to models of classes; {model} predicts numbers. Leave them out"
            ))),
            _ => Ok(()),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct ReadingRequest {
    /// Limits on memory and time for decoding an image.
    pub limits: Limits,
    pub test_time: TestTime,
    /// Axis order in arrays. `None` means the order in the model's data set.
    pub layout: Option<Layout>,
    /// True if each page of a TIFF is an image.
    pub by_page: bool,
}

/// Reads the images for a model.
pub(super) struct ImageReader {
    pub model: ModelFile,
    /// The views per image. The first is the plain view.
    pub views: Views,
    limits: Limits,
    /// How files other than PNG and JPEG are read. `None` if the model reads only PNG and JPEG files.
    reading: Option<RawOptions>,
    /// The file with the page that was read last. It is kept because its other pages are usually read next.
    last: Mutex<Option<(PathBuf, Arc<Vec<u8>>)>>,
}

impl ImageReader {
    /// Reads the requested model. Also returns messages for the user.
    pub fn open(request: &ModelRequest, wanted: &ReadingRequest) -> Result<(Self, Vec<String>), Error> {
        let LoadedModel { model, notes } = read(request)?;
        let plain = pipeline(&model)?;
        let several = views(&model, &plain, wanted.test_time)?;
        let views = if several.is_empty() { vec![(plain, 1.0)] } else { several };
        // With a nodata value, the conversion also read 8-bit TIFFs as values and not as photos.
        let bands = &model.bands;
        let is_raw = bands.need_version() || bands.reading.is_some() || bands.nodata.is_some();
        let reading = is_raw.then(|| RawOptions::of_dataset(&model.bands)).transpose();
        let mut reading = reading.map_err(|why| Error::Failed(format!("{}: {why}", request.file.display())))?;
        match (&mut reading, wanted.layout) {
            (Some(reading), Some(layout)) => reading.layout = Some(layout),
            (None, Some(_)) => {
                return Err(Error::Usage(format!(
                    "--layout applies to .npy and HDF5 files, but {} was trained on PNG or JPEG files; leave it out",
                    request.file.display()
                )));
            }
            (_, None) => {}
        }
        let page = reading.as_ref().map(|reading| reading.page);
        if wanted.by_page && page != Some(Page::Number(1)) {
            let why = match page {
                None => "was trained on PNG or JPEG files",
                Some(Page::All) => "was trained on TIFFs with all pages as one image",
                Some(Page::Number(_)) => "was trained on a later page of each TIFF",
            };
            let file = request.file.display();
            return Err(Error::Usage(format!(
                "--pages makes each page of a TIFF an image, but {file} {why}; leave it out"
            )));
        }
        Ok((Self { model, views, limits: wanted.limits, reading, last: Mutex::default() }, notes))
    }

    /// Returns true if the model also reads TIFF, `.npy` and HDF5 files.
    pub fn is_raw(&self) -> bool {
        self.reading.is_some()
    }

    /// Transforms a picture or, if the model needs it, a file with bands, and writes the result to `out`. Returns the
    /// file's height and width if a picture was resized to the data set's fixed image size.
    pub fn transform(&self, picture: &Picture, view: &Pipeline, out: &mut [f32]) -> Result<Option<(u32, u32)>, Error> {
        let path = picture.path.as_path();
        let may_be_picture = !self.model.bands.need_version();
        let is_photo = || is_picture(path).unwrap_or(false);
        let Some(reading) = self.reading.as_ref().filter(|_| !(may_be_picture && is_photo())) else {
            self.check_depth(picture)?;
            return Ok(picture::transform(path, view, self.limits, out)?);
        };
        let RawImage { dtype, height, width, channels, bytes, .. } = &self.read(picture, reading)?;
        let example = Example {
            encoded: bytes,
            format: Format::Raw,
            height: *height,
            width: *width,
            channels: *channels,
            dtype: *dtype,
            label: 0,
            labels: Default::default(),
            targets: Default::default(),
            text: "",
            filename: "",
            boxes: Default::default(),
            entry_points: &[],
        };
        let made = self.transform_record(&example, view, out);
        let named = picture.name();
        let refuse = |fault: loaders::Fault| loaders::Error::Picture { path: named.into(), problem: fault.to_string() };
        made.map_err(|fault| refuse(fault).into()).map(|()| None)
    }

    /// Returns an error if the conversion of the data set mapped a range of 16-bit values to bytes and the file has such
    /// values, because the decoder maps the full range.
    fn check_depth(&self, picture: &Picture) -> Result<(), Error> {
        let Some([min, max]) = self.model.bands.to_8bit.filter(|_| has_16_bits(&picture.path)) else { return Ok(()) };
        Err(Error::Failed(format!(
            "{}: the model's data set was converted with --to-8bit={min},{max}, but `predict` would map the full range of these 16-bit \
             values to bytes. Convert the image with `trireme data convert` and the same option, and predict that data set with --out",
            printable(&picture.name())
        )))
    }

    /// Transforms a record's image and writes the result to `out`.
    pub fn transform_record(
        &self,
        example: &Example<'_>,
        view: &Pipeline,
        out: &mut [f32],
    ) -> Result<(), loaders::Fault> {
        view.run(example, 0, 0, &mut Scratch::new(self.limits), out)
    }

    /// Reads a file with the options that were used to convert the data set. Replaces pixels without data by the mean
    /// of their band.
    fn read(&self, picture: &Picture, reading: &RawOptions) -> Result<RawImage, Error> {
        let name = picture.name();
        let found = match picture.page {
            None => raw::read(&picture.path, reading, &self.limits),
            Some(page) => self.load(&picture.path).and_then(|file| {
                let reading = RawOptions { page: Page::Number(page), ..reading.clone() };
                raw::decode(Path::new(&name), &file, &reading, &self.limits)
            }),
        };
        let mut image = found.map_err(|error| Error::Failed(error.to_string()))?;
        let (dtype, channels) = (self.model.bands.dtype, self.model.image[0]);
        // As in data sets, the decoder converts grey images of bytes to RGB.
        let becomes_rgb = (image.dtype, image.channels, channels) == (Dtype::U8, 1, 3) && image.nodata.is_none();
        let read = as_read(&self.model.preprocess, Images::Varied { channels: image.channels });
        let found = if becomes_rgb { channels } else { read.channels() as usize };
        if (image.dtype, found) != (dtype, channels) {
            return Err(Error::Failed(format!(
                "{}: expected {} of {dtype}, as in the images that the model was trained on, got {} of {}{}",
                printable(&name),
                base::text::plural(channels, "band"),
                image.channels,
                image.dtype,
                if reading.bands.is_empty() { "" } else { "; use the whole file, because the model selects its bands" }
            )));
        }
        let unit = if dtype == Dtype::U8 { 255.0 } else { 1.0 };
        image.fill_nodata(&self.model.mean.iter().map(|mean| mean * unit).collect::<Vec<f64>>());
        Ok(image)
    }

    /// Returns a file's contents, and keeps them until another file is read.
    fn load(&self, path: &Path) -> Result<Arc<Vec<u8>>, data_tools::Error> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, file)) = last.as_ref().filter(|(known, _)| known == path) {
            return Ok(Arc::clone(file));
        }
        // Free the memory of the other file first.
        *last = None;
        let file = Arc::new(raw::load(path)?);
        *last = Some((path.to_path_buf(), Arc::clone(&file)));
        Ok(file)
    }

    /// Converts an image's scores to class probabilities, likeliest first. If the model predicts numbers, returns all
    /// of them in the targets' units and order. Returns a message if a score is not finite.
    pub fn select(&self, scores: &[f32], wanted: ClassSelection) -> Result<Vec<(usize, f64)>, String> {
        let kind = self.model.label_kind();
        let found: Vec<f64> = match kind {
            LabelKind::OneClass => {
                let softmax = Softmax::of(scores);
                scores.iter().map(|score| softmax.log(*score).exp()).collect()
            }
            LabelKind::Classes => scores.iter().map(|score| sigmoid(*score)).collect(),
            LabelKind::Numbers => {
                let each = scores.iter().zip(&self.model.targets);
                each.map(|(score, target)| target.restore(f64::from(*score))).collect()
            }
        };
        if let Some(class) = found.iter().position(|value| !value.is_finite()) {
            return Err(format!(
                "the model's scores are not finite ({}: {}), so it cannot predict anything. Either training has diverged, or the \
                 transforms differ from those in training",
                printable(&self.model.classes[class]),
                scores[class]
            ));
        }
        let mut order: Vec<usize> = (0..scores.len()).collect();
        let by_score = |&a: &usize, &b: &usize| scores[b].total_cmp(&scores[a]).then(a.cmp(&b));
        let most = match kind {
            LabelKind::Numbers => order.len(),
            LabelKind::Classes => {
                order.sort_by(by_score);
                let threshold = wanted.threshold.unwrap_or(0.5);
                order.retain(|i| found[*i] > threshold);
                wanted.top.unwrap_or(order.len())
            }
            LabelKind::OneClass => {
                order.sort_by(by_score);
                wanted.top.unwrap_or(TOP)
            }
        };
        Ok(order.into_iter().take(most).map(|i| (i, found[i])).collect())
    }
}

/// Returns true if a file begins as a PNG or JPEG file does. Returns an error if the file cannot be read or has less than four bytes.
pub fn is_picture(path: &Path) -> io::Result<bool> {
    let mut head = [0; 4];
    regular::open(path)?.read_exact(&mut head)?;
    Ok(head == *b"\x89PNG" || head.starts_with(&[0xff, 0xd8]))
}

/// Returns true if a file is a PNG with 16 bits per value.
fn has_16_bits(path: &Path) -> bool {
    // the bit depth follows the signature, the length and name of the first chunk, the width and the height
    let mut head = [0; 25];
    let read = regular::open(path).and_then(|mut file| file.read_exact(&mut head));
    read.is_ok() && head.starts_with(b"\x89PNG") && head[24] == 16
}
