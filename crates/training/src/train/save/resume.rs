//! Resumes from a checkpoint: finds it, checks that the run may continue from it, and restores its state. Only rank 0
//! reads the file and broadcasts what the other ranks need.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use backend::{Algorithms, Arena, Backend, LossScale};
use base::text::{plural, with_advice};
use engine::Graph;
use engine::graph::BuildError;
use engine::optim::schedule::Extension;
use formats::checkpoint;
use formats::checkpoint::{ModelFile, Progress, StateFile, Tensor};
use loaders::safe_create;
use net::Tensors;
use recipe::Recipe;
use report::{EvaluationFile, evaluation_file};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::train::agree::Session;
use crate::train::plan::network::of_model;
use crate::train::plan::request::TrainRequest;
use crate::train::plan::run::Run;
use crate::train::plan::source::Source;
use crate::train::reduce::device::elements;
use crate::train::save::output::ClassSources;
use crate::train::save::snapshot::{broadcast_arena, broadcast_values};
use crate::train::save::{model, output};

/// The part of a checkpoint that is broadcast to all ranks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Head {
    pub path: PathBuf,
    /// The recipe in the checkpoint, as TOML.
    recipe: String,
    /// Description of the network in the checkpoint. Empty if the network is from the catalogue.
    network: String,
    classes: Vec<String>,
    pub progress: Progress,
    /// Notes about newer checkpoints that were skipped because they are damaged.
    pub notes: Vec<String>,
}

pub struct Resume {
    /// The part that was broadcast to all ranks.
    pub head: Head,
    /// The full content of the checkpoint. `None` on ranks other than 0.
    state: Option<StateFile>,
}

/// Finds the requested checkpoint: the newest good one in OUT, or the given file. Returns `None` if no checkpoint is
/// requested, and for `--resume auto` if OUT has none.
pub fn find(request: &TrainRequest) -> Result<Option<Resume>, Error> {
    if let Some(path) = request.checkpoint() {
        let state = read_found(path).map_err(|error| explained(path, error))?;
        return Ok(Some(Resume::new(path.clone(), state, Vec::new())));
    }
    let folder = request.out.join("checkpoints");
    if !request.resumes_newest() || !folder.exists() {
        return Ok(None);
    }
    let unreadable = Error::file("list", &folder);
    let mut notes = Vec::new();
    for (_, path) in output::list(&folder).map_err(unreadable)? {
        match read_found(&path) {
            Ok(state) => return Ok(Some(Resume::new(path, state, notes))),
            Err(error) if is_to_blame(&error) => {
                notes.push(format!("warning: skipped a checkpoint: {}", named(&path, &error)));
            }
            Err(error) => return Err(explained(&path, error)),
        }
    }
    if notes.is_empty() {
        return Ok(None);
    }
    Err(Error::Failed(format!(
        "--resume auto: no checkpoint in {} can be read. If they are damaged, remove the output folder to start again. {}",
        folder.display(),
        notes.join(". ")
    )))
}

/// Adds the file and advice to an error of [`read_found`] about a recipe or a network that this program does not know.
fn explained(path: &Path, error: Error) -> Error {
    match error {
        Error::Recipe(_) | Error::Usage(_) | Error::Failed(_) => Error::Failed(with_advice(
            &format!("--resume: {}", named(path, &error)),
            "another version of trireme may have written this checkpoint; if so, continue with that version",
        )),
        error => error,
    }
}

/// Finds the checkpoint on rank 0 and broadcasts its head. Collective.
pub fn share(session: &Session, request: &TrainRequest) -> Result<Option<Resume>, Error> {
    let found = session.agree(if session.is_root() { find(request) } else { Ok(None) })?;
    if session.world.size == 1 {
        return Ok(found);
    }
    let head = found.as_ref().map(|found| found.head.clone());
    let head = session.comm.broadcast("head of the checkpoint", session.is_root().then_some(&head))?;
    let state = found.and_then(|found| found.state);
    Ok(head.map(|head| Resume { head, state }))
}

