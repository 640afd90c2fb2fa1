//! Plans a run: network, memory, reduction, optimizer and loaders. After this, no step can fail because of wrong shapes or a lack of
//! memory.

use std::sync::Arc;

use backend::Backend;
use base::text::plural;
use engine::graph::BuildError;
use engine::optim::{Ema, Optimizer, OptimizerKind, Schedule};
use engine::{Graph, Purpose};
use loaders::{Balanced, Footprint, Options, Split};
use net::{NetSpec, Op};
use recipe::{Codec, OnCorrupt, Recipe, Sync};

use super::division::Division;
use super::network::{self, Parameter, shape_of};
use super::phases::plan_size;
use super::source::Source;
use super::{settings, targets};
use crate::error::Error;
use crate::train::device_input::DeviceInput;
use crate::train::evaluate::{Evaluation, NumberScale, TestTime};
use crate::train::plan::run::Run;
use crate::train::reduce::plan::ReducePlan;
use crate::train::strategy::{Allreduce, Easgd, LocalSgd, OwnModel, Strategy, allocate_on_host};

/// Nice value of loader threads: the lowest priority. Otherwise they would delay compute threads, and all compute threads wait for the
/// slowest one at each barrier.
pub const LOADER_NICE: i32 = 19;

/// The rank that a run is planned for.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub rank: usize,
    pub ranks: usize,
    pub loader_threads: usize,
}

pub fn build<B: Backend>(mut source: Source, backend: B, place: Place) -> Result<Run<B>, Error> {
    let mut recipe = source.recipe.clone();
    recipe.resolve(place.ranks)?;
    let workers = recipe.workers.unwrap_or(place.ranks);
    let division = Division::new(source.train.len(), recipe.batch, workers, place.rank, place.ranks);
    let steps = recipe.total_steps(division.steps_per_epoch);
    let schedule = Schedule::over(&recipe.schedule, recipe.batch, steps, division.steps_per_epoch)?;
    let values = source.augment.output().values();
    let options = loader_options(&recipe, &division, place.loader_threads);
    let input = DeviceInput::new(&backend, &source.augment);
    let loader = Footprint::new(&source.train, &options, division.largest(), values, input.format())?;
    loader.times(recipe.optimizer.passes()).check(&options)?;
    let purpose = Purpose::Train { bucket_bytes: bucket_bytes(&recipe, &backend, place.ranks) };
    let bn_groups = recipe.bn_groups(workers);
    let net = NetSpec { input: source.largest_input(), bn_groups, ..source.network()? };
    let mut graph = Graph::new(backend, net, division.largest(), purpose, recipe.seed)?;
    if let Some(objective) = targets::objective(&recipe) {
        graph.train_against(objective);
    }
    let images = [&source.augment, &source.preprocess].map(|pipeline| pipeline.output());
    let [train, scored] = images.map(shape_of);
    let two_sizes = |error: BuildError| {
        Error::Usage(format!("augment.train makes images of {}, and augment.eval of {}: {error}", images[0], images[1]))
    };
    plan_size(&mut graph, train, division.largest(), division.sizes(), two_sizes)?;
    let (workers, mine, each) = (division.workers, &division.mine, division.steps_per_epoch);
    source.phases.plan(&mut graph, &division)?;
    let mut named = recipe.clone();
    let notes = name_parameters(&mut named, &graph);
    let reduction = ReducePlan::new(&named, &graph, workers, mine, place.ranks, each)?;
    graph.prepare_accumulation(division.mine.clone(), reduction.gather())?;
    let [evaluation, at_end] = evaluations(&source, &division, options)?;
    let batches = evaluation.iter().chain(&at_end).flat_map(Evaluation::sizes).collect();
    plan_size(&mut graph, scored, division.largest(), batches, two_sizes)?;
    source.notes.extend(notes);
    let mut optimizer = optimizer(&named, &graph)?;
    if let Some(epochs) = recipe.freeze.epochs {
        check_thaw(&graph, &optimizer)?;
        optimizer.begin_frozen_at(u64::from(epochs) * division.steps_per_epoch);
    }
    let balanced = balanced(&recipe, &source)?;
    let averaging = recipe.ema.averaging(division.steps_per_epoch, recipe.total_steps(division.steps_per_epoch));
    let ema = averaging.map(|averaging| Ema::new(&graph, averaging)).transpose()?;
    let strategy = strategy(recipe.sync, place.ranks, &graph)?;
    let mut own = None;
    if !strategy.sums_gradients() {
        let own = own.insert(OwnModel::new(&graph)?);
        allocate_on_host(graph.weights_mut().1)?;
        // with local SGD, the host also sums these over the ranks
        if let Sync::Local(_) = recipe.sync {
            let slots = optimizer.slots_mut().map(|slot| slot.1);
            std::iter::once(&mut own.weights).chain(slots).try_for_each(allocate_on_host)?;
        }
    }
    Ok(Run {
        recipe,
        source,
        division,
        schedule,
        graph,
        reduction,
        optimizer,
        ema,
        evaluation,
        evaluation_at_end: at_end,
        strategy,
        own,
        balanced,
        options,
    })
}

