//! From the request to a running session: ranks, threads, each rank's device, agreement.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::backend::Backend;
use crate::checkpoint::Progress;
use crate::comm::{self, Comm};
use crate::cores;
use crate::error::Error;
use crate::launch::{Kind, Seat};
use crate::nn::table;
use crate::recipe::{self, Overlap, Recipe, Sync};
use crate::report::{Reporter, Start};
use crate::train::How;
use crate::train::agree::algorithms;
use crate::train::agree::gpus;
use crate::train::agree::preflight;
use crate::train::agree::session::Session;
use crate::train::agree::staging;
use crate::train::observe::diagnose;
use crate::train::observe::stop::Stop;
use crate::train::observe::watch::Watch;
use crate::train::plan::prepare::{Place, Request, Run, Source, claim_output};
use crate::train::reduce::path::{self, Ask, Chosen};
use crate::train::save::resume::{self, Head, Resume};
use loaders::Shuffle;

/// Threads and cores of one rank.
#[derive(Clone, Copy, Debug)]
struct Budget {
    cores: cores::Cores,
    compute: usize,
    loader: usize,
}

impl Budget {
    /// Compute threads as asked, else all of this rank's cores; loader threads as asked, else the cores that are left (one
    /// of them for MPI), at least one. Loader threads are nice 19: on a shared core they take what compute leaves.
    fn new<K: Kind>(kind: &K, cores: cores::Cores, request: &Request, loader: Option<usize>, ranks: usize) -> Self {
        let compute = request.threads.unwrap_or(kind.threads(cores.own));
        let left = cores.own.saturating_sub(compute + usize::from(ranks > 1));
        Self { cores, compute, loader: loader.unwrap_or(left.max(1)) }
    }

    /// Whether MPI has a core of its own, or, on a device that enqueues, the thread that would compute has time.
    fn overlap(&self, wish: Overlap, queues: bool) -> bool {
        match wish {
            Overlap::On => true,
            Overlap::Off => false,
            Overlap::Auto => queues || self.cores.spare(self.compute),
        }
    }
}

/// Opens what the request names. With `--stage` the data set is copied first, which all ranks of
/// a `session` do together; without one this is the only rank.
fn open(request: &Request, session: Option<&Session>) -> Result<Source, Error> {
    let recipe = Source::recipe(request);
    let Some(under) = &request.stage else {
        let recipe = recipe?;
        let data = PathBuf::from(&recipe.data);
        return Source::open(recipe, &data);
    };
    let recipe = match session {
        Some(session) => session.agree(recipe)?,
        None => recipe?,
    };
    let splits = |names: &[&str]| {
        let scored = recipe::eval_split(recipe.eval_split.as_deref(), names)?;
        Ok(["train".to_string()].into_iter().chain(scored).collect())
    };
    let dir = staging::stage(session, Path::new(&recipe.data), under, splits)?;
    Source::open(recipe, &dir)
}

/// Opens this rank's device, which goes on with the algorithms of the run's checkpoint.
fn device<K: Kind>(
    kind: &K,
    recipe: &Recipe,
    budget: Budget,
    node_rank: usize,
    resume: Option<&Resume>,
) -> Result<K::Backend, Error> {
    let integer = recipe.reduce.codec.integer;
    let seat = Seat {
        threads: budget.compute,
        node_rank,
        precision: recipe.precision,
        tf32: recipe.tf32,
        deterministic: recipe.deterministic || integer,
    };
    let backend = kind.open(&seat)?;
    path::check(recipe.reduce.path, recipe.reduce.codec.name, backend.queues())?;
    if let Some(resume) = resume {
        resume.adopt(&backend);
    }
    Ok(backend)
}

