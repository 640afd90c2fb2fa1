//! Everything that is settled before the first step: recipe, data, network, plans, optimizer, loader.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::backend::Backend;
use crate::backend::op::Shape;
use crate::error::Error;
use crate::launch::Wanted;
use crate::models;
use crate::nn::{Graph, NetSpec, Purpose};
use crate::optim::{Ema, Optimizer, Policy, Schedule};
use crate::recipe::{self, Known, OnCorrupt, Recipe, Sync};
use crate::train::evaluate::Evaluation;
use crate::train::observe::watch;
use crate::train::reduce::reduction::Reduction;
use crate::train::save::resume::{self, Head};
use crate::train::strategy::rounds::Rounds;
use loaders::io::Footprint;
use loaders::order::{TrainOrder, rank_workers, worker_positions};
use loaders::{Dataset, ImageSpec, Images, Manifest, Options, Pipeline, Shuffle, Split};

/// What `trireme train` was asked to do.
#[derive(Clone, Debug)]
pub struct Request {
    /// The recipe's file.
    pub recipe: PathBuf,
    /// Changes to it, `key=value`.
    pub sets: Vec<String>,
    /// Output folder.
    pub out: PathBuf,
    /// Whether to go on from the newest checkpoint, if there is one.
    pub resume: bool,
    /// The checkpoint file that was named instead.
    pub resume_from: Option<PathBuf>,
    /// What to compute on.
    pub device: Wanted,
    /// Whether several ranks may compute on one GPU.
    pub share_gpu: bool,
    /// How long the run may take, from the start of the program.
    pub time_limit: Option<Duration>,
    /// Compute threads; `None` = this rank's cores.
    pub threads: Option<usize>,
    /// Optimizer step at which the run ends early.
    pub max_steps: Option<u64>,
    /// Print the plan and stop.
    pub dry_run: bool,
    /// Folder on each node's own disk for a copy of the data set.
    pub stage: Option<PathBuf>,
    /// File for the trace of what all ranks do when.
    pub trace: Option<PathBuf>,
    /// Steps of which it holds every part.
    pub trace_steps: u64,
    /// When the watchdog speaks, and when it ends the run.
    pub stall: watch::Limits,
}

/// The recipe and the data that it names; the same on every rank.
pub struct Source {
    /// As read; `workers` may still be open.
    pub recipe: Recipe,
    /// The data set's description.
    pub manifest: Manifest,
    /// Training images.
    pub train: Arc<Split>,
    /// Scored after each epoch, if the data set has such a split.
    pub eval: Option<Arc<Split>>,
    /// From a record to an input, for training.
    pub augment: Pipeline,
    /// The same for scoring.
    pub preprocess: Pipeline,
}

/// Bare names of all transforms.
pub fn transform_names() -> Vec<&'static str> {
    loaders::transform::names()
}

impl Source {
    /// Reads the recipe.
    pub fn recipe(request: &Request) -> Result<Recipe, Error> {
        let (models, transforms) = (models::names(), transform_names());
        let known = Known { models: &models, transforms: &transforms };
        Ok(Recipe::load(&request.recipe, &request.sets, &known)?)
    }