/// Returns an order of the images in which every class has an equal share of an epoch, if the recipe requests it.
fn balanced(recipe: &Recipe, source: &Source) -> Result<Option<Arc<Balanced>>, Error> {
    let Some(train_labels) = source.train_labels.as_ref().filter(|_| recipe.balanced()) else { return Ok(None) };
    let balanced = Balanced::new(recipe.seed, &train_labels.labels);
    if balanced.is_empty() {
        return Err(Error::Failed(format!(
            "data set {}: balanced = true needs labels, but no training record has one; set balanced = false",
            recipe.data
        )));
    }
    let (repeats, most, classes) = (u64::from(recipe.augment.repeats()), balanced.most_repeats(), balanced.classes());
    if repeats > most {
        let draws = balanced.len().div_ceil(repeats);
        return Err(Error::Usage(format!(
            "balanced = true with augment.repeats = {repeats} makes {} per epoch, but {classes} classes have images, so {} would never be \
             drawn; set augment.repeats to at most {most}",
            plural(draws, "draw"),
            plural(classes - draws, "class")
        )));
    }
    Ok(Some(Arc::new(balanced)))
}

/// Returns the size of gradient buckets in bytes. On a single GPU without a codec, all parameters share one bucket, because each further
/// bucket costs another launch of every kernel that processes parameters or gradients.
fn bucket_bytes<B: Backend>(recipe: &Recipe, backend: &B, ranks: usize) -> usize {
    let alone = ranks == 1 && recipe.reduce.codec.name == Codec::default().name;
    if alone && backend.queue().is_some() { usize::MAX } else { (recipe.reduce.bucket_mb * 1e6) as usize }
}

fn loader_options(recipe: &Recipe, division: &Division, threads: usize) -> Options {
    Options {
        threads,
        slots: recipe.loader.slots,
        nice: LOADER_NICE,
        io: recipe.loader.io.0,
        open: recipe.shuffling().open(division.mine.len()),
        buffer: (recipe.loader.buffer_mb * 1e6) as usize,
        skip: recipe.loader.on_corrupt == OnCorrupt::Skip,
    }
}

/// Plans the evaluation after each epoch and the evaluation at the end of the run. A bad record is an error in both, because scores over
/// different images cannot be compared.
fn evaluations(source: &Source, division: &Division, options: Options) -> Result<[Option<Evaluation>; 2], Error> {
    if source.eval.is_none() {
        return source.recipe.scores_used().first().map_or(Ok([None, None]), |(key, name)| {
            let what = format!(
                "{key} = \"{name}\" needs scores, but the data set has no images in {}; name another split with eval_split, or \
                 remove {key}",
                settings::possible_splits(&source.recipe)
            );
            Err(Error::Failed(format!("data set {}: {what}", source.recipe.data)))
        });
    }
    let (pipeline, batch) = (source.preprocess.clone(), division.largest());
    let options = Options { open: 0, skip: false, ..options };
    let eval = &source.recipe.eval;
    let test_time = TestTime { flip: eval.flip(), corners: eval.corners(), shift: eval.shift() };
    let views =
        if test_time.is_on() { test_time.views(&pipeline, pipeline.input(), &source.manifest)? } else { Vec::new() };
    let targets = source.manifest.targets.clone();
    let numbers = targets::distance(&source.recipe.loss).map(|distance| NumberScale { targets, distance });
    let of = |split: &Arc<Split>| {
        let (split, pipeline, views) = (split.clone(), pipeline.clone(), views.clone());
        Evaluation { split, pipeline, views, batch, options, numbers: numbers.clone(), selection: None }
    };
    let watched = source.eval.as_ref().map(of).map(|evaluation| evaluation.limited(eval.limit));
    Ok([watched, source.eval_at_end.as_ref().map(of)])
}

