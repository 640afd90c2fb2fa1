//! A model file ready for use: its weights, its network, and what it says of images.

use std::path::{Path, PathBuf};

use super::foreign;
use super::request::ModelRequest;
use crate::backend::{Backend, Precision};
use crate::checkpoint::{self, ModelFile, Opened};
use crate::device::DeviceSettings;
use crate::error::Error;
use crate::nn::{Graph, Purpose};
use crate::train::plan::network::of_model;
use crate::train::save::{model, saver};
use loaders::{ImageSpec, Images, Manifest, Pipeline};

/// Models are used in f32, whatever they were trained in.
pub const SETTINGS: DeviceSettings =
    DeviceSettings { threads: 1, node_rank: 0, precision: Precision::F32, tf32: false, deterministic: true };

/// The model file that is meant: of a run's folder its model.h5 or, where the run is not over, its newest checkpoint.
fn file(given: &Path) -> Result<PathBuf, Error> {
    if !given.is_dir() {
        return Ok(given.to_path_buf());
    }
    let file = given.join("model.h5");
    if file.exists() {
        return Ok(file);
    }
    let newest = saver::list(&given.join("checkpoints")).ok().and_then(|files| files.into_iter().next());
    newest.map(|(_, path)| path).ok_or_else(|| {
        let (folder, file) = (given.display(), file.display());
        Error::Failed(format!(
            "{folder} is a folder without {file} and without checkpoints; give the output folder of a run, or a model file"
        ))
    })
}

/// What was chosen, if it is not what was given.
fn choice(given: &Path, chosen: &Path) -> Option<String> {
    let over = chosen.parent() == Some(given);
    let why = if over { "" } else { ", the newest checkpoint: the run has no model.h5 yet" };
    (given != chosen).then(|| format!("model: {}{why}", chosen.display()))
}

/// A model that was read.
pub struct Read {
    /// The model; its layers are those that were requested.
    pub model: ModelFile,
    /// What a user should know: which file was chosen, and whether another program wrote into it.
    pub notes: Vec<String>,
}

/// The requested model, with `ema` its averaged weights in place of the last ones.
pub fn read(request: &ModelRequest) -> Result<Read, Error> {
    let file = &file(&request.file)?;
    let mut notes: Vec<String> = choice(&request.file, file).into_iter().collect();
    let Opened { mut model, warning } = match ModelFile::open(file) {
        Err(checkpoint::Error::Rewritten { .. }) => foreign::open(file)?,
        opened => opened?,
    };
    if let Some(text) = warning {
        if request.sealed {
            return Err(checkpoint::Error::Unsealed { path: file.clone(), text }.into());
        }
        notes.push(format!("warning: another program wrote into {} since trireme wrote it: {text}", file.display()));
    }
    let averages = std::mem::take(&mut model.ema);
    if request.ema {
        if averages.is_empty() {
            let file = file.display();
            return Err(Error::Usage(format!(
                "--ema: {file} holds no averages of its weights; leave --ema out, or train with --set ema.decay=0.999"
            )));
        }
        model.layers = averages;
    }
    Ok(Read { model, notes })
}

/// The model's network, planned for inference.
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

/// What a model file says of the images that it was trained on.
pub fn images([c, h, w]: [usize; 3]) -> Images {
    match (h, w) {
        (0, 0) => Images::Varied { channels: c as u32 },
        _ => Images::Fixed(ImageSpec::new(h as u32, w as u32, c as u32)),
    }
}

/// From an image of the model's data set to its input.
pub fn pipeline(model: &ModelFile) -> Result<Pipeline, Error> {
    let pipeline = Pipeline::new(&model.preprocess, images(model.image), &manifest(model), 0)?;
    let made = pipeline.output();
    let made = [made.channels, made.height, made.width].map(|n| n as usize);
    if made != model.input {
        return Err(Error::Mismatch {
            what: format!("model file of network {}: what its preprocessing makes", model.network),
            expected: format!("its input {:?}", model.input),
            got: format!("{made:?}"),
            cure: "the file was changed; copy it again, or take another model".into(),
        });
    }
    Ok(pipeline)
}

/// What transforms may need of the data set that the model was trained on.
fn manifest(model: &ModelFile) -> Manifest {
    Manifest {
        version: 1,
        classes: model.classes.clone(),
        label_offset: 0,
        mean: model.mean.clone(),
        std: model.std.clone(),
        splits: Default::default(),
    }
}
