//! Opens model files: reads weights, network and preprocessing, and plans the network for inference.

use std::path::{Path, PathBuf};

use backend::Backend;
use engine::{Graph, Purpose};
use formats::checkpoint;
use formats::checkpoint::foreign::{self, Failed, OUTPUT};
use formats::checkpoint::{ModelFile, Opened, rewrite, rewrite_weights};
use loaders::{ImageSpec, Images, Manifest, Pipeline};
use recipe::LossSpec;

use super::find_model::{FoundModel, data_in_recipe, find_model};
use super::request::ModelRequest;
use crate::error::Error;
use crate::train::evaluate::{NumberScale, TestTime, Views};
use crate::train::plan::network::{of_model, sizes_of};
use crate::train::plan::targets;
use crate::train::save::model;

pub struct LoadedModel {
    /// The model with the requested layers: last weights or averaged weights.
    pub model: ModelFile,
    /// Messages for the user: the chosen file, and whether another program has written to it.
    pub notes: Vec<String>,
}

/// How often another model is chosen if the chosen one is removed before it is open.
const TRIES: u32 = 10;

/// Finds and opens the requested model.
fn find_and_open(request: &ModelRequest) -> Result<(FoundModel, Opened), Error> {
    let mut left = TRIES;
    loop {
        let found = find_model(request)?;
        let opened = match ModelFile::open(&found.file) {
            Err(checkpoint::Error::Rewritten { .. }) => open_rewritten(&found.file),
            opened => opened.map_err(Error::from),
        };
        left -= 1;
        match opened {
            // a run that is in progress removes old checkpoints, and a resumed run renames its old model
            Err(_) if left > 0 && found.file != request.file && !found.file.exists() => {}
            opened => return Ok((found, opened?)),
        }
    }
}

/// Reads the requested model. With `request.ema` set, the averaged weights replace the last weights.
pub fn read(request: &ModelRequest) -> Result<LoadedModel, Error> {
    let (FoundModel { file, note }, opened) = find_and_open(request)?;
    let mut notes: Vec<String> = note.into_iter().collect();
    notes.extend(opened.warning_line(&file));
    let Opened { mut model, warning } = opened;
    if let Some(text) = warning.filter(|_| request.sealed) {
        return Err(checkpoint::Error::Unsealed { path: file, text }.into());
    }
    let averages = std::mem::take(&mut model.ema);
    if request.ema {
        if averages.is_empty() {
            let file = file.display();
            return Err(Error::Usage(format!(
                "--ema: {file} has no averages of its weights; leave --ema out, or train with --set ema.decay=0.999"
            )));
        }
        model.layers = averages;
        // they are scores of the last weights
        model.scores.clear();
    }
    Ok(LoadedModel { model, notes })
}

/// Returns the data set directory in the recipe of the requested model. Returns an error if the file is not a model, or
/// if its recipe has no data set.
pub fn data(request: &ModelRequest) -> Result<PathBuf, Error> {
    data_of(&read(request)?.model, &request.file)
}

/// Returns the data set directory in the model's recipe, or an error that names `file` if the recipe has none.
pub fn data_of(model: &ModelFile, file: &Path) -> Result<PathBuf, Error> {
    data_in_recipe(&model.recipe)
        .ok_or_else(|| Error::Usage(format!("{}: the model's recipe names no data set; add --data", file.display())))
}

/// Plans the model's network for inference and loads its weights. `sizes` are additional batch sizes.
pub fn graph<B: Backend>(model: &ModelFile, backend: B, batch: usize, sizes: &[usize]) -> Result<Graph<B>, Error> {
    let net = of_model(model)?;
    model::check(model, &model.layers, &net)?;
    let mut graph = Graph::new(backend, net, batch, Purpose::Infer, 0)?;
    for &size in sizes {
        graph.prepare(size)?;
    }
    model::restore(&mut graph, model)?;
    Ok(graph)
}

