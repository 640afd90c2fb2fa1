//! Starts a run. It goes from the request to the first step: joins the ranks, divides the cores, opens the device, plans, and compares the
//! plans of all ranks.

use std::path::{Path, PathBuf};
use std::time::Instant;

use backend::Backend;
use base::screen;
use base::text::{plural, with_advice};
use comm::Comm;
use formats::checkpoint::Progress;
use loaders::{Dataset, why};
use recipe::{Recipe, ScoredSplits, TransportSetting};
use report::{Reporter, Start, Tensorboard};

use crate::device::{Device, DeviceSettings, OVERLAP, RequestedThreads, Resources};
use crate::error::Error;
use crate::train;
use crate::train::agree::Session;
use crate::train::agree::gpus::CheckedGpus;
use crate::train::agree::{self, algorithms, gpus, preflight};
use crate::train::init::initial_weights::InitialWeights;
use crate::train::init::{initial_weights, whiten};
use crate::train::observe::stop::Stop;
use crate::train::observe::watch::{Activity, Watch};
use crate::train::plan::build::{Place, build};
use crate::train::plan::request::TrainRequest;
use crate::train::plan::run::Run;
use crate::train::plan::source::Source;
use crate::train::reduce::transport;
use crate::train::reduce::transport::{Choice, TransportPlan, TransportRequest};
use crate::train::save::lock::OutLock;
use crate::train::save::resume::{Head, Logged, Resume};
use crate::train::save::saver::RESUMABLE;
use crate::train::save::{folder, output, resume, saver};
use crate::train::{RunContext, define, describe, page, scoring, teacher};

struct PlannedRun<B: Backend> {
    run: Run<B>,
    resources: Resources,
    resume: Option<Resume>,
    gpus: CheckedGpus,
    /// The lock on OUT, if it was taken before the checkpoints were read. `None` on ranks other than 0.
    lock: Option<OutLock>,
}

/// How the run was started: its options, requests to stop it, and the start time of the process.
#[derive(Clone, Copy)]
struct Invocation<'a> {
    request: &'a TrainRequest,
    stop: &'a Stop,
    started: Instant,
}

/// Trains as requested on a kind of device. `started` is the start time of the process. A dry run returns the text that
/// rank 0 prints.
pub fn run<D: Device>(device: &D, request: &TrainRequest, started: Instant) -> Result<Option<String>, Error> {
    // a dry run has nothing to save, so a signal may end it
    let stop = if request.dry_run { Stop::default() } else { Stop::listen(request.time_limit, started)? };
    // without a launcher there is only one rank, so planning does not need to wait for MPI
    let alone = comm::launcher().is_none();
    // MPI changes environment variables while it starts. So libraries must either read theirs before that, or load after it
    let early = alone && device.read_environment()?;
    let comm = Comm::launch();
    let watch = Watch::start(&comm, request.stall);
    // `--stage` needs communication, so it waits for MPI
    let source = (alone || request.stage.is_none()).then(|| open(request, None, &watch));
    let (early, late) = match early {
        true => (source.map(|source| plan_alone(device, request, source, &watch)), None),
        false => (None, source),
    };
    let mut session = Session::join(comm, watch.clone())?;
    let invocation = Invocation { request, stop: &stop, started };
    let result = match early {
        Some(planned) if session.world.size == 1 => {
            planned.and_then(|planned| begin(device, &mut session, planned, invocation))
        }
        _ => {
            let same = session.same_start((D::NAME, device.why_chosen()), &request.compared());
            let source = |session: &Session| late.unwrap_or_else(|| open(request, Some(session), &watch));
            same.and_then(|()| plan_together(device, &mut session, source, request))
                .and_then(|planned| begin(device, &mut session, planned, invocation))
        }
    };
    session.conclude(result)
}

/// Opens this rank's device. `node_rank` is the rank's number among the `node_ranks` ranks of its node. For a resumed
/// run, makes the device use the algorithms in the checkpoint.
fn open_device<D: Device>(
    device: &D,
    recipe: &Recipe,
    resources: Resources,
    (node_rank, node_ranks): (usize, usize),
    resume: Option<&Resume>,
) -> Result<D::Backend, Error> {
    let integer = recipe.reduce.codec.integer;
    let settings = DeviceSettings {
        threads: resources.compute,
        node_rank,
        node_ranks,
        precision: recipe.precision,
        tf32: recipe.tf32,
        deterministic: recipe.deterministic || integer,
    };
    let backend = device.open(&settings)?;
    transport::check(recipe.reduce.path, recipe.reduce.codec.name, backend.queue().is_some())?;
    if let Some(resume) = resume {
        resume.adopt(&backend);
    }
    Ok(backend)
}