    /// Opens the recipe's data set in `dir`, which may be a copy of it.
    pub fn open(recipe: Recipe, dir: &Path) -> Result<Self, Error> {
        let dataset = Dataset::open(dir)?;
        let train = Arc::new(match recipe.mixing() {
            Shuffle::Full => dataset.split("train")?,
            Shuffle::Window(_) => dataset.split_lazily("train")?,
        });
        if train.is_empty() {
            return Err(Error::Failed(format!("data set {}: its train split has no images", recipe.data)));
        }
        let splits: Vec<&str> = dataset.manifest.splits.keys().map(String::as_str).collect();
        let eval = recipe::eval_split(recipe.eval_split.as_deref(), &splits)?;
        let eval = eval.map(|name| dataset.split(&name)).transpose()?.filter(|s| !s.is_empty()).map(Arc::new);
        let images = train.images()?;
        let pipeline = |list: &str, ops: &[String]| {
            Pipeline::new(ops, images, &dataset.manifest, recipe.seed)
                .map_err(|e| unfit(format!("augment.{list}, images of {images}: {e}"), images, &train))
        };
        let augment = pipeline("train", &recipe.augment.train)?;
        let preprocess = pipeline("eval", &recipe.augment.eval)?;
        if let (Some(split), Images::Fixed(_)) = (&eval, preprocess.input())
            && split.images()? != images
        {
            let (name, other) = (split.name(), split.images()?);
            return Err(Error::Failed(format!(
                "data set {}: images of split train are {images}, those of {name} {other}; they must have one size, or \
                 augment.eval must begin with resize(size) and center_crop(size)",
                recipe.data
            )));
        }
        if augment.output() != preprocess.output() {
            return Err(Error::Usage(format!(
                "augment.train makes images of {} and augment.eval of {}; end both with the same size",
                augment.output(),
                preprocess.output()
            )));
        }
        Ok(Self { recipe, manifest: dataset.manifest, train, eval, augment, preprocess })
    }

    /// The network for these images and classes.
    pub fn network(&self) -> Result<NetSpec, Error> {
        let mut net = network(&self.recipe.model, self.augment.output(), self.train.classes())?;
        if self.recipe.zero_init_residual {
            net.zero_init_residual();
        }
        Ok(net)
    }

    /// What tells this data set from others, wherever it lies.
    pub fn identity(&self) -> Result<String, Error> {
        let checksum = loaders::record::masked_crc32c(digest(&self.manifest)?.as_bytes());
        let (images, classes) = (self.train.len(), self.train.classes());
        Ok(format!("{images} images in {classes} classes, checksum {checksum:08x}"))
    }

    /// Text that must be the same on every rank: the request, the recipe and what the data set says of itself.
    pub fn digest(&self, request: &Request) -> Result<String, Error> {
        let recipe = self.recipe.to_toml()?;
        let manifest = digest(&self.manifest)?;
        let (last, dry, trace) = (request.max_steps, request.dry_run, request.trace.is_some());
        Ok(format!("{recipe}\nmax-steps {last:?}\ndry-run {dry}\ntrace {trace}\n{manifest}"))
    }
}

/// A list of transforms that does not fit the images: where these vary, one that does is named.
fn unfit(problem: String, images: Images, split: &Split) -> Error {
    match (images, split.one_size()) {
        (Images::Varied { .. }, Err(odd)) => Error::Failed(format!("{problem}; {odd}")),
        _ => Error::Usage(problem),
    }
}

/// A data set's description as text, one value a line.
pub fn digest(manifest: &Manifest) -> Result<String, Error> {
    serde_json::to_string_pretty(manifest).map_err(|e| Error::Failed(format!("dataset.json: {e}")))
}

/// A network of the catalogue for images of this shape.
pub fn network(model: &str, image: ImageSpec, classes: usize) -> Result<NetSpec, Error> {
    let input = Shape::image(image.channels as usize, image.height as usize, image.width as usize);
    let names = models::names();
    models::build(model, input, classes)
        .ok_or_else(|| Error::Usage(format!("no network {model}{}", recipe::did_you_mean(model, &names))))
}

/// How the steps of a run divide the data.
#[derive(Clone, Debug)]
pub struct Division {
    /// Images of the training split.
    pub images: u64,
    /// Images a step.
    pub batch: usize,
    /// Logical shares of each step.
    pub workers: usize,
    /// This rank's.
    pub mine: std::ops::Range<usize>,
    /// Steps of an epoch, a short last one included.
    pub steps_per_epoch: u64,
}

impl Division {
    /// For this rank of so many.
    pub fn new(images: u64, batch: usize, workers: usize, rank: usize, ranks: usize) -> Self {
        let steps_per_epoch = images.div_ceil(batch as u64);
        Self { images, batch, workers, mine: rank_workers(rank, ranks, workers), steps_per_epoch }
    }

    /// Images of a step of an epoch: the last one may be short.
    pub fn images_of(&self, step: u64) -> usize {
        (self.images - step * self.batch as u64).min(self.batch as u64) as usize
    }