/// Trains as requested on a kind of device; `started` is when the process began. A dry run gives the text to print on rank 0.
pub fn run<K: Kind>(kind: &K, request: &Request, started: Instant) -> Result<Option<String>, Error> {
    let stop = Stop::listen(request.time_limit, started)?;
    // without a launcher there is one rank, and planning need not wait for MPI to come up
    let alone = comm::launcher().is_none();
    let comm = Comm::launch();
    let watch = Watch::start(&comm, request.stall);
    // what all ranks do together waits for MPI
    let source = (alone || request.stage.is_none()).then(|| open(request, None));
    let mut early = None;
    let mut late = None;
    if alone {
        let cores = cores::Cores { own: cores::affinity().len() };
        early = source.map(|source| {
            source.and_then(|mut source| {
                let resume = resume::find(request)?;
                resume.as_ref().map_or(Ok(()), |resume| resume.head.settle(&mut source, request, 1))?;
                let budget = Budget::new(kind, cores, request, source.recipe.loader.threads, 1);
                let place = Place { rank: 0, ranks: 1, loader_threads: budget.loader };
                let backend = device(kind, &source.recipe, budget, 0, resume.as_ref())?;
                Ok((Run::new(source, backend, place)?, budget, resume))
            })
        });
    } else {
        late = source;
    }
    let mut session = Session::join_watched(comm, watch)?;
    let how = How { request, stop: &stop, started };
    let result = match early {
        Some(planned) if session.world.size == 1 => {
            planned.and_then(|(run, budget, resume)| begin(kind, &mut session, run, budget, resume, &how))
        }
        _ => {
            let source = late.unwrap_or_else(|| open(request, Some(&session)));
            join(kind, &mut session, source, &how)
        }
    };
    session.conclude(result)
}

/// Plans on one of several ranks.
fn join<K: Kind>(
    kind: &K,
    session: &mut Session,
    source: Result<Source, Error>,
    how: &How<'_>,
) -> Result<Option<String>, Error> {
    let request = how.request;
    session.same_program()?;
    session.same_device(K::NAME)?;
    let mut source = session.agree(source)?;
    let resume = resume::share(session, request)?;
    let (rank, ranks) = (session.world.rank, session.world.size);
    let settled = resume.as_ref().map_or(Ok(()), |resume| resume.head.settle(&mut source, request, ranks));
    session.agree(settled)?;
    session.same("the recipe or the data set", &source.digest(request)?, "start all ranks with the same files")?;
    let cores = session.cores()?;
    let budget = Budget::new(kind, cores, request, source.recipe.loader.threads, ranks);
    let place = Place { rank, ranks, loader_threads: budget.loader };
    let host = session.world.host.clone();
    let here = |error| diagnose::located(kind, error, &host, None);
    let opened = device(kind, &source.recipe, budget, session.world.node_rank, resume.as_ref());
    let backend = session.agree(opened.map_err(here))?;
    let planned = |backend| Run::new(source, backend, place).map_err(here);
    let (run, notes) = algorithms::plan(session, backend, planned, |run| run.graph.backend())?;
    session.notes.extend(notes);
    begin(kind, session, run, budget, resume, how)
}

