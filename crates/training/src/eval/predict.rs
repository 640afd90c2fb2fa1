//! Classifies pictures with a model file.

use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use backend::Backend;
use base::screen;
use data_tools::npy;
use data_tools::raw::{self, RawImage, RawOptions};
use engine::Graph;
use engine::graph::BuildError;
use formats::checkpoint::ModelFile;
use loaders::overwrite::Content;
use loaders::safe_create::NewFile;
use loaders::transform::Scratch;
use loaders::{Dtype, Example, Format, LabelKind, Limits, Pipeline, picture, regular};
use net::Shape;
use report::predictions::sigmoid;

use super::model::{INFERENCE_SETTINGS, LoadedModel, graph, pipeline, read, views};
use super::request::ModelRequest;
use crate::device::{Device, DeviceSettings, RequestedThreads, Resources};
use crate::error::Error;
use crate::train::evaluate::{TestTime, Views};

/// The likeliest classes of a picture, or its numbers.
pub struct Prediction {
    /// Index, name and probability of each class, likeliest first. If the model predicts numbers, each target with its
    /// number in their order.
    pub classes: Vec<(usize, String, f64)>,
    /// Height and width in the file, if the picture was resized to the fixed size of the data set's images.
    pub resized_from: Option<(u32, u32)>,
}

/// Selects which classes to report.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassSelection {
    /// Maximum number of classes. `None` means five, or no limit for a multi-label model.
    pub top: Option<usize>,
    /// For a multi-label model, the probability that a class must exceed. `None` means 0.5.
    pub threshold: Option<f64>,
}

/// Default number of classes for a single-label model.
const TOP: usize = 5;

/// A model that classifies pictures.
pub trait Predict {
    /// Returns the likeliest classes for a PNG or JPEG file, as selected by `wanted`. If the model was trained on other
    /// types or bands, it reads TIFF, 16-bit PNG, `.npy` and HDF5.
    fn predict(&mut self, path: &Path, wanted: ClassSelection) -> Result<Prediction, Error>;

    /// Returns what the model predicts.
    fn label_kind(&self) -> LabelKind;

    /// Returns the names of the classes or targets.
    fn names(&self) -> &[String];

    /// Returns the last layer's input for the previous picture. If it is not a vector, returns the mean of each
    /// channel.
    fn features(&self) -> Result<Vec<f32>, Error>;

    /// Returns messages for the user about the model.
    fn notes(&self) -> &[String];
}

/// A model that classifies pictures on the backend `B`.
pub struct Predictor<B: Backend> {
    model: ModelFile,
    graph: Graph<B>,
    /// The views of a picture, starting with the plain one.
    views: Views,
    limits: Limits,
    /// How files are read that are not pictures. `None` if all files are pictures.
    reading: Option<RawOptions>,
    notes: Vec<String>,
}

impl<B: Backend> Predictor<B> {
    /// Reads the requested model. `limits` bound the memory and time for decoding a picture.
    pub fn open<D: Device<Backend = B>>(
        device: &D,
        request: &ModelRequest,
        limits: Limits,
        test_time: TestTime,
    ) -> Result<Self, Error> {
        let LoadedModel { model, notes } = read(request)?;
        let plain = pipeline(&model)?;
        let several = views(&model, &plain, test_time)?;
        let views = if several.is_empty() { vec![(plain, 1.0)] } else { several };
        let is_raw = model.bands.need_version() || model.bands.reading.is_some();
        let reading = is_raw.then(|| RawOptions::of_dataset(&model.bands)).transpose();
        let reading = reading.map_err(|why| Error::Failed(format!("{}: {why}", request.file.display())))?;
        let threads = Resources::of_process::<D>(RequestedThreads::default()).compute;
        let backend = device.open(&DeviceSettings { threads, ..INFERENCE_SETTINGS })?;
        let graph = graph(&model, backend, 1, &[])?;
        Ok(Self { model, graph, views, limits, reading, notes })
    }
}