impl Head {
    /// Checks that the run can continue from the checkpoint with this recipe, data set and number of ranks. If the
    /// recipe does not set the number of workers, uses the checkpoint's number. Returns an error if the run would
    /// compute something different.
    pub fn settle(&self, source: &mut Source, request: &TrainRequest, ranks: usize) -> Result<(), Error> {
        let (file, progress) = (self.path.display(), &self.progress);
        let old = Recipe::from_toml(&self.recipe)?;
        source.recipe.workers = source.recipe.workers.or(old.workers);
        let compared = self.compared(source, request, &old)?;
        let differences = source.recipe.differences(&compared)?;
        if !differences.is_empty() {
            let longer = match old.epochs.is_some() && source.recipe.epochs > old.epochs && !request.extend_epochs {
                true => " (for more epochs, add --extend-epochs)",
                false => "",
            };
            return Err(Error::Usage(format!(
                "--resume: the recipe differs from the recipe in {file}. Different keys: {}. Use the same recipe{longer}, or start a \
                 new run in another --out",
                differences.join("; ")
            )));
        }
        if !self.network.is_empty() {
            source.adopt(&self.network)?;
        }
        let workers = old.workers.unwrap_or(ranks);
        if ranks > workers {
            return Err(Error::Usage(format!(
                "--resume: {file} is from a run with {}, but there are {ranks} ranks; start at most {}",
                plural(workers, "worker"),
                plural(workers, "rank")
            )));
        }
        let sides = ClassSources { model: &self.classes, file: &self.path, data: Path::new(&source.recipe.data) };
        if let Some(difference) = sides.difference(source.train.class_names()) {
            return Err(Error::Usage(format!(
                "--resume: the classes differ: {difference}; use the data set that the run began with"
            )));
        }
        let data = source.identity()?;
        if data != progress.data {
            return Err(Error::Usage(format!(
                "--resume: {file} is from a run on another data set: expected {}, got {data} in {}; use the data set that the run \
                 began with",
                progress.data, source.recipe.data
            )));
        }
        match request.max_steps {
            Some(last) if last < progress.step => Err(Error::Usage(format!(
                "--max-steps {last}: {file} is already at step {}; use a larger --max-steps, or an earlier checkpoint",
                progress.step
            ))),
            _ => Ok(()),
        }
    }

    /// Creates a head for tests that use only path and progress.
    #[cfg(test)]
    pub fn at(path: PathBuf, progress: Progress) -> Self {
        let (recipe, network) = (String::new(), String::new());
        Self { path, recipe, network, classes: Vec::new(), progress, notes: Vec::new() }
    }

    /// Returns the checkpoint's recipe `old`, changed so that only forbidden differences from the run's recipe remain.
    /// With `--extend-epochs`, it gets the new number of epochs.
    fn compared(&self, source: &mut Source, request: &TrainRequest, old: &Recipe) -> Result<Recipe, Error> {
        let recipe = &mut source.recipe;
        if request.extend_epochs || recipe.schedule.stretched.is_none() {
            recipe.schedule.stretched = old.schedule.stretched.clone();
        }
        if !request.extend_epochs {
            return Ok(old.clone());
        }
        // if there are other differences, report only those and do not change the learning rates
        let mut compared = Recipe { epochs: recipe.epochs, ..old.clone() };
        if recipe.differences(&compared)?.is_empty() {
            source.notes.extend(extend(recipe, old, &self.progress, source.train.len())?);
            compared.schedule.stretched = recipe.schedule.stretched.clone();
        }
        Ok(compared)
    }
}

impl Resume {
    fn new(path: PathBuf, state: StateFile, notes: Vec<String>) -> Self {
        let (recipe, progress) = (state.model.recipe.clone(), state.progress.clone());
        let (network, classes) = (state.model.definition.clone(), state.model.classes.clone());
        Self { head: Head { path, recipe, network, classes, progress, notes }, state: Some(state) }
    }