/// Returns the size of the images that the model was trained on. `h` and `w` are 0 if the images had different sizes.
pub fn images([c, h, w]: [usize; 3]) -> Images {
    match (h, w) {
        (0, 0) => Images::Varied { channels: c as u32 },
        _ => Images::Fixed(ImageSpec::new(h as u32, w as u32, c as u32)),
    }
}

/// Builds the pipeline from an image to the model's input.
pub fn pipeline(model: &ModelFile) -> Result<Pipeline, Error> {
    let pipeline = Pipeline::new(&model.preprocess, images(model.image), &manifest(model), 0)?;
    let made = sizes_of(Images::Fixed(pipeline.output()));
    if made != model.input {
        return Err(Error::Mismatch {
            what: format!("model file of network {}: shape of the preprocessed images", model.network),
            expected: format!("the input shape {:?}", model.input),
            got: format!("{made:?}"),
            cure: "the file was changed; copy it again, or use another model".into(),
        });
    }
    Ok(pipeline)
}

/// Returns the views of an image. Empty if test-time augmentation is off.
pub fn views(model: &ModelFile, plain: &Pipeline, test_time: TestTime) -> Result<Views, Error> {
    if !test_time.is_on() {
        return Ok(Vec::new());
    }
    test_time.views(plain, images(model.image), &manifest(model))
}

/// Builds a manifest with the properties of the training data that transforms need.
pub fn manifest(model: &ModelFile) -> Manifest {
    Manifest {
        version: 1,
        classes: if model.targets.is_empty() { model.classes.clone() } else { Vec::new() },
        targets: model.targets.clone(),
        bands: model.bands.clone(),
        mean: model.mean.clone(),
        std: model.std.clone(),
        ..Manifest::default()
    }
}

/// Returns how to convert the model's outputs to numbers. `None` if the outputs are class scores. `file` is for
/// messages. Returns an error if the recipe in the file has no loss for numbers.
pub fn number_scale(model: &ModelFile, file: &Path) -> Result<Option<NumberScale>, Error> {
    if model.targets.is_empty() {
        return Ok(None);
    }
    let recipe = model.recipe.parse::<toml::Table>().ok();
    let loss = recipe.and_then(|recipe| recipe.get("loss")?.clone().try_into::<LossSpec>().ok());
    match loss.as_ref().and_then(targets::distance) {
        Some(distance) => Ok(Some(NumberScale { targets: model.targets.clone(), distance })),
        None => Err(Error::Failed(format!(
            "{}: the model predicts numbers, but the recipe stored in the file has no loss for numbers (mse, l1 or huber); copy the file \
             again from the folder of its run",
            file.display()
        ))),
    }
}

// Model files that another program has rewritten. A child process reads them with libhdf5, which supports all of HDF5
// but may crash on a malicious file.

/// Opens a model file that another program has written. Returns an error if the child process reports one or was
/// killed, or if data is missing in the file.
pub fn open_rewritten(path: &Path) -> Result<Opened, Error> {
    match foreign::rewritten(path, &[]) {
        Ok(copy) => Ok(ModelFile::open_copy(&copy.name(), path)?),
        Err(Failed::Copy(why)) => Err(Error::Failed(format!("{}: {why}", path.display()))),
        Err(Failed::Said(said)) => Err(Error::Failed(format!(
            "{} was written by another program, and HDF5 cannot read it: {said}. Use the file that trireme wrote",
            path.display()
        ))),
    }
}

/// Runs in the child process. Rewrites a model, or with `weights` set the weights of a Keras file, to standard output.
/// Memory and time are limited. Returns an error if HDF5 cannot read the file.
pub fn serve(file: &Path, weights: bool) -> Result<(), Error> {
    foreign::limit(file).map_err(Error::file("read", file))?;
    let rewrite = if weights { rewrite_weights } else { rewrite };
    Ok(rewrite(file, Path::new(OUTPUT))?)
}