/// Locks the output directory of a run to resume before its checkpoints are read, so that no other run changes them in the meantime. If the
/// directory has no lock file, it is locked later, once it is certain that a run wrote it.
fn lock_early(request: &TrainRequest) -> Result<Option<OutLock>, Error> {
    check_resumed(request)?;
    if request.resume.is_some() && !request.dry_run {
        OutLock::take_if_there(&request.out, request.steal_lock)
    } else {
        Ok(None)
    }
}

/// Plans a run with a single rank, possibly before MPI is up.
fn plan_alone<D: Device>(
    device: &D,
    request: &TrainRequest,
    source: Result<Source, Error>,
    watch: &Watch,
) -> Result<PlannedRun<D::Backend>, Error> {
    watch.set_activity(Activity::Reading);
    let mut source = source?;
    source.recipe.adapt_to(D::NAME);
    let lock = lock_early(request)?;
    let resume = resume::find(request)?;
    resume.as_ref().map_or(Ok(()), |resume| resume.head.settle(&mut source, request, 1))?;
    source.define()?;
    source.read_labels()?;
    watch.set_activity(Activity::Starting);
    let requested = RequestedThreads { compute: request.threads, loader: source.recipe.loader.threads };
    let resources = Resources::of_process::<D>(requested);
    let place = Place { rank: 0, ranks: 1, loader_threads: resources.loader };
    let backend = open_device(device, &source.recipe, resources, (0, 1), resume.as_ref())?;
    // one rank shares no GPU
    let gpus = CheckedGpus::default();
    Ok(PlannedRun { run: build(source, backend, place)?, resources, resume, gpus, lock })
}

/// Plans a run together with the other ranks.
fn plan_together<D: Device>(
    device: &D,
    session: &mut Session,
    source: impl FnOnce(&Session) -> Result<Source, Error>,
    request: &TrainRequest,
) -> Result<PlannedRun<D::Backend>, Error> {
    let mut source = session.agree(source(session))?;
    source.recipe.adapt_to(D::NAME);
    // from here on, all ranks need the same recipe, so compare it first
    session.same("the recipe or the data set", &source.digest()?, "start all ranks with the same files")?;
    session.watch.set_activity(Activity::Reading);
    let lock = session.agree(if session.is_root() { lock_early(request) } else { Ok(None) })?;
    let resume = resume::share(session, request)?;
    let (rank, ranks) = (session.world.rank, session.world.size);
    let settled = resume.as_ref().map_or(Ok(()), |resume| resume.head.settle(&mut source, request, ranks));
    session.agree(settled)?;
    define::share(session, &mut source)?;
    define::share_classes(session, &mut source)?;
    session.watch.set_activity(Activity::Starting);
    let cores = session.cores()?;
    let requested = RequestedThreads { compute: request.threads, loader: source.recipe.loader.threads };
    let resources = Resources::new::<D>(cores, requested, ranks > 1);
    let place = Place { rank, ranks, loader_threads: resources.loader };
    let host = session.world.host.clone();
    let here = |error| gpus::located(device, error, &host, None);
    let on_node = (session.world.node_rank, session.world.node_size);
    let opened = open_device(device, &source.recipe, resources, on_node, resume.as_ref());
    let backend = session.agree(opened.map_err(here))?;
    // before memory is allocated, which fails if ranks share a GPU by mistake
    let gpus = gpus::check(session, device.gpu(&backend).as_ref(), request.share_gpu)?;
    let planned = |backend| build(source, backend, place).map_err(here);
    let (run, notes) = algorithms::plan(session, backend, planned, |run| run.graph.backend())?;
    session.notes.extend(notes);
    Ok(PlannedRun { run, resources, resume, gpus, lock })
}

/// Calls [`start`], and adds the location of the device to its errors.
fn begin<D: Device>(
    device: &D,
    session: &mut Session,
    planned: PlannedRun<D::Backend>,
    invocation: Invocation<'_>,
) -> Result<Option<String>, Error> {
    let (gpu, host) = (device.gpu(planned.run.graph.backend()), session.world.host.clone());
    let Recipe { precision, tf32, .. } = planned.run.recipe;
    session.notes.extend(device.notes(precision, tf32));
    start(session, planned, invocation, D::LAYOUT_CURE)
        .map_err(|error| gpus::located(device, error, &host, gpu.as_ref()))
}