/// Returns the names of the parameters, with the properties that the keywords of patterns refer to.
fn parameters<B: Backend>(graph: &Graph<B>) -> Vec<Parameter<'_>> {
    let norm = |node: usize| matches!(graph.net().nodes[node].op, Op::Norm(_) | Op::LayerNorm(_) | Op::GroupNorm(_));
    graph.params().iter().map(|p| Parameter { name: &p.name, norm: norm(p.node) }).collect()
}

/// Replaces the keywords in all pattern lists of the optimizer and the codec with parameter names. Returns notes: how many parameters each
/// pattern selects, and which patterns match nothing.
fn name_parameters<B: Backend>(recipe: &mut Recipe, graph: &Graph<B>) -> Vec<String> {
    let all = parameters(graph);
    let names: Vec<&str> = all.iter().map(|one| one.name).collect();
    let of = format!("network {}", graph.net().name);
    let mut notes = Vec::new();
    let mut name = |key: &str, list: &mut Vec<String>| {
        notes.extend(network::describe_matches(key, list, &all));
        *list = network::expand_keywords(list, &all);
        notes.extend(network::notes(key, list, &names, &of));
    };
    let o = &mut recipe.optimizer;
    o.no_decay.iter_mut().for_each(|list| name("optimizer.no_decay", list));
    o.no_agc.iter_mut().for_each(|list| name("optimizer.no_agc", list));
    if let OptimizerKind::Lars(lars) = &mut o.kind {
        lars.no_adapt.iter_mut().for_each(|list| name("optimizer.no_adapt", list));
    }
    o.groups.iter_mut().flatten().for_each(|group| name("optimizer.groups.match", &mut group.r#match));
    recipe.reduce.exempt.iter_mut().for_each(|list| name("reduce.exempt", list));
    notes
}

fn optimizer<B: Backend>(recipe: &Recipe, graph: &Graph<B>) -> Result<Optimizer<B>, Error> {
    let o = &recipe.optimizer;
    let names: Vec<&str> = graph.params().iter().map(|p| p.name.as_str()).collect();
    for group in o.groups.iter().flatten() {
        network::check_patterns(
            "optimizer.groups.match",
            &group.r#match,
            &names,
            &format!("network {}", graph.net().name),
        )?;
    }
    let mut optimizer = Optimizer::new(graph, o)?;
    if let Some(part) = o.clip_agc {
        let last = graph.net().last_layer();
        let head: Vec<&str> = graph.params().iter().filter(|p| Some(p.node) == last).map(|p| p.name.as_str()).collect();
        optimizer.limit_units(graph, part, |name| o.limits_units(name, head.contains(&name)))?;
    }
    Ok(optimizer)
}

/// Returns an error if parameters that are frozen for some epochs would later need their own step count in the optimizer. A device with a
/// queue has only one count for all parameters.
fn check_thaw<B: Backend>(graph: &Graph<B>, optimizer: &Optimizer<B>) -> Result<(), Error> {
    if graph.backend().queue().is_none() || !optimizer.counts_steps() {
        return Ok(());
    }
    Err(Error::Usage(
        "freeze.epochs: the update of this optimizer depends on the number of steps. Parameters that were frozen at first would need \
         another number of steps than the others, but on this device there is one number for all parameters. Remove freeze.epochs to \
         freeze them for the whole run, use the optimizer sgd, rmsprop, lars, lion or adagrad (without lr_decay), or use --device cpu"
            .into(),
    ))
}

/// Creates the strategy that the recipe selects. A single rank does not need to synchronise.
fn strategy<B: Backend>(sync: Sync, ranks: usize, graph: &Graph<B>) -> Result<Box<dyn Strategy<B>>, Error> {
    Ok(match sync {
        Sync::Local(period) if ranks > 1 => Box::new(LocalSgd { period }),
        Sync::Easgd { period, alpha } if ranks > 1 => {
            Box::new(Easgd::new(period, alpha, graph.backend(), graph.weights())?)
        }
        _ => Box::new(Allreduce),
    })
}
