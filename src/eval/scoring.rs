//! Using a model file: scoring a data set on all ranks, and naming what is on pictures.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::backend::{Backend, Precision};
use crate::checkpoint::ModelFile;
use crate::comm::Comm;
use crate::cores;
use crate::device::{Device, DeviceChoice, DeviceSettings, Gpu};
use crate::error::Error;
use crate::nn::{Graph, Purpose};
use crate::recipe;
use crate::train::agree::algorithms;
use crate::train::agree::gpus;
use crate::train::agree::session::Session;
use crate::train::agree::staging;
use crate::train::evaluate::{Evaluation, Score};
use crate::train::observe::stop::Stop;
use crate::train::plan::source::network;
use crate::train::save::model;
use loaders::record::masked_crc32c;
use loaders::{Dataset, ImageSpec, Images, Io, Manifest, Options, Pipeline, picture};

/// How models are used, whatever they were trained in.
const SEAT: DeviceSettings =
    DeviceSettings { threads: 1, node_rank: 0, precision: Precision::F32, tf32: false, deterministic: true };

/// A split's score and what was scored.
pub struct Scored {
    /// The score.
    pub score: Score,
    /// The split.
    pub split: String,
    /// Network of the model.
    pub network: String,
    /// Epochs that it has seen.
    pub epoch: u32,
    /// Optimizer steps that it has seen.
    pub step: u64,
    /// Whether this rank is the one that prints.
    pub root: bool,
}

