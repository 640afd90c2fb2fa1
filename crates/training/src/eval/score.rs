//! Scores a split of a data set with a model file, on all ranks.

use std::path::Path;
use std::sync::Arc;

use base::screen;
use base::text::printable;
use comm::Comm;
use engine::Graph;
use formats::checkpoint::ModelFile;
use loaders::record::masked_crc32c;
use loaders::transform::{as_read, exif_of};
use loaders::{Dataset, Dtype, Images, LabelKind, Manifest, Options, Split};

use super::classes;
use super::model::{self, LoadedModel, graph, images, number_scale, pipeline, read, views};
use super::request::EvalRequest;
use crate::device::{Device, DeviceSettings, F32_SETTINGS, Gpu, RequestedThreads, Resources};
use crate::error::Error;
use crate::train::agree::Session;
use crate::train::agree::{self, algorithms, gpus};
use crate::train::evaluate::{Detail, Evaluation, EvaluationResult};
use crate::train::observe::stop::Stop;
use crate::train::observe::watch::{Activity, Watch};
use crate::train::save::output::ClassSources;

/// The score of a split, and details about model and images.
pub struct SplitScore {
    pub result: EvaluationResult,
    pub split: String,
    pub network: String,
    pub epoch: u32,
    pub step: u64,
    pub classes: Vec<String>,
    pub images: Arc<Split>,
    /// True on the rank that prints.
    pub root: bool,
}

/// Scores a split with all ranks together.
pub fn score<D: Device>(device: &D, request: &EvalRequest) -> Result<SplitScore, Error> {
    let comm = Comm::launch();
    let watch = start_watchdog(&comm, request);
    // read the files while MPI starts, but a staged copy needs communication
    let opened = request.stage.is_none().then(|| open(request, None, &watch));
    watch.set_activity(Activity::Starting);
    let mut session = Session::join(comm, watch)?;
    let same = session.same_start((D::NAME, device.why_chosen()), &request.compared("eval"));
    let result = same.and_then(|()| {
        // check the output files before the split is copied
        let outputs = if session.is_root() { request.check_outputs() } else { Ok(()) };
        let opened = session.agree(outputs).and_then(|()| opened.unwrap_or_else(|| open_staged(&session, request)));
        let cores = divide_cores(device, &mut session)?;
        score_opened(device, &session, cores, opened, request, Detail::Precisions)
    });
    session.conclude(result)
}

/// Starts a watchdog that reports long waits for files and other ranks.
pub(super) fn start_watchdog(comm: &Comm, request: &EvalRequest) -> Watch {
    let watch = Watch::start(comm, request.stall);
    // there is no first training step, so no message about a late first step is needed
    watch.stepped();
    watch
}

/// Copies the split to this node's disk and opens the copy.
fn open_staged(session: &Session, request: &EvalRequest) -> Result<ScoringInput, Error> {
    session.watch.set_activity(Activity::Reading);
    let data = session.agree(request.data.clone().map_or_else(|| model::data(&request.model), Ok))?;
    let under = request.stage.as_deref().unwrap_or(&data);
    let splits = || Ok(vec![split_name(request, &data, &open_data(request, &data)?.manifest)?]);
    session.watch.set_activity(Activity::Staging);
    let copy = agree::stage(Some(session), &data, under, splits)?;
    open_watched(session, request, Some(&copy))
}

fn open_watched(session: &Session, request: &EvalRequest, copy: Option<&Path>) -> Result<ScoringInput, Error> {
    session.watch.set_activity(Activity::Reading);
    let opened = open(request, copy, &session.watch);
    session.watch.set_activity(Activity::Starting);
    opened
}

/// Opens a data set. If there is no data set and the user has not named it, the error explains where its name comes from.
pub(super) fn open_data(request: &EvalRequest, data: &Path) -> Result<Dataset, Error> {
    Dataset::open(data).map_err(|error| match request.recorded && matches!(error, loaders::Error::NoDataset { .. }) {
        true => Error::Failed(format!(
            "{error}. The model's recipe names this folder; if the data set is in another one now, name it with --data"
        )),
        false => error.into(),
    })
}