    /// Makes a device use the algorithms in the checkpoint. Must be called before the network is planned.
    pub fn adopt<B: Backend>(&self, backend: &B) {
        if let Some(choice) = backend.algorithm_choice() {
            choice.adopt(&Algorithms::parse(&self.head.progress.algorithms));
        }
    }

    /// Restores the state on all ranks. Collective.
    pub fn restore<B: Backend>(self, session: &Session, run: &mut Run<B>) -> Result<Progress, Error> {
        let Resume { head, state } = self;
        let file = head.path.display().to_string();
        let filled = state.as_ref().map_or(Ok(()), |state| fill(run, state, &file));
        session.agree(filled)?;
        run.optimizer.set_steps(head.progress.step);
        let scaling = run.graph.backend().loss_scaling();
        if let Some((scaling, kept)) = scaling.zip(head.progress.loss_scale) {
            // a smaller scale would end the run with an error before its first step
            scaling.set_scale(LossScale { scale: kept.scale.max(LossScale::LEAST), bad: 0, ..kept })?;
        }
        broadcast_arena(session, run.graph.arenas().1)?;
        broadcast_values(session, run.graph.running_mut())?;
        run.optimizer.slots_mut().try_for_each(|(_, arena)| broadcast_arena(session, arena))?;
        if let Some(ema) = &mut run.ema {
            broadcast_arena(session, &mut ema.weights)?;
            broadcast_values(session, &mut ema.running)?;
        }
        if run.reduction.settings.error_feedback {
            let residuals = state.map_or_else(Vec::new, |state| state.residuals);
            restore_residuals(session, run, &residuals)?;
        }
        run.strategy.restart(run.graph.backend(), run.graph.weights())?;
        Ok(head.progress)
    }
}

/// Restores the parameters, running statistics and optimizer state on rank 0. Of the residuals it only checks the
/// number.
fn fill<B: Backend>(run: &mut Run<B>, state: &StateFile, file: &str) -> Result<(), Error> {
    let other = |what: &str, expected, got| mismatch(format!("{file}: {what}"), expected, got);
    model::restore(&mut run.graph, &state.model)?;
    if let Some(ema) = &mut run.ema {
        let averages = ModelFile { layers: state.model.ema.clone(), ema: Vec::new(), ..state.model.clone() };
        ema.with(&mut run.graph, |graph| model::restore(graph, &averages))?;
    }
    let names: Vec<&str> = state.slots.iter().map(|slot| slot.0.as_str()).collect();
    let expected: Vec<&str> = run.optimizer.slots().map(|slot| slot.0).collect();
    if names != expected {
        return Err(other("slots of the optimizer", expected.join(", "), names.join(", ")));
    }
    for ((_, arena), (name, tensors)) in run.optimizer.slots_mut().zip(&state.slots) {
        pack(&run.graph, tensors, arena).map_err(|(e, g)| other(&format!("optim/{name}"), e, g))?;
    }
    let workers = if run.reduction.settings.error_feedback { run.division.workers } else { 0 };
    if state.residuals.len() != workers {
        return Err(other("residuals", format!("residuals of {workers} workers"), state.residuals.len().to_string()));
    }
    Ok(())
}

fn mismatch(what: String, expected: String, got: String) -> Error {
    let cure = "the checkpoint is damaged or from another version of this network; use another checkpoint".into();
    Error::Mismatch { what, expected, got, cure }
}