    /// Images of the largest worker on any rank: the plan that settles all layouts.
    pub fn largest(&self) -> usize {
        self.images_of(0).div_ceil(self.workers)
    }

    /// Sizes of this rank's workers that will come up.
    pub fn sizes(&self) -> Vec<usize> {
        let mut sizes: Vec<usize> = [self.images_of(0), self.images_of(self.steps_per_epoch - 1)]
            .into_iter()
            .flat_map(|b| self.mine.clone().map(move |v| worker_positions(b, v, self.workers).len()))
            .filter(|n| *n > 0)
            .collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }
}

/// A planned run on one rank.
pub struct Run<B: Backend> {
    /// As resolved.
    pub recipe: Recipe,
    /// Recipe, data and transforms.
    pub source: Source,
    /// How steps divide the data.
    pub division: Division,
    /// Learning rates.
    pub schedule: Schedule,
    /// The network.
    pub graph: Graph<B>,
    /// How its gradients travel.
    pub reduction: Reduction<B>,
    /// Its optimizer.
    pub optimizer: Optimizer<B>,
    /// Moving averages of its weights.
    pub ema: Option<Ema<B>>,
    /// The scoring after each epoch.
    pub evaluation: Option<Evaluation>,
    /// Between ranks that meet only now and then.
    pub rounds: Option<Rounds<B>>,
    /// How the training loader runs.
    pub options: Options,
}

/// Who plans: this rank of so many, with these threads.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// This rank.
    pub rank: usize,
    /// All ranks.
    pub ranks: usize,
    /// Loader threads.
    pub loader_threads: usize,
}

impl<B: Backend> Run<B> {
    /// Plans everything; nothing of it can fail later for want of memory or for shapes.
    pub fn new(source: Source, backend: B, place: Place) -> Result<Self, Error> {
        let mut recipe = source.recipe.clone();
        recipe.resolve(place.ranks)?;
        let workers = recipe.workers.unwrap_or(place.ranks);
        let division = Division::new(source.train.len(), recipe.batch, workers, place.rank, place.ranks);
        let schedule = Schedule::new(&recipe.schedule, recipe.batch, recipe.epochs, division.steps_per_epoch)?;
        let net = source.network()?;
        let purpose = Purpose::Train { chunk_bytes: (recipe.reduce.bucket_mb * 1e6) as usize };
        let mut graph = Graph::new(backend, net, division.largest(), purpose, recipe.seed)?;
        for size in division.sizes() {
            graph.prepare(size)?;
        }
        let reduction = Reduction::new(&recipe, &graph, &division, place.ranks)?;
        graph.prepare_accumulation(division.mine.clone(), reduction.gather())?;
        let options = Options {
            threads: place.loader_threads,
            slots: recipe.loader.slots,
            nice: LOADER_NICE,
            // checked when the recipe was read
            io: recipe.loader.io,
            open: recipe.mixing().open(division.mine.len()),
            buffer: (recipe.loader.buffer_mb * 1e6) as usize,
            skip: recipe.loader.on_corrupt == OnCorrupt::Skip,
        };
        let evaluation = source.eval.clone().map(|split| Evaluation {
            split,
            pipeline: source.preprocess.clone(),
            batch: division.largest(),
            // a score of fewer images is another score: a bad record ends it
            options: Options { open: 0, skip: false, ..options },
        });
        for size in evaluation.iter().flat_map(Evaluation::sizes) {
            graph.prepare(size)?;
        }
        let o = &recipe.optimizer;
        let policy = Policy {
            decay: |name: &str, shape: &[usize]| o.decay_of(name, shape),
            adapt: |name: &str, shape: &[usize]| o.adapts(name, shape),
            clip_norm: o.clip_norm,
            clip_value: o.clip_value,
        };
        let optimizer = Optimizer::new(&graph, o.method(), policy)?;
        let ema = recipe.ema.decay.map(|decay| Ema::new(&graph, decay)).transpose()?;
        let apart = recipe.sync != Sync::Allreduce && place.ranks > 1;
        let (backend, weights) = graph.weights_mut();
        let rounds = apart.then(|| Rounds::new(recipe.sync, backend, weights)).transpose()?;
        Ok(Self { recipe, source, division, schedule, graph, reduction, optimizer, ema, evaluation, rounds, options })
    }