/// Returns the split of the data set `data` to score.
pub(super) fn split_name(request: &EvalRequest, data: &Path, manifest: &Manifest) -> Result<String, Error> {
    let named = |error| match (error, &request.split) {
        (recipe::Error::Value { why, .. }, Some(split)) => Error::Usage(format!("--split {split}: {why}")),
        (error, _) => error.into(),
    };
    let name = recipe::evaluation_split(request.split.as_deref(), manifest).map_err(named)?;
    name.ok_or_else(|| no_split(data))
}

/// Returns the error for a data set without a split to score.
pub(super) fn no_split(data: &Path) -> Error {
    let data = data.display();
    Error::Usage(format!("{data} has no images in a split test or validation; name another split with --split"))
}

/// Reads the model and opens the data set, or its `copy` on this node. Messages name the original.
fn open(request: &EvalRequest, copy: Option<&Path>, watch: &Watch) -> Result<ScoringInput, Error> {
    let (file, batch) = (&request.model.file, request.batch);
    let LoadedModel { model, mut notes } = read(&request.model)?;
    let original = &request.data.clone().map_or_else(|| model::data_of(&model, file), Ok)?;
    let data = copy.unwrap_or(original);
    if request.recorded {
        notes.push(format!("data set: {}, from the model's recipe", original.display()));
    }
    // advice about the original would be wrong for a copy
    let dataset = match copy {
        Some(copy) => Dataset::open(copy)?,
        None => open_data(request, original)?,
    };
    let split = dataset.split(&split_name(request, original, &dataset.manifest)?)?;
    if split.is_empty() {
        return Err(no_images(&split, "", original));
    }
    notes.extend(check_images(&model, file, &dataset.manifest, &split, original)?);
    check_label_kinds(&model, &dataset.manifest, original, request)?;
    check_top(model.label_kind(), file, request.top)?;
    let pipeline = pipeline(&model)?;
    let classes = ClassSources { model: &model.classes, file, data };
    if request.map_classes {
        // reads all labels of a split, which may take long
        watch.set_activity(Activity::Starting);
    }
    let matched = classes::match_classes(&classes, &split, model.label_kind(), request.map_classes)?;
    let split = Arc::new(split);
    let options = Options { io: request.io, ..Options::default() };
    let views = views(&model, &pipeline, request.test_time)?;
    let numbers = number_scale(&model, file)?;
    let mut evaluation = Evaluation { split, pipeline, views, batch, options, numbers, selection: None };
    if let Some(matched) = matched {
        evaluation.selection = Some(matched.selection);
        notes.push(matched.note);
    }
    if evaluation.images() == 0 {
        let which = " of the classes that the data set and the model have in common";
        return Err(no_images(&evaluation.split, which, original));
    }
    // no batch is larger than the number of images, so plan only for that many
    evaluation.batch = batch.min(evaluation.images() as usize);
    Ok(ScoringInput { text: digest(&model, &dataset.manifest, &evaluation)?, model, evaluation, notes })
}

/// Returns the error for a split without images to score. `which` says which images are missing, or is empty.
fn no_images(split: &Split, which: &str, data: &Path) -> Error {
    Error::Failed(format!(
        "the split {} of {} has no images{which}, so nothing can be scored; name another split with --split",
        split.name(),
        data.display()
    ))
}

/// Returns an error if the model cannot use the images of a split: if their size, the number of their channels, their
/// value type or their band names differ from those in the model's data set. Returns a note if only the model or only
/// the data set has band names. `file` is the model's path and `data` that of the data set, for messages.
pub(super) fn check_images(
    model: &ModelFile,
    file: &Path,
    manifest: &Manifest,
    split: &Split,
    data: &Path,
) -> Result<Option<String>, Error> {
    let (file, data) = (file.display(), data.display());
    let ops = &model.preprocess;
    let (given, expected) = (as_read(ops, split.images_as(exif_of(ops))?), images(model.image));
    let fits = match expected {
        Images::Fixed(_) => given == expected,
        // transforms handle each image's size, and 8-bit grey images are converted to colour
        Images::Varied { channels } => {
            let grey = (given.channels(), channels) == (1, 3) && model.bands.dtype == Dtype::U8;
            given.channels() == channels || grey
        }
    };
    if !fits {
        return Err(Error::Failed(format!(
            "{file} was trained on images of {expected}, but {data} has images of {given}; use a data set with images like those that the \
             model was trained on"
        )));
    }
    let (expected, given) = (&model.bands, &manifest.bands);
    if expected.dtype != given.dtype {
        return Err(Error::Failed(format!(
            "{file} was trained on images of {}, but the images of {data} are {}; use a data set with images like those that the model was \
             trained on",
            expected.dtype, given.dtype
        )));
    }
    let different = expected.names.iter().zip(&given.names).position(|(expected, given)| expected != given);
    match different {
        Some(band) => Err(Error::Failed(format!(
            "band {} is \"{}\" in the images that {file} was trained on, but \"{}\" in {data}; use a data set with the same \
             bands in the same order",
            band + 1,
            printable(&expected.names[band]),
            printable(&given.names[band])
        ))),
        None if expected.names.is_empty() != given.names.is_empty() => {
            let (named, other) = match given.names.is_empty() {
                true => (file.to_string(), data.to_string()),
                false => (data.to_string(), file.to_string()),
            };
            Ok(Some(format!(
                "note: {other} has no band names, but {named} has, so the order of the bands cannot be compared"
            )))
        }
        None => Ok(None),
    }
}