/// Writes tensors to the parameters' places in `arena`. The error has the expected and the found value.
fn pack<B: Backend>(graph: &Graph<B>, tensors: &[Tensor], arena: &mut Arena<B>) -> Result<(), (String, String)> {
    let params = graph.params();
    if tensors.len() != params.len() {
        return Err((format!("{} tensors", params.len()), tensors.len().to_string()));
    }
    for (i, p) in params.iter().enumerate() {
        let wanted = format!("{} of shape {:?}", p.name, p.spec.shape);
        match tensors.iter().find(|t| t.0 == p.name) {
            Some((_, shape, values)) if *shape == p.spec.shape => {
                graph.pack(i, values, arena).map_err(|e| (wanted, e.to_string()))?
            }
            Some((_, shape, _)) => return Err((wanted, format!("shape {shape:?}"))),
            None => return Err((wanted, "no tensor of that name".into())),
        }
    }
    Ok(())
}

/// Restores the residuals of error feedback. Each worker's residuals are broadcast, and the rank that now runs the
/// worker stores them.
fn restore_residuals<B: Backend>(session: &Session, run: &mut Run<B>, residuals: &[Vec<Tensor>]) -> Result<(), Error> {
    let layout = run.graph.layout();
    for worker in 0..run.division.workers {
        let mut arena = Arena::new(run.graph.backend(), &layout.buckets)?;
        let packed = residuals.get(worker).map_or(Ok(()), |tensors| pack(&run.graph, tensors, &mut arena));
        let odd = |(expected, got)| mismatch(format!("checkpoint: residuals/{worker}"), expected, got);
        session.agree(packed.map_err(odd))?;
        broadcast_arena(session, &mut arena)?;
        let own = run.division.mine.contains(&worker);
        for (sum, bucket) in run.reduction.sums.iter_mut().zip(&arena.buckets).filter(|_| own) {
            sum.set_residual(worker, &elements(bucket)?)?;
        }
    }
    Ok(())
}

/// Renames checkpoints that are newer than the one that the run resumes from, and the model if the run had already ended.
/// Until the run ends again, its newest checkpoint is then used as its model. Truncates the log to the checkpoint.
/// `trained` is true if the run has no further steps in the checkpoint's epoch. Returns the lines that the log keeps about
/// the checkpoint's step.
pub fn rewind(out: &Path, head: &Head, trained: bool) -> Result<Logged, Error> {
    let model = output::model_path(out);
    match std::fs::rename(&model, model.with_file_name(format!("{ASIDE}model.h5"))) {
        Err(source) if source.kind() != ErrorKind::NotFound => {
            return Err(Error::File { action: "put aside", path: model, source });
        }
        _ => {}
    }
    let folder = out.join("checkpoints");
    let aside = Error::file("tidy up", &folder);
    // remove unfinished files that a killed run of an earlier version has left
    for entry in std::fs::read_dir(&folder).map_err(aside)? {
        let path = entry.map_err(aside)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(".step-") && name.ends_with(".h5.tmp") {
            std::fs::remove_file(&path).map_err(aside)?;
        }
    }
    for (step, path) in output::list(&folder).map_err(aside)? {
        if step > head.progress.step {
            put_aside(&path).map_err(aside)?;
        }
    }
    // the run does the steps of a later evaluation again, perhaps with other results
    if EvaluationFile::read(out).is_ok_and(|file| file.is_some_and(|file| file.step > head.progress.step)) {
        let path = out.join(evaluation_file::NAME);
        std::fs::remove_file(&path).map_err(Error::file("remove", &path))?;
    }
    // this is last: if a newer checkpoint were still there, the run could resume from it, and would need these lines
    cut_log(&out.join("metrics.jsonl"), &head.progress, trained)
}

/// Begins the names of files that a resumed run no longer uses.
pub const ASIDE: &str = "aside-";

/// Renames a checkpoint that is newer than the one that the run resumes from. Keeps files that were renamed before.
fn put_aside(path: &Path) -> std::io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut aside = path.with_file_name(format!("{ASIDE}{name}"));
    let mut number = 1;
    while aside.symlink_metadata().is_ok() {
        number += 1;
        aside = path.with_file_name(format!("{ASIDE}{number}-{name}"));
    }
    std::fs::rename(path, aside)
}