/// Runs a planned training. `layout_cure` is the advice for the user if ranks have different memory layouts.
fn start<B: Backend>(
    session: &mut Session,
    planned: PlannedRun<B>,
    invocation: Invocation<'_>,
    layout_cure: &str,
) -> Result<Option<String>, Error> {
    let PlannedRun { mut run, resources, resume, gpus, lock } = planned;
    let Invocation { request, stop, started } = invocation;
    session.notes.extend(gpus.notes);
    let no_nccl = gpus.no_nccl;
    session.same("the memory layout of the parameters", &run.graph.format_lines(), layout_cure)?;
    let taught = teacher::begin(session, &mut run, resume.as_ref().map(|resume| &resume.head))?;
    let teacher = taught.as_ref().map_or_else(String::new, |taught| taught.checksum.clone());
    let own = run.source.notes.iter().cloned().chain(define::notes(&run.source, resume.is_none()));
    let warnings = own.chain(run.warnings(request)).chain(taught.map(|taught| taught.note));
    let warnings: Vec<String> = warnings.collect();
    // a resumed run gets its weights from the checkpoint instead
    session.watch.set_activity(Activity::Reading);
    let initial = if resume.is_none() { initial_weights::prepare(session, &run)? } else { None };
    session.watch.set_activity(Activity::Starting);
    if request.dry_run {
        warnings.iter().filter(|_| session.is_root()).for_each(|warning| screen::say(warning));
        let table = initial.map_or_else(String::new, |initial| initial.table());
        return session.is_root().then(|| describe::dry_run(&run, &table)).transpose();
    }
    session.notes.extend(warnings);
    let overlap = resources.overlap(run.recipe.reduce.overlap, run.graph.backend().queue().is_some());
    let overlap = session.comm.all(OVERLAP, overlap)?;
    if request.find_lr.is_some() {
        return search(session, run, initial, invocation, TransportPlace { overlap, no_nccl });
    }
    if let Some(text) = finished_message(session, &run, request, resume.as_ref())? {
        return Ok(session.is_root().then_some(text));
    }
    session.notes.extend(initial.iter().flat_map(InitialWeights::notes));
    let head = resume.as_ref().map(|resume| resume.head.clone());
    let before = head.as_ref().map_or(String::new(), |head| head.progress.algorithms.clone());
    session.notes.extend(algorithms::changed(&before, run.graph.backend()));
    let Output { lock, logged, mut report } = open_report(session, &run, invocation, head.as_ref(), lock)?;
    let (at, note) = match resume {
        Some(resume) => restore_run(session, &mut run, resume, &request.out)?,
        None => (start_new_run(session, &mut run, initial)?, None),
    };
    let at = Progress { teacher, ..at };
    note.iter().for_each(|note| report.note(note));
    let Choice { transport, why } = choose_transport(session, &run, request, no_nccl.as_deref())?;
    let event = session.agree(describe::start_event(&session.world, &run, resources, overlap, request))?;
    let path = Some(("path".to_string(), why)).filter(|(_, why)| !why.is_empty());
    let resumed = describe::resumed(head.map(|head| head.path), &at);
    let more = resumed.chain(path).chain(algorithms::describe(&before, run.graph.backend()));
    let facts = event.facts.into_iter().chain(more).collect();
    report.event(Start { step: at.step, epoch: at.epoch, facts, best: describe::best(&run, &at), ..event })?;
    let context = RunContext { session, request, stop, started, lock: lock.as_ref(), logged };
    let reports = session.is_root() && run.recipe.log.report();
    let trained = train::train(context, run, at, TransportPlan { overlap, transport }, report);
    if reports && trained.as_ref().err().is_none_or(|error| error.code() == RESUMABLE) {
        page::write(&request.out);
    }
    trained.map(|()| None)
}

/// Inputs to the choice of a transport that the run does not contain.
struct TransportPlace {
    /// True if buckets are summed during backward.
    overlap: bool,
    /// The reason why NCCL must not be tried, if there is one.
    no_nccl: Option<String>,
}

fn search<B: Backend>(
    session: &mut Session,
    mut run: Run<B>,
    initial: Option<InitialWeights>,
    invocation: Invocation<'_>,
    place: TransportPlace,
) -> Result<Option<String>, Error> {
    let Invocation { request, stop, started } = invocation;
    if session.is_root() {
        session.notes.iter().for_each(|note| screen::say(note));
    }
    weights(session, &mut run, initial)?;
    // staged needs no test sums. A test in device memory would create a file in OUT, which the search must not change
    run.recipe.reduce.path = TransportSetting::Staged;
    let Choice { transport, .. } = choose_transport(session, &run, request, place.no_nccl.as_deref())?;
    let plan = TransportPlan { overlap: place.overlap, transport };
    let context = RunContext { session, request, stop, started, lock: None, logged: Logged::default() };
    let found = train::find_lr::find(context, run, request.find_lr.unwrap_or_default(), plan)?;
    Ok(session.is_root().then_some(found))
}