/// Returns an error if the model and the data set `data` have different label kinds.
fn check_label_kinds(model: &ModelFile, manifest: &Manifest, data: &Path, request: &EvalRequest) -> Result<(), Error> {
    let (file, data) = (request.model.file.display(), data.display());
    let (expected, given) = (model.label_kind(), manifest.label_kind());
    match (expected, given) {
        (LabelKind::Classes, LabelKind::Classes) if request.map_classes => Err(Error::Usage(format!(
            "--map-classes works only for images with one label, but images of {data} may have several; use the data set that {file} \
             was trained on"
        ))),
        (LabelKind::Numbers, LabelKind::Numbers) if request.map_classes => Err(Error::Usage(format!(
            "--map-classes works only for images with one label, but images of {data} have numbers; leave --map-classes out"
        ))),
        (LabelKind::Numbers, LabelKind::OneClass | LabelKind::Classes) => Err(Error::Failed(format!(
            "{file} predicts numbers ({}), but images of {data} have classes; convert the images again with --targets (`trireme data \
             convert csv`)",
            printable(&model.classes.join(", "))
        ))),
        (LabelKind::OneClass | LabelKind::Classes, LabelKind::Numbers) => Err(Error::Failed(format!(
            "{file} was trained on images with classes, but images of {data} have numbers; train on this data set with loss.kind = \
             \"mse\""
        ))),
        (LabelKind::Classes, LabelKind::OneClass) => Err(Error::Failed(format!(
            "{file} is a model for images with several labels, but images of {data} have one label each; convert the images again from a \
             table with a column labels (`trireme data convert csv`)"
        ))),
        (LabelKind::OneClass, LabelKind::Classes) => Err(Error::Failed(format!(
            "{file} was trained on images with one label each, but images of {data} may have several; train on this data set with \
             loss.kind = \"bce\""
        ))),
        _ => Ok(()),
    }
}

/// Returns an error if `--top` is given for a model whose scores have no top-K. `file` is the model's path.
fn check_top(kind: LabelKind, file: &Path, top: Option<usize>) -> Result<(), Error> {
    let (model, scores) = match kind {
        LabelKind::OneClass => return Ok(()),
        LabelKind::Classes => ("may predict several labels per image", "mAP and the F1 scores"),
        LabelKind::Numbers => ("predicts numbers", "RMSE, MAE and R2"),
    };
    match top {
        Some(_) => Err(Error::Usage(format!(
            "--top applies only to models with one label per image; {} {model}. Leave it out: the scores of such a model are {scores}",
            file.display()
        ))),
        None => Ok(()),
    }
}

/// A model and a split that are ready to be scored.
struct ScoringInput {
    model: ModelFile,
    evaluation: Evaluation,
    text: String,
    /// Messages for the user about the model file and the matched classes.
    notes: Vec<String>,
}