/// Which lines about the step of a checkpoint the log of a resumed run already has. They are not written again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Logged {
    /// The line about the training of the epoch.
    pub epoch: bool,
    pub scores: bool,
    /// Number of lines before the checkpoint that cannot be read. They were removed.
    pub unread: u64,
}

/// Keeps only the lines of the log that were written before the checkpoint.
fn cut_log(path: &Path, progress: &Progress, trained: bool) -> Result<Logged, Error> {
    let refuse = Error::file("cut", path);
    let Some(mut file) = safe_create::open_own(path).map_err(refuse)? else { return Ok(Logged::default()) };
    let mut text = Vec::new();
    file.read_to_end(&mut text).map_err(refuse)?;
    let text = String::from_utf8_lossy(&text);
    let (mut kept, mut logged) = (String::new(), Logged::default());
    // number of unreadable lines since the last one that can be read
    let mut lost = 0;
    for line in text.split_inclusive('\n') {
        let Some(position) = Position::of(line) else {
            lost += u64::from(!line.trim().is_empty());
            continue;
        };
        // all lines from before the checkpoint are on disk before it is, so unreadable lines at the end are later
        if position.step <= progress.step {
            logged.unread += lost;
        }
        lost = 0;
        if position.stays(progress, trained) {
            kept.push_str(line);
            logged.epoch |= position.is("epoch", progress.step);
            logged.scores |= position.is("eval", progress.step);
        }
    }
    checkpoint::write_text(path, &kept)?;
    Ok(logged)
}

/// Event and step of a line of the log, which decide whether a resume keeps the line.
#[derive(Deserialize)]
struct Position {
    event: String,
    step: u64,
    /// True for the scores at the end of a run.
    #[serde(default)]
    at_end: bool,
}

impl Position {
    /// Returns `None` if the line cannot be read.
    fn of(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }

    fn is(&self, event: &str, step: u64) -> bool {
        self.event == event && self.step == step
    }

    /// Returns true if the line was written before the checkpoint. A line about an epoch or its scores can have the step
    /// number of the checkpoint. The epoch's line then stays if the run has no further steps in this epoch. The scores stay if
    /// the epoch was scored before the checkpoint.
    fn stays(&self, progress: &Progress, trained: bool) -> bool {
        let before = match self.event.as_str() {
            "step" | "checkpoint" | "layers" | "exchange" => true,
            "epoch" => progress.step_of_epoch == 0 || trained,
            // the scores at the end of the run are not its last ones if it goes on
            "eval" => progress.step_of_epoch == 0 && !self.at_end,
            _ => false,
        };
        self.step < progress.step || (self.step == progress.step && before)
    }
}

/// Reads a checkpoint and checks its recipe and the tensors of its network.
pub fn read_found(path: &Path) -> Result<StateFile, Error> {
    let state = StateFile::read(path)?;
    Recipe::from_toml(&state.model.recipe)?;
    fits(&state)?;
    Ok(state)
}

/// Returns true if the cause of an error of [`read_found`] is the file itself, so that an older checkpoint may work.
/// Returns false for a failing disk and for files of a newer version.
pub fn is_to_blame(error: &Error) -> bool {
    match error {
        // skipping a file of a newer version would silently lose its training steps
        Error::Checkpoint(checkpoint::Error::Newer { .. } | checkpoint::Error::UnknownKind { .. }) => false,
        // a newer version may have keys, values and networks that this one does not know
        Error::Recipe(error) => matches!(error, recipe::Error::Syntax { .. }),
        Error::Usage(_) | Error::Failed(_) => false,
        // the file is not a regular file, was truncated while it was read, or is a dangling link
        Error::Checkpoint(checkpoint::Error::Io { source, .. }) => {
            matches!(source.kind(), ErrorKind::InvalidInput | ErrorKind::UnexpectedEof | ErrorKind::NotFound)
        }
        _ => true,
    }
}