    /// Divides the gradients of a step by the samples that it had, not those planned: records may have been left out, which is
    /// known only after the exchange.
    pub fn make_up_for_skips(&mut self, step: u64, count: u64) -> Result<(), Error> {
        let planned = self.samples(step) as u64;
        if count != planned && count > 0 {
            self.graph.scale_gradients((planned as f64 / count as f64) as f32)?;
        }
        Ok(())
    }

    /// Images that a step's gradient is the mean over: those of all ranks, or of this one if ranks step by themselves.
    pub fn samples(&self, step: u64) -> usize {
        let (images, d) = (self.division.images_of(step), &self.division);
        match self.rounds {
            Some(_) => d.mine.clone().map(|v| worker_positions(images, v, d.workers).len()).sum(),
            None => images,
        }
    }
}

impl<B: Backend> Run<B> {
    /// The training order of this rank from `start` = (epoch, step within it) on.
    pub fn order(&self, start: (u32, u64)) -> TrainOrder {
        let d = &self.division;
        let counts: Vec<u64> = self.source.train.shards().iter().map(|shard| shard.count).collect();
        TrainOrder::new(self.recipe.seed, d.images, d.batch, d.workers, d.mine.clone(), start, self.recipe.epochs)
            .shuffled(self.recipe.mixing(), &counts)
    }

    /// What the loaders of training and of scoring hold in memory.
    pub fn footprints(&self) -> Result<(Footprint, Option<Footprint>), Error> {
        let (values, batch) = (self.source.augment.output().values(), self.division.largest());
        let of = |split: &Split, options: &Options| Footprint::new(split, options, batch, values);
        let scoring = self.evaluation.as_ref().map(|e| of(&e.split, &e.options)).transpose()?;
        Ok((of(&self.source.train, &self.options)?, scoring))
    }
}

/// Loader threads give way to compute threads, whose barriers wait for the slowest.
const LOADER_NICE: i32 = 19;

/// Creates the output folder, proves that it can be written, and leaves the recipe there. It must be new or empty, unless the run
/// goes on in it from the checkpoint `from`, or was asked to and there is none.
pub fn claim_output(request: &Request, from: Option<&Head>, recipe: &Recipe) -> Result<(), Error> {
    let out = &request.out;
    // what a killed run left half-written is hidden, and no obstacle
    let visible = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|e| !e.file_name().to_string_lossy().starts_with('.'))
    };
    let busy = |dir: &Path| std::fs::read_dir(dir).is_ok_and(|mut entries| entries.any(visible));
    let checkpoints = out.join("checkpoints");
    let real = |path: &Path| path.canonicalize().ok();
    let ours = |head: &Head| head.path.parent().and_then(real).is_some_and(|dir| Some(dir) == real(&checkpoints));
    let shown = out.display();
    match from {
        Some(head) if busy(out) && !ours(head) => {
            let file = head.path.display();
            return Err(Error::Usage(format!(
                "{shown} is not empty, and {file} is not one of its checkpoints; choose another --out, or remove it"
            )));
        }
        None if busy(out) && !request.resume => {
            return Err(Error::Usage(format!(
                "{shown} is not empty; choose another --out, or remove it, or go on with --resume auto"
            )));
        }
        None if out.join("model.h5").exists() => {
            return Err(Error::Usage(format!(
                "{shown} holds a model and no checkpoint to go on from; choose another --out, or remove it"
            )));
        }
        _ => {}
    }
    crate::checkpoint::writable(out)?;
    crate::checkpoint::writable(&checkpoints)?;
    crate::checkpoint::write_text(&out.join("recipe.toml"), &recipe.to_toml()?)?;
    from.map_or(Ok(()), |head| resume::rewind(out, head))
}