/// From the plan to the first step, and on to the end.
fn begin<K: Kind>(
    kind: &K,
    session: &mut Session,
    mut run: Run<K::Backend>,
    budget: Budget,
    resume: Option<Resume>,
    how: &How<'_>,
) -> Result<Option<String>, Error> {
    let request = how.request;
    session.notes.extend(kind.notes());
    let cards = gpus::check(session, kind.card(run.graph.backend()).as_ref(), request.share_gpu)?;
    session.notes.extend(cards.notes);
    session.same("the memory layout of the parameters", &run.graph.format_lines(), K::LAYOUT_CURE)?;
    if request.dry_run {
        return session.is_root().then(|| dry_run(&run)).transpose();
    }
    let head = resume.as_ref().map(|resume| resume.head.clone());
    let before = head.as_ref().map_or(String::new(), |head| head.progress.algorithms.clone());
    session.notes.extend(algorithms::changed(&before, run.graph.backend()));
    let equal = "program, recipe, data set, memory layout";
    let mut table = preflight::table(session, &run.graph.backend().describe(), equal)?;
    let report = match session.is_root() {
        true => open_output(session, &run, request, head.as_ref(), &mut table),
        false => Ok(Reporter::silent()),
    };
    let mut report = session.agree(report)?;
    session.watch.share(&request.out, session.world.rank, session.world.size);
    let at = match resume {
        Some(resume) => resume.restore(session, &mut run)?,
        None => Progress { seed: run.recipe.seed, data: run.source.identity()?, ..Progress::default() },
    };
    let overlap = budget.overlap(run.recipe.reduce.overlap, run.graph.backend().queues());
    table.iter().for_each(|row| report.note(row));
    let notes = head.iter().flat_map(|head| &head.notes).chain(&session.notes);
    notes.for_each(|note| report.note(note));
    if run.rounds.is_some() {
        report.note(&format!(
            "note: with sync = \"{}\" another number of ranks computes another model; only \"allreduce\" keeps it the same",
            run.recipe.sync
        ));
    }
    let ask = Ask {
        path: run.recipe.reduce.path,
        codec: run.reduction.entry.name,
        allreduce: run.rounds.is_none(),
        shared: cards.shared,
        out: &request.out,
        buckets: &run.graph.layout().chunks,
        coded: run.reduction.on_device(),
    };
    let Chosen { way, why } = path::choose(session, run.graph.backend(), &ask)?;
    let start = session.agree(start_event(session, &run, budget, overlap, request))?;
    let path = Some(("path".to_string(), why)).filter(|(_, why)| !why.is_empty());
    let resumed = head.map(|head| ("resumed".to_string(), head.path.display().to_string()));
    let algorithms = algorithms::describe(&before, run.graph.backend());
    let facts = start.facts.into_iter().chain(resumed).chain(path).chain(algorithms).collect();
    report.event(Start { step: at.step, epoch: at.epoch, facts, ..start })?;
    let card = kind.card(run.graph.backend());
    super::train(session, run, at, (overlap, way), how, report)
        .map_err(|error| diagnose::located(kind, error, &session.world.host, card.as_ref()))?;
    Ok(None)
}

/// Rank 0's way into the output folder: is there room, is it free, and then it is this run's.
fn open_output<B: Backend>(
    session: &mut Session,
    run: &Run<B>,
    request: &Request,
    head: Option<&Head>,
    table: &mut Vec<String>,
) -> Result<Reporter, Error> {
    let (row, tight) = preflight::room(&request.out, need(run))?;
    table.push(row);
    session.notes.extend(tight);
    claim_output(request, head, &run.recipe)?;
    session.watch.share(&request.out, 0, session.world.size);
    Ok(Reporter::new(&request.out, run.recipe.log.every, head.is_some())?)
}

/// What the run will write.
fn need<B: Backend>(run: &Run<B>) -> preflight::Need {
    let weights = run.graph.layout().chunks.iter().sum::<usize>() as u64 * 4;
    let averages = u64::from(run.ema.is_some());
    let model = weights * (1 + averages) + run.graph.running().len() as u64 * 4;
    let residuals = if run.reduction.settings.error_feedback { run.division.workers } else { 0 };
    let others = run.optimizer.slots().count() + residuals;
    preflight::Need { checkpoint: model + weights * others as u64, model, keep: run.recipe.checkpoint.keep as u64 }
}