/// A model file, its averaged weights in place of the last ones if they are asked for.
fn read(file: &Path, ema: bool) -> Result<ModelFile, Error> {
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

/// What `trireme eval` was asked to do.
#[derive(Clone, Debug)]
pub struct Request {
    /// The model file.
    pub file: PathBuf,
    /// Whether the averaged weights are meant.
    pub ema: bool,
    /// Folder of the data set.
    pub data: PathBuf,
    /// The split; `None`: test, else validation.
    pub split: Option<String>,
    /// Images a batch.
    pub batch: usize,
    /// What to compute on.
    pub device: DeviceChoice,
    /// Whether several ranks may compute on one GPU.
    pub share_gpu: bool,
    /// Compute threads; `None` = this rank's cores.
    pub threads: Option<usize>,
    /// Loader threads; `None` = the cores that are left.
    pub loader_threads: Option<usize>,
    /// How records are read.
    pub io: Io,
    /// Folder on each node's own disk for a copy of the split.
    pub stage: Option<PathBuf>,
}

/// Scores a split over all ranks.
pub fn score<D: Device>(device: &D, request: &Request) -> Result<Scored, Error> {
    let comm = Comm::launch();
    // what all ranks do together waits for MPI
    let opened = request.stage.is_none().then(|| open(request, &request.data));
    let mut session = Session::join(comm)?;
    let opened = opened.unwrap_or_else(|| staged(&session, request));
    let result = score_on(device, &mut session, opened, request);
    session.conclude(result)
}

/// Opens a copy of the split on this node's disk.
fn staged(session: &Session, request: &Request) -> Result<Opened, Error> {
    let Request { data, stage, .. } = request;
    let under = stage.as_deref().unwrap_or(data);
    let splits = |names: &[&str]| Ok(vec![split_name(request, names)?]);
    open(request, &staging::stage(Some(session), data, under, splits)?)
}

/// The split that is asked for, of those that there are.
fn split_name(request: &Request, names: &[&str]) -> Result<String, Error> {
    recipe::eval_split(request.split.as_deref(), names)?.ok_or_else(|| {
        let data = request.data.display();
        Error::Usage(format!("{data} has no split test or validation; name one with --split"))
    })
}

fn open(request: &Request, data: &Path) -> Result<Opened, Error> {
    let (file, batch) = (&request.file, request.batch);
    let model = read(file, request.ema)?;
    let dataset = Dataset::open(data)?;
    let splits: Vec<&str> = dataset.manifest.splits.keys().map(String::as_str).collect();
    let split = dataset.split(&split_name(request, &splits)?)?;
    let (given, expected) = (split.images()?, images(model.image));
    let fits = match expected {
        Images::Fixed(_) => given == expected,
        // each image is looked at again; grey ones count as coloured
        Images::Varied { channels } => given.channels() == channels || (given.channels(), channels) == (1, 3),
    };
    if !fits || split.classes() != model.classes.len() {
        return Err(Error::Failed(format!(
            "{} was trained on images of {expected} in {} classes, {} has images of {given} in {} classes; give the data set \
             that it was trained on",
            file.display(),
            model.classes.len(),
            data.display(),
            split.classes()
        )));
    }
    let pipeline = Pipeline::new(&model.preprocess, expected, &manifest(&model), 0)?;
    // a batch larger than the split would be planned for images that do not exist
    let batch = batch.min(split.len().max(1) as usize);
    let evaluation = Evaluation {
        split: Arc::new(split),
        pipeline,
        batch,
        options: Options { io: request.io, ..Options::default() },
    };
    Ok(Opened { text: digest(&model, &dataset.manifest, &evaluation)?, model, evaluation })
}

/// What is scored, and the text that must be the same on every rank.
struct Opened {
    model: ModelFile,
    evaluation: Evaluation,
    text: String,
}

fn digest(model: &ModelFile, manifest: &Manifest, evaluation: &Evaluation) -> Result<String, Error> {
    let mut text = format!("network {}\nstep {}\nbatch {}\n", model.network, model.step, evaluation.batch);
    text.push_str(&format!("split {}\n", evaluation.split.name()));
    for (layer, (name, _, values)) in model.layers.iter().flat_map(|l| l.tensors.iter().map(move |t| (&l.name, t))) {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        text.push_str(&format!("{layer}.{name} {:08x}\n", masked_crc32c(&bytes)));
    }
    text.push_str(&crate::train::plan::source::digest(manifest)?);
    Ok(text)
}

fn score_on<D: Device>(
    device: &D,
    session: &mut Session,
    opened: Result<Opened, Error>,
    request: &Request,
) -> Result<Scored, Error> {
    let cores = seats::<D>(session)?;
    score_opened(device, session, cores, opened, request)
}

/// Compares the ranks' programs and devices, and divides the cores; says on rank 0 what there is to say.
pub(super) fn seats<D: Device>(session: &mut Session) -> Result<cores::Cores, Error> {
    session.same_program()?;
    session.same_device(D::NAME)?;
    let cores = session.cores()?;
    if session.is_root() {
        session.notes.iter().for_each(|note| eprintln!("{note}"));
    }
    Ok(cores)
}

/// Scores one file on ranks that have their seats.
pub(super) fn score_with<D: Device>(
    device: &D,
    session: &Session,
    cores: cores::Cores,
    request: &Request,
) -> Result<Scored, Error> {
    let opened = match &request.stage {
        Some(_) => staged(session, request),
        None => open(request, &request.data),
    };
    score_opened(device, session, cores, opened, request)
}

fn score_opened<D: Device>(
    device: &D,
    session: &Session,
    cores: cores::Cores,
    opened: Result<Opened, Error>,
    request: &Request,
) -> Result<Scored, Error> {
    let Opened { model, mut evaluation, text } = session.agree(opened)?;
    session.same(
        "the model, the data set, --split, --batch or --ema",
        &text,
        "start all ranks with the same files and options",
    )?;
    let threads = request.threads.unwrap_or(device.threads(cores.own));
    evaluation.options.threads = request.loader_threads.unwrap_or(cores.own.saturating_sub(threads).max(1));
    let here = |error, card: Option<&Gpu>| gpus::located(device, error, &session.world.host, card);
    let opened = device.open(&DeviceSettings { threads, node_rank: session.world.node_rank, ..SEAT });
    let backend = session.agree(opened.map_err(|error| here(error.into(), None)))?;
    let card = device.gpu(&backend);
    let planned =
        |backend| graph(&model, backend, evaluation.batch, &evaluation.sizes()).map_err(|e| here(e, card.as_ref()));
    let (mut graph, notes) = algorithms::plan(session, backend, planned, Graph::backend)?;
    let cards = gpus::check(session, card.as_ref(), request.share_gpu)?;
    if session.is_root() {
        notes.iter().chain(&cards.notes).for_each(|note| eprintln!("{note}"));
    }
    let score = evaluation.run(session, &mut graph, &Stop::default()).map_err(|error| here(error, card.as_ref()))?;
    let score = score.ok_or_else(|| Error::Failed("scoring was stopped".into()))?;
    let split = evaluation.split.name().to_string();
    let (epoch, step) = (model.epoch as u32, model.step);
    Ok(Scored { score, split, network: model.network, epoch, step, root: session.is_root() })
}

/// The model's network, planned for inference.
fn graph<B: Backend>(model: &ModelFile, backend: B, batch: usize, sizes: &[usize]) -> Result<Graph<B>, Error> {
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
fn images([c, h, w]: [usize; 3]) -> Images {
    match (h, w) {
        (0, 0) => Images::Varied { channels: c as u32 },
        _ => Images::Fixed(ImageSpec::new(h as u32, w as u32, c as u32)),
    }
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

/// The likeliest classes of one picture.
pub struct Prediction {
    /// Class index, name and probability, the likeliest first.
    pub classes: Vec<(usize, String, f64)>,
    /// Height and width in the file, if the picture was forced into the one size that the data set's images had.
    pub resized_from: Option<(u32, u32)>,
}

/// What can name pictures.
pub trait Predict {
    /// The `top` likeliest classes of a PNG or JPEG file.
    fn predict(&mut self, path: &Path, top: usize) -> Result<Prediction, Error>;
}

/// A model ready to name pictures.
pub struct Predictor<B: Backend> {
    model: ModelFile,
    graph: Graph<B>,
    pipeline: Pipeline,
}

impl<B: Backend> Predictor<B> {
    /// Reads the model file; `ema`: with the averaged weights.
    pub fn open<D: Device<Backend = B>>(device: &D, file: &Path, ema: bool) -> Result<Self, Error> {
        let model = read(file, ema)?;
        let pipeline = Pipeline::new(&model.preprocess, images(model.image), &manifest(&model), 0)?;
        let threads = device.threads(cores::affinity().len());
        let backend = device.open(&DeviceSettings { threads, ..SEAT })?;
        let graph = graph(&model, backend, 1, &[])?;
        Ok(Self { model, graph, pipeline })
    }
}

impl<B: Backend> Predict for Predictor<B> {
    fn predict(&mut self, path: &Path, top: usize) -> Result<Prediction, Error> {
        let mut input = vec![0.0; self.pipeline.output().values()];
        let resized_from = picture::transform(path, &self.pipeline, &mut input)?;
        let scores = self.graph.scores(&input, 1)?;
        let highest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weights: Vec<f64> = scores.iter().map(|s| f64::from(s - highest).exp()).collect();
        let total: f64 = weights.iter().sum();
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
        let class = |i: usize| (i, self.model.classes[i].clone(), weights[i] / total);
        let classes = order.into_iter().take(top).map(class).collect();
        Ok(Prediction { classes, resized_from })
    }
}