/// For `--resume auto`, returns the message for a run that is already finished, or `None`. The result is the same on all ranks. Collective.
fn finished_message<B: Backend>(
    session: &Session,
    run: &Run<B>,
    request: &TrainRequest,
    resume: Option<&Resume>,
) -> Result<Option<String>, Error> {
    let Some(resume) = resume.filter(|_| request.resumes_newest()) else { return Ok(None) };
    let at = &resume.head.progress;
    let (last, more) = match scoring::over(&run.recipe, at) {
        Some(ending) => (at.step, ending.cure()),
        None => {
            let more =
                if run.recipe.steps.is_some() { "" } else { " To train longer, give --set epochs=N --extend-epochs" };
            (run.last_step(request.max_steps), more)
        }
    };
    let message = session.is_root().then(|| folder::finished_message(&request.out, &resume.head, last, more));
    Ok(session.comm.broadcast("whether the run is complete", message.as_ref())?)
}

struct Output {
    /// The lock on the directory. `None` on ranks other than 0.
    lock: Option<OutLock>,
    logged: Logged,
    report: Reporter,
}

/// Opens OUT on rank 0, and prints the table of ranks and the notes. Collective.
fn open_report<B: Backend>(
    session: &mut Session,
    run: &Run<B>,
    invocation: Invocation<'_>,
    head: Option<&Head>,
    lock: Option<OutLock>,
) -> Result<Output, Error> {
    let backend = run.graph.backend().describe();
    let mut table = preflight::table(session, &backend, "program, recipe, data set, memory layout")?;
    session.watch.set_activity(Activity::Writing { step: head.map_or(0, |head| head.progress.step) });
    let opened = match session.is_root() {
        true => open_output(session, run, invocation, head, &mut table, lock),
        false => Ok(Output { lock: None, logged: Logged::default(), report: Reporter::silent() }),
    };
    let Output { lock, logged, mut report } = session.agree(opened)?;
    let logged = session.comm.broadcast("lines of the log", session.is_root().then_some(&logged))?;
    session.watch.set_activity(Activity::Starting);
    session.watch.share(&invocation.request.out, session.world.rank, session.world.size);
    table.iter().for_each(|row| report.fact(row));
    head.iter().flat_map(|head| &head.notes).chain(&session.notes).for_each(|note| report.note(note));
    if logged.unread > 0 {
        report.note(&format!(
            "warning: {} of metrics.jsonl from before the checkpoint cannot be read and will be missing; perhaps the node crashed before \
             they were on its disk",
            plural(logged.unread, "line")
        ));
    }
    if !run.strategy.sums_gradients() {
        report.note(&format!(
            "note: with sync = \"{}\", the trained model depends on the number of ranks; with sync = \"allreduce\", it does not",
            run.recipe.sync
        ));
    }
    Ok(Output { lock, logged, report })
}

/// Opens the output directory on rank 0: checks the free space, locks the directory and starts the log.
fn open_output<B: Backend>(
    session: &mut Session,
    run: &Run<B>,
    invocation: Invocation<'_>,
    head: Option<&Head>,
    table: &mut Vec<String>,
    lock: Option<OutLock>,
) -> Result<Output, Error> {
    let Invocation { request, started, .. } = invocation;
    train::observe::trace::check(request.trace.as_deref(), &request.recipe, &request.out)?;
    let (row, tight) = preflight::room(&request.out, folder::need(run))?;
    table.push(row);
    session.notes.extend(tight);
    let (lock, logged) = folder::claim_output(request, head, run, define::copy(&run.source), lock)?;
    session.notes.extend(head.and_then(|head| define::copy_of_run(&run.source, head, &request.out)));
    session.watch.share(&request.out, 0, session.world.size);
    let log = &run.recipe.log;
    let report = Reporter::new(&request.out, log.every, head.is_some(), started, request.verbosity, log.apart())?;
    let report = match run.recipe.log.tensorboard() {
        true => report.with(Box::new(Tensorboard::new(&request.out, &run.recipe.to_toml()?))),
        false => report,
    };
    Ok(Output { lock: Some(lock), logged, report })
}

