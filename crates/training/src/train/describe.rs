//! Describes a planned run: the start event, and the tables of `--dry-run`.

use std::path::PathBuf;

use backend::Backend;
use base::text::plural;
use comm::WorldInfo;
use engine::graph::BuildError;
use engine::table;
use formats::checkpoint::Progress;
use loaders::Shuffle;
use recipe::{Overlap, Recipe};
use report::{BestScore, Start};

use crate::device::Resources;
use crate::error::Error;
use crate::train::plan::request::TrainRequest;
use crate::train::plan::run::{Footprints, Run};
use crate::train::plan::targets;
use crate::train::save::output;
use crate::train::save::snapshot::Snapshot;
use crate::train::scoring;

/// Formats recipe, layers and memory for `--dry-run`. `init` is the table of initial weights if they come from a file,
/// otherwise empty.
pub fn dry_run<B: Backend>(run: &Run<B>, init: &str) -> Result<String, Error> {
    let Footprints { training, scoring } = run.footprints()?;
    let loaders = training.bytes() + scoring.map_or(0, |scoring| scoring.bytes());
    let weights = run.graph.layout().buckets.iter().sum::<usize>() * 4;
    let averages = run.ema.as_ref().map_or(0, |_| weights);
    let is_easgd = matches!(run.recipe.sync, recipe::Sync::Easgd { .. }) && run.own.is_some();
    let copy = Snapshot::bytes_of(run);
    let residuals = if run.reduction.settings.error_feedback { run.division.workers * weights } else { 0 };
    let mut others = vec![
        ("codec, including residuals", run.reduction.memory()),
        ("loader", loaders as usize),
        ("workspace of operations", run.graph.backend().scratch_bytes()),
        ("moving averages", averages),
        ("teacher", run.graph.teacher_bytes()),
        ("direction of a step", run.optimizer.work_bytes()),
        ("copy of the weights for SAM", run.recipe.optimizer.sam_rho.map_or(0, |_| weights)),
        ("centre and distance (easgd)", if is_easgd { 2 * weights } else { 0 }),
        ("copy of the weights for scoring", run.own.as_ref().map_or(0, |_| weights)),
        ("copy for checkpoints (rank 0)", copy),
        ("checkpoint being written (rank 0)", copy + residuals),
    ];
    others.retain(|(_, bytes)| *bytes > 0);
    Ok(format!(
        "{}\n{}{}\n{init}{}\n{}\n{}{}",
        run.recipe.to_toml()?.trim_end(),
        frozen(run).map_or_else(String::new, |text| format!("frozen: {text}\n")),
        run.source.phases.describe().map_or_else(String::new, |text| format!("images: {text}\n")),
        table::planned_layers(&run.graph).map_err(BuildError::from)?,
        table::memory(&run.graph, run.division.largest(), run.optimizer.slots().count(), &others),
        table::traffic(&run.graph),
        run.schedule.describe()
    ))
}

/// Describes which parameters are frozen, and for how long.
fn frozen<B: Backend>(run: &Run<B>) -> Option<String> {
    let net = run.graph.net();
    let count = |frozen: bool| {
        let wanted = run.graph.params().iter().filter(|p| !frozen || net.frozen.contains(&p.name));
        wanted.map(|p| p.spec.elems()).sum::<usize>()
    };
    let freeze = &run.recipe.freeze;
    let when = match (freeze.epochs, freeze.after) {
        (Some(epochs), _) => format!("for the first {}", plural(epochs, "epoch")),
        (None, Some(after)) => format!("after the first {}", plural(after, "epoch")),
        (None, None) => "for the whole run".into(),
    };
    let (tensors, all) = (net.frozen.len(), run.graph.params().len());
    (tensors > 0).then(|| format!("{tensors} of {all} tensors, {} of {} parameters, {when}", count(true), count(false)))
}

fn order<B: Backend>(run: &Run<B>) -> String {
    let (images, shards) = (run.division.images, run.source.train.shards().len().max(1) as u64);
    match run.recipe.shuffling() {
        Shuffle::Full if run.balanced.is_some() => {
            "balanced: every class has the same share of an epoch's draws".into()
        }
        Shuffle::Full => "full: all samples mixed".into(),
        Shuffle::Window(k) => {
            let window = (images * k as u64 / shards).min(images / run.division.workers as u64);
            format!("window({k}): each worker mixes about {window} samples at a time")
        }
    }
}

/// Describes how the loaders read, and how much memory they need.
fn loader<B: Backend>(run: &Run<B>) -> Result<String, Error> {
    let Footprints { training, scoring } = run.footprints()?;
    let more =
        scoring.map_or(String::new(), |s| format!("; scoring {:.1} MiB more", s.bytes() as f64 / f64::from(1 << 20)));
    Ok(format!("{training}{more}"))
}

fn when<B: Backend>(world: &WorldInfo, run: &Run<B>, overlap: bool) -> &'static str {
    match (world.size, overlap, run.recipe.reduce.overlap) {
        (1, ..) => "none, one rank",
        (_, true, Overlap::Auto) if run.graph.backend().queue().is_some() => "during backward (the device computes)",
        (_, true, Overlap::Auto) => "during backward (every rank has a core for MPI)",
        (_, false, Overlap::Auto) => "after backward (not every rank has a core for MPI)",
        (_, true, _) => "during backward",
        (_, false, _) => "after backward",
    }
}