/// Recipe, layers and memory, as `--dry-run` prints them.
fn dry_run<B: Backend>(run: &Run<B>) -> Result<String, Error> {
    let (training, scoring) = run.footprints()?;
    let loaders = training.bytes() + scoring.map_or(0, |scoring| scoring.bytes());
    let averages = run.ema.as_ref().map_or(0, |_| run.graph.layout().chunks.iter().sum::<usize>() * 4);
    let mut others = vec![
        ("codec, residuals included", run.reduction.memory()),
        ("loader", loaders as usize),
        ("work space of operations", run.graph.backend().scratch_bytes()),
        ("moving averages", averages),
    ];
    others.retain(|(_, bytes)| *bytes > 0);
    Ok(format!(
        "{}\n{}\n{}\n{}",
        run.recipe.to_toml()?.trim_end(),
        table::layers(&run.graph),
        table::memory(&run.graph, run.division.largest(), run.optimizer.slots().count(), &others),
        run.schedule.describe()
    ))
}

/// How samples are mixed, and over how many.
fn order<B: Backend>(run: &Run<B>) -> String {
    let (images, shards) = (run.division.images, run.source.train.shards().len().max(1) as u64);
    match run.recipe.mixing() {
        Shuffle::Full => "full: all samples mixed".into(),
        Shuffle::Window(k) => {
            let window = (images * k as u64 / shards).min(images / run.division.workers as u64);
            format!("window({k}): each worker mixes about {window} samples at a time")
        }
    }
}

/// How the loaders read, and the memory that they take.
fn loader<B: Backend>(run: &Run<B>) -> Result<String, Error> {
    let (training, scoring) = run.footprints()?;
    let more =
        scoring.map_or(String::new(), |s| format!("; scoring {:.1} MiB more", s.bytes() as f64 / f64::from(1 << 20)));
    Ok(format!("{training}{more}"))
}

fn start_event<B: Backend>(
    session: &Session,
    run: &Run<B>,
    budget: Budget,
    overlap: bool,
    request: &Request,
) -> Result<Start, Error> {
    let plural = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let when = match (session.world.size, overlap, run.recipe.reduce.overlap) {
        (1, ..) => "none, one rank",
        (_, true, Overlap::Auto) if run.graph.backend().queues() => "beside backward (the device computes)",
        (_, true, Overlap::Auto) => "beside backward (a core is left for MPI)",
        (_, false, Overlap::Auto) => "after backward (no core is left for MPI)",
        (_, true, _) => "beside backward",
        (_, false, _) => "after backward",
    };
    let codec = run.recipe.reduce.codec.name;
    let exchange = match (&run.rounds, run.recipe.sync) {
        (Some(_), Sync::Local(steps)) => format!("mean of parameters and optimizer slots after every {steps} step(s)"),
        (Some(_), Sync::Easgd { period, .. }) => format!("elastic averaging every {period} step(s)"),
        _ if when.starts_with("none") => when.to_string(),
        _ => format!("{codec}, {when}"),
    };
    let facts = [
        ("device", run.graph.backend().describe()),
        (
            "cores",
            format!(
                "{} a rank: {}, {}",
                budget.cores.own,
                plural(budget.compute, "compute thread"),
                plural(budget.loader, "loader thread")
            ),
        ),
        ("mpi", format!("{}, {}", session.world.library, session.world.thread_level)),
        ("exchange", exchange),
        ("codec", run.reduction.describe()),
        ("schedule", run.schedule.describe()),
        ("shards", format!("{} in {}", run.source.train.shards().len(), run.source.train.dir().display())),
        ("order", order(run)),
        ("loader", loader(run)?),
        ("out", request.out.display().to_string()),
    ];
    Ok(Start {
        step: 0,
        epoch: 0,
        epochs: run.recipe.epochs,
        steps_per_epoch: run.division.steps_per_epoch,
        last_step: request.max_steps.unwrap_or(u64::MAX).min(run.schedule.total_steps()),
        model: run.recipe.model.clone(),
        parameters: run.graph.params().iter().map(|p| p.spec.elems() as u64).sum(),
        images: run.division.images,
        batch: run.division.batch,
        workers: run.division.workers,
        ranks: session.world.size,
        facts: facts.into_iter().map(|(k, v)| (k.to_string(), v)).collect::<BTreeMap<_, _>>(),
    })
}
