//! A model file ready for use: its weights, its network, and what it says of images.

use std::path::Path;

use crate::backend::{Backend, Precision};
use crate::checkpoint::ModelFile;
use crate::device::DeviceSettings;
use crate::error::Error;
use crate::nn::{Graph, Purpose};
use crate::train::plan::source::network;
use crate::train::save::model;
use loaders::{ImageSpec, Images, Manifest};

/// Models are used in f32, whatever they were trained in.
pub const SETTINGS: DeviceSettings =
    DeviceSettings { threads: 1, node_rank: 0, precision: Precision::F32, tf32: false, deterministic: true };

/// A model file, with `ema` its averaged weights in place of the last ones.
pub fn read(file: &Path, ema: bool) -> Result<ModelFile, Error> {
    let mut model = ModelFile::read(file)?;
    let averages = std::mem::take(&mut model.ema);
    if ema {
        if averages.is_empty() {
            let file = file.display();
            return Err(Error::Usage(format!(
                "--ema: {file} holds no averages of its weights; leave --ema out, or train with --set ema.decay=0.999"
            )));
        }
        model.layers = averages;
    }
    Ok(model)
}

/// The model's network, planned for inference.
pub fn graph<B: Backend>(model: &ModelFile, backend: B, batch: usize, sizes: &[usize]) -> Result<Graph<B>, Error> {
    let [c, h, w] = model.input.map(|n| n as u32);
    let net = network(&model.network, ImageSpec::new(h, w, c), model.classes.len())?;
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

/// What transforms may need of the data set that the model was trained on.
pub fn manifest(model: &ModelFile) -> Manifest {
    Manifest {
        version: 1,
        classes: model.classes.clone(),
        label_offset: 0,
        mean: model.mean.clone(),
        std: model.std.clone(),
        splits: Default::default(),
    }
}