fn exchange<B: Backend>(world: &WorldInfo, run: &Run<B>, overlap: bool) -> String {
    match (run.strategy.describe(), when(world, run, overlap)) {
        (Some(strategy), _) => strategy,
        (None, when) if world.size == 1 => when.into(),
        (None, when) => format!("{}, {when}", run.recipe.reduce.codec.name),
    }
}

/// Describes settings in addition to the optimizer's update rule, such as clipping.
fn step(recipe: &Recipe) -> Option<String> {
    let sam = recipe.optimizer.sam_rho.map(|rho| format!("sharpness-aware, rho {rho}: each batch twice"));
    let agc = recipe.optimizer.clip_agc.map(|part| format!("gradients of each unit clipped to {part} of its norm"));
    let all: Vec<String> = sam.into_iter().chain(agc).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// Describes how weights are averaged (EMA and SWA).
fn averages(recipe: &Recipe) -> Option<String> {
    let ema = &recipe.ema;
    let every = match ema.swa_every() {
        1 => "each epoch".to_string(),
        n => format!("each {n} epochs"),
    };
    let equal =
        ema.swa_start.map(|start| format!("stochastic weight averaging: the mean after {every} from epoch {start} on"));
    let lookahead = |decay: f64| {
        let growth = match ema.lookahead_power() {
            0.0 => String::new(),
            power => format!(" times (step / steps)^{power}"),
        };
        ema.lookahead.map(|steps| format!("lookahead every {steps} steps, which keeps {decay}{growth}"))
    };
    let moving = ema.decay.map(|decay| lookahead(decay).unwrap_or_else(|| format!("exponential, decay {decay}")));
    equal.or(moving)
}

fn cores(resources: Resources) -> String {
    let (compute, loader) = (plural(resources.compute, "compute thread"), plural(resources.loader, "loader thread"));
    format!("{} per rank: {compute}, {loader}", resources.cores)
}

/// Returns facts about a resumed run: its checkpoint and its best score.
pub fn resumed(from: Option<PathBuf>, at: &Progress) -> impl Iterator<Item = (String, String)> {
    let resumed = from.map(|path| ("resumed".to_string(), path.display().to_string()));
    let best = at.best.as_ref().map(|best| (report::BEST.to_string(), report::best(&best.by, best.score, best.step)));
    resumed.into_iter().chain(best)
}

/// Returns the best score of a resumed run for the log, which may not have the evaluation. If the run resumes from the step of
/// that score, all scores of the step are known.
pub fn best<B: Backend>(run: &Run<B>, at: &Progress) -> Option<BestScore> {
    let best = at.best.as_ref()?;
    let (name, ema) = match best.by.strip_prefix("ema.") {
        Some(name) => (name, true),
        None => (best.by.as_str(), false),
    };
    let all = at.score.as_ref().filter(|_| best.step == at.step && !ema);
    let all = all.into_iter().flat_map(output::by_name).map(|(name, score)| (name.to_string(), score));
    Some(BestScore {
        step: best.step,
        split: run.evaluation.as_ref().map_or_else(String::new, |evaluation| evaluation.split.name().to_string()),
        ema,
        best: best.by.clone(),
        scores: all.chain([(name.to_string(), best.score)]).collect(),
    })
}

/// Creates the start event. `overlap` is true if buckets are summed during backward.
pub fn start_event<B: Backend>(
    world: &WorldInfo,
    run: &Run<B>,
    resources: Resources,
    overlap: bool,
    request: &TrainRequest,
) -> Result<Start, Error> {
    let facts = [
        ("device", run.graph.backend().describe()),
        ("cores", cores(resources)),
        ("mpi", format!("{}, {}", world.library, world.thread_level)),
        ("exchange", exchange(world, run, overlap)),
        ("codec", run.reduction.describe()),
        ("schedule", run.schedule.describe()),
        ("shards", format!("{} in {}", run.source.train.shards().len(), run.source.train.dir().display())),
        ("order", order(run)),
        ("loader", loader(run)?),
        ("out", request.out.display().to_string()),
        ("host", world.host.clone()),
    ];
    Ok(Start {
        step: 0,
        epoch: 0,
        epochs: run.epochs(),
        steps_per_epoch: run.division.steps_per_epoch,
        last_step: request.max_steps.unwrap_or(u64::MAX).min(run.schedule.total_steps()),
        steps: run.recipe.steps,
        model: run.recipe.model.clone(),
        parameters: run.graph.params().iter().map(|p| p.spec.elems() as u64).sum(),
        images: run.division.images,
        batch: run.division.batch,
        workers: run.division.workers,
        ranks: world.size,
        best: None,
        facts: facts
            .into_iter()
            .chain(
                run.source
                    .train_labels
                    .as_ref()
                    .map(|train_labels| ("classes", train_labels.describe(run.source.train.class_names()))),
            )
            .chain(frozen(run).map(|text| ("frozen", text)))
            .chain(run.source.phases.describe().map(|text| ("sizes", text)))
            .chain(step(&run.recipe).map(|text| ("step", text)))
            .chain(averages(&run.recipe).map(|text| ("averages", text)))
            .chain(scoring::describe(&run.recipe).map(|text| ("scores", text)))
            .chain(targets::describe(&run.recipe).map(|text| ("loss", text)))
            .chain(run.recipe.mix.describe().map(|text| ("mix", text)))
            .map(|(name, fact)| (name.to_string(), fact))
            .collect(),
    })
}