/// Formats an error together with its file.
pub fn named(path: &Path, error: &Error) -> String {
    let (text, path) = (error.to_string(), path.display().to_string());
    if text.contains(&path) { text } else { format!("{path}: {text}") }
}

/// Returns an error if the tensors in the checkpoint do not fit the network that it names.
fn fits(state: &StateFile) -> Result<(), Error> {
    let file = &state.model;
    let net = of_model(file)?;
    model::check(file, &file.layers, &net)?;
    if !file.ema.is_empty() {
        model::check(file, &file.ema, &net)?;
    }
    let Tensors { parameters, .. } = net.tensors().map_err(BuildError::from)?;
    let expected: BTreeMap<&String, &Vec<usize>> = parameters.iter().map(|(name, shape)| (name, shape)).collect();
    let same = |list: &[Tensor]| {
        let shapes: BTreeMap<&String, &Vec<usize>> = list.iter().map(|tensor| (&tensor.0, &tensor.1)).collect();
        list.len() == expected.len() && shapes == expected
    };
    let slots = state.slots.iter().map(|(name, list)| (format!("optim/{name}"), list));
    let residuals = state.residuals.iter().enumerate().map(|(worker, list)| (format!("residuals/{worker}"), list));
    match slots.chain(residuals).find(|(_, list)| !same(list)) {
        Some((group, list)) => Err(odd(file, &group, parameters.len(), list.len())),
        None => Ok(()),
    }
}

fn odd(file: &ModelFile, group: &str, expected: usize, got: usize) -> Error {
    Error::Mismatch {
        what: format!("checkpoint of network {}: {group}", file.network),
        expected: format!("the {expected} parameters of the network with their shapes"),
        got: format!("{got} tensors with different names or shapes"),
        cure: "the file was changed, or is from another version of this network; use another checkpoint".into(),
    }
}