fn digest(model: &ModelFile, manifest: &Manifest, evaluation: &Evaluation) -> Result<String, Error> {
    let mut text = format!("network {}\nstep {}\nbatch {}\n", model.network, model.step, evaluation.batch);
    let views: Vec<(Vec<String>, f32)> = evaluation.views.iter().map(|(view, weight)| (view.ops(), *weight)).collect();
    text.push_str(&format!("split {}, classes {:?}\n{views:?}\n", evaluation.split.name(), evaluation.labels()));
    for (layer, (name, _, values)) in model.layers.iter().flat_map(|l| l.tensors.iter().map(move |t| (&l.name, t))) {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        text.push_str(&format!("{layer}.{name} {:08x}\n", masked_crc32c(&bytes)));
    }
    text.push_str(&crate::train::plan::source::digest(manifest)?);
    Ok(text)
}

/// Divides the cores among the ranks. Rank 0 prints notes and warnings about the division and the choice of the device.
pub(super) fn divide_cores<D: Device>(device: &D, session: &mut Session) -> Result<usize, Error> {
    let cores = session.cores()?;
    session.notes.extend(device.why_chosen().map(String::from));
    session.print_notes();
    Ok(cores)
}

/// Scores a file on ranks that have already joined a session. Computes no per-image details.
pub(super) fn score_with<D: Device>(
    device: &D,
    session: &Session,
    cores: usize,
    request: &EvalRequest,
) -> Result<SplitScore, Error> {
    let opened = match &request.stage {
        Some(_) => open_staged(session, request),
        None => open_watched(session, request, None),
    };
    score_opened(device, session, cores, opened, request, Detail::Score)
}

/// Opens the device and plans a graph with the algorithms that all ranks use. Rank 0 prints `notes` and what was found
/// about the GPUs. `share_gpu` allows ranks to share a GPU.
pub(super) fn open_graph<D: Device>(
    device: &D,
    session: &Session,
    threads: usize,
    planned: impl FnOnce(D::Backend) -> Result<Graph<D::Backend>, Error>,
    (share_gpu, notes): (bool, &[String]),
) -> Result<(Graph<D::Backend>, Option<Gpu>), Error> {
    let here = |error, gpu: Option<&Gpu>| gpus::located(device, error, &session.world.host, gpu);
    let (node_rank, node_ranks) = (session.world.node_rank, session.world.node_size);
    let opened = device.open(&DeviceSettings { threads, node_rank, node_ranks, ..F32_SETTINGS });
    let backend = session.agree(opened.map_err(|error| here(error.into(), None)))?;
    let gpu = device.gpu(&backend);
    // before memory is allocated, which fails if ranks share a GPU by mistake
    let checked = gpus::check(session, gpu.as_ref(), share_gpu)?;
    let planned = |backend| planned(backend).map_err(|error| here(error, gpu.as_ref()));
    let (graph, planning) = algorithms::plan(session, backend, planned, Graph::backend)?;
    if session.is_root() {
        notes.iter().chain(&planning).chain(&checked.notes).for_each(|note| screen::say(note));
    }
    Ok((graph, gpu))
}

fn score_opened<D: Device>(
    device: &D,
    session: &Session,
    cores: usize,
    opened: Result<ScoringInput, Error>,
    request: &EvalRequest,
    detail: Detail,
) -> Result<SplitScore, Error> {
    let ScoringInput { model, mut evaluation, text, notes: said } = session.agree(opened)?;
    session.same(
        "the model, the data set, --split, --batch, --map-classes, --flip, --corners, --shift or --ema",
        &text,
        "start all ranks with the same files and options",
    )?;
    let requested = RequestedThreads { compute: request.threads, loader: request.loader_threads };
    let resources = Resources::new::<D>(cores, requested, false);
    evaluation.options.threads = resources.loader;
    let planned = |backend| graph(&model, backend, evaluation.batch, &evaluation.sizes());
    let (mut graph, gpu) = open_graph(device, session, resources.compute, planned, (request.share_gpu, &said))?;
    session.watch.set_ready(true);
    let evaluated = evaluation.run(session, &mut graph, &Stop::default(), detail);
    let evaluated = evaluated.map_err(|error| gpus::located(device, error, &session.world.host, gpu.as_ref()))?;
    for note in graph.take_notes() {
        screen::say(&format!("{}{note}", session.world.who()));
    }
    Ok(SplitScore {
        result: evaluated.ok_or_else(|| Error::Failed("scoring was stopped".into()))?,
        split: evaluation.split.name().to_string(),
        network: model.network,
        epoch: model.epoch as u32,
        step: model.step,
        classes: model.classes,
        images: evaluation.split,
        root: session.is_root(),
    })
}
