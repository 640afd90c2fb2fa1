//! Classifies pictures with a model file.

use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use backend::Backend;
use base::screen;
use data_tools::npy;
use engine::Graph;
use engine::graph::BuildError;
use loaders::LabelKind;
use loaders::overwrite::Content;
use loaders::safe_create::NewFile;
use net::Shape;

pub use super::image_reader::ClassSelection;
use super::image_reader::{ImageReader, ReadingRequest};
use super::model::graph;
use super::pictures::Picture;
use super::request::ModelRequest;
use crate::device::{Device, DeviceSettings, F32_SETTINGS, RequestedThreads, Resources};
use crate::error::Error;

/// A picture's likeliest classes, or its predicted numbers.
pub struct Prediction {
    /// Index, name and probability per class, likeliest first. If the model predicts numbers: index, name and number
    /// per target, in the targets' order.
    pub classes: Vec<(usize, String, f64)>,
    /// Height and width in the file, if the picture was resized to the fixed size of the data set's images.
    pub resized_from: Option<(u32, u32)>,
}

/// A model that predicts classes or numbers for pictures.
pub trait Predict {
    /// Returns the likeliest classes for an image, as selected by `wanted`. The file is PNG or JPEG. If the model
    /// was trained on other value types or bands, it can also be TIFF, 16-bit PNG, `.npy` or HDF5.
    fn predict(&mut self, picture: &Picture, wanted: ClassSelection) -> Result<Prediction, Error>;

    fn label_kind(&self) -> LabelKind;

    /// Returns the class names or target names.
    fn names(&self) -> &[String];

    /// Returns true if the model also reads TIFF, `.npy` and HDF5 files.
    fn is_raw(&self) -> bool;

    /// Returns the last layer's input for the picture of the last `predict` call. If it is not a vector, returns the
    /// mean of each channel.
    fn features(&self) -> Result<Vec<f32>, Error>;

    /// Returns messages for the user about the model.
    fn notes(&self) -> &[String];
}

/// A model that predicts classes or numbers for pictures on the backend `B`.
pub struct Predictor<B: Backend> {
    reader: ImageReader,
    graph: Graph<B>,
    notes: Vec<String>,
}

impl<B: Backend> Predictor<B> {
    /// Reads the requested model and plans its network for one picture. `reading` says how pictures are read.
    pub fn open<D: Device<Backend = B>>(
        device: &D,
        request: &ModelRequest,
        reading: &ReadingRequest,
    ) -> Result<Self, Error> {
        let (reader, notes) = ImageReader::open(request, reading)?;
        let threads = Resources::of_process::<D>(RequestedThreads::default()).compute;
        let backend = device.open(&DeviceSettings { threads, ..F32_SETTINGS })?;
        let graph = graph(&reader.model, backend, 1, &[])?;
        Ok(Self { reader, graph, notes })
    }
}

impl<B: Backend> Predict for Predictor<B> {
    fn predict(&mut self, picture: &Picture, wanted: ClassSelection) -> Result<Prediction, Error> {
        let reader = &self.reader;
        let mut input = vec![0.0; reader.views[0].0.output().values()];
        let (mut scores, mut resized_from) = (Vec::new(), None);
        // the plain view is last, so `features` returns the features of the unmodified picture
        for (view, weight) in reader.views.iter().rev() {
            resized_from = reader.transform(picture, view, &mut input)?;
            let found = self.graph.scores(&input, 1)?;
            scores.resize(found.len(), 0f32);
            scores.iter_mut().zip(&found).for_each(|(sum, score)| *sum += weight * score);
        }
        self.graph.take_notes().iter().for_each(|note| screen::say(note));
        let found = reader
            .select(&scores, wanted)
            .map_err(|what| Error::Failed(format!("{}: {what}", base::text::printable(&picture.name()))))?;
        let class = |(i, p): (usize, f64)| (i, reader.model.classes[i].clone(), p);
        Ok(Prediction { classes: found.into_iter().map(class).collect(), resized_from })
    }

    fn label_kind(&self) -> LabelKind {
        self.reader.model.label_kind()
    }

    fn names(&self) -> &[String] {
        &self.reader.model.classes
    }

    fn is_raw(&self) -> bool {
        self.reader.is_raw()
    }

    fn features(&self) -> Result<Vec<f32>, Error> {
        features(&self.graph)
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// Returns the last layer's inputs for all images in the previous pass, concatenated. If they are not vectors, returns
/// their mean per channel.
pub(super) fn features<B: Backend>(graph: &Graph<B>) -> Result<Vec<f32>, Error> {
    let net = graph.net();
    let (tensor, shapes) = (net.features().0, net.shapes().map_err(BuildError::from)?);
    let Shape { h, w, .. } = shapes[tensor];
    let values = graph.output(tensor)?;
    Ok(values.chunks_exact(h * w).map(|plane| plane.iter().sum::<f32>() / plane.len() as f32).collect())
}

/// Kind of file that a feature table may overwrite.
pub const NPY: Content = Content { name: "a NumPy array (.npy)", begins: |head| head.starts_with(npy::MAGIC) };

/// A NumPy array that is written row by row to a temporary file. `finish` renames the file.
pub struct NpyWriter {
    path: PathBuf,
    file: NewFile,
    columns: usize,
    rows: usize,
}

impl NpyWriter {
    /// Creates a temporary file next to `path`. Returns an error if the file cannot be written.
    pub fn create(path: &Path, columns: usize) -> Result<Self, Error> {
        let refuse = Error::file("write", path);
        let mut file = NewFile::beside(path).map_err(refuse)?;
        file.file().and_then(|file| file.write_all(&[b' '; npy::HEADER_BYTES])).map_err(refuse)?;
        Ok(Self { path: path.to_path_buf(), file, columns, rows: 0 })
    }

    /// Appends a row. Returns an error if the file cannot be written, or [`Error::Mismatch`] if the row has the wrong
    /// length.
    pub fn add(&mut self, row: &[f32]) -> Result<(), Error> {
        if row.len() != self.columns {
            return Err(Error::Mismatch {
                what: format!("a row of {}", self.path.display()),
                expected: format!("{} values", self.columns),
                got: row.len().to_string(),
                cure: "this is a bug in trireme, please report it".into(),
            });
        }
        let path = &self.path;
        let write = |file: &mut std::fs::File| {
            let mut out = BufWriter::new(file);
            row.iter().try_for_each(|value| out.write_all(&value.to_le_bytes()))?;
            out.flush()
        };
        self.file.file().and_then(write).map_err(Error::file("write", path))?;
        self.rows += 1;
        Ok(())
    }

    /// Writes the header and renames the temporary file to its final name. Returns an error if the file cannot be
    /// written.
    pub fn finish(mut self) -> Result<(), Error> {
        let refuse = Error::file("write", &self.path);
        let head = npy::f32_header(self.rows, self.columns);
        let file = self.file.file().map_err(refuse)?;
        file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(&head)).map_err(refuse)?;
        self.file.publish().map(drop).map_err(refuse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the header that `numpy.save("x.npy", numpy.zeros((2, 3), "<f4"))` writes.
    #[test]
    fn header_matches_numpy() {
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