impl<B: Backend> Predictor<B> {
    /// Transforms a picture or, if the model needs it, a file with bands, and writes the result to `out`. Returns the
    /// file's height and width if a picture was resized to the data set's fixed image size.
    fn transform(&self, path: &Path, view: &Pipeline, out: &mut [f32]) -> Result<Option<(u32, u32)>, Error> {
        let may_be_picture = !self.model.bands.need_version();
        let Some(reading) = self.reading.as_ref().filter(|_| !(may_be_picture && is_picture(path))) else {
            return Ok(picture::transform(path, view, self.limits, out)?);
        };
        let RawImage { dtype, height, width, channels, bytes, .. } = &self.read(path, reading)?;
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
        let made = view.run(&example, 0, 0, &mut Scratch::new(self.limits), out);
        let refuse = |fault: loaders::Fault| loaders::Error::Picture { path: path.into(), problem: fault.to_string() };
        made.map_err(|fault| refuse(fault).into()).map(|()| None)
    }
}

impl<B: Backend> Predictor<B> {
    /// Reads a file with the conversion's options. Replaces pixels without data by their band's mean.
    fn read(&self, path: &Path, reading: &RawOptions) -> Result<RawImage, Error> {
        let read = raw::read(path, reading, &self.limits);
        let mut image = read.map_err(|error| Error::Failed(error.to_string()))?;
        let (dtype, channels) = (self.model.bands.dtype, self.model.image[0]);
        if (image.dtype, image.channels as usize) != (dtype, channels) {
            return Err(Error::Failed(format!(
                "{}: expected {channels} bands of {dtype}, as in the images that the model was trained on, got {} of {}{}",
                base::text::printable(&path.to_string_lossy()),
                image.channels,
                image.dtype,
                if reading.bands.is_empty() {
                    ""
                } else {
                    "; give the whole file, because the model selects its bands"
                }
            )));
        }
        let unit = if dtype == Dtype::U8 { 255.0 } else { 1.0 };
        image.fill_nodata(&self.model.mean.iter().map(|mean| mean * unit).collect::<Vec<f64>>());
        Ok(image)
    }
}

impl<B: Backend> Predict for Predictor<B> {
    fn predict(&mut self, path: &Path, wanted: ClassSelection) -> Result<Prediction, Error> {
        let mut input = vec![0.0; self.views[0].0.output().values()];
        let (mut scores, mut resized_from) = (Vec::new(), None);
        // the plain view is last, so `features` returns the features of the unmodified picture
        for (view, weight) in self.views.iter().rev() {
            resized_from = self.transform(path, view, &mut input)?;
            let found = self.graph.scores(&input, 1)?;
            scores.resize(found.len(), 0f32);
            scores.iter_mut().zip(&found).for_each(|(sum, score)| *sum += weight * score);
        }
        self.graph.take_notes().iter().for_each(|note| screen::say(note));
        let probabilities = match self.model.label_kind() {
            LabelKind::OneClass => softmax(&scores),
            LabelKind::Classes => sigmoids(&scores),
            LabelKind::Numbers => {
                let each = scores.iter().zip(&self.model.targets);
                each.map(|(score, target)| target.restore(f64::from(*score))).collect()
            }
        };
        if let Some(class) = probabilities.iter().position(|p| !p.is_finite()) {
            return Err(Error::Failed(format!(
                "{}: the model's scores are not finite ({}: {}), so it cannot predict anything. Either training has diverged, or the \
                 transforms differ from those in training",
                base::text::printable(&path.to_string_lossy()),
                base::text::printable(&self.model.classes[class]),
                scores[class]
            )));
        }
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
        let most = match self.model.label_kind() {
            LabelKind::Numbers => {
                order.sort_unstable();
                order.len()
            }
            LabelKind::Classes => {
                let threshold = wanted.threshold.unwrap_or(0.5);
                order.retain(|i| probabilities[*i] > threshold);
                wanted.top.unwrap_or(order.len())
            }
            LabelKind::OneClass => wanted.top.unwrap_or(TOP),
        };
        let class = |i: usize| (i, self.model.classes[i].clone(), probabilities[i]);
        let classes = order.into_iter().take(most).map(class).collect();
        Ok(Prediction { classes, resized_from })
    }

    fn label_kind(&self) -> LabelKind {
        self.model.label_kind()
    }

    fn names(&self) -> &[String] {
        &self.model.classes
    }