/// Extends the recipe of a resumed run if it has more epochs than the checkpoint's recipe `old`, starting at the
/// current step. Returns a note about the change of the learning rates. Does nothing if the number of epochs is
/// unchanged. Returns an error for fewer epochs than before.
pub(super) fn extend(recipe: &mut Recipe, old: &Recipe, at: &Progress, images: u64) -> Result<Option<String>, Error> {
    let (Some(before), Some(epochs), batch) = (old.epochs, recipe.epochs, recipe.batch) else {
        return Err(Error::Usage(
            "--extend-epochs: the length of this run is given in steps, and only the length in epochs can be extended; leave \
             --extend-epochs out".into(),
        ));
    };
    if epochs < before {
        return Err(Error::Usage(format!(
            "--extend-epochs: the run already has {before} epochs, but the recipe has only {epochs}; use more, such as --set epochs={}",
            before + 1
        )));
    }
    if epochs == before {
        return Ok(None);
    }
    let (step, steps_per_epoch) = (at.step, images.div_ceil(batch as u64));
    let drops = at.rules.plateau.map_or(0, |plateau| plateau.drops);
    Ok(Some(Extension { step, steps_per_epoch, batch, before, epochs, drops }.apply(&mut recipe.schedule)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stays(line: &str, progress: &Progress, trained: bool) -> bool {
        Position::of(line).is_some_and(|position| position.stays(progress, trained))
    }

    #[test]
    fn the_log_is_cut_to_the_checkpoint() {
        let line = |event: &str, step: u64| format!("{{\"event\":\"{event}\",\"step\":{step}}}\n");
        let at = |step_of_epoch| Progress { step: 7, step_of_epoch, ..Progress::default() };
        for event in ["start", "step", "epoch", "eval", "checkpoint", "end"] {
            assert!(stays(&line(event, 6), &at(0), false), "{event}");
            assert!(!stays(&line(event, 8), &at(0), false), "{event}");
        }
        let own = |progress: &Progress, ends_epoch| {
            let events = ["step", "layers", "exchange", "epoch", "eval", "checkpoint", "end", "start"];
            events.into_iter().filter(|event| stays(&line(event, 7), progress, ends_epoch)).collect::<Vec<_>>()
        };
        assert_eq!(own(&at(0), false), ["step", "layers", "exchange", "epoch", "eval", "checkpoint"]);
        assert_eq!(own(&at(3), false), ["step", "layers", "exchange", "checkpoint"]);
        // the epoch is trained, but not scored
        assert_eq!(own(&at(3), true), ["step", "layers", "exchange", "epoch", "checkpoint"]);
        assert!(!stays("{\"event\":\"step\",\"st", &at(0), false) && !stays("", &at(0), false));
        // the scores at the end of the run, which now goes on
        assert!(!stays("{\"event\":\"eval\",\"step\":7,\"at_end\":true}", &at(0), false));
    }

    fn folder(name: &str) -> PathBuf {
        let out = std::env::temp_dir().join(format!("trireme-rewind-{name}-{}", std::process::id()));
        std::fs::create_dir_all(out.join("checkpoints")).unwrap();
        out
    }

    fn step(step: u64) -> String {
        format!("{{\"event\":\"step\",\"step\":{step}}}\n")
    }

    #[test]
    fn lost_lines_before_the_checkpoint_are_counted() {
        let out = folder("lost");
        let log = out.join("metrics.jsonl");
        let progress = Progress { step: 7, ..Progress::default() };
        for (text, unread) in [
            ([step(6), step(7), "\0\0\0".into()].concat(), 0),
            ([step(6), "\0\0\0\n\n".into(), step(7), "{\"ev\n".into(), step(8)].concat(), 1),
            ([step(6), step(7), step(8), "{\"ev".into()].concat(), 0),
        ] {
            std::fs::write(&log, &text).unwrap();
            assert_eq!(cut_log(&log, &progress, false).unwrap().unread, unread, "{text:?}");
            assert_eq!(std::fs::read_to_string(&log).unwrap(), step(6) + &step(7));
        }
        std::fs::remove_dir_all(out).unwrap();
    }

    #[test]
    fn a_failed_rewind_leaves_the_log_and_a_second_one_keeps_all_checkpoints() {
        let out = folder("aside");
        let (log, text) = (out.join("metrics.jsonl"), step(6) + &step(8));
        let head = Head::at(PathBuf::from("step-00000007.h5"), Progress { step: 7, ..Progress::default() });
        std::fs::write(&log, &text).unwrap();
        std::fs::write(out.join("model.h5"), "").unwrap();
        std::fs::create_dir(out.join("aside-model.h5")).unwrap();
        support::mentions(rewind(&out, &head, false).unwrap_err(), &["put aside", "model.h5"]);
        assert_eq!(std::fs::read_to_string(&log).unwrap(), text);
        std::fs::remove_dir(out.join("aside-model.h5")).unwrap();
        let checkpoints = out.join("checkpoints");
        for branch in ["first", "second", "third"] {
            std::fs::write(output::path_of(&checkpoints, 8), branch).unwrap();
            let evaluation = EvaluationFile { version: 1, step: 8, ..EvaluationFile::default() };
            std::fs::write(out.join("evaluation.json"), evaluation.to_text().unwrap()).unwrap();
            rewind(&out, &head, false).unwrap();
            assert!(!out.join("evaluation.json").exists());
        }
        assert_eq!(std::fs::read_to_string(&log).unwrap(), step(6));
        let names = ["aside-step-00000008.h5", "aside-2-step-00000008.h5", "aside-3-step-00000008.h5"];
        let kept = names.map(|name| std::fs::read_to_string(checkpoints.join(name)).unwrap());
        assert_eq!(kept, ["first", "second", "third"]);
        std::fs::remove_dir_all(out).unwrap();
    }
}