/// Chooses the transport of gradients. Collective.
fn choose_transport<B: Backend>(
    session: &Session,
    run: &Run<B>,
    request: &TrainRequest,
    no_nccl: Option<&str>,
) -> Result<Choice<B>, Error> {
    let wanted = TransportRequest {
        path: run.recipe.reduce.path,
        codec: run.reduction.entry,
        allreduce: run.strategy.sums_gradients(),
        no_nccl,
        out: Some(&request.out),
        buckets: &run.graph.layout().buckets,
        coded: run.reduction.on_device(),
        even: run.division.workers.is_multiple_of(session.world.size),
    };
    transport::choose(session, run.graph.backend(), &wanted)
}

/// Opens the recipe and the data set. With `--stage`, the ranks of `session` first copy the data set to their nodes. Without a session,
/// this is the only rank.
pub(super) fn open(request: &TrainRequest, session: Option<&Session>, watch: &Watch) -> Result<Source, Error> {
    watch.set_activity(Activity::Reading);
    let opened = open_files(request, session, watch);
    watch.set_activity(Activity::Starting);
    opened
}

fn open_files(request: &TrainRequest, session: Option<&Session>, watch: &Watch) -> Result<Source, Error> {
    let loaded = Source::recipe(request);
    let Some(under) = &request.stage else {
        let loaded = loaded?;
        let data = PathBuf::from(&loaded.recipe.data);
        return Source::open(loaded, &data);
    };
    let loaded = match session {
        Some(session) => session.agree(loaded)?,
        None => loaded?,
    };
    let recipe = &loaded.recipe;
    let data = Path::new(&recipe.data);
    let splits = || -> Result<Vec<String>, Error> {
        let scored = ScoredSplits::of_run(recipe.eval_split.as_deref(), &Dataset::open(data)?.manifest)?;
        Ok(["train".to_string()].into_iter().chain(scored.names()).collect())
    };
    watch.set_activity(Activity::Staging);
    let dir = agree::stage(session, data, under, splits)?;
    watch.set_activity(Activity::Reading);
    Source::open(loaded, &dir)
}

/// Advice about the value of `--resume`.
const CURE: &str = "name a file in the folder checkpoints of a run, or write `auto` for the newest checkpoint in --out";

/// Returns an error if `--resume` does not name a file. If it names a directory, the error suggests the newest checkpoint in it. If nothing
/// has this name, the error suggests the newest checkpoint in `--out`. Only the rank that reads the file calls this.
pub(super) fn check_resumed(request: &TrainRequest) -> Result<(), Error> {
    let Some(path) = request.checkpoint() else { return Ok(()) };
    let what = match path.metadata() {
        Ok(about) if !about.is_dir() => return Ok(()),
        Ok(_) => match newest(path).as_str() {
            "" => "this is a folder, not a checkpoint file".into(),
            newest => with_advice("this is a folder, not a checkpoint file", newest),
        },
        Err(error) => match newest(&request.out).as_str() {
            "" => why(path, &error),
            newest => with_advice(&why(path, &error), newest),
        },
    };
    Err(Error::Usage(format!("--resume {}: {}", path.display(), with_advice(&what, CURE))))
}

/// Returns text that names a run's newest checkpoint. Empty if the run has no checkpoint.
fn newest(run: &Path) -> String {
    let found = output::newest(&run.join("checkpoints")).or_else(|| output::newest(run));
    found.map_or_else(String::new, |path| format!("the newest checkpoint in {} is {}", run.display(), path.display()))
}

/// Sets the initial weights of a new run and returns its progress. Collective.
pub fn start_new_run<B: Backend>(
    session: &Session,
    run: &mut Run<B>,
    initial: Option<InitialWeights>,
) -> Result<Progress, Error> {
    weights(session, run, initial)?;
    Ok(Progress { seed: run.recipe.seed, data: run.source.identity()?, ..Progress::default() })
}

/// Restores a run that continues in `out`, and returns its progress. Also returns a note if its best checkpoint is missing. Collective.
pub fn restore_run<B: Backend>(
    session: &Session,
    run: &mut Run<B>,
    resume: Resume,
    out: &Path,
) -> Result<(Progress, Option<String>), Error> {
    let (best, note) = saver::carry_best(session, out, &resume.head)?;
    Ok((Progress { best, ..resume.restore(session, run)? }, note))
}

/// Replaces random weights by weights from the network's file, then by those that `[init]` requests. Collective.
pub fn weights<B: Backend>(session: &Session, run: &mut Run<B>, initial: Option<InitialWeights>) -> Result<(), Error> {
    define::begin(session, run)?;
    initial.map_or(Ok(()), |initial| initial.apply(session, run))?;
    run.recipe.init.whiten.clone().map_or(Ok(()), |layer| whiten::apply(session, run, &layer))
}