    fn features(&self) -> Result<Vec<f32>, Error> {
        let net = self.graph.net();
        let (tensor, shapes) = (net.features().0, net.shapes().map_err(BuildError::from)?);
        let Shape { h, w, .. } = shapes[tensor];
        let values = self.graph.output(tensor)?;
        Ok(values.chunks_exact(h * w).map(|plane| plane.iter().sum::<f32>() / plane.len() as f32).collect())
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// Returns true if a file begins as a PNG or JPEG file does.
fn is_picture(path: &Path) -> bool {
    let mut head = [0; 4];
    let read = regular::open(path).and_then(|mut file| file.read_exact(&mut head));
    read.is_ok() && (head == *b"\x89PNG" || head.starts_with(&[0xff, 0xd8]))
}

/// Converts scores to probabilities that add up to 1.
fn softmax(scores: &[f32]) -> Vec<f64> {
    let highest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f64> = scores.iter().map(|s| f64::from(s - highest).exp()).collect();
    let total: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / total).collect()
}

/// Converts scores to independent probabilities per class.
fn sigmoids(scores: &[f32]) -> Vec<f64> {
    scores.iter().map(|score| sigmoid(*score)).collect()
}

/// Kind of file that a feature table may overwrite.
pub const NPY: Content = Content { name: "an array of NumPy", begins: |head| head.starts_with(npy::MAGIC) };

/// A NumPy array that is written row by row. It gets its name when it is complete.
pub struct NpyWriter {
    path: PathBuf,
    file: NewFile,
    columns: usize,
    rows: usize,
}

impl NpyWriter {
    /// Creates a temporary file next to `path`.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written.
    pub fn create(path: &Path, columns: usize) -> Result<Self, Error> {
        let refuse = |source| refusal(path, source);
        let mut file = NewFile::beside(path).map_err(refuse)?;
        file.file().and_then(|file| file.write_all(&[b' '; npy::HEADER_BYTES])).map_err(refuse)?;
        Ok(Self { path: path.to_path_buf(), file, columns, rows: 0 })
    }

    /// Appends a row.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written, or [`Error::Mismatch`] if the row has the wrong length.
    pub fn add(&mut self, row: &[f32]) -> Result<(), Error> {
        if row.len() != self.columns {
            return Err(Error::Mismatch {
                what: format!("a row of {}", self.path.display()),
                expected: format!("{} values", self.columns),
                got: row.len().to_string(),
                cure: "this is a bug in trireme".into(),
            });
        }
        let path = &self.path;
        let write = |file: &mut std::fs::File| {
            let mut out = BufWriter::new(file);
            row.iter().try_for_each(|value| out.write_all(&value.to_le_bytes()))?;
            out.flush()
        };
        self.file.file().and_then(write).map_err(|source| refusal(path, source))?;
        self.rows += 1;
        Ok(())
    }

    /// Writes the header and gives the file its name.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written.
    pub fn finish(mut self) -> Result<(), Error> {
        let refuse = |source| refusal(&self.path, source);
        let head = npy::f32_header(self.rows, self.columns);
        let file = self.file.file().map_err(refuse)?;
        file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(&head)).map_err(refuse)?;
        self.file.publish().map(drop).map_err(|source| refusal(&self.path, source))
    }
}

fn refusal(path: &Path, source: std::io::Error) -> Error {
    Error::File { action: "write", path: path.to_path_buf(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the header that `numpy.save("x.npy", numpy.zeros((2, 3), "<f4"))` writes.
    #[test]
    fn the_head_is_that_of_numpy() {
        let expected = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
        let head = npy::f32_header(2, 3);
        assert_eq!(&head[..10], b"\x93NUMPY\x01\x00v\x00");
        assert_eq!(&head[10..][..expected.len()], expected.as_bytes());
        assert_eq!((head.len(), head[127]), (128, b'\n'));
        let path = std::env::temp_dir().join(format!("trireme-npy-{}", std::process::id()));
        let mut table = NpyWriter::create(&path, 2).unwrap();
        table.add(&[1.0, 2.0]).unwrap();
        table.add(&[3.0, 4.0]).unwrap();
        assert!(table.add(&[5.0]).unwrap_err().to_string().contains("expected 2 values, got 1"));
        assert!(!path.exists());
        table.finish().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!((bytes.len(), &bytes[140..]), (144, &4f32.to_le_bytes()[..]));
        std::fs::remove_file(path).unwrap();
    }
}
